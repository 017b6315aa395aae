import assert from "node:assert/strict";
import { test } from "node:test";
import {
  accessMode,
  attachRefusal,
  attachReview,
  isAllowed,
} from "../../../lib/api/attach-access.ts";
import {
  accessFaults,
  changedFaults,
  deletionFault,
  sameSpec,
} from "../../../lib/api/object-rules.ts";
import { awaited, checkPod, populated, selectionChanges } from "../../../lib/api/pod-rules.ts";
import { sameJson } from "../../../lib/api/same-json.ts";
import { type NetworkStates, offenders, type Readiness } from "../../../lib/api/waiting.ts";
import { formatFault } from "../../../lib/base/decode.ts";

const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";
const multus = "v1.multus-cni.io/default-network";

const pod = (annotations: Record<string, string>, hostNetwork = false) => ({
  namespace: "app",
  annotations,
  hostNetwork,
});
const faultsOf = (annotations: Record<string, string>, hostNetwork = false) =>
  checkPod(pod(annotations, hostNetwork)).faults.map(formatFault).join("\n");

test("the static faults of E-5 name annotation, entry and field", () => {
  const wrong: readonly [string, RegExp][] = [
    ['[{"name":"x","attachmentName":"y"}]', /networks\[0\]: has both/],
    ['[{"interfaceName":"net1"}]', /networks\[0\]: has neither/],
    ['[{"name":"x"},{"name":"x"}]', /networks\[1\]\.name: "x" is listed already, in entry 0/],
    [
      '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW4":true}]',
      /networks\[1\]\.isDefaultGW4/,
    ],
    [
      '[{"name":"x","interfaceName":"n1"},{"name":"y","interfaceName":"n1"}]',
      /networks\[1\]\.interfaceName: "n1" is taken by entry 0/,
    ],
    ['[{"name":"x","interfaceName":"abcdefghijklmnop"}]', /networks\[0\]\.interfaceName: .*15/],
    ['[{"name":"x","interfaceName":"a/b"}]', /networks\[0\]\.interfaceName/],
    ['"x"', /podnet\.dev\/networks: must be a list/],
  ];
  for (const [text, message] of wrong) assert.match(faultsOf({ [own]: text }), message, text);
  assert.match(faultsOf({ [own]: '[{"name":"x"}]' }, true), /podnet\.dev\/networks: .*hostNetwork/);
  const split = '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW6":true}]';
  assert.equal(faultsOf({ [own]: split }), "");
});

test("all faults of all annotations come in one answer", () => {
  const faults = faultsOf({
    [own]: '[{"name":"X"},{"name":"a","interfaceName":"a/b","isDefaultGW":1}]',
    [npwg]: "a/b/c, n@@",
    [multus]: "n,m",
  }).split("\n");
  for (const start of [
    `${own}[0].name: `,
    `${own}[1].interfaceName: `,
    `${own}[1].isDefaultGW: `,
    `${npwg}[0]: `,
    `${npwg}[1]: `,
    `${multus}: must name one network`,
  ])
    assert.ok(
      faults.some((fault) => fault.startsWith(start)),
      `${start}\n${faults.join("\n")}`,
    );
});

test("what has no effect is a warning, not a fault", () => {
  assert.deepEqual(checkPod(pod({ [npwg]: "n" }, true)), {
    faults: [],
    warnings: [`annotation ${npwg} has no effect: the pod has hostNetwork`],
  });
  const both = checkPod(pod({ [npwg]: "n", [own]: '[{"name":"a"}]' }));
  assert.match(both.warnings.join(), /is ignored/);
});

test("adding, changing and taking away a selection are changes; other annotations are not", () => {
  const before = { [own]: "[]", other: "1" };
  assert.deepEqual(selectionChanges(before, { ...before, other: "2", more: "3" }), []);
  for (const after of [{ ...before, [own]: "[] " }, { other: "1" }, { ...before, [npwg]: "n" }])
    assert.equal(selectionChanges(before, after).length, 1);
  assert.equal(selectionChanges({}, { [own]: "", [npwg]: "", [multus]: "" }).length, 3);
});

test("a pod without a selection gets its namespace's default network, else the cluster's, where there is one", () => {
  const all = new Set(["default", "tenant"]);
  const from = (namespaceAnnotations: Record<string, string> = {}, names = all) => ({
    namespaceAnnotations,
    exists: (name: string) => names.has(name),
  });
  const tenant = { "podnet.dev/default-network": " tenant " };
  assert.equal(populated(pod({}), from()), '[{"name":"default"}]');
  assert.equal(populated(pod({ [own]: "[]", [npwg]: " " }), from()), '[{"name":"default"}]');
  assert.equal(populated(pod({}), from(tenant)), '[{"name":"tenant"}]');
  assert.equal(
    populated(pod({}), from({ "podnet.dev/default-network": "" })),
    '[{"name":"default"}]',
  );
  for (const [given, defaults] of [
    [pod({}, true), from()],
    [pod({}), from({}, new Set())],
    [pod({}), from({ "podnet.dev/default-network": "gone" })],
    [pod({}), from({ "podnet.dev/default-network": '"]' }, new Set(['"]']))],
    [pod({ [own]: '[{"name":"a"}]' }), from()],
    [pod({ [npwg]: "n" }), from()],
    [pod({ [multus]: "n" }), from()],
  ] as const)
    assert.equal(populated(given, defaults), undefined, JSON.stringify(given));
});

test("a pod waits for the networks of its own list, and never for a default that was filled in", () => {
  const names = (text: string, annotations: Record<string, string> = {}, host = false) =>
    awaited(pod({ [own]: text }, host), annotations).map(({ ref }) => ref.name);
  assert.deepEqual(names('[{"name":"a"},{"attachmentName":"b"}]'), ["a", "b"]);
  assert.deepEqual(names('[{"name":"default"}]'), []);
  assert.deepEqual(names('[{"name":"default"}]', { "podnet.dev/default-network": "t" }), [
    "default",
  ]);
  assert.deepEqual(names('[{"name":"t"}]', { "podnet.dev/default-network": "t" }), []);
  assert.deepEqual(names('[{"name":"a"}]', {}, true), []);
  assert.deepEqual(names("[]"), []);
  assert.deepEqual(awaited(pod({ [npwg]: "n" }), {}), []);
});

test("immutable fields of both kinds are named; enabled, metadata and the order of keys are free", () => {
  const object = (spec: object, metadata: object = {}) => ({ metadata, spec });
  const full = { provider: "a.io/b", parameters: { type: "x", ipam: { a: 1, b: [1, 2] } } };
  const change = (after: object, before: object = full) =>
    changedFaults("PodNetwork", object(before), object(after)).map(formatFault).join("\n");
  assert.equal(change({ ...full, enabled: false }), "");
  assert.equal(change({ ...full, parameters: { ipam: { b: [1, 2], a: 1 }, type: "x" } }), "");
  assert.equal(
    change({ ...full, provider: "c.io/d" }),
    "spec.provider: is immutable: create another PodNetwork",
  );
  assert.match(change({ parameters: full.parameters }), /spec\.provider/);
  assert.match(change(full, { parameters: full.parameters }), /spec\.provider/);
  assert.match(
    change({ ...full, parameters: { ...full.parameters, ipam: { a: 1, b: [2, 1] } } }),
    /spec\.parameters/,
  );
  assert.match(
    change({ ...full, parametersRefs: [], ipam4: "none", ipam6: "none" }),
    /parametersRefs.*\n.*ipam4.*\n.*ipam6/,
  );
  const attachment = (spec: object) =>
    changedFaults("PodNetworkAttachment", object({ podNetworkName: "a" }), object(spec)).length;
  assert.equal(attachment({ podNetworkName: "a" }), 0);
  assert.equal(attachment({ podNetworkName: "b" }), 1);
  assert.equal(attachment({ podNetworkName: "a", parametersRefs: [] }), 1);
  assert.deepEqual(changedFaults("Pod", object({ a: 1 }), object({ a: 2 })), []);
  for (const odd of [null, [], "x", { spec: 5 }]) assert.equal(sameSpec(odd, {}), true);
});

test("values nested deeper than the stack are compared", () => {
  const deep = (end: unknown) => {
    let value = end;
    for (let level = 0; level < 200_000; level++) value = level % 2 === 0 ? [value] : { k: value };
    return value;
  };
  assert.equal(sameJson(deep(1), deep(1)), true);
  assert.equal(sameJson(deep(1), deep(2)), false);
  assert.equal(sameJson({ toString: 1 }, {}), false);
  assert.equal(sameJson([], {}), false);
  assert.equal(sameJson(null, {}), false);
});

test("default alone must not be deleted", () => {
  assert.match(deletionFault("PodNetwork", "default") ?? "", /can't be deleted/);
  assert.equal(deletionFault("PodNetwork", "blue"), undefined);
  assert.equal(deletionFault("PodNetworkAttachment", "default"), undefined);
});

test("annotations that say who may use a network are vetted where they are new", () => {
  const wrong = {
    "podnet.dev/access": "atach",
    "podnet.dev/allowed-namespaces": "a,,B",
    "podnet.dev/allowed-namespace-selector": "a in (",
    other: "x",
  };
  assert.equal(accessFaults(wrong).length, 3);
  assert.deepEqual(accessFaults(wrong, wrong), []);
  const right = { "podnet.dev/access": "attach", "podnet.dev/allowed-namespaces": "" };
  assert.deepEqual(accessFaults(right), []);
});

test("access: absent is open, attach asks, anything else opens nothing", () => {
  const mode = (value?: string) =>
    accessMode(value === undefined ? {} : { "podnet.dev/access": value }).mode;
  assert.deepEqual(
    [undefined, "", " attach ", "Attach", "none"].map((value) => mode(value)),
    ["open", "open", "attach", "faulty", "faulty"],
  );
});

test("the review asks for the service account of the pod with its groups; only a clear yes is one", () => {
  const { spec } = attachReview({ namespace: "app", serviceAccount: "" }, "blue") as {
    spec: Record<string, unknown>;
  };
  assert.equal(spec["user"], "system:serviceaccount:app:default");
  assert.deepEqual(spec["groups"], [
    "system:serviceaccounts",
    "system:serviceaccounts:app",
    "system:authenticated",
  ]);
  assert.deepEqual(spec["resourceAttributes"], {
    group: "podnet.dev",
    resource: "podnetworks",
    name: "blue",
    verb: "attach",
  });
  assert.equal(isAllowed({ status: { allowed: true } }), true);
  assert.equal(isAllowed({ status: { allowed: true, denied: true } }), false);
  assert.equal(isAllowed({ status: { allowed: false } }), false);
  for (const odd of [undefined, null, {}, { status: {} }, { status: { allowed: "true" } }])
    assert.equal(isAllowed(odd), undefined);
  assert.match(
    attachRefusal({ namespace: "app", serviceAccount: "web" }, "blue"),
    /"app\/web".*"attach".*"blue"/,
  );
});

const ready: Readiness = { ready: true };
const states = (over: Partial<NetworkStates> = {}): NetworkStates => ({
  podNetwork: (name) =>
    name === "late"
      ? undefined
      : name === "off"
        ? { ready: false, why: "AdministrativelyDisabled" }
        : ready,
  attachment: (namespace, name) =>
    namespace === "app" && name === "fast"
      ? { podNetworkName: "dataplane", readiness: ready }
      : undefined,
  ...over,
});

test("offenders are what is missing, not ready, or there twice, attachments looked through (E-6, E-7, E-12, E-13)", () => {
  const list = (text: string, namespace = "app") =>
    offenders(awaited({ ...pod({ [own]: text }), namespace }, {}), states()).map(
      ({ reason, message }) => `${reason}: ${message}`,
    );
  assert.deepEqual(list('[{"name":"late"}]'), ['NetworkNotFound: PodNetwork "late" not found']);
  assert.deepEqual(list('[{"name":"off"},{"name":"blue"}]'), [
    'NetworkNotReady: PodNetwork "off" is not ready: AdministrativelyDisabled',
  ]);
  assert.deepEqual(list('[{"name":"default"},{"attachmentName":"fast"}]'), []);
  assert.deepEqual(list('[{"attachmentName":"fast"}]', "team-b"), [
    'NetworkNotFound: PodNetworkAttachment "team-b/fast" not found',
  ]);
  assert.deepEqual(list('[{"name":"dataplane"},{"attachmentName":"fast"}]'), [
    'NetworkRepeated: PodNetwork "dataplane" is referenced more than once: directly and through PodNetworkAttachment "app/fast"',
  ]);
});

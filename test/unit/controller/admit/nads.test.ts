import assert from "node:assert/strict";
import { test } from "node:test";
import { admit } from "../../../../daemon/controller/admit/admit.ts";
import type { AdmitContext } from "../../../../daemon/controller/admit/pods.ts";
import { decodeReview, type Verdict } from "../../../../daemon/controller/admit/review.ts";
import { defaultConfinement } from "../../../../lib/api/nad-rules-keys.ts";
import { openLog } from "../../../../lib/base/log.ts";
import type { KubeClient } from "../../../../lib/kube/client.ts";
import { KubeError } from "../../../../lib/kube/error.ts";

/** What is asked and answered about the right to create PodNetworks; undefined: the API server is away. */
interface World {
  readonly admin?: boolean | undefined;
  readonly confinement?: typeof defaultConfinement;
}

// biome-ignore lint/suspicious/noExplicitAny: a SubjectAccessReview
const questions: any[] = [];

function contextOf({ admin, ...world }: World): AdmitContext {
  const client = {
    request: async ({ body }: { body: object }) => {
      questions.push(body);
      if (admin === undefined) throw new KubeError("away");
      return { status: { allowed: admin } };
    },
  };
  return {
    client: client as unknown as KubeClient,
    stores: {} as AdmitContext["stores"],
    log: openLog("silent"),
    exempt: new Set(["kube-system"]),
    gates: () => false,
    ...world,
  };
}

const nodes = { confinement: defaultConfinement };
const tenant: World = { admin: false, ...nodes };

const nadOf = (config: unknown, more: object = {}) => ({
  apiVersion: "k8s.cni.cncf.io/v1",
  kind: "NetworkAttachmentDefinition",
  metadata: { namespace: "app", name: "net-a", ...more },
  spec: config === undefined ? {} : { config },
});
const text = (config: object) => JSON.stringify({ cniVersion: "1.0.0", name: "a", ...config });

async function ask(object: unknown, world: World = tenant, more: object = {}): Promise<Verdict> {
  const review = decodeReview({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: {
      uid: "u",
      operation: "CREATE",
      namespace: "app",
      name: "net-a",
      kind: { group: "k8s.cni.cncf.io", version: "v1", kind: "NetworkAttachmentDefinition" },
      userInfo: { username: "eve", groups: ["team-a"], uid: "7", extra: { scopes: ["x"] } },
      object,
      ...more,
    },
  });
  return await admit(contextOf(world), "validate", review);
}

const message = ({ refusal }: Verdict) => refusal?.message ?? "allowed";
const faultsOf = ({ refusal }: Verdict) =>
  (refusal?.faults ?? []).map((fault) => `${fault.path}: ${fault.message}`);

test("a NAD that no node can attach is refused: no JSON, no object, a wrong name, version or kind of value", async () => {
  for (const [config, expected] of [
    ["{", /^spec\.config: decode network configuration: /],
    ["[]", /must be a JSON object/],
    [5, /^spec\.config: must be a string of JSON/],
    [text({ name: "-x", type: "bridge" }), /^spec\.config: name: "-x" must start with/],
    [text({ cniVersion: "9.9.9", type: "bridge" }), /cniVersion: none of \["9\.9\.9"\]/],
    [text({ plugins: [] }), /plugins: there is none/],
    [text({ type: "../../x" }), /type: "\.\.\/\.\.\/x" must be the name of a plugin/],
    [text({ type: "podnet" }), /podnet can't delegate to itself/],
    [text({ type: "bridge", mtu: "big" }), /^spec\.config: plugins\[0\]\.mtu: must be a whole/],
    [text({ type: "tuning" }), /changes an interface that a plugin before it must make/],
    ["[".repeat(100_000), /nested deeper than 256/],
  ] as const) {
    const verdict = await ask(nadOf(config), { admin: true, ...nodes });
    assert.equal(verdict.refusal?.code, 422, String(config).slice(0, 80));
    assert.match(message(verdict), expected);
  }
});

test("every fault is in one answer, each with its place, what tenants may not have included", async () => {
  const verdict = await ask(
    nadOf(text({ name: "-", plugins: [{ type: "host-device", device: "eth0" }, { type: "" }] })),
  );
  assert.equal(verdict.refusal?.code, 422);
  assert.deepEqual(
    faultsOf(verdict).map((line) => line.split(" ").slice(0, 2).join(" ")),
    [
      "spec.config: name:",
      "spec.config: plugins[1].type:",
      "spec.config: plugins[0].type:",
      "spec.config: plugins[0].device:",
    ],
  );
});

test("what may work is let in: none at all, executables of the nodes, keys that nobody reads with a warning", async () => {
  for (const config of [undefined, "", "  ", text({ type: "bridge", bridge: "br0" })])
    assert.deepEqual((await ask(nadOf(config))).warnings ?? [], [], config);
  const odd = await ask(nadOf(text({ type: "bridge", brigde: "br0" })));
  assert.equal(message(odd), "allowed");
  assert.match(odd.warnings?.join() ?? "", /plugins\[0\]: .*brigde/);
  const named = nadOf(text({ type: "bridge" }), { name: undefined, generateName: "net-" });
  assert.equal(message(await ask(named, tenant, { name: "" })), "allowed");
  const bare = JSON.stringify({ type: "bridge" });
  assert.equal(
    message(await ask(nadOf(bare))),
    "allowed",
    "name and version are the nodes' to add",
  );
});

test("tenants get no more in a NAD than the nodes permit; whoever may create PodNetworks gets a hint", async () => {
  const taking = nadOf(text({ type: "host-device", device: "eth0" }));
  questions.length = 0;
  const refused = await ask(taking);
  assert.equal(refused.refusal?.code, 403);
  assert.match(
    message(refused),
    /^NetworkAttachmentDefinition "app\/net-a": spec\.config: plugins\[0\]\.type: type "host-device" is not permitted.*plugins\[0\]\.device: takes a device/,
  );
  assert.deepEqual(questions[0].spec, {
    user: "eve",
    groups: ["team-a"],
    uid: "7",
    extra: { scopes: ["x"] },
    resourceAttributes: { group: "podnet.dev", resource: "podnetworks", verb: "create" },
  });
  for (const world of [{ admin: true, ...nodes }, nodes, { admin: false }]) {
    const verdict = await ask(taking, world);
    assert.equal(message(verdict), "allowed", "an admin's, nobody can tell, rules not known");
    assert.match(verdict.warnings?.[0] ?? "", /^pods can't list this one: spec\.config: plugins/);
  }
  const trusting = { ...defaultConfinement, trustedNadNamespaces: ["app"] };
  assert.deepEqual(await ask(taking, { admin: false, confinement: trusting }), { warnings: [] });
  assert.deepEqual(await ask(taking, tenant, { namespace: "kube-system" }), {});
});

test("a NAD of before stays writable where its configuration stays; another configuration is vetted", async () => {
  const faulty = nadOf("{");
  const update = (before: object, after: object) =>
    ask(after, tenant, { operation: "UPDATE", oldObject: before });
  assert.deepEqual(await update(faulty, nadOf("{", { labels: { a: "b" } })), {});
  assert.match(message(await update(nadOf(text({ type: "bridge" })), faulty)), /spec\.config/);
  const granted = { annotations: { "podnet.dev/allowed-namespaces": "a b" } };
  assert.match(message(await update(faulty, nadOf("{", granted))), /allowed-namespaces/);
  assert.match(message(await ask(nadOf(text({ type: "bridge" }), granted))), /allowed-namespaces/);
  assert.deepEqual(await ask(undefined, tenant, { operation: "DELETE", oldObject: faulty }), {});
});

test("whatever a NAD and its author are, there is an answer", async () => {
  const shapes = [undefined, null, 5, "x", [], {}, { metadata: 5 }, { metadata: { name: {} } }];
  for (const object of [...shapes, { ...nadOf("{"), spec: [] }, { ...nadOf("{"), spec: "x" }])
    for (const userInfo of [undefined, null, 5, [], { username: {}, groups: "x", extra: [] }])
      for (const operation of ["CREATE", "UPDATE", "DELETE", "CONNECT"])
        await ask(object, tenant, { operation, oldObject: object, userInfo });
  const hostile = text({ plugins: [{ type: "bridge", ipam: { type: "host-local", ranges: 5 } }] });
  assert.equal((await ask(nadOf(hostile))).refusal?.code, 422);
});

test("a configuration of a megabyte, of whatever it is full, is answered soon, and with a short answer", async () => {
  const full = (one: (index: number) => string) =>
    Array.from({ length: Math.floor(1_000_000 / one(0).length) }, (_, index) => one(index)).join();
  const ranges = (index: number) => `[{"subnet":"fd00:${index.toString(16)}::/64"}]`;
  const hostile = [
    `{"plugins":[${full(() => "{}")}]}`,
    `{"type":"bridge",${full((index) => `"k${index}":1`)}}`,
    `{"type":"bridge","ipam":{"type":"host-local","ranges":[${full(ranges)}]}}`,
    `{"type":"x",${full((index) => `"p${index}":"/x"`)}}`,
    `{"type":"bridge","a":${'{"a":'.repeat(240)}[${full(() => '"/"')}]${"}".repeat(240)}}`,
    JSON.stringify({ type: "a".repeat(1_000_000) }),
  ];
  for (const config of hostile) {
    const started = process.cpuUsage();
    const verdict = await ask(nadOf(config));
    const { user } = process.cpuUsage(started);
    // A search in the square of its size takes a minute.
    assert.ok(user < 10e6, `${config.slice(0, 60)}: ${user} us of processor time`);
    assert.ok(message(verdict).length + (verdict.warnings ?? []).join().length < 50_000);
  }
});

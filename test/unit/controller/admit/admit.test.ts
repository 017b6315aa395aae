import assert from "node:assert/strict";
import { test } from "node:test";
import { abilitiesOf } from "../../../../daemon/controller/admit/abilities.ts";
import { admit } from "../../../../daemon/controller/admit/admit.ts";
import type { AdmitContext } from "../../../../daemon/controller/admit/pods.ts";
import {
  decodeReview,
  encodeReview,
  type Verdict,
} from "../../../../daemon/controller/admit/review.ts";
import {
  keepPodNetwork,
  keepPodNetworkAttachment,
} from "../../../../daemon/controller/kept-objects.ts";
import type { ObjectMeta } from "../../../../lib/api/objects.ts";
import type { JsonObject } from "../../../../lib/base/json.ts";
import { openLog } from "../../../../lib/base/log.ts";
import type { KubeClient } from "../../../../lib/kube/client.ts";
import { KubeError } from "../../../../lib/kube/error.ts";
import { keyText, type ObjectKey } from "../../../../lib/kube/resource.ts";

const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";
const gate = "podnet.dev/networks-ready";

interface World {
  /** PodNetworks by name, with annotations. */
  readonly networks?: Readonly<Record<string, Record<string, string>>>;
  /** PodNetworkAttachments by `namespace/name`, with the PodNetwork's name. */
  readonly attachments?: Readonly<Record<string, string>>;
  readonly namespace?: Partial<ObjectMeta>;
  readonly gates?: boolean;
  /** Answers SubjectAccessReviews; default: refuses. */
  readonly may?: (user: string, network: string) => boolean;
}

const asked: string[] = [];

function contextOf(world: World = {}): AdmitContext {
  const networks = Object.entries(world.networks ?? { default: {}, blue: {} }).map(
    ([name, annotations]) => [name, keepPodNetwork(podNetwork(name, {}, annotations))] as const,
  );
  const attachments = Object.entries(world.attachments ?? {}).map(([path, podNetworkName]) => {
    const [namespace, name] = path.split("/");
    const object = { apiVersion: "podnet.dev/v1alpha1", kind: "PodNetworkAttachment" };
    const kept = { ...object, metadata: { namespace, name }, spec: { podNetworkName } };
    return [path, keepPodNetworkAttachment(kept as unknown as JsonObject)] as const;
  });
  const namespace = { name: "app", labels: {}, annotations: {}, ...world.namespace };
  const reading = <T>(entries: readonly (readonly [string, T])[]) => ({
    get: (key: ObjectKey) => new Map(entries).get(keyText(key)),
  });
  const client = {
    request: async ({
      body,
    }: {
      body: { spec: { user: string; resourceAttributes: { name: string } } };
    }) => {
      const { user, resourceAttributes } = body.spec;
      asked.push(`${user} ${resourceAttributes.name}`);
      if (world.may === undefined) throw new KubeError("away");
      return { status: { allowed: world.may(user, resourceAttributes.name) } };
    },
  };
  const stores = {
    networks: reading(networks),
    attachments: reading(attachments),
    namespaces: reading([["app", namespace]]),
  };
  return {
    client: client as unknown as KubeClient,
    stores: stores as unknown as AdmitContext["stores"],
    log: openLog("silent"),
    exempt: new Set(["kube-system", "podnet-system"]),
    gates: () => world.gates ?? true,
  };
}

function podNetwork(name: string, spec: object = {}, annotations: object = {}): JsonObject {
  return {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name, annotations },
    spec,
  } as unknown as JsonObject;
}

interface Asking {
  readonly operation?: string;
  readonly kind?: string;
  readonly group?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly object?: unknown;
  readonly oldObject?: unknown;
}

async function ask(
  kind: "validate" | "mutate",
  { kind: objectKind = "Pod", group = "", ...rest }: Asking,
  world: World = {},
): Promise<Verdict> {
  const request = { uid: "u", operation: "CREATE", namespace: "app", name: "p", ...rest };
  const review = decodeReview({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: { ...request, kind: { group, version: "v1", kind: objectKind } },
  });
  return await admit(contextOf(world), kind, review);
}

const pod = (annotations?: object, spec: object = {}) => ({
  metadata: annotations === undefined ? {} : { annotations },
  spec,
});
const message = ({ refusal }: Verdict) => refusal?.message ?? "allowed";

test("an invalid selection is refused with 422 and every fault, and is left as it is by the other webhook", async () => {
  const object = pod({ [own]: '[{"name":"a","attachmentName":"b"},{"interfaceName":"x/y"}]' });
  const { refusal } = await ask("validate", { object });
  assert.equal(refusal?.code, 422);
  assert.equal(refusal?.reason, "Invalid");
  for (const part of [`${own}[0]: `, `${own}[1].interfaceName: `, `${own}[1]: has neither`])
    assert.ok(refusal?.message.includes(part), part);
  assert.deepEqual(await ask("mutate", { object }), {});
});

test("a pod without a selection gets the default network, with or without other annotations (E-3)", async () => {
  const value = '[{"name":"default"}]';
  assert.deepEqual((await ask("mutate", { object: pod() })).patch, [
    { op: "add", path: "/metadata/annotations", value: { [own]: value } },
  ]);
  assert.deepEqual((await ask("mutate", { object: pod({ a: "b" }) })).patch, [
    { op: "add", path: "/metadata/annotations/podnet.dev~1networks", value },
  ]);
  const namespace = { annotations: { "podnet.dev/default-network": "blue" } };
  assert.match(JSON.stringify(await ask("mutate", { object: pod() }, { namespace })), /blue/);
  const none: readonly [object, World?][] = [
    [pod({}, { hostNetwork: true })],
    [pod({ [npwg]: "n" })],
    [pod({ "kubernetes.io/config.mirror": "x" })],
    [pod(), { networks: {} }],
  ];
  for (const [object, world] of none) assert.deepEqual(await ask("mutate", { object }, world), {});
  assert.deepEqual(await ask("mutate", { object: pod(), namespace: "kube-system" }), {});
  assert.deepEqual(await ask("mutate", { object: pod(), operation: "UPDATE" }), {});
});

test("a pod that lists networks itself gets the gate: not on servers without, not with a node, not for the default alone", async () => {
  const object = pod({ [own]: '[{"name":"late"}]' });
  const step = { op: "add", path: "/spec/schedulingGates", value: [{ name: gate }] };
  assert.deepEqual((await ask("mutate", { object })).patch, [step]);
  const gated = pod({ [own]: '[{"name":"late"}]' }, { schedulingGates: [{ name: "other" }] });
  assert.deepEqual((await ask("mutate", { object: gated })).patch, [
    { op: "add", path: "/spec/schedulingGates/-", value: { name: gate } },
  ]);
  const has = pod({ [own]: '[{"name":"late"}]' }, { schedulingGates: [{ name: gate }] });
  assert.deepEqual((await ask("mutate", { object: has })).patch, []);
  assert.deepEqual(await ask("mutate", { object }, { gates: false }), {});
  const placed = pod({ [own]: '[{"name":"late"}]' }, { nodeName: "n1" });
  assert.deepEqual(await ask("mutate", { object: placed }), {});
  const filled = pod({ [own]: '[{"name":"default"}]' });
  assert.deepEqual(await ask("mutate", { object: filled }), {});
});

test("changes of the selection are refused, other updates are not", async () => {
  const before = pod({ [own]: '[{"name":"a"}]' });
  const update = (object: object) =>
    ask("validate", { operation: "UPDATE", object, oldObject: before });
  for (const after of [
    pod(),
    pod({ [own]: '[{"name":"b"}]' }),
    pod({ [own]: '[{"name":"a"}]', [npwg]: "n" }),
  ]) {
    const { refusal } = await update(after);
    assert.equal(refusal?.code, 422);
    assert.match(refusal?.message ?? "", /can't be changed once the pod exists/);
  }
  assert.deepEqual(await update(pod({ [own]: '[{"name":"a"}]', other: "1" })), {});
});

test("the mirror of a static pod is let in with warnings: the pod runs all the same", async () => {
  const object = pod({ [own]: "x", "kubernetes.io/config.mirror": "h" });
  const verdict = await ask("validate", { object });
  assert.equal(verdict.refusal, undefined);
  assert.match(verdict.warnings?.join() ?? "", /not JSON/);
});

test("pods of podnet's and the system's namespaces are let in whatever they say", async () => {
  for (const namespace of ["kube-system", "podnet-system"])
    assert.deepEqual(await ask("validate", { namespace, object: pod({ [own]: "x" }) }), {});
});

test("a network that asks for the right to attach is refused to service accounts without it, behind attachments too", async () => {
  const networks = { default: {}, secret: { "podnet.dev/access": "attach" } };
  const attachments = { "app/fast": "secret" };
  const may = (user: string) => user === "system:serviceaccount:app:web";
  for (const text of ['[{"name":"secret"}]', '[{"attachmentName":"fast"}]']) {
    const spec = { serviceAccountName: "web" };
    const world = { networks, attachments, may };
    assert.deepEqual(
      message(await ask("validate", { object: pod({ [own]: text }, spec) }, world)),
      "allowed",
    );
    const { refusal } = await ask("validate", { object: pod({ [own]: text }) }, world);
    assert.equal(refusal?.code, 403);
    assert.match(
      refusal?.message ?? "",
      /PodNetwork "secret": service account "app\/default" may not attach/,
    );
  }
});

test("who may use the default network counts for pods that select nothing or have an NPWG list", async () => {
  const world = { networks: { default: { "podnet.dev/access": "attach" } }, may: () => false };
  for (const object of [pod(), pod({ [npwg]: "n" })])
    assert.match(message(await ask("validate", { object }, world)), /"default"/);
  assert.equal(
    message(await ask("validate", { object: pod({}, { hostNetwork: true }) }, world)),
    "allowed",
  );
});

test("a right that nobody can tell is left to the node; an annotation that nobody understands opens nothing", async () => {
  const object = pod({ [own]: '[{"name":"secret"}]' });
  asked.length = 0;
  const away = { networks: { secret: { "podnet.dev/access": "attach" } } };
  assert.equal(message(await ask("validate", { object }, away)), "allowed");
  assert.deepEqual(asked, ["system:serviceaccount:app:default secret"]);
  const faulty = { networks: { secret: { "podnet.dev/access": "yes" } }, may: () => true };
  assert.match(message(await ask("validate", { object }, faulty)), /nobody may use it/);
  assert.equal(message(await ask("validate", { object }, { networks: {} })), "allowed");
});

test("a grant that leaves the namespace out refuses at once, all networks in one answer", async () => {
  const closed = { "podnet.dev/allowed-namespaces": "other" };
  const byLabel = { "podnet.dev/allowed-namespace-selector": "team=b" };
  const object = pod({ [own]: '[{"name":"x"},{"name":"y"}]' });
  const text = message(await ask("validate", { object }, { networks: { x: closed, y: byLabel } }));
  assert.match(text, /"x": namespace "app" may not use it.*; PodNetwork "y": namespace "app"/);
  const team = { labels: { team: "b" } };
  const only = pod({ [own]: '[{"name":"y"}]' });
  assert.equal(
    message(await ask("validate", { object: only }, { networks: { y: byLabel }, namespace: team })),
    "allowed",
  );
});

const group = "podnet.dev";
const network = (rest: Asking) =>
  ask("validate", { kind: "PodNetwork", group, namespace: "", name: "blue", ...rest });

test("a faulty PodNetwork is refused with every fault; what is only odd is a warning", async () => {
  const object = podNetwork(
    "blue",
    { provider: "acme", parameters: { plugins: [{}, 5] }, ipam4: "x" },
    { "podnet.dev/access": "x" },
  );
  const { refusal } = await network({ object });
  assert.equal(refusal?.code, 422);
  for (const part of ["spec.provider: ", "spec.ipam4: ", "podnet.dev/access"])
    assert.ok(refusal?.message.includes(part), `${part}: ${refusal?.message}`);
  const inline = await network({
    object: podNetwork("blue", { parameters: { plugins: [{}, 5] } }),
  });
  assert.match(message(inline), /plugins\[0\]\.type: missing.*plugins\[1\]: must be an object/);
  const odd = await network({ object: podNetwork("blue", { paramters: {} }) });
  assert.match(odd.warnings?.join() ?? message(odd), /paramters/);
});

test("specs can't be changed, enabled can; an old faulty object stays writable where its spec stays (E-9)", async () => {
  const update = (before: object, after: object, kind = "PodNetwork") =>
    network({ operation: "UPDATE", kind, oldObject: before, object: after });
  const one = podNetwork("blue", { provider: "acme.io/x" });
  assert.match(
    message(await update(one, podNetwork("blue", { provider: "acme.io/y" }))),
    /spec\.provider: is immutable/,
  );
  assert.match(message(await update(podNetwork("blue"), one)), /spec\.provider: is immutable/);
  assert.equal(
    message(await update(one, podNetwork("blue", { provider: "acme.io/x", enabled: false }))),
    "allowed",
  );
  assert.equal(
    message(await update(one, podNetwork("blue", { provider: "acme.io/x" }, { l: "x" }))),
    "allowed",
  );
  const faulty = podNetwork("blue", { provider: "-" });
  assert.equal(
    message(await update(faulty, { ...faulty, metadata: { name: "blue" } } as object)),
    "allowed",
  );
  const attachment = (podNetworkName: string) => ({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "fast" },
    spec: { podNetworkName },
  });
  const kind = "PodNetworkAttachment";
  assert.match(message(await update(attachment("a"), attachment("b"), kind)), /spec: is immutable/);
  assert.equal(message(await update(attachment("a"), attachment("a"), kind)), "allowed");
});

test("default can't be deleted, other networks can (E-2)", async () => {
  const { refusal } = await network({ operation: "DELETE", name: "default" });
  assert.equal(refusal?.code, 403);
  assert.equal(message(await network({ operation: "DELETE", name: "blue" })), "allowed");
  const together = { operation: "DELETE", name: "", oldObject: podNetwork("default") };
  assert.match(message(await network(together)), /can't be deleted/);
});

test("a network is created with the finalizer, beside those of others; default has none", async () => {
  const create = async (object: unknown, rest: Asking = {}) => {
    const asking = { kind: "PodNetwork", group, namespace: "", name: "blue", ...rest };
    return (await ask("mutate", { ...asking, object })).patch;
  };
  const own = "podnet.dev/in-use";
  const bare = podNetwork("blue");
  const first = [{ op: "add", path: "/metadata/finalizers", value: [own] }];
  assert.deepEqual(await create(bare), first);
  assert.deepEqual(await create(bare, { kind: "PodNetworkAttachment", namespace: "app" }), first);
  const held = (finalizers: unknown) => ({ ...bare, metadata: { name: "blue", finalizers } });
  assert.deepEqual(await create(held(["a.io/b"])), [
    { op: "add", path: "/metadata/finalizers/-", value: own },
  ]);
  assert.deepEqual(await create(held(null)), first);
  for (const object of [held([own]), held(5), held({}), podNetwork("default"), { metadata: 5 }, 5])
    assert.equal(await create(object), undefined);
  const named = { kind: "PodNetworkAttachment", namespace: "app", name: "default" };
  assert.deepEqual(await create(podNetwork("default"), named), first, "an attachment's own name");
  assert.deepEqual(await create(held(undefined), { name: "" }), first, "the server makes the name");
  assert.equal(await create(bare, { operation: "UPDATE", oldObject: bare }), undefined);
});

test("what podnet has no rules for is allowed", async () => {
  for (const asking of [
    { kind: "Deployment", group: "apps" },
    { kind: "PodNetwork", group: "other.io" },
    { kind: "Pod", group: "", operation: "CONNECT" },
    { kind: "Pod", group: "", operation: "DELETE" },
  ]) {
    assert.deepEqual(await ask("validate", asking), {});
    assert.deepEqual(await ask("mutate", asking), {});
  }
});

test("pods of any shape are answered", async () => {
  const shapes = [
    undefined,
    null,
    5,
    "x",
    [],
    {},
    { metadata: [] },
    { metadata: { annotations: [1] } },
  ];
  const more = [
    { metadata: { annotations: { [own]: 5 } }, spec: "x" },
    { spec: { schedulingGates: [null, 5, {}] } },
  ];
  for (const object of [...shapes, ...more]) {
    for (const kind of ["validate", "mutate"] as const) {
      for (const operation of ["CREATE", "UPDATE", "DELETE"]) {
        const { refusal } = await ask(kind, { object, oldObject: object, operation });
        assert.equal(refusal, undefined);
        await ask(kind, { object, operation, kind: "PodNetwork", group });
        await ask(kind, { object, operation, kind: "PodNetworkAttachment", group });
      }
    }
  }
});

test("the answer has the uid, a patch in base64, and no more warnings than a server takes", () => {
  const patch = [{ op: "add", path: "/a", value: 1 }] as const;
  const request = decodeReview({
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    request: { uid: "u1", operation: "CREATE", kind: { group: "", kind: "Pod" }, name: "p" },
  });
  const read = (verdict: Verdict) => JSON.parse(encodeReview(request, verdict)).response;
  const answer = read({ patch, warnings: Array.from({ length: 20 }, () => "w".repeat(300)) });
  assert.equal(answer.uid, "u1");
  assert.equal(answer.allowed, true);
  assert.equal(answer.patchType, "JSONPatch");
  assert.deepEqual(JSON.parse(Buffer.from(answer.patch, "base64").toString()), patch);
  assert.equal(answer.warnings.length, 10);
  assert.equal(answer.warnings[0].length, 256);
  const refusal = { code: 422, reason: "Invalid", message: "a: no" } as const;
  const faults = [{ path: "a", message: "no" }];
  const refused = read({ patch, refusal: { ...refusal, faults } });
  const causes = [{ reason: "FieldValueInvalid", field: "a", message: "no" }];
  const details = { kind: "Pod", group: "", name: "p", causes };
  const status = { status: "Failure", ...refusal, details };
  assert.deepEqual(refused, { uid: "u1", allowed: false, status });
});

test("scheduling gates are known from the server's version, providers' spellings included", () => {
  const gates = (major: unknown, minor: unknown) => abilitiesOf({ major, minor }).schedulingGates;
  assert.deepEqual(
    [
      gates("1", "20"),
      gates("1", "26"),
      gates("1", "27"),
      gates("1", "27+"),
      gates("1", "31"),
      gates("2", "0"),
    ],
    [false, false, true, true, true, true],
  );
  for (const odd of [undefined, null, [], {}, { major: 1, minor: 30 }, { major: "x", minor: "" }])
    assert.equal(abilitiesOf(odd).schedulingGates, false);
});

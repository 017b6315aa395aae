import assert from "node:assert/strict";
import fc from "fast-check";
import { admit } from "../../daemon/controller/admit/admit.ts";
import type { AdmitContext } from "../../daemon/controller/admit/pods.ts";
import { decodeReview, encodeReview } from "../../daemon/controller/admit/review.ts";
import {
  bundleOf,
  decodeTlsData,
  encodeTlsData,
  nextStep,
} from "../../daemon/controller/admit/tls-state.ts";
import { attachmentReady, decideAttachment } from "../../daemon/controller/attachment-state.ts";
import { isCountOnly } from "../../daemon/controller/condition-writes.ts";
import { mergeConditions } from "../../daemon/controller/conditions.ts";
import { decideGate, statesOf } from "../../daemon/controller/gate-state.ts";
import { Judge } from "../../daemon/controller/judge.ts";
import {
  keepNad,
  keepPodNetwork,
  keepPodNetworkAttachment,
} from "../../daemon/controller/kept-objects.ts";
import { keepPod } from "../../daemon/controller/kept-pods.ts";
import { decideNetwork, networkReady } from "../../daemon/controller/network-state.ts";
import { holdsDeleted, podRefs } from "../../daemon/controller/pod-refs.ts";
import type { Stores } from "../../daemon/controller/stores.ts";
import { keepNamespace } from "../../lib/api/kept.ts";
import { defaultConfinement } from "../../lib/api/nad-rules-keys.ts";
import { DecodeError } from "../../lib/base/decode.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { openLog } from "../../lib/base/log.ts";
import type { KubeClient } from "../../lib/kube/client.ts";
import { fuzz } from "../helpers/fuzz.ts";

/** Whatever objects and reviews are, the controller has an answer; what it would write back is of the kinds that the API takes. */

const podnet = "podnet.dev/v1alpha1";
const time = "2026-01-01T00:00:00Z";
const uid = "a-b-c";
const meta = {
  namespace: "app",
  uid,
  resourceVersion: "7",
  generation: 3,
  finalizers: ["podnet.dev/in-use"],
};
const ready = {
  type: "Ready",
  status: "True",
  reason: "Ready",
  message: "",
  lastTransitionTime: time,
  observedGeneration: 3,
};

const network = {
  apiVersion: podnet,
  kind: "PodNetwork",
  metadata: {
    ...meta,
    name: "blue",
    deletionTimestamp: time,
    annotations: { "podnet.dev/access": "attach" },
  },
  spec: {
    enabled: true,
    provider: "podnet.dev/cni",
    ipam4: "external",
    parametersRefs: [
      {
        group: "k8s.cni.cncf.io",
        kind: "NetworkAttachmentDefinition",
        name: "n",
        namespace: "app",
      },
    ],
    parameters: {
      plugins: [
        {
          type: "bridge",
          bridge: "br0",
          mtu: 1500,
          ipam: { type: "host-local", ranges: [[{ subnet: "10.1.0.0/24" }]] },
        },
        { type: "tuning", capabilities: { mac: true }, sysctl: { "net.x": "1" } },
      ],
    },
  },
  status: { conditions: [ready, { type: "Theirs", status: "True" }] },
};
const attachment = {
  apiVersion: podnet,
  kind: "PodNetworkAttachment",
  metadata: { ...meta, name: "fast" },
  spec: {
    podNetworkName: "blue",
    parametersRefs: [{ group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", name: "n" }],
  },
  status: { conditions: [ready], holder: { namespace: "app", name: "p", uid, node: "n" } },
};
const nad = {
  apiVersion: "k8s.cni.cncf.io/v1",
  kind: "NetworkAttachmentDefinition",
  metadata: { ...meta, name: "n", annotations: { "k8s.v1.cni.cncf.io/resourceName": "a.io/b" } },
  spec: {
    config:
      '{"cniVersion":"1.0.0","name":"n","type":"macvlan","ipam":{"type":"static","addresses":[{"address":"10.1.0.5/24"}]}}',
  },
};
const pod = {
  apiVersion: "v1",
  kind: "Pod",
  metadata: {
    ...meta,
    name: "p",
    creationTimestamp: time,
    deletionTimestamp: time,
    annotations: {
      "podnet.dev/networks": '[{"name":"blue"},{"attachmentName":"fast","interfaceName":"x0"}]',
      "podnet.dev/network-status": '[{"name":"blue","interfaceName":"eth0"}]',
    },
  },
  spec: {
    hostNetwork: false,
    nodeName: "n",
    serviceAccountName: "web",
    schedulingGates: [{ name: "podnet.dev/networks-ready" }],
  },
  status: {
    phase: "Running",
    conditions: [{ type: "podnet.dev/NetworksReady", status: "False", message: "x" }],
  },
};

const words = fc.constantFrom(
  ...[
    "",
    "blue",
    "default",
    "podnet.dev/networks",
    "True",
    "__proto__",
    "constructor",
    "toString",
    "\ud800",
    "a/b",
    "10.1.0.0/8",
  ],
  ...'{["\\'.split(""),
  "x".repeat(5_000),
  "[".repeat(2_000),
);
const odd: fc.Arbitrary<unknown> = fc.oneof(
  { maxDepth: 3 },
  words,
  fc.constantFrom(undefined, null, true, false, 0, -1, 1.5, 1e300, [], {}, [[]], [null], {
    a: null,
  }),
  fc.array(words, { maxLength: 4 }),
  fc.dictionary(words, fc.oneof(words, fc.constantFrom(null, 5, [], {})), { maxKeys: 4 }),
  fc
    .integer({ min: 100, max: 12_000 })
    .map((levels) => JSON.parse("[".repeat(levels) + "]".repeat(levels)) as unknown),
);

function pathsOf(value: unknown, path: readonly string[] = []): string[][] {
  const isInner = path.length < 10 && typeof value === "object" && value !== null;
  const inner = isInner ? Object.entries(value) : [];
  return [[...path], ...inner.flatMap(([key, item]) => pathsOf(item, [...path, key]))];
}

function replaced(value: unknown, [key, ...rest]: readonly string[], by: unknown): unknown {
  if (key === undefined) return by;
  if (typeof value !== "object" || value === null) return value;
  const copy: object = Array.isArray(value) ? [...(value as unknown[])] : { ...value };
  Reflect.set(copy, key, replaced(Reflect.get(value, key), rest, by));
  return copy;
}

/** The object with some of its values, at any place, by others. */
function spoilt(base: object): fc.Arbitrary<unknown> {
  const places = fc.constantFrom(...pathsOf(base).slice(1));
  const changes = fc.array(fc.tuple(places, odd), { maxLength: 4 });
  return changes.map((list) =>
    list.reduce<unknown>((value, [path, by]) => replaced(value, path, by), base),
  );
}

const asObject = (value: unknown) =>
  (typeof value === "object" && value !== null ? value : {}) as JsonObject;

/** Stores that have one object of each kind, under every name. */
function storesOf(parts: {
  network: unknown;
  attachment: unknown;
  nad: unknown;
  namespace?: unknown;
}): Stores {
  const always = <T>(value: T) => ({ get: () => value });
  return {
    networks: always(keepPodNetwork(asObject(parts.network))),
    attachments: always(keepPodNetworkAttachment(asObject(parts.attachment))),
    nads: always(keepNad(asObject(parts.nad))),
    namespaces: always(keepNamespace(asObject(parts.namespace ?? {}))),
  } as unknown as Stores;
}

/** Parameters of its own count where it refers to none. */
const inline = { ...network, spec: { ...network.spec, parametersRefs: [] } };
const anyNetwork = fc.oneof(spoilt(network), spoilt(inline));
const all = fc.record({
  network: anyNetwork,
  attachment: spoilt(attachment),
  nad: spoilt(nad),
  pod: spoilt(pod),
});

fuzz(
  "objects of any shape have conditions that can be written, and a second look has nothing to write",
  fc.property(all, (parts) => {
    const stores = storesOf(parts);
    const judge = new Judge({ stores });
    const net = keepPodNetwork(asObject(parts.network));
    const one = keepPodNetworkAttachment(asObject(parts.attachment));
    const users = { pods: 1, attachments: 2, example: "app/p" };
    const ofNetwork = decideNetwork(net, judge.network(net), users);
    const input = {
      kept: one,
      network: net,
      networkReady: networkReady(net, judge.network(net), users),
      verdict: judge.attachment(one, net),
      users,
    };
    const ofAttachment = decideAttachment(input);
    assert.equal(attachmentReady(input).type, "Ready");
    for (const [kept, { conditions }] of [
      [net, ofNetwork],
      [one, ofAttachment],
    ] as const) {
      isCountOnly(kept.conditions, conditions);
      const given = { wanted: conditions, generation: kept.generation, now: time };
      const merged = mergeConditions({ present: kept.conditions, ...given });
      if (merged === undefined) continue;
      assert.ok(merged.length <= Math.max(8, kept.conditions.length));
      for (const { type, status, reason, message } of conditions) {
        assert.match(status, /^(True|False)$/);
        assert.match(reason, /^[A-Za-z]+$/);
        assert.ok(type.length > 0 && typeof message === "string");
      }
      assert.equal(mergeConditions({ present: merged, ...given }), undefined, "written again");
    }
  }),
);

fuzz(
  "pods of any shape refer to something, hold something, and have a decision about their gate",
  fc.property(all, (parts) => {
    const kept = keepPod(asObject(parts.pod));
    podRefs(kept, "app", "default");
    holdsDeleted(kept, time);
    const decision = decideGate(kept, "app", statesOf(storesOf(parts)));
    if (decision.kind === "wait") assert.match(decision.reason, /^[A-Za-z]+$/);
  }),
);

const kindOf = fc.constantFrom(
  ...[
    ["", "Pod"],
    ["podnet.dev", "PodNetwork"],
    ["podnet.dev", "PodNetworkAttachment"],
  ],
  ["k8s.cni.cncf.io", "NetworkAttachmentDefinition"],
);
const anyObject = fc.oneof(spoilt(pod), anyNetwork, spoilt(attachment), spoilt(nad), odd);
const review = fc
  .tuple(kindOf, anyObject, anyObject, fc.constantFrom("CREATE", "UPDATE", "DELETE"))
  .chain(([[group = "", kind = ""], object, oldObject, operation]) =>
    spoilt({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      request: {
        ...{ uid, operation, kind: { group, version: "v1", kind }, namespace: "app", name: "p" },
        ...{ userInfo: { username: "eve", groups: ["a"] }, object, oldObject },
      },
    }),
  );

const client = { request: async () => ({ status: { allowed: false } }) } as unknown as KubeClient;

fuzz(
  "reviews of any shape are refused as such, or answered with JSON that an API server takes",
  fc.asyncProperty(
    review,
    all,
    fc.constantFrom("validate", "mutate"),
    async (value, parts, kind) => {
      const context: AdmitContext = {
        client,
        stores: storesOf(parts),
        log: openLog("silent"),
        exempt: new Set(["kube-system"]),
        gates: () => true,
        confinement: defaultConfinement,
      };
      let request: ReturnType<typeof decodeReview>;
      try {
        request = decodeReview(value);
      } catch (error) {
        assert.ok(error instanceof DecodeError, String(error));
        return;
      }
      const verdict = await admit(context, kind, request);
      const { response } = JSON.parse(encodeReview(request, verdict));
      assert.equal(response.uid, request.uid);
      assert.equal(typeof response.allowed, "boolean");
      if (!response.allowed) assert.ok([403, 422].includes(response.status.code));
      if (response.patch === undefined) return;
      assert.equal(kind, "mutate");
      for (const step of JSON.parse(Buffer.from(response.patch, "base64").toString()))
        assert.match(step.path, /^\/(metadata|spec)\//);
    },
  ),
);

const bytes = fc.oneof(words, fc.base64String({ maxLength: 200 }), odd);
fuzz(
  "a Secret of any shape is read, written, and has a next step",
  fc.property(
    fc.dictionary(
      fc.constantFrom("tls.crt", "tls.key", "ca.crt", "next.crt", "next.key", "x"),
      bytes,
    ),
    (data) => {
      const state = decodeTlsData(data);
      encodeTlsData(state);
      assert.equal(typeof bundleOf(state.authorities), "string");
      assert.equal(nextStep(state, { names: ["a"], now: 0 }, true), "create");
    },
  ),
);

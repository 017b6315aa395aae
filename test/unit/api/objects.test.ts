import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeNetworkObject, decodePodNetwork } from "../../../lib/api/decode-objects.ts";
import { apiVersion } from "../../../lib/api/names.ts";
import { DecodeError } from "../../../lib/base/decode.ts";

const podNetwork = (spec: unknown, name: unknown = "blue") => ({
  apiVersion,
  kind: "PodNetwork",
  metadata: { name },
  spec,
});

function faultsOf(value: unknown): string[] {
  try {
    decodeNetworkObject(value);
  } catch (error) {
    assert.ok(error instanceof DecodeError, String(error));
    return error.faults.map(({ path, message }) => `${path}: ${message}`);
  }
  return assert.fail("accepted");
}

test("objects: the default PodNetwork needs no more than enabled (E-1)", () => {
  const { value, warnings } = decodePodNetwork(podNetwork({ enabled: true }, "default"));
  assert.deepEqual(value, {
    kind: "PodNetwork",
    metadata: { name: "default", labels: {}, annotations: {} },
    spec: { enabled: true, provider: "podnet.dev/cni", parametersRefs: [] },
  });
  assert.deepEqual(warnings, []);
});

test("objects: enabled is true unless the object says false", () => {
  assert.equal(decodePodNetwork(podNetwork({})).value.spec.enabled, true);
  assert.equal(decodePodNetwork(podNetwork({ enabled: false })).value.spec.enabled, false);
});

const providers: readonly [string, boolean][] = [
  ["acme.io/foo", true],
  ["podnet.dev/conflist", true],
  ["podnetwork.example.com", true],
  ["acme", false],
  ["ACME.io/x", false],
  ["http://acme.io/x", false],
  ["", false],
  [`acme.io/${"a".repeat(246)}`, false],
  ["acme.io/", false],
  ["acme.io/a b", false],
  ["acme.io/a\n", false],
];
for (const [provider, good] of providers) {
  test(`objects: provider ${JSON.stringify(provider.slice(0, 30))} is ${good ? "taken" : "refused"} (E-10)`, () => {
    const value = podNetwork({ provider });
    if (good) assert.equal(decodePodNetwork(value).value.spec.provider, provider);
    else assert.match(faultsOf(value).join(), /^spec\.provider: /);
  });
}

/** As the SIG publishes them, with this project's apiVersion. */
const published: readonly unknown[] = [
  podNetwork({
    provider: "podnetwork.example.com",
    enabled: true,
    parameters: { name: "dummy0" },
  }),
  {
    ...podNetwork({ enabled: true, provider: "foo.io/bar" }),
    status: {
      conditions: [
        {
          lastProbeTime: null,
          lastTransitionTime: "2025-01-31T18:38:01Z",
          status: "True",
          type: "Ready",
        },
      ],
    },
  },
  podNetwork({
    enabled: true,
    provider: "example.dra.x-k8s.io/network",
    parameters: { master: "eth0", mode: "bridge", ipam: { type: "host-local" } },
  }),
];
for (const [index, manifest] of published.entries()) {
  test(`objects: published manifest ${index} is accepted without a warning`, () => {
    assert.deepEqual(decodePodNetwork(manifest).warnings, []);
  });
}

test("objects: parametersRefs are kept in order (E-7)", () => {
  const refs = ["dp-a", "dp-b"].map((name) => ({
    group: "k8s.cni.cncf.io",
    kind: "NetworkAttachmentDefinition",
    name,
    namespace: "infra",
  }));
  const { value } = decodePodNetwork(podNetwork({ provider: "acme.io/foo", parametersRefs: refs }));
  assert.deepEqual(value.spec.parametersRefs, refs);
});

test("objects: every fault comes at once, by field", () => {
  const faults = faultsOf({
    apiVersion: "v1",
    kind: "PodNetwork",
    metadata: { name: "Blue" },
    spec: {
      enabled: "yes",
      provider: "acme",
      ipam4: "dhcp",
      parametersRefs: [{ group: "g", kind: "" }],
    },
  });
  assert.deepEqual(
    faults.map((fault) => fault.split(": ")[0]),
    [
      "apiVersion",
      "metadata.name",
      "spec.enabled",
      "spec.provider",
      "spec.parametersRefs[0].kind",
      "spec.parametersRefs[0].name",
      "spec.ipam4",
    ],
  );
});

test("objects: podnet's own parameters need a plugin type", () => {
  const parameters: readonly [unknown, RegExp][] = [
    [{ bridge: "br0" }, /^spec\.parameters\.type: missing/],
    [{ plugins: [] }, /^spec\.parameters\.plugins: must have at least one plugin/],
    [{ plugins: {} }, /^spec\.parameters\.plugins: must be a list/],
    [
      { plugins: [{ type: "bridge" }, { type: 3 }] },
      /^spec\.parameters\.plugins\[1\]\.type: must be/,
    ],
    [{ plugins: [null] }, /^spec\.parameters\.plugins\[0\]: must be an object/],
    ["bridge", /^spec\.parameters: must be an object/],
  ];
  for (const [value, expected] of parameters) {
    assert.match(faultsOf(podNetwork({ parameters: value })).join(), expected);
  }
});

test("objects: an unknown key is a warning with the key that was meant", () => {
  const { warnings } = decodePodNetwork(podNetwork({ enable: false }));
  assert.equal(warnings[0]?.path, "spec");
  assert.match(warnings[0]?.message ?? "", /"enable": did you mean "enabled"\?/);
});

test("objects: a PodNetworkAttachment names one PodNetwork (E-12)", () => {
  const { value } = decodeNetworkObject({
    apiVersion,
    kind: "PodNetworkAttachment",
    metadata: { name: "fast", namespace: "team-a" },
    spec: { podNetworkName: "dataplane" },
  });
  assert.equal(value.kind === "PodNetworkAttachment" && value.spec.podNetworkName, "dataplane");
  const faults = faultsOf({
    apiVersion,
    kind: "PodNetworkAttachment",
    metadata: { name: "fast" },
    spec: {},
  });
  assert.match(faults.join(), /^spec\.podNetworkName: missing/);
});

test("objects: a NAD keeps its config as text, and may have none", () => {
  const nad = (spec: unknown) => ({
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { name: "n1" },
    spec,
  });
  const { value } = decodeNetworkObject(nad({ config: '{ "type":"thick" }' }));
  assert.equal(value.kind === "NetworkAttachmentDefinition" && value.config, '{ "type":"thick" }');
  assert.equal(value.metadata.namespace, "default");
  for (const spec of [undefined, null, {}, { config: "" }]) {
    const { value: empty } = decodeNetworkObject(nad(spec));
    assert.equal(empty.kind === "NetworkAttachmentDefinition" && empty.config, undefined);
  }
});

test("objects: another kind is refused with the kinds that there are", () => {
  assert.match(faultsOf({ kind: "Pod" }).join(), /^kind: "Pod": podnet reads PodNetwork and/);
  for (const value of [null, [], 3, "x", {}])
    assert.match(faultsOf(value).join(), /^kind: missing/);
});

test("objects: a kind that is an object with a key toString is refused like any other", () => {
  assert.match(faultsOf({ kind: JSON.parse('{"toString":1}') }).join(), /^kind: .*toString/);
});

test("objects: parameters that nest deeper than any configuration are refused, however deep; what is as deep as one is taken", () => {
  const nested = (levels: number) => ({
    ...{ apiVersion: "podnet.dev/v1alpha1", kind: "PodNetwork", metadata: { name: "deep" } },
    spec: JSON.parse(
      `{"parameters":{"type":"bridge","args":${'{"a":'.repeat(levels)}[]${"}".repeat(levels)}}}`,
    ),
  });
  const refused = /spec\.parameters: must not nest deeper than 250 levels/;
  for (const levels of [300, 9_990, 100_000])
    assert.throws(() => decodePodNetwork(nested(levels)), refused);
  assert.equal(decodePodNetwork(nested(200)).value.metadata.name, "deep");
});

test("objects: a list of more plugins than anybody has is one fault, not a fault each", () => {
  const plugins = Array.from({ length: 300_000 }, () => ({}));
  const object = {
    ...{ apiVersion: "podnet.dev/v1alpha1", kind: "PodNetwork", metadata: { name: "wide" } },
    spec: { parameters: { plugins }, parametersRefs: plugins },
  };
  assert.throws(
    () => decodePodNetwork(object),
    (error: unknown) => {
      assert.ok(error instanceof DecodeError);
      assert.ok(error.faults.length <= 101);
      assert.match(error.message, /plugins: must have at most 64 plugins, not 300000/);
      return true;
    },
  );
});

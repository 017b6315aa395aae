import assert from "node:assert/strict";
import { test } from "node:test";
import type { NetworkSource } from "../../../daemon/node/networks.ts";
import { defaultConflist, knownConflists, resolveNetworks } from "../../../daemon/node/resolve.ts";
import type { Selected } from "../../../daemon/node/select.ts";
import { decodeNetworkObject, type NetworkObject } from "../../../lib/api/decode-objects.ts";
import { apiVersion } from "../../../lib/api/names.ts";
import { readSelectionText } from "../../../lib/api/selection-list.ts";
import { decodeConflist } from "../../../lib/cni/conflist.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const podNetwork = (name: string, spec: object) =>
  decodeNetworkObject({ apiVersion, kind: "PodNetwork", metadata: { name }, spec }).value;
const bridge = (extra: object = {}) => ({ parameters: { type: "bridge", ...extra } });
const nad = (name: string, config?: string, namespace = "app") =>
  decodeNetworkObject({
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { name, namespace },
    spec: { config },
  }).value;

/** A source of fixed objects; `conflists`: the node's own, by name. */
function sourceOf(
  objects: readonly NetworkObject[],
  conflists: Readonly<Record<string, string>> = {},
): NetworkSource {
  const find = <K extends NetworkObject["kind"]>(kind: K, name: string, namespace?: string) =>
    objects.find(
      (object): object is Extract<NetworkObject, { kind: K }> =>
        object.kind === kind &&
        object.metadata.name === name &&
        object.metadata.namespace === namespace,
    );
  return {
    podNetwork: async (name) => find("PodNetwork", name),
    podNetworkAttachment: async (namespace, name) => find("PodNetworkAttachment", name, namespace),
    nad: async (namespace, name) => find("NetworkAttachmentDefinition", name, namespace),
    conflist: async (name) => {
      const text = conflists[name];
      return text === undefined ? undefined : decodeConflist(text);
    },
    list: async () =>
      objects.map(({ kind, metadata: { name, namespace = "" } }) => ({
        file: "x.yaml",
        ref:
          kind === "PodNetwork" ? { kind: "podNetwork", name } : { kind: "nad", namespace, name },
      })),
  };
}

function selected(
  dialect: "podnet" | "npwg",
  text: string,
  more: Partial<Selected> = {},
): Selected {
  return {
    source: dialect === "podnet" ? "podnet.dev" : "npwg",
    mode: dialect === "podnet" ? "explicit" : "additional",
    selections: readSelectionText({ dialect, origin: "x", namespace: "app" }, text),
    warnings: [],
    ...more,
  };
}

const lenient = { requireDefaultPodNetwork: false };
const strict = { requireDefaultPodNetwork: true };

const networksFor = async (...asked: Parameters<typeof resolveNetworks>) =>
  (await resolveNetworks(...asked)).networks;

async function refused(promise: Promise<unknown>, code: number, message: RegExp): Promise<void> {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof CniError, String(error));
    assert.match(error.message, message);
    assert.equal(error.code, code);
    return true;
  });
}

test("resolve: a PodNetwork's parameters get its name and the newest cniVersion", async () => {
  const source = sourceOf([podNetwork("blue", bridge({ bridge: "br-blue", "x-later": [1] }))]);
  const [blue] = await networksFor(source, selected("podnet", '[{"name":"blue"}]'), lenient);
  assert.equal(blue?.network, "blue");
  assert.equal(blue?.isDefaultNetwork, false);
  assert.deepEqual(JSON.parse(blue?.conflist.text ?? ""), {
    cniVersion: "1.1.0",
    name: "blue",
    plugins: [{ type: "bridge", bridge: "br-blue", "x-later": [1] }],
  });
});

test("resolve: parameters may be a list with keys of its own, and name their cniVersion", async () => {
  const parameters = {
    cniVersion: "1.0.0",
    name: "other",
    disableCheck: true,
    plugins: [{ type: "bridge" }, { type: "portmap" }],
  };
  const source = sourceOf([podNetwork("blue", { parameters })]);
  const [blue] = await networksFor(source, selected("podnet", '[{"name":"blue"}]'), lenient);
  assert.equal(blue?.conflist.name, "blue");
  assert.equal(blue?.conflist.cniVersion, "1.0.0");
  assert.equal(blue?.conflist.disableCheck, true);
  assert.deepEqual(decodeConflist(blue?.conflist.text ?? ""), blue?.conflist);
});

test("resolve: a NAD without a name in its config gets its own, the rest stays (E-18)", async () => {
  const source = sourceOf([nad("n1", '{"cniVersion":"0.3.1","type":"thick","x":[1.5,null]}')]);
  const [n1] = await networksFor(source, selected("npwg", "n1"), lenient);
  assert.equal(n1?.network, "app/n1");
  assert.deepEqual(JSON.parse(n1?.conflist.text ?? ""), {
    name: "n1",
    cniVersion: "0.3.1",
    type: "thick",
    x: [1.5, null],
  });
  const whole = ' { "type":"thick",  "name":"own", "x":1.50 }';
  const [own] = await networksFor(sourceOf([nad("n1", whole)]), selected("npwg", "n1"), lenient);
  assert.equal(own?.conflist.text, whole);
});

test("resolve: a NAD's own CNI name is kept, an empty one is none", async () => {
  const texts = ['{"type":"x","name":"own"}', '{"type":"x","name":""}'];
  const names = [];
  for (const text of texts) {
    const [n1] = await networksFor(sourceOf([nad("n1", text)]), selected("npwg", "n1"), lenient);
    names.push(n1?.conflist.name, decodeConflist(n1?.conflist.text ?? "").name);
  }
  assert.deepEqual(names, ["own", "own", "n1", "n1"]);
});

test("resolve: a NAD without config is the node's configuration of that name, or fails (E-18)", async () => {
  const text = '{"cniVersion":"1.0.0","name":"n2","plugins":[{"type":"bridge"}]}';
  const [n2] = await networksFor(
    sourceOf([nad("n2")], { n2: text }),
    selected("npwg", "n2"),
    lenient,
  );
  assert.equal(n2?.conflist.text, text);
  await refused(
    resolveNetworks(sourceOf([nad("n2")]), selected("npwg", "n2"), lenient),
    102,
    /^network "app\/n2" \(entry 0\): NetworkAttachmentDefinition "app\/n2" has no spec\.config/,
  );
});

test("resolve: provider podnet.dev/conflist is the node's configuration of that name, others are not ours (E-20)", async () => {
  const text = '{"cniVersion":"1.0.0","name":"p1","plugins":[{"type":"bridge"}]}';
  const objects = [
    podNetwork("p1", { provider: "podnet.dev/conflist" }),
    podNetwork("p2", { provider: "other.io/x" }),
  ];
  const [p1] = await networksFor(
    sourceOf(objects, { p1: text }),
    selected("podnet", '[{"name":"p1"}]'),
    lenient,
  );
  assert.equal(p1?.conflist.text, text);
  await refused(
    resolveNetworks(sourceOf(objects), selected("podnet", '[{"name":"p1"}]'), lenient),
    101,
    /no CNI configuration named "p1"/,
  );
  await refused(
    resolveNetworks(sourceOf(objects), selected("podnet", '[{"name":"p2"}]'), lenient),
    101,
    /no network to attach: "p2" is provider "other\.io\/x"'s: list a network of podnet's too/,
  );
});

test("resolve: a network of another provider is left alone, and the others are attached", async () => {
  const objects = [
    podNetwork("blue", bridge()),
    podNetwork("theirs", { provider: "other.io/x", parameters: { anything: 1 } }),
    podNetwork("closed", { provider: "other.io/x", enabled: false }),
    podNetwork("default", { provider: "other.io/x" }),
  ];
  const list = '[{"name":"theirs","interfaceName":"x0"},{"name":"blue"}]';
  const { networks, foreign } = await resolveNetworks(
    sourceOf(objects),
    selected("podnet", list),
    lenient,
  );
  assert.deepEqual(
    networks.map(({ network }) => network),
    ["blue"],
  );
  assert.deepEqual(
    foreign.map(({ network, provider, place }) => [network, provider, place]),
    [["theirs", "other.io/x", 0]],
  );
  const wrong: readonly [Selected, number, RegExp][] = [
    [selected("podnet", '[{"name":"blue"},{"name":"closed"}]'), 101, /"closed" is disabled/],
    [selected("npwg", ""), 101, /"default": provider "other.io\/x" is not podnet's/],
  ];
  for (const [selection, code, message] of wrong) {
    await refused(
      (async () => await resolveNetworks(sourceOf(objects), selection, lenient))(),
      code,
      message,
    );
  }
});

test("resolve: the annotation resourceName of a NAD or a PodNetwork goes along, the PodNetwork's first", async () => {
  const resource = (name: string) => ({ "k8s.v1.cni.cncf.io/resourceName": name });
  const withResource = (object: NetworkObject, name: string): NetworkObject =>
    ({
      ...object,
      metadata: { ...object.metadata, annotations: resource(name) },
    }) as NetworkObject;
  const ref = { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", namespace: "app" };
  const objects = [
    withResource(nad("n1", '{"type":"sriov"}'), " acme.io/vf "),
    withResource(nad("bad", '{"type":"sriov"}'), "../etc/passwd"),
    podNetwork("through", { parametersRefs: [{ ...ref, name: "n1" }] }),
    withResource(podNetwork("own", { parametersRefs: [{ ...ref, name: "n1" }] }), "acme.io/own"),
    podNetwork("none", bridge()),
  ];
  const resourceOf = async (selection: Selected) =>
    (await networksFor(sourceOf(objects), selection, lenient)).map((one) => one.resourceName);
  assert.deepEqual(await resourceOf(selected("npwg", "n1")), ["acme.io/vf"]);
  assert.deepEqual(
    await resourceOf(selected("podnet", '[{"name":"through"},{"name":"own"},{"name":"none"}]')),
    ["acme.io/vf", "acme.io/own", undefined],
  );
  await refused(
    resolveNetworks(sourceOf(objects), selected("npwg", "bad"), lenient),
    7,
    /"app\/bad": annotation k8s\.v1\.cni\.cncf\.io\/resourceName: "\.\.\/etc\/passwd" must be/,
  );
});

test("resolve: ipam4 and ipam6 kubernetes put the node's own ranges into the default network's configuration", async () => {
  const cidrs = ["10.1.2.0/24", "fd00:1:2::/64"];
  const at = (objects: readonly NetworkObject[], list?: readonly string[]): NetworkSource => ({
    ...sourceOf(objects),
    ...(list === undefined ? {} : { podCidrs: async () => list }),
  });
  const ask = (spec: object, list?: readonly string[], name = "default") =>
    networksFor(
      at([podNetwork(name, spec)], list),
      selected("podnet", `[{"name":"${name}"}]`),
      lenient,
    );
  const both = { ipam4: "kubernetes", ipam6: "kubernetes" };
  const [bare] = await ask({ ...bridge({ mtu: 1400 }), ...both }, cidrs);
  assert.deepEqual(bare?.conflist.plugins, [
    {
      type: "bridge",
      mtu: 1400,
      ipam: {
        type: "host-local",
        ranges: [[{ subnet: "10.1.2.0/24" }], [{ subnet: "fd00:1:2::/64" }]],
      },
    },
  ]);
  assert.equal(bare?.conflist.name, "default");
  const mixed = { type: "host-local", dataDir: "/x", ranges: [[{ subnet: "fd00::/64" }]] };
  const [six] = await ask({ ...bridge({ ipam: mixed }), ipam4: "kubernetes" }, cidrs);
  assert.deepEqual(six?.conflist.plugins[0]?.ipam, {
    ...mixed,
    ranges: [[{ subnet: "fd00::/64" }], [{ subnet: "10.1.2.0/24" }]],
  });
  const wrong: readonly [object, readonly string[] | undefined, string, number, RegExp][] = [
    [{ ...bridge(), ...both }, undefined, "default", 101, /only a cluster has: set kubeconfig/],
    [{ ...bridge(), ...both }, cidrs, "blue", 101, /for the PodNetwork "default" only/],
    [{ ...bridge(), ...both }, ["10.1.2.0/24"], "default", 101, /ipam6: the node has no IPv6/],
    [
      { ...bridge({ ipam: { type: "static" } }), ...both },
      cidrs,
      "default",
      7,
      /needs ipam of type "host-local", not "static"/,
    ],
    [
      { ...bridge({ ipam: { type: "host-local", subnet: "10.0.0.0/8" } }), ...both },
      cidrs,
      "default",
      7,
      /ipam has the range "10\.0\.0\.0\/8" too/,
    ],
  ];
  for (const [spec, list, name, code, message] of wrong)
    await refused(ask(spec, list, name), code, message);
});

const errors: readonly [string, readonly NetworkObject[], Selected, number, RegExp][] = [
  [
    "a missing PodNetwork (E-6)",
    [podNetwork("a", bridge())],
    selected("podnet", '[{"name":"a"},{"name":"late"}]'),
    100,
    /^network "late" \(entry 1\): PodNetwork "late" not found/,
  ],
  [
    "a missing attachment",
    [],
    selected("podnet", '[{"attachmentName":"fast"}]'),
    100,
    /PodNetworkAttachment "app\/fast" not found/,
  ],
  [
    "a missing NAD",
    [],
    selected("npwg", "n1"),
    102,
    /^network "app\/n1" \(entry 0\): NetworkAttachmentDefinition "app\/n1" not found/,
  ],
  [
    "a disabled one (E-8)",
    [podNetwork("a", { ...bridge(), enabled: false })],
    selected("podnet", '[{"name":"a"}]'),
    101,
    /PodNetwork "a" is disabled/,
  ],
  [
    "one without parameters",
    [podNetwork("a", {})],
    selected("podnet", '[{"name":"a"}]'),
    101,
    /neither spec\.parameters nor/,
  ],
  [
    "podnet as its plugin",
    [podNetwork("a", { parameters: { type: "podnet" } })],
    selected("podnet", '[{"name":"a"}]'),
    7,
    /can't delegate to itself/,
  ],
  [
    "podnet in a NAD's chain",
    [nad("n1", '{"plugins":[{"type":"bridge"},{"type":"podnet"}]}')],
    selected("npwg", "n1"),
    7,
    /can't delegate to itself/,
  ],
  [
    "a NAD that is not JSON",
    [nad("n1", "{")],
    selected("npwg", "n1"),
    6,
    /"app\/n1": spec\.config: /,
  ],
  [
    "a NAD with a wrong type",
    [nad("n1", '{"type":"../sh"}')],
    selected("npwg", "n1"),
    7,
    /type: "\.\.\/sh"/,
  ],
  [
    "an undeclared capability (E-16)",
    [nad("caps", '{"type":"bridge","capabilities":{"ips":true,"mac":false}}')],
    selected("npwg", '[{"name":"caps","ips":["10.9.0.5/24"],"bandwidth":{"ingressRate":1000}}]'),
    103,
    /^network "app\/caps" \(entry 0\): asks for bandwidth: /,
  ],
  [
    "a capability that is declared false",
    [nad("caps", '{"type":"bridge","capabilities":{"mac":false}}')],
    selected("npwg", '[{"name":"caps","mac":"02:00:00:00:00:01"}]'),
    103,
    /asks for mac/,
  ],
  [
    "nothing selected and no default",
    [],
    selected("npwg", ""),
    100,
    /the pod selects none, and PodNetwork "default" not found/,
  ],
];
for (const [title, objects, selection, code, message] of errors) {
  test(`resolve: ${title} fails with code ${code} and names network and entry`, async () => {
    await refused(resolveNetworks(sourceOf(objects), selection, lenient), code, message);
  });
}

const networksOf = async (
  objects: readonly NetworkObject[],
  selection: Selected,
  options = lenient,
) =>
  (await networksFor(sourceOf(objects), selection, options)).map(
    ({ network, isDefaultNetwork }) => `${network}${isDefaultNetwork ? "*" : ""}`,
  );

test("resolve: the default network comes before additional ones, and only if there is one", async () => {
  const n1 = nad("n1", '{"type":"x"}');
  const standard = podNetwork("default", bridge());
  assert.deepEqual(await networksOf([n1, standard], selected("npwg", "n1,n1")), [
    "default*",
    "app/n1",
    "app/n1",
  ]);
  assert.deepEqual(await networksOf([n1], selected("npwg", "n1")), ["app/n1"]);
  assert.deepEqual(await networksOf([standard], selected("npwg", "")), ["default*"]);
  await refused(
    resolveNetworks(sourceOf([n1]), selected("npwg", "n1"), strict),
    100,
    /requireDefaultPodNetwork/,
  );
});

test("resolve: an explicit list is what it says, but may be made to need the default network", async () => {
  const blue = podNetwork("blue", bridge());
  const standard = podNetwork("default", bridge());
  const list = selected("podnet", '[{"name":"blue"}]');
  assert.deepEqual(await networksOf([blue, standard], list), ["blue"]);
  assert.deepEqual(await networksOf([blue, standard], list, strict), ["blue"]);
  await refused(resolveNetworks(sourceOf([blue]), list, strict), 100, /"default" not found/);
});

test("resolve: an override replaces the default network", async () => {
  const objects = [nad("n1", '{"type":"x"}'), nad("own", '{"type":"y"}', "kube-system")];
  const [defaultNetwork] = readSelectionText(
    { dialect: "npwg", origin: "x", namespace: "kube-system" },
    "own",
  );
  assert.ok(defaultNetwork);
  const list = selected("npwg", "n1", { defaultNetwork });
  assert.deepEqual(await networksOf([...objects, podNetwork("default", bridge())], list), [
    "kube-system/own*",
    "app/n1",
  ]);
  await refused(resolveNetworks(sourceOf([]), list, lenient), 102, /"kube-system\/own"/);
});

test("resolve: a PodNetworkAttachment resolves to its network, once for each pod (E-12, E-13)", async () => {
  const fast = decodeNetworkObject({
    apiVersion,
    kind: "PodNetworkAttachment",
    metadata: { name: "fast", namespace: "app" },
    spec: { podNetworkName: "dataplane" },
  }).value;
  const objects = [fast, podNetwork("dataplane", bridge())];
  assert.deepEqual(await networksOf(objects, selected("podnet", '[{"attachmentName":"fast"}]')), [
    "dataplane",
  ]);
  await refused(
    resolveNetworks(
      sourceOf(objects),
      selected("podnet", '[{"name":"dataplane"},{"attachmentName":"fast"}]'),
      lenient,
    ),
    106,
    /\(entry 1\): PodNetwork "dataplane" is referenced more than once/,
  );
});

test("resolve: parametersRefs of one NAD are its configuration", async () => {
  const ref = (name: string, kind = "NetworkAttachmentDefinition") => ({
    group: "k8s.cni.cncf.io",
    kind,
    name,
    namespace: "app",
  });
  const n1 = nad("n1", '{"type":"macvlan"}');
  for (const kind of ["NetworkAttachmentDefinition", "network-attachment-definitions"]) {
    const dp = podNetwork("dp", { parametersRefs: [ref("n1", kind)] });
    const [resolved] = await networksFor(
      sourceOf([dp, n1]),
      selected("podnet", '[{"name":"dp"}]'),
      lenient,
    );
    assert.equal(resolved?.conflist.plugins[0]?.type, "macvlan");
    assert.equal(resolved?.network, "dp");
  }
  const wrong: readonly [object[], number][] = [
    [[ref("n1"), ref("n1")], 101],
    [[ref("n1", "ConfigMap")], 101],
    [[ref("n2")], 102],
  ];
  for (const [parametersRefs, code] of wrong) {
    const dp = podNetwork("dp", { parametersRefs });
    await refused(
      resolveNetworks(sourceOf([dp, n1]), selected("podnet", '[{"name":"dp"}]'), lenient),
      code,
      /PodNetwork "dp"/,
    );
  }
});

test("resolve: known configurations are those that can be used", async () => {
  const source = sourceOf([
    podNetwork("default", bridge()),
    podNetwork("off", { ...bridge(), enabled: false }),
    nad("n1", '{"type":"x"}'),
    nad("bad", "{"),
  ]);
  assert.deepEqual(
    (await knownConflists(source)).map(({ name }) => name),
    ["default", "n1"],
  );
  assert.equal((await defaultConflist(source))?.name, "default");
  assert.equal(await defaultConflist(sourceOf([])), undefined);
});

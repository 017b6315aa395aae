import assert from "node:assert/strict";
import { test } from "node:test";
import type { Access } from "../../../daemon/node/access.ts";
import type { NetworkSource } from "../../../daemon/node/networks.ts";
import { resolveNetworks } from "../../../daemon/node/resolve.ts";
import { selectNetworks } from "../../../daemon/node/select.ts";
import { decodeNetworkObject, type NetworkObject } from "../../../lib/api/decode-objects.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const capability = "io.kubernetes.cri.pod-annotations";
const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";
const granted = "podnet.dev/allowed-namespaces";
const selector = "podnet.dev/allowed-namespace-selector";

const podNetwork = (name: string, annotations: object = {}, spec: object = {}) =>
  decodeNetworkObject({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name, annotations },
    spec: { parameters: { type: "bridge" }, ...spec },
  }).value;

const nad = (path: string, config: object = { type: "bridge" }, annotations: object = {}) => {
  const [namespace, name] = path.split("/");
  return decodeNetworkObject({
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { namespace, name, annotations },
    spec: { config: JSON.stringify({ cniVersion: "1.0.0", ...config }) },
  }).value;
};

const attachment = (path: string, podNetworkName: string, nadName?: object) => {
  const [namespace, name] = path.split("/");
  const refs = { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", ...nadName };
  return decodeNetworkObject({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace, name },
    spec: { podNetworkName, ...(nadName === undefined ? {} : { parametersRefs: [refs] }) },
  }).value;
};

function sourceOf(objects: readonly NetworkObject[]): NetworkSource {
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
    conflist: async () => undefined,
    list: async () => [],
  };
}

const nads = {
  nadTypes: ["bridge", "host-local"],
  nadDevices: ["*"],
  nadPaths: [],
  nadSysctls: [],
  trustedNadNamespaces: ["kube-system"],
};

async function outcome(
  objects: readonly NetworkObject[],
  annotations: Record<string, string>,
  access: Partial<Access> = {},
): Promise<string> {
  const config = { runtimeConfig: { [capability]: annotations } };
  const args = new Map([["K8S_POD_NAMESPACE", "app"]]);
  try {
    const { networks } = await resolveNetworks(
      sourceOf(objects),
      selectNetworks({ config, args, policy: "fail" }),
      {
        requireDefaultPodNetwork: false,
        access: {
          namespace: "app",
          describe: async () => ({ name: "app", labels: { team: "a" }, annotations: {} }),
          rules: { namespaceIsolation: false, globalNamespaces: [] },
          nads,
          ...access,
        },
      },
    );
    return networks.map(({ network }) => network).join(" ");
  } catch (error) {
    assert.ok(error instanceof CniError, String(error));
    return `${error.code}: ${error.message}`;
  }
}

const isolated = { rules: { namespaceIsolation: true, globalNamespaces: [] } };
const closed = { [granted]: "other" };

test("a network that is not granted is refused with code 104 on every path", async () => {
  const paths: readonly [string, readonly NetworkObject[], Record<string, string>][] = [
    ["a list", [podNetwork("blue", closed)], { [own]: '[{"name":"blue"}]' }],
    [
      "an attachment object",
      [podNetwork("blue", closed), attachment("app/fast", "blue")],
      { [own]: '[{"attachmentName":"fast"}]' },
    ],
    [
      "a NAD behind an attachment object",
      [
        podNetwork("blue"),
        nad("infra/n"),
        attachment("app/fast", "blue", { name: "n", namespace: "infra" }),
      ],
      { [own]: '[{"attachmentName":"fast"}]' },
    ],
    ["the short form", [nad("infra/n")], { [npwg]: "infra/n" }],
    ["the JSON form", [nad("infra/n")], { [npwg]: '[{"name":"n","namespace":"infra"}]' }],
    [
      "Multus' default network",
      [nad("kube-system/n")],
      { "v1.multus-cni.io/default-network": "n" },
    ],
    ["the cluster's default network", [podNetwork("default", closed)], {}],
  ];
  for (const [path, objects, annotations] of paths) {
    assert.match(await outcome(objects, annotations, isolated), /^104: .*namespace "app"/, path);
  }
});

test("what the admin's PodNetwork refers to is the admin's business", async () => {
  const refs = [
    {
      group: "k8s.cni.cncf.io",
      kind: "NetworkAttachmentDefinition",
      name: "n",
      namespace: "infra",
    },
  ];
  const objects = [
    podNetwork("blue", {}, { parameters: undefined, parametersRefs: refs }),
    nad("infra/n", { type: "host-device", device: "eth1" }),
  ];
  assert.equal(await outcome(objects, { [own]: '[{"name":"blue"}]' }, isolated), "blue");
});

test("an attachment object refers to its own namespace where it names none", async () => {
  const objects = [podNetwork("blue"), nad("app/n"), attachment("app/fast", "blue", { name: "n" })];
  assert.equal(await outcome(objects, { [own]: '[{"attachmentName":"fast"}]' }, isolated), "blue");
});

test("a grant by labels asks for the namespace, and fails with code 11 when nobody can tell", async () => {
  const objects = [podNetwork("blue", { [selector]: "team=a" })];
  const wish = { [own]: '[{"name":"blue"}]' };
  assert.equal(await outcome(objects, wish), "blue");
  const away = {
    describe: async () => {
      throw new CniError(11, "the API server can't be asked");
    },
  };
  assert.match(await outcome(objects, wish, away), /^11: /);
  const unknown = { describe: async () => undefined };
  assert.match(await outcome(objects, wish, unknown), /^104: /);
});

test("tenants' NADs are confined, those of trusted namespaces are not", async () => {
  const taking = { type: "host-device", device: "eth1" };
  const refused = await outcome([nad("app/n", taking)], { [npwg]: "n" });
  assert.match(refused, /^104: .*plugins\[0\]\.type: .*"host-device".*plugins\[0\]\.device/);
  assert.equal(
    await outcome([nad("kube-system/n", taking)], { [npwg]: "kube-system/n" }),
    "kube-system/n",
  );
  const writing = { type: "bridge", ipam: { type: "host-local", dataDir: "/etc" } };
  const attached = [
    podNetwork("blue"),
    nad("app/n", writing),
    attachment("app/fast", "blue", { name: "n" }),
  ];
  assert.match(
    await outcome(attached, { [own]: '[{"attachmentName":"fast"}]' }),
    /^104: .*dataDir/,
  );
});

test("a namespace's own default network comes first, and is missed when it is not there", async () => {
  const access = {
    describe: async () => ({
      name: "app",
      labels: {},
      annotations: { "podnet.dev/default-network": "tenant" },
    }),
  };
  const all = [podNetwork("default"), podNetwork("tenant"), nad("app/n")];
  assert.equal(await outcome(all, {}, access), "tenant");
  assert.equal(await outcome(all, { [npwg]: "n" }, access), "tenant app/n");
  assert.match(
    await outcome([podNetwork("default")], {}, access),
    /^100: PodNetwork "tenant" not found.*default-network/,
  );
});

test("a network that asks for the right to attach is refused without it with code 104, on every path, and with code 11 when nobody can tell", async () => {
  const asks = { "podnet.dev/access": "attach" };
  const paths: readonly [string, readonly NetworkObject[], Record<string, string>][] = [
    ["a list", [podNetwork("blue", asks)], { [own]: '[{"name":"blue"}]' }],
    [
      "an attachment object",
      [podNetwork("blue", asks), attachment("app/fast", "blue")],
      { [own]: '[{"attachmentName":"fast"}]' },
    ],
    ["the default network", [podNetwork("default", asks)], {}],
    [
      "the default network beside NADs",
      [podNetwork("default", asks), nad("app/n")],
      { [npwg]: "n" },
    ],
  ];
  for (const [path, objects, annotations] of paths) {
    const asked: string[] = [];
    const answer = (fault: string | undefined) => ({
      attachFault: async (network: string) => {
        asked.push(network);
        return fault;
      },
    });
    assert.match(await outcome(objects, annotations, answer("no right")), /^104: .*no right/, path);
    assert.doesNotMatch(await outcome(objects, annotations, answer(undefined)), /^\d+:/, path);
    assert.equal(new Set(asked).size, 1, path);
    assert.match(await outcome(objects, annotations), /^104: .*no cluster/, path);
    const away = {
      attachFault: async () => {
        throw new CniError(11, "away");
      },
    };
    assert.match(await outcome(objects, annotations, away), /^11: /, path);
  }
  const faulty = [podNetwork("blue", { "podnet.dev/access": "atach" })];
  const allows = { attachFault: async () => undefined };
  assert.match(await outcome(faulty, { [own]: '[{"name":"blue"}]' }, allows), /^104: .*"atach"/);
});

test("no spelling of another namespace, and no network's own name, gets past its isolation", async () => {
  // What a NAD calls its network inside decides where addresses are kept, never who may use it.
  const secret = nad("infra/n", { name: "n", type: "bridge", bridge: "br-n" });
  const twin = nad("app/other", { name: "n", type: "bridge", bridge: "br-n" });
  const spellings = [
    "Infra",
    "INFRA",
    " infra",
    "infra ",
    "infra\t",
    "\ufeffinfra",
    "inf\u0433a",
    "infra.",
    "./infra",
    "app/../infra",
    "infra\u0000",
    "infra%20",
  ];
  for (const namespace of spellings) {
    const list = JSON.stringify([{ name: "n", namespace }]);
    for (const wish of [list, `${namespace}/n`, `${namespace}/n@eth7`]) {
      const got = await outcome([secret, twin], { [npwg]: wish }, isolated);
      assert.match(got, /^(102|104|106): /, JSON.stringify(wish));
    }
  }
  assert.match(await outcome([secret, twin], { [npwg]: "n" }, isolated), /^102: /);
});

test("a grant that is withdrawn after the pod was admitted is missed at ADD", async () => {
  const wish = { [own]: '[{"name":"blue"}]' };
  assert.equal(await outcome([podNetwork("blue", { [granted]: "app" })], wish), "blue");
  assert.match(await outcome([podNetwork("blue", { [granted]: "other" })], wish), /^104: .*"app"/);
});

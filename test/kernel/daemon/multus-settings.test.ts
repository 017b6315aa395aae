import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Daemon } from "../../helpers/daemon.ts";
import { Lab, type Place } from "../../helpers/lab.ts";
import { runPlugin } from "../../helpers/plugin-call.ts";

// What docs/multus-settings.md says of podnet's side: settings of Multus, carried over, do what they did.
const lab = new Lab();
let place: Place;
let daemon: Daemon;
let addresses = "";

const bridge = (name: string, subnet: string) => ({
  type: "bridge",
  bridge: `br-${name}`,
  ipam: { type: "host-local", dataDir: addresses, ranges: [[{ subnet }]] },
});

const nad = (namespace: string, name: string, config?: object) => ({
  apiVersion: "k8s.cni.cncf.io/v1",
  kind: "NetworkAttachmentDefinition",
  metadata: { namespace, name },
  ...(config === undefined ? {} : { spec: { config: JSON.stringify(config) } }),
});

const granted = (object: ReturnType<typeof nad>) => ({
  ...object,
  metadata: { ...object.metadata, annotations: { "podnet.dev/allowed-namespaces": "team-a" } },
});

const conflist = (name: string, ...plugins: object[]) => ({ cniVersion: "1.0.0", name, plugins });

before(async () => {
  place = lab.node();
  addresses = lab.folder();
  const of = (name: string, subnet: string) => ({
    cniVersion: "1.0.0",
    name,
    ...bridge(name, subnet),
  });
  daemon = await Daemon.start({
    lab,
    node: place,
    config: {
      defaultConflist: "cbr0",
      namespaceIsolation: true,
      globalNamespaces: ["shared"],
      resultScope: "default",
    },
    conflists: {
      "10-flannel.conflist": conflist("cbr0", bridge("cbr0", "10.1.0.0/24")),
      "20-storage.conflist": conflist("storage", bridge("storage", "10.2.0.0/24")),
    },
    networks: {
      a: nad("team-a", "net-a", of("net-a", "10.3.0.0/24")),
      b: nad("team-a", "net-b", of("net-b", "10.4.0.0/24")),
      storage: nad("team-a", "storage"),
      other: nad("default", "open", of("open", "10.5.0.0/24")),
      shared: nad("shared", "open", of("shared", "10.6.0.0/24")),
      closed: nad("kube-system", "closed", of("closed", "10.8.0.0/24")),
      system: granted(nad("kube-system", "other-default", of("system", "10.7.0.0/24"))),
    },
  });
});
after(async () => {
  await daemon[Symbol.asyncDispose]();
  lab[Symbol.dispose]();
});

let number = 0;

/** Attaches a pod of namespace team-a with these annotations. */
async function add(annotations: object) {
  number += 1;
  const pod = lab.pod();
  const answer = await runPlugin(
    daemon.call({
      verb: "ADD",
      containerId: `pod-${number}`,
      netns: pod.path,
      ifName: "eth0",
      args: `IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=p${number}`,
      config: { runtimeConfig: { "io.kubernetes.cri.pod-annotations": annotations } },
    }),
  );
  const links = JSON.parse(pod.run("ip", "-j", "address")) as {
    ifname: string;
    addr_info: { local: string }[];
  }[];
  const v4 = links
    .filter(({ ifname }) => ifname !== "lo")
    .map(({ ifname, addr_info }) => {
      const local = addr_info.find((one) => one.local.startsWith("10."))?.local ?? "";
      return `${ifname} ${local.split(".").slice(0, 2).join(".")}`;
    });
  return { ...answer, pod, interfaces: v4.toSorted() };
}

const networks = "k8s.v1.cni.cncf.io/networks";
const defaultNetwork = "v1.multus-cni.io/default-network";

test("clusterNetwork: the node's configuration that defaultConflist names is the default network", async () => {
  assert.deepEqual((await add({})).interfaces, ["eth0 10.1"]);
});

test("the pod's networks come after it; one that is named keeps its number free for nobody", async () => {
  const { interfaces } = await add({ [networks]: "net-a@data0,net-b" });
  assert.deepEqual(interfaces, ["data0 10.3", "eth0 10.1", "net2 10.4"]);
});

test("confDir: a NAD without a configuration is the node's configuration of that name", async () => {
  assert.deepEqual((await add({ [networks]: "storage" })).interfaces, ["eth0 10.1", "net1 10.2"]);
});

test("the annotation for another default network, in kube-system unless it says so; isolation holds for it too", async () => {
  const refused = await add({ [defaultNetwork]: "closed" });
  assert.deepEqual([refused.status, refused.json.code], [1, 104]);
  const { interfaces } = await add({ [defaultNetwork]: "other-default", [networks]: "net-a" });
  assert.deepEqual(interfaces, ["eth0 10.7", "net1 10.3"]);
});

test("namespaceIsolation and globalNamespaces: listed namespaces are open, default is not one by itself", async () => {
  assert.deepEqual((await add({ [networks]: "shared/open" })).interfaces, [
    "eth0 10.1",
    "net1 10.6",
  ]);
  const { status, json } = await add({ [networks]: "default/open" });
  assert.deepEqual([status, json.code], [1, 104]);
});

test("the runtime is told the default network alone, as Multus does, with resultScope: default", async () => {
  const { json } = await add({ [networks]: "net-a" });
  assert.equal(json.ips.length, 1);
  assert.match(json.ips[0].address, /^10\.1\./);
});

test("auxiliaryCNIChainName: plugins of the folder that is named after a configuration are appended to it", async () => {
  const folder = join(daemon.confDir, "storage");
  mkdirSync(folder);
  const tuning = { type: "tuning", mtu: 1234 };
  writeFileSync(join(folder, "10-tuning.conf"), JSON.stringify(tuning));
  const { interfaces, status, pod } = await add({ [networks]: "storage" });
  assert.equal(status, 0);
  assert.deepEqual(interfaces, ["eth0 10.1", "net1 10.2"]);
  assert.match(pod.run("ip", "link", "show", "net1"), /mtu 1234/);
});

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { DevicePlugin } from "../../../helpers/device-plugin.ts";
import { WholeCluster } from "../../../helpers/whole-cluster.ts";
import { PodnetInstallation } from "../../../helpers/whole-cluster-podnet.ts";
import { bridge, nad, npwg, own, podNetwork } from "./networks.ts";

const resource = "podnet.test/slot";
const annotations = { "k8s.v1.cni.cncf.io/resourceName": resource };
const status = "k8s.v1.cni.cncf.io/network-status";
const devinfo = "/run/k8s.cni.cncf.io/devinfo";
const slots = ["slot-c", "slot-a", "slot-b"];

const stack = new AsyncDisposableStack();
let cluster: WholeCluster;
let plugin: DevicePlugin;

before(async () => {
  cluster = stack.use(await WholeCluster.start());
  const podnet = new PodnetInstallation(cluster);
  await podnet.install();
  for (const id of slots) {
    const info = { type: "memif", version: "1.1.0", memif: memif(id) };
    const name = `${resource.replace("/", "-")}-${id}-device.json`;
    cluster.node.write(`${devinfo}/dp/${name}`, JSON.stringify(info));
  }
  const folder = cluster.node.outside("/var/lib/kubelet/device-plugins");
  plugin = stack.use(await DevicePlugin.start({ folder, resource, ids: slots }));
  await cluster.eventually("the node's slots", async () => {
    const node = await cluster.get(`/api/v1/nodes/${cluster.nodeName}`);
    return node?.status.allocatable?.[resource] === "3" ? true : undefined;
  });
  const withResource = (object: object) => {
    const { metadata } = object as { metadata: object };
    return { ...object, metadata: { ...metadata, annotations } };
  };
  cluster.api.apply(
    withResource(podNetwork("slots", bridge("slots", "10.61.0.0/16"))),
    withResource(nad("default/slots", bridge("slots", "10.62.0.0/16"))),
  );
});
after(() => stack.disposeAsync());

function memif(id: string): object {
  return { role: "master", path: `/run/${id}.sock`, mode: "ethernet" };
}

function wish(name: string, count: number, selection: Record<string, string>) {
  const limits = count === 0 ? {} : { [resource]: String(count) };
  return { name, annotations: selection, resources: { limits } };
}

/** The devices of a pod's attachments by interface, as its status tells. */
async function devicesOf(name: string): Promise<Record<string, string>> {
  const rows = await cluster.eventually(`status of ${name}`, async () => {
    const pod = await cluster.get(`/api/v1/namespaces/default/pods/${name}`);
    const text = pod?.metadata.annotations?.[status];
    return text === undefined ? undefined : JSON.parse(text);
  });
  const found: Record<string, string> = {};
  for (const row of rows)
    if (row["device-info"] !== undefined)
      found[row.interface] = row["device-info"].memif.path.slice("/run/".length, -".sock".length);
  return found;
}

test("what a device plugin's kubelet gave a pod arrives in its attachments, in order, and is told in the status", async () => {
  await cluster.pods.run(wish("two", 2, { [npwg]: "slots,slots" }));
  const given = plugin.allocated.toSorted();
  assert.equal(given.length, 2);
  assert.deepEqual(await devicesOf("two"), { net1: given[0], net2: given[1] });
  const last = slots.find((id) => !given.includes(id));
  await cluster.pods.run(wish("one", 1, { [own]: '[{"name":"default"},{"name":"slots"}]' }));
  assert.deepEqual(await devicesOf("one"), { net1: last });
  const files = () => cluster.node.run("ls", `${devinfo}/cni`).trim();
  assert.equal(files().split("\n").length, 3);
  await cluster.pods.delete("default/two", "default/one");
  await cluster.eventually("no device information", () => (files() === "" ? true : undefined));
  await cluster.pods.run(wish("again", 3, { [npwg]: "slots,slots,slots" }));
  assert.deepEqual(await devicesOf("again"), { net1: "slot-a", net2: "slot-b", net3: "slot-c" });
  await cluster.pods.delete("default/again");
});

test("a pod that did not request the resource gets no device: an event says what to do", async () => {
  await cluster.pods.create(wish("greedy", 0, { [npwg]: "slots" }));
  const event = await cluster.eventually("an event", () =>
    cluster.pods.events("default/greedy").find((text) => text.startsWith("NoDeviceLeft: ")),
  );
  assert.match(
    event,
    /"podnet\.test\/slot": the pod was given no such device: request the resource/,
  );
  await cluster.pods.delete("default/greedy");
});

test("a network of type tap works from the DaemonSet's pod: it has the node's /dev/net/tun", async () => {
  const addresses = { type: "host-local", ranges: [[{ subnet: "10.63.0.0/16" }]] };
  cluster.api.apply(podNetwork("taps", { type: "tap", ipam: addresses }));
  const selection = '[{"name":"default"},{"name":"taps","interfaceName":"tap0"}]';
  await cluster.pods.run({ name: "virtual", annotations: { [own]: selection } });
  const tap = cluster.pods.interfaces("default/virtual").find(({ name }) => name === "tap0");
  assert.match(tap?.ips.join(" ") ?? "none", /^10\.63\./);
  await cluster.pods.delete("default/virtual");
});

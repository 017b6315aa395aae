import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Cluster } from "../../helpers/cluster.ts";
import { FakeKubelet } from "../../helpers/fake-kubelet.ts";
import { Recorder } from "../../helpers/recorder.ts";

let cluster: Cluster;
let kubelet: FakeKubelet;
let recorder: Recorder;
let devinfo: string;

const vf = "acme.io/vf";
const resource = { "k8s.v1.cni.cncf.io/resourceName": vf };
const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";
const npwgStatus = "k8s.v1.cni.cncf.io/network-status";
const capabilities = { deviceID: true, CNIDeviceInfoFile: true };

before(async () => {
  cluster = await Cluster.start();
  kubelet = await FakeKubelet.start();
  recorder = new Recorder(cluster.lab);
  devinfo = cluster.lab.folder();
  const list = (name: string, subnet: string, last: object) => ({
    plugins: [cluster.bridge(name, subnet), { type: "recorder", ...last }],
  });
  const nad = cluster.nad("app/vfs", list("vfs", "10.71.0.0/16", { capabilities })) as {
    metadata: object;
  };
  cluster.api.apply(
    cluster.podNetwork("fast", list("fast", "10.70.0.0/16", { capabilities }), resource),
    // A plugin that declares nothing, with an id of its own that is replaced.
    cluster.podNetwork("plain", list("plain", "10.72.0.0/16", { deviceID: "own" }), resource),
    { ...nad, metadata: { ...nad.metadata, annotations: resource } },
    cluster.nad("app/free", list("free", "10.73.0.0/16", { capabilities })),
  );
  await cluster.startDaemon(
    cluster.api.kubeconfig("podnet"),
    {
      podResourcesSocket: kubelet.socket,
      deviceInfoDir: devinfo,
      nadTypes: ["bridge", "host-local", "recorder"],
    },
    [recorder.bin],
  );
});
after(async () => {
  await cluster?.[Symbol.asyncDispose]();
  await kubelet?.[Symbol.asyncDispose]();
});

function give(name: string, ...deviceIds: readonly string[]): void {
  const containers = [{ devices: [{ resourceName: vf, deviceIds }] }];
  kubelet.pods = [
    ...kubelet.pods.filter((pod) => pod.name !== name),
    { namespace: "app", name, containers },
  ];
}

const files = () => (readdirSync(devinfo).includes("cni") ? readdirSync(join(devinfo, "cni")) : []);

test("each attachment of a resource gets the next device of the pod, in order, and passes it to its plugins", async () => {
  give("ordered", "0000:03:10.3", "slot-b", "0000:03:10.1");
  const list = '[{"name":"default"},{"name":"plain"},{"name":"fast","interfaceName":"x0"}]';
  const pod = cluster.pod("ordered", { [own]: list });
  await cluster.must("ADD", pod);
  const plain = recorder.got("ADD", "net1");
  assert.deepEqual(
    [plain.deviceID, plain.pciBusID, plain.runtimeConfig],
    ["0000:03:10.1", "0000:03:10.1", undefined],
  );
  const fast = recorder.got("ADD", "x0");
  assert.deepEqual([fast.deviceID, fast.pciBusID], ["0000:03:10.3", "0000:03:10.3"]);
  assert.equal(fast.runtimeConfig.deviceID, "0000:03:10.3");
  await cluster.must("CHECK", pod);
  assert.equal(recorder.got("CHECK", "x0").runtimeConfig.deviceID, "0000:03:10.3");
  kubelet.away();
  await cluster.must("DEL", pod);
  assert.equal(recorder.got("DEL", "x0").runtimeConfig.deviceID, "0000:03:10.3");
  await kubelet.listen();
});

test("the standard's NAD twice takes two devices; a third interface has none left: code 105 and an event", async () => {
  give("twice", "slot-b", "slot-a");
  const pod = cluster.pod("twice", { [npwg]: "vfs,vfs" });
  await cluster.must("ADD", pod);
  assert.equal(recorder.got("ADD", "net1").deviceID, "slot-a");
  assert.equal(recorder.got("ADD", "net1").pciBusID, undefined);
  assert.equal(recorder.got("ADD", "net2").deviceID, "slot-b");
  // Again: the answer of before, nothing is taken twice.
  await cluster.must("ADD", pod);
  await cluster.must("DEL", pod);
  const greedy = cluster.pod("greedy", { [npwg]: "vfs,vfs,vfs" });
  give("greedy", "slot-b", "slot-a");
  const answer = await cluster.run("ADD", greedy);
  assert.equal(answer.json?.code, 105, answer.stdout);
  assert.match(answer.json.msg, /"app\/vfs" \(net3\): resource "acme\.io\/vf": no device is left/);
  const found = () => cluster.events(greedy).find((text) => text.startsWith("NoDeviceLeft: "));
  await cluster.eventually(found, "an event NoDeviceLeft");
  assert.equal((await cluster.run("ADD", cluster.pod("poor", { [npwg]: "vfs" }))).json.code, 11);
});

test("a device that another sandbox has is not given again, and a restart forgets none", async () => {
  give("first", "slot-x");
  give("second", "slot-x");
  const [first, second] = ["first", "second"].map((name) => cluster.pod(name, { [npwg]: "vfs" }));
  assert.ok(first && second);
  await cluster.must("ADD", first);
  await cluster.daemon.kill();
  await cluster.daemon.restart();
  const refused = await cluster.run("ADD", second);
  assert.equal(refused.json?.code, 105, refused.stdout);
  assert.match(
    refused.json.msg,
    /"slot-x" is in use by container "c-app-first" \(pod "app\/first"\)/,
  );
  await cluster.must("DEL", first);
  await cluster.must("ADD", second);
  assert.equal(recorder.got("ADD", "net1").deviceID, "slot-x");
  await cluster.must("DEL", second);
});

test("a kubelet that is away, or does not know the pod yet, is code 11 and nothing is made", async () => {
  const pod = cluster.pod("early", { [npwg]: "vfs" });
  kubelet.pods = kubelet.pods.filter(({ name }) => name !== "early");
  kubelet.away();
  const away = await cluster.run("ADD", pod);
  assert.equal(away.json?.code, 11, away.stdout);
  assert.match(away.json.msg, /ask the kubelet \(".*"\) for the devices of pod "app\/early"/);
  await kubelet.listen();
  const unknown = await cluster.run("ADD", pod);
  assert.match(unknown.json.msg, /it does not know the pod/);
  assert.equal(pod.place.run("ip", "-o", "link").trim().split("\n").length, 1);
  give("early", "slot-e");
  await cluster.must("ADD", pod);
  await cluster.must("DEL", pod);
});

test("what a device plugin says of a device reaches plugins and the status, and goes with the attachment", async () => {
  const memif = { role: "master", path: "/run/slot.sock", mode: "ethernet" };
  const info = { type: "memif", version: "1.1.0", memif, "acme.io/note": "kept" };
  mkdirSync(join(devinfo, "dp"), { recursive: true });
  writeFileSync(join(devinfo, "dp/acme.io-vf-slot-1-device.json"), JSON.stringify(info));
  writeFileSync(join(devinfo, "dp/acme.io-vf-slot-2-device.json"), '{"type":"memif"');
  give("informed", "slot-1", "slot-2", "../slot/3");
  const pod = cluster.pod("informed", { [npwg]: "vfs,vfs,vfs" });
  await cluster.must("ADD", pod);
  const rows = await cluster.status(pod, npwgStatus);
  assert.deepEqual(
    rows.map((row: Record<string, unknown>) => row["device-info"]),
    [undefined, undefined, info, undefined],
  );
  assert.equal(recorder.got("ADD", "net1").deviceID, "../slot/3");
  const { CNIDeviceInfoFile: path } = recorder.got("ADD", "net2").runtimeConfig;
  assert.equal(path, join(devinfo, "cni/app-vfs-c-app-informed_net2"));
  assert.deepEqual(files(), ["app-vfs-c-app-informed_net2"]);
  assert.match(cluster.daemon.log, /slot-2-device\.json.*device information ignored/);
  await cluster.must("DEL", pod);
  assert.deepEqual(files(), []);
});

test("a pod takes no device by its name alone where a tenant wrote the network", async () => {
  const pod = cluster.pod("taking", { [npwg]: '[{"name":"free","deviceID":"0000:03:10.1"}]' });
  const refused = await cluster.run("ADD", pod);
  assert.equal(refused.json?.code, 104, refused.stdout);
  assert.match(
    refused.json.msg,
    /devices come with the annotation k8s\.v1\.cni\.cncf\.io\/resourceName/,
  );
  give("choosing", "slot-1", "slot-2");
  const chosen = cluster.pod("choosing", { [npwg]: '[{"name":"vfs","deviceID":"slot-2"}]' });
  await cluster.must("ADD", chosen);
  assert.equal(recorder.got("ADD", "net1").deviceID, "slot-2");
  await cluster.must("DEL", chosen);
});

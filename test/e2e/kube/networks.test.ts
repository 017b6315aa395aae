import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Cluster, nodeName, type TestPod } from "../../helpers/cluster.ts";
import { runCommand } from "../../helpers/lab.ts";
import { Recorder } from "../../helpers/recorder.ts";

let cluster: Cluster;
let recorder: Recorder;

const own = "podnet.dev/networks";
const npwgStatus = "k8s.v1.cni.cncf.io/network-status";

before(async () => {
  cluster = await Cluster.start();
  recorder = new Recorder(cluster.lab);
  const chain = [cluster.bridge("sticky", "10.77.0.0/16"), { type: "recorder" }];
  cluster.api.apply(
    cluster.podNetwork("sticky", { plugins: chain }),
    cluster.podNetwork("dual", {
      type: "bridge",
      bridge: "br-dual",
      isGateway: true,
      mtu: 1400,
      dns: { nameservers: ["10.78.0.53"], domain: "dual.test", search: ["dual.test"] },
      ipam: {
        type: "host-local",
        dataDir: cluster.addresses,
        ranges: [[{ subnet: "10.78.0.0/16" }], [{ subnet: "fd00:78::/64" }]],
        routes: [{ dst: "::/0" }, { dst: "198.51.100.0/24" }],
      },
    }),
    {
      ...cluster.podNetwork("theirs", { anything: [1, 2] }),
      spec: { provider: "other.io/fabric", parameters: { anything: [1, 2] } },
    },
  );
  await cluster.startDaemon(cluster.api.kubeconfig("podnet"), {}, [recorder.bin]);
});
after(() => cluster?.[Symbol.asyncDispose]());

const eventOf = async (pod: TestPod, expected: RegExp) =>
  await cluster.eventually(
    () => cluster.events(pod).find((text) => expected.test(text)),
    `${expected} of ${pod.name}`,
  );

/** `podnetctl resolve` for a pod with these annotations. */
function resolve(annotations: object): string {
  const file = join(cluster.lab.folder(), "pod.yaml");
  writeFileSync(file, JSON.stringify({ kind: "Pod", metadata: { namespace: "app", annotations } }));
  const fromSource = process.env["PODNET_FROM_SOURCE"] === "1";
  const program = fromSource ? [process.execPath, "cmd/podnetctl/main.ts"] : ["dist/bin/podnetctl"];
  return runCommand([...program, "--socket", cluster.daemon.socket, "resolve", "-f", file]);
}

test("a network of another provider is left alone: the pod gets the others, and an event names it", async () => {
  const list = '[{"name":"default"},{"name":"theirs"},{"name":"blue"}]';
  const pod = cluster.pod("mixed", { [own]: list });
  await cluster.must("ADD", pod);
  const rows = await cluster.status(pod);
  assert.deepEqual(
    rows.map((row: { name: string; interfaceName: string }) => [row.name, row.interfaceName]),
    [
      ["default", "eth0"],
      ["blue", "net2"],
    ],
  );
  await eventOf(
    pod,
    /^LeftToProvider: network "theirs" is left to its provider "other\.io\/fabric" \(interface "net1"/,
  );
  await cluster.must("DEL", pod);
  const shown = resolve({ [own]: list });
  assert.match(shown, /^theirs +net1 +left to provider other\.io\/fabric +- +- +no$/m);
  const alone = cluster.pod("alone", { [own]: '[{"name":"theirs"}]' });
  const refused = await cluster.run("ADD", alone);
  assert.equal(refused.json?.code, 101, refused.stdout);
  await eventOf(alone, /^NetworkNotReady: no network to attach: "theirs" is provider "other\.io/);
});

test("the status says what the kernel has: addresses, hardware address, mtu and default routes of each family; and the network's dns", async () => {
  const list = '[{"name":"default"},{"name":"dual","isDefaultGW6":true}]';
  const pod = cluster.pod("exact", { [own]: list });
  await cluster.must("ADD", pod);
  const kernel = (...args: string[]) => JSON.parse(pod.place.run("ip", "-j", ...args));
  const links = kernel("address").filter(({ ifname }: { ifname: string }) => ifname !== "lo");
  const routes = [...kernel("-4", "route"), ...kernel("-6", "route")];
  const expected = ["eth0", "net1"].map((name) => {
    const link = links.find(({ ifname }: { ifname: string }) => ifname === name);
    const gateway = routes
      .filter(({ dst, dev }: { dst: string; dev: string }) => dst === "default" && dev === name)
      .map((route: { gateway: string }) => route.gateway);
    const global = link.addr_info.filter(({ scope }: { scope: string }) => scope === "global");
    return {
      name: name === "eth0" ? "default" : "dual",
      interface: name,
      ips: global.map(({ local }: { local: string }) => local),
      mac: link.address,
      mtu: link.mtu,
      ...(name === "eth0" ? { default: true } : {}),
      dns:
        name === "eth0"
          ? {}
          : { nameservers: ["10.78.0.53"], domain: "dual.test", search: ["dual.test"] },
      gateway,
      "default-route": gateway,
    };
  });
  assert.deepEqual(await cluster.status(pod, npwgStatus), expected);
  assert.deepEqual(
    [expected[1]?.mtu, expected[1]?.gateway, expected[0]?.gateway],
    [1400, ["fd00:78::1"], ["10.1.0.1"]],
  );
  const [, v4, v6] = await cluster.status(pod);
  assert.deepEqual(v4, { name: "dual", interfaceName: "net1", ip: expected[1]?.ips[0] });
  assert.deepEqual(v6, {
    name: "dual",
    interfaceName: "net1",
    ip: expected[1]?.ips[1],
    isDefaultGW: true,
    isDefaultGW6: true,
  });
  await cluster.must("DEL", pod);
});

test("every way in which a detach stays pending is an event: after a failed ADD, after a restart, in GC, in DEL", async () => {
  const pending = /^DetachPending: detach network "sticky" \(net1\): .*told to fail$/;
  const list = '[{"name":"default"},{"name":"sticky"}]';
  recorder.fail("ADD", true);
  recorder.fail("DEL", true);
  const failed = cluster.pod("failed", { [own]: list });
  assert.equal((await cluster.run("ADD", failed)).json?.code, 11);
  await eventOf(failed, pending);
  await eventOf(failed, /^AttachFailed: /);
  const count = () => cluster.events(failed).filter((text) => pending.test(text)).length;
  assert.equal(count(), 1);
  await cluster.daemon.kill();
  await cluster.daemon.restart();
  await cluster.eventually(() => (count() > 1 ? true : undefined), "an event after the restart");
  recorder.fail("ADD", false);
  const collected = cluster.pod("collected", { [own]: list });
  await cluster.must("ADD", collected);
  const gc = await cluster.run("GC", collected, { config: { "cni.dev/valid-attachments": [] } });
  assert.notEqual(gc.status, 0);
  await eventOf(collected, pending);
  const deleted = cluster.pod("deleted", { [own]: list });
  await cluster.must("ADD", deleted);
  const del = await cluster.run("DEL", deleted);
  assert.notEqual(del.status, 0, del.stdout);
  await eventOf(deleted, pending);
  recorder.fail("DEL", false);
  for (const pod of [failed, collected, deleted]) await cluster.must("DEL", pod);
});

// This API server keeps one range of a node, and so one family: the unit tests have both.
test("ipam4 kubernetes gives addresses of the node's own range, and none before there is one", async () => {
  const parameters = { type: "bridge", bridge: "br-k8s", isDefaultGateway: true };
  const ipam = { type: "host-local", dataDir: cluster.addresses };
  cluster.api.apply({
    ...cluster.podNetwork("default", {}),
    spec: { ipam4: "kubernetes", ipam6: "none", parameters: { ...parameters, ipam } },
  });
  const pod = cluster.pod("ranges");
  const early = await cluster.eventually(async () => {
    const answer = await cluster.run("ADD", pod);
    return answer.json?.code === 11 ? answer.json.msg : undefined;
  }, "code 11");
  assert.match(early, /node "node-a"/);
  cluster.api.apply({
    apiVersion: "v1",
    kind: "Node",
    metadata: { name: nodeName },
    spec: { podCIDR: "10.99.3.0/24", podCIDRs: ["10.99.3.0/24"] },
  });
  const result = await cluster.must("ADD", pod);
  assert.deepEqual(
    result.ips.map(({ address }: { address: string }) => address),
    ["10.99.3.2/24"],
  );
  await cluster.must("DEL", pod);
});

test("E-17: with selectionPolicy ignore a pod whose selection can't be read has its default network, and a warning", async () => {
  await cluster.daemon.stop();
  await cluster.startDaemon(cluster.api.kubeconfig("podnet"), { selectionPolicy: "ignore" });
  const pod = cluster.pod("ignored", { [own]: '[{"name":"blue","interfaceName":"a/b"}]' });
  await cluster.must("ADD", pod);
  const rows = (await cluster.status(pod)).map((row: { name: string }) => row.name);
  assert.deepEqual(rows, ["default"]);
  await eventOf(pod, /^SelectionIgnored: selection ignored: .*\[0\]\.interfaceName: "a\/b"/);
  await cluster.must("DEL", pod);
});

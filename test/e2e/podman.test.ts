import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { after, before, test } from "node:test";
import { Daemon, podNetwork } from "../helpers/daemon.ts";
import { Lab } from "../helpers/lab.ts";
import { MountedNode } from "../helpers/mounts.ts";
import { Podman } from "../helpers/podman.ts";
import { LeakCheck } from "../helpers/state.ts";

const stack = new AsyncDisposableStack();
let lab: Lab;
let daemon: Daemon;
let podman: Podman;
let stores: string;

before(async () => {
  lab = stack.use(new Lab());
  const node = stack.use(MountedNode.make(lab));
  stores = lab.folder();
  const network = (name: string, subnet: string) =>
    podNetwork(name, {
      type: "bridge",
      bridge: `br-${name}`,
      isGateway: true,
      ipam: { type: "host-local", dataDir: stores, ranges: [[{ subnet }]] },
    });
  daemon = await Daemon.start({
    lab,
    node,
    networks: {
      blue: network("blue", "10.10.0.0/24"),
      red: network("red", "10.20.0.0/24"),
    },
  });
  stack.defer(() => daemon.stop());
  // It goes before the daemon: containers that a failed test left are taken down by both.
  podman = stack.use(new Podman(lab, node));
  node.run("cp", resolve("dist/bin/podnet"), "/opt/cni/bin/podnet");
  writeConflist("podnet", ["blue", "red"]);
  writeConflist("only-blue", ["blue"]);
  writeConflist("only-red", ["red"]);
  writeConflist("broken", ["blue", "missing"]);
  // The first container of a network leaves the bridge behind, as with the reference plugin; what later ones leave is a leak.
  podman.start("first", "--network", "podnet");
  podman.run("rm", "--force", "--time", "0", "first");
});

after(() => stack.disposeAsync());

/** A network of podman's: podnet, asked for these networks. */
function writeConflist(name: string, networks: readonly string[]): void {
  const plugin = { type: "podnet", daemonSocket: daemon.socket, networks };
  const conflist = { cniVersion: "1.0.0", name, plugins: [plugin] };
  podman.write(`/etc/cni/net.d/${name}.conflist`, JSON.stringify(conflist));
}

/** IPv4 addresses by interface, as the container itself sees them. */
function addresses(container: string): Record<string, string> {
  const text = podman.exec(container, "ip", "-o", "-4", "address");
  const found = [...text.matchAll(/^\d+: (\S+)\s+inet (\S+)/gm)];
  return Object.fromEntries(found.map(([, name = "", address = ""]) => [name, address]));
}

/** Records, reserved addresses and namespaces of containers; the folders of networks stay, with a lock and the last address. */
function kept(): string[] {
  const files = [daemon.stateDir, stores].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: "utf8" }),
  );
  const namespaces = podman.node.run("ls", "/run/netns").split("\n");
  return [
    ...files.filter((file) => /^records\/|\/[0-9.]+$/.test(file)),
    ...namespaces.filter(Boolean),
  ];
}

function remove(...names: string[]): void {
  podman.run("rm", "--force", "--time", "0", ...names);
}

test("a container on one network of podman's that stands for two of podnet has both addresses, and removing it leaves nothing", () => {
  const check = new LeakCheck([podman.node], { pid: daemon.pid });
  const id = podman.start("multi", "--network", "podnet");
  const inside = addresses("multi");
  assert.deepEqual(Object.keys(inside), ["lo", "eth0", "net1"]);
  assert.match(inside["eth0"] ?? "", /^10\.10\.0\.\d+\/24$/);
  assert.match(inside["net1"] ?? "", /^10\.20\.0\.\d+\/24$/);
  podman.exec("multi", "ping", "-c1", "-W2", "10.20.0.1");
  // podman knows of both: eth0's as the container's address, the other as a secondary one.
  const [shown] = JSON.parse(podman.run("inspect", "multi"));
  const { IPAddress, SecondaryIPAddresses } = shown.NetworkSettings.Networks.podnet;
  assert.equal(`${IPAddress}/24`, inside["eth0"]);
  assert.equal(`${SecondaryIPAddresses[0].Addr}/24`, inside["net1"]);
  const [record, ...others] = kept();
  assert.equal(record, `records/${id}@eth0.json`);
  assert.equal(others.length, 3, "two addresses and a namespace");
  remove("multi");
  assert.deepEqual(kept(), []);
  check.assertClean();
});

test("a container on two networks of podman's, each one of podnet, is two attachments, and containers on the same one reach each other", () => {
  const check = new LeakCheck([podman.node], { pid: daemon.pid });
  const id = podman.start("both", "--network", "only-blue,only-red");
  podman.start("other", "--network", "only-red");
  const inside = addresses("both");
  assert.match(inside["eth0"] ?? "", /^10\.10\.0\./);
  assert.match(inside["eth1"] ?? "", /^10\.20\.0\./);
  const records = kept().filter((file) => file.startsWith(`records/${id}`));
  assert.deepEqual(records.toSorted(), [`records/${id}@eth0.json`, `records/${id}@eth1.json`]);
  podman.exec("other", "ping", "-c1", "-W2", inside["eth1"]?.split("/")[0] ?? "");
  remove("both", "other");
  assert.deepEqual(kept(), []);
  check.assertClean();
});

test("a container that is to have a network that does not exist does not start, podman tells which, and nothing is left", () => {
  const check = new LeakCheck([podman.node], { pid: daemon.pid });
  assert.throws(
    () => podman.start("wrong", "--rm", "--network", "broken"),
    /plugin type="podnet" failed \(add\).*PodNetwork "missing" not found/,
  );
  assert.deepEqual(kept(), []);
  check.assertClean();
});

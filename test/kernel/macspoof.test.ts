import assert from "node:assert/strict";
import { test } from "node:test";
import { hostVethName } from "../../daemon/plugins/shared/names.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniVerb } from "../../lib/cni/types.ts";
import { cleanSoon } from "../helpers/attached.ts";
import { InProcess } from "../helpers/in-process.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { LeakCheck, nftRuleset, openFiles } from "../helpers/state.ts";

const spoofed = "0a:00:00:00:00:66";

/** A node with a bridge at 10.1.0.1, a process of podnet's plugins, and calls for pods of a network. */
class Scene implements AsyncDisposable {
  readonly lab = new Lab();
  readonly node = this.lab.node();
  readonly plugins: InProcess;

  constructor() {
    const { node } = this;
    node.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1");
    node.run("ip", "link", "add", "br0", "type", "bridge");
    node.run("ip", "link", "set", "br0", "up", "address", "0a:00:00:00:00:01");
    node.run("ip", "address", "add", "10.1.0.1/24", "dev", "br0");
    // A bridge that had a port is not quite as before: its offload limits stay changed.
    node.run("ip", "link", "add", "p0", "master", "br0", "type", "veth", "peer", "name", "p1");
    node.run("ip", "link", "del", "p0");
    this.plugins = InProcess.start(node);
  }

  call(number: number, pod: Place, more: JsonObject = {}) {
    const addresses = [{ address: `10.1.0.${number}/24` }];
    const config: JsonObject = {
      cniVersion: "1.1.0",
      name: "blue",
      type: "bridge",
      bridge: "br0",
      macspoofchk: true,
      ipam: { type: "static", addresses },
      ...more,
    };
    return {
      type: "bridge",
      containerId: `c${number}`,
      ifName: "eth0",
      netns: pod.path,
      config,
    };
  }

  async add(number: number, pod: Place, more: JsonObject = {}) {
    const call = this.call(number, pod, more);
    const prevResult = await this.plugins.mustRun({ ...call, verb: "ADD" });
    return { ...call, config: { ...call.config, prevResult } };
  }

  /** How many elements each attachment has, by its container. */
  owners(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const item of nftRuleset(this.node)) {
      const set = item["set"] as JsonObject | undefined;
      if (set?.["table"] !== "podnet_macspoof") continue;
      for (const { elem } of (set["elem"] ?? []) as unknown as { elem: { comment: string } }[]) {
        const [, container = ""] = elem.comment.split(" ");
        counts[container] = (counts[container] ?? 0) + 1;
      }
    }
    return counts;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.plugins[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
  }
}

/** Whether the bridge's address answers within a second; the node learns nothing from earlier tries. */
function reaches(pod: Place, node: Place): boolean {
  node.run("ip", "neighbour", "flush", "dev", "br0");
  const script =
    "ip neighbour flush dev eth0; ping -c1 -W1 10.1.0.1 >/dev/null && echo yes || true";
  return pod.run("sh", "-c", script) === "yes\n";
}

function setMac(pod: Place, mac: string): void {
  pod.run("ip", "link", "set", "eth0", "address", mac);
}

const verb = (name: CniVerb) => ({ verb: name });

/** The pod's own /sys shows the machine's namespace unless it is mounted anew: ask by netlink. */
function linkMac(pod: Place): string {
  const [link] = JSON.parse(pod.run("ip", "-j", "link", "show", "eth0")) as { address: string }[];
  return link?.address ?? "";
}

test("macspoofchk: a pod sends from its own address only, other pods are not affected, until DEL", async () => {
  await using scene = new Scene();
  const { node, plugins } = scene;
  const [checked, free] = [scene.lab.pod(), scene.lab.pod()];
  const one = await scene.add(2, checked);
  await scene.add(3, free, { macspoofchk: false });
  const own = linkMac(checked);
  assert.deepEqual([reaches(checked, node), reaches(free, node)], [true, true]);
  setMac(checked, spoofed);
  setMac(free, "0a:00:00:00:00:77");
  assert.deepEqual([reaches(checked, node), reaches(free, node)], [false, true]);
  const drifted = await plugins.run({ ...one, ...verb("CHECK") });
  assert.equal(drifted.json.code, 999);
  setMac(checked, own);
  assert.equal(reaches(checked, node), true);
  await plugins.mustRun({ ...one, ...verb("CHECK") });
  assert.deepEqual(scene.owners(), { c2: 2 });
  await plugins.mustRun({ ...one, ...verb("DEL") });
  await plugins.mustRun({ ...one, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});
  assert.equal(reaches(free, node), true);
});

test("macspoofchk: tuning gives the pod another address, which is then the only one that it may send from", async () => {
  await using scene = new Scene();
  const { node, plugins } = scene;
  const pod = scene.lab.pod();
  const one = await scene.add(2, pod);
  const own = linkMac(pod);
  const tuning = {
    ...one,
    type: "tuning",
    config: { ...one.config, type: "tuning", mac: "0a:00:00:00:00:55" },
  };
  const prevResult = await plugins.mustRun({ ...tuning, ...verb("ADD") });
  assert.equal(linkMac(pod), "0a:00:00:00:00:55");
  assert.equal(reaches(pod, node), true);
  const final = { ...one, config: { ...one.config, prevResult } };
  await plugins.mustRun({ ...final, ...verb("CHECK") });
  setMac(pod, own);
  assert.equal(reaches(pod, node), false);
  assert.deepEqual(scene.owners(), { c2: 2 });
  await plugins.mustRun({ ...final, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});
});

test("macspoofchk: two checked pods may not send from each other's address; a requested address is the one that counts", async () => {
  await using scene = new Scene();
  const { node } = scene;
  const [one, other] = [scene.lab.pod(), scene.lab.pod()];
  const requested = "0a:00:00:00:00:02";
  await scene.add(2, one, { runtimeConfig: { mac: requested } });
  await scene.add(3, other);
  assert.equal(linkMac(one), requested);
  assert.deepEqual([reaches(one, node), reaches(other, node)], [true, true]);
  one.run("ip", "link", "set", "eth0", "down");
  setMac(other, requested);
  assert.equal(reaches(other, node), false);
});

test("macspoofchk: CHECK misses an element and the rule; the next ADD makes an emptied or deleted table again", async () => {
  await using scene = new Scene();
  const { node, plugins } = scene;
  const pod = scene.lab.pod();
  const call = await scene.add(2, pod);
  const table = ["bridge", "podnet_macspoof"];
  const check = async () => (await plugins.run({ ...call, ...verb("CHECK") })).json?.msg ?? "";
  assert.equal(await check(), "");
  node.run("nft", "flush", "chain", ...table, "prerouting");
  assert.match(await check(), /rule of nftables chain "bridge podnet_macspoof prerouting" is gone/);
  node.run("nft", "flush", "set", ...table, "own");
  assert.match(await check(), /lacks its element in nftables "own"/);
  node.run("nft", "delete", "table", ...table);
  assert.match(await check(), /lacks its element in nftables "ports"/);
  await plugins.mustRun({ ...call, ...verb("DEL") });
  const again = await scene.add(2, pod);
  assert.equal(reaches(pod, node), true);
  setMac(pod, spoofed);
  assert.equal(reaches(pod, node), false);
  await plugins.mustRun({ ...again, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});
});

test("macspoofchk: DEL works without namespace and result, and leaves a newer owner of the port's name alone", async () => {
  await using scene = new Scene();
  const { node, plugins } = scene;
  const gone = scene.lab.pod();
  await scene.add(2, gone);
  scene.lab.remove(gone);
  const { netns: _, ...without } = scene.call(2, gone);
  await plugins.mustRun({ ...without, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});

  // A crash left the elements of network blue behind; red then attaches the same container and interface.
  const left = scene.lab.pod();
  const old = await scene.add(3, left);
  node.run("ip", "link", "del", hostVethName("c3", "eth0"));
  const pod = scene.lab.pod();
  const newer = await scene.add(3, pod, { name: "red" });
  await plugins.mustRun({ ...old, ...verb("GC"), config: old.config });
  const owned = nftRuleset(node).filter((item) => JSON.stringify(item).includes("eth0 red"));
  assert.equal(owned.length, 2);
  await plugins.mustRun({ ...newer, ...verb("CHECK") });
  assert.equal(reaches(pod, node), true);
  setMac(pod, spoofed);
  assert.equal(reaches(pod, node), false);
  await plugins.mustRun({ ...old, ...verb("DEL") });
  assert.deepEqual(scene.owners(), { c3: 2 });
  await plugins.mustRun({ ...newer, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});
});

test("macspoofchk: GC keeps valid attachments and other networks", async () => {
  await using scene = new Scene();
  const pods = [2, 3, 4].map((number) => ({ number, pod: scene.lab.pod() }));
  for (const { number, pod } of pods) {
    await scene.add(number, pod, { name: number === 4 ? "red" : "blue" });
  }
  const gc = (name: string, ...valid: string[]) =>
    scene.plugins.mustRun({
      type: "bridge",
      ...verb("GC"),
      containerId: "",
      ifName: "",
      config: {
        name,
        type: "bridge",
        "cni.dev/valid-attachments": valid.map((containerID) => ({ containerID, ifname: "eth0" })),
      },
    });
  await gc("blue", "c2");
  assert.deepEqual(scene.owners(), { c2: 2, c4: 2 });
  await gc("blue");
  await gc("red");
  assert.deepEqual(scene.owners(), {});
});

test("macspoofchk: many cycles, failed ADDs and others' tables leave everything as before", async () => {
  await using scene = new Scene();
  const { node, plugins } = scene;
  node.run(
    "nft",
    "add table bridge nat; add chain bridge nat PREROUTING { type filter hook prerouting priority dstnat; }",
  );
  const pods = [2, 3, 4].map((number) => ({ number, pod: scene.lab.pod() }));
  const taken = scene.lab.pod();
  taken.run("ip", "link", "add", "eth0", "type", "bridge");
  const cycle = async () => {
    await Promise.all([
      ...pods.map(async ({ number, pod }) => {
        const call = await scene.add(number, pod);
        await plugins.mustRun({ ...call, ...verb("CHECK") });
        await plugins.mustRun({ ...call, ...verb("DEL") });
      }),
      (async () => {
        const call = scene.call(9, taken);
        assert.equal((await plugins.run({ ...call, ...verb("ADD") })).json.code, 4);
        await plugins.mustRun({ ...call, ...verb("DEL") });
      })(),
    ]);
  };
  await cycle();
  const leaks = new LeakCheck([node, taken, ...pods.map(({ pod }) => pod)]);
  const files = openFiles(plugins.pid);
  for (let round = 0; round < 5; round += 1) await cycle();
  await cleanSoon(leaks);
  assert.deepEqual(openFiles(plugins.pid), files);
});

test("macspoofchk: an ADD that fails after the elements were made leaves none", async () => {
  await using scene = new Scene();
  const pod = scene.lab.pod();
  const routes = [{ dst: "10.9.0.0/16", gw: "172.16.0.1" }];
  const call = scene.call(2, pod, {
    ipam: { type: "static", addresses: [{ address: "10.1.0.2/24" }], routes },
  });
  assert.equal((await scene.plugins.run({ ...call, ...verb("ADD") })).status, 1);
  assert.deepEqual(scene.owners(), { c2: 2 }, "they are made before the interface is up");
  await scene.plugins.mustRun({ ...call, ...verb("DEL") });
  assert.deepEqual(scene.owners(), {});
});

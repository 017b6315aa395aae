import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import {
  addMasquerade,
  checkMasquerade,
  deleteMasquerade,
  gcMasquerade,
} from "../../daemon/plugins/nftables/masquerade.ts";
import type { PluginCall } from "../../daemon/plugins/plugin.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { moveIntoNode } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { LeakCheck, nftRuleset } from "../helpers/state.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
const outside = lab.node();
const pod = lab.pod();
const neighbour = lab.pod();
const addresses = ["10.7.0.2/24", "fd07::2/64"];

function ip(place: Place, text: string): void {
  place.run("ip", ...text.split(" "));
}

for (const [number, place] of [
  [2, pod],
  [3, neighbour],
] as const) {
  ip(node, `link add v${number} type veth peer name eth0 netns ${place.name}`);
  ip(place, "link set eth0 up");
  ip(place, `address add 10.7.0.${number}/24 dev eth0`);
  ip(place, `-6 address add fd07::${number}/64 dev eth0 nodad`);
  ip(place, "route add default via 10.7.0.1");
  ip(place, "-6 route add default via fd07::1");
}
node.run(
  "sh",
  "-c",
  "ip link add br0 type bridge; ip link set br0 up; for v in v2 v3; do ip link set $v master br0 up; done",
);
ip(node, "address add 10.7.0.1/24 dev br0");
ip(node, "-6 address add fd07::1/64 dev br0 nodad");
ip(node, `link add up0 type veth peer name up0 netns ${outside.name}`);
for (const [place, last] of [
  [node, 1],
  [outside, 2],
] as const) {
  ip(place, "link set up0 up");
  ip(place, `address add 192.0.2.${last}/24 dev up0`);
  ip(place, `-6 address add 2001:db8::${last}/64 dev up0 nodad`);
}
node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1");

function call(
  host: Rtnetlink,
  containerId: string,
  options: { ips?: readonly string[]; network?: string } = {},
): PluginCall {
  const { ips, network = "blue" } = options;
  return {
    host,
    network,
    containerId,
    ifName: "eth0",
    prevResult: ips && {
      interfaces: [],
      ips: ips.map((address) => ({ address })),
      routes: [],
      dns: {},
    },
    config: { type: "bridge" },
  } as unknown as PluginCall;
}

/** The addresses that have elements, by container: as `nft` tells it. */
function owners(): Record<string, string> {
  const found: Record<string, string> = {};
  for (const item of nftRuleset(node)) {
    const map = item["map"] as JsonObject | undefined;
    if (map?.["table"] !== "podnet" || map["elem"] === undefined) continue;
    for (const [key] of map["elem"] as unknown as [
      { elem: { val: string; comment: string } },
      unknown,
    ][]) {
      found[key.elem.val] = key.elem.comment.split(" ")[1] ?? "";
    }
  }
  return found;
}

/** Elements of the plain sets, which must come and go with those of the maps. */
function localElements(): number {
  return nftRuleset(node).reduce((count, item) => {
    const set = item["set"] as JsonObject | undefined;
    return (
      count + (set?.["table"] === "podnet" && Array.isArray(set["elem"]) ? set["elem"].length : 0)
    );
  }, 0);
}

/** The source that a receiver sees of a datagram; "" when none comes. */
function seen(from: Place, to: Place, address: string): string {
  const script = `const u=require("dgram").createSocket("udp6");u.on("message",(m,r)=>{process.stdout.write(r.address.replace("::ffff:",""));process.exit()});u.bind(9,"::",()=>{
    require("child_process").spawnSync("nsenter",["--net=${from.path}",process.execPath,"-e",'const s=require("dgram").createSocket("${address.includes(":") ? "udp6" : "udp4"}");s.send("x",9,"${address}",()=>process.exit())'])});setTimeout(()=>process.exit(),1500)`;
  const [program = "", ...args] = to.wrap([process.execPath, "-e", script]);
  return spawnSync(program, args, { encoding: "utf8" }).stdout;
}

test("masquerade: what leaves the subnet gets the node's address, what stays keeps the pod's, until DEL", async () => {
  using host = Rtnetlink.open();
  await addMasquerade(call(host, "one"), addresses);
  assert.equal(seen(pod, outside, "192.0.2.2"), "192.0.2.1");
  assert.equal(seen(pod, outside, "2001:db8::2"), "2001:db8::1");
  assert.equal(seen(neighbour, outside, "192.0.2.2"), "10.7.0.3");
  assert.equal(seen(pod, neighbour, "10.7.0.3"), "10.7.0.2");
  assert.equal(seen(pod, neighbour, "fd07::3"), "fd07::2");
  await checkMasquerade(call(host, "one"), addresses);
  await deleteMasquerade(call(host, "one", { ips: addresses }));
  await deleteMasquerade(call(host, "one", { ips: addresses }));
  assert.deepEqual([owners(), localElements()], [{}, 0]);
  await assert.rejects(checkMasquerade(call(host, "one"), addresses), { code: 999 });
});

test("masquerade: DEL without a result finds the elements; a newer owner of an address keeps its own", async () => {
  using host = Rtnetlink.open();
  await addMasquerade(call(host, "old"), addresses);
  await addMasquerade(call(host, "old"), addresses);
  await addMasquerade(call(host, "new"), ["10.7.0.2/24"]);
  assert.deepEqual(owners(), { "10.7.0.2": "new", "fd07::2": "old" });
  await deleteMasquerade(call(host, "old", { ips: addresses }));
  assert.deepEqual(owners(), { "10.7.0.2": "new" });
  await checkMasquerade(call(host, "new"), ["10.7.0.2/24"]);
  await deleteMasquerade(call(host, "old"));
  assert.deepEqual(owners(), { "10.7.0.2": "new" });
  await deleteMasquerade(call(host, "new"));
  assert.deepEqual([owners(), localElements()], [{}, 0]);
});

test("masquerade: GC keeps valid attachments and other networks", async () => {
  using host = Rtnetlink.open();
  await addMasquerade(call(host, "kept"), ["10.7.0.2/24"]);
  await addMasquerade(call(host, "stale"), ["10.7.0.3/24", "fd07::3/64"]);
  await addMasquerade(call(host, "other", { network: "red" }), ["10.7.0.4/25"]);
  await gcMasquerade(call(host, ""), [{ containerID: "kept", ifname: "eth0" }]);
  assert.deepEqual(owners(), { "10.7.0.2": "kept", "10.7.0.4": "other" });
  await gcMasquerade(call(host, "", { network: "red" }), []);
  await gcMasquerade(call(host, ""), []);
  assert.deepEqual([owners(), localElements()], [{}, 0]);
});

test("masquerade: an emptied or deleted table is made again, CHECK says so before", async () => {
  using host = Rtnetlink.open();
  await addMasquerade(call(host, "one"), addresses);
  node.run("nft", "flush", "chain", "inet", "podnet", "postrouting");
  await assert.rejects(checkMasquerade(call(host, "one"), addresses), {
    code: 999,
    message: /rules of nftables chain "postrouting"/,
  });
  node.run("nft", "delete", "table", "inet", "podnet");
  await assert.rejects(checkMasquerade(call(host, "one"), addresses), { code: 999 });
  await addMasquerade(call(host, "one"), addresses);
  await checkMasquerade(call(host, "one"), addresses);
  assert.equal(seen(pod, outside, "192.0.2.2"), "192.0.2.1");
  await deleteMasquerade(call(host, "one", { ips: addresses }));
});

test("masquerade: a hundred attachments at once, each removed by itself; others' tables and open files as before", async () => {
  node.run(
    "nft",
    "add table ip nat; add chain ip nat POSTROUTING { type nat hook postrouting priority srcnat; }; add rule ip nat POSTROUTING ip saddr 172.17.0.0/16 masquerade",
  );
  const leaks = new LeakCheck([node]);
  {
    using host = Rtnetlink.open();
    const numbers = Array.from({ length: 100 }, (_, number) => number);
    await Promise.all(
      numbers.map((number) =>
        addMasquerade(call(host, `c${number}`), [`10.7.1.${number}/16`, `fd07:1::${number}/112`]),
      ),
    );
    assert.equal(Object.keys(owners()).length, 200);
    await Promise.all(
      numbers.map((number) =>
        deleteMasquerade(
          call(host, `c${number}`, { ips: [`10.7.1.${number}/16`, `fd07:1::${number}/112`] }),
        ),
      ),
    );
    assert.deepEqual([owners(), localElements()], [{}, 0]);
  }
  // The chains of prefix lengths stay: there are 162 at most.
  for (const chain of ["masq4-16", "masq6-112"])
    node.run("nft", "delete", "chain", "inet", "podnet", chain);
  leaks.assertClean();
});

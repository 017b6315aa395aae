import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { portmap } from "../../daemon/plugins/portmap.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Attached, moveIntoNode } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { nftRuleset } from "../helpers/state.ts";
import { ask, type Pod, Town } from "../helpers/town.ts";

const lab = new Lab();
const node = moveIntoNode(lab);

function attach(
  pod: Pod,
  mappings: readonly JsonObject[],
  options: { config?: JsonObject; id?: string; network?: string } = {},
): Attached {
  return new Attached(portmap, {
    pod: pod.place,
    config: { type: "portmap", ...options.config },
    runtimeConfig: { portMappings: mappings },
    prevResult: pod.result,
    containerId: options.id ?? "container",
    network: options.network ?? "net",
  });
}

let one: Pod;
let two: Pod;
let town: Town;
let outside: Place;

before(async () => {
  town = await Town.build(lab, node);
  ({ one, two, outside } = town);
});

after(() => town[Symbol.dispose]());

/** Every element of podnet's table, as text; [] when there is no table or no element. */
function elements(): string[] {
  return nftRuleset(node).flatMap((item) => {
    const set = (item["map"] ?? item["set"]) as JsonObject | undefined;
    return set?.["table"] === "podnet_portmap" && set["elem"] !== undefined
      ? [JSON.stringify(set["elem"])]
      : [];
  });
}

test("portmap: on a node that never mapped a port, what has no address in the pod maps nothing, says so, and passes CHECK", async () => {
  const only4 = { ...one.result, ips: one.result.ips.filter(({ address }) => /\./.test(address)) };
  const mapping = { hostPort: 80, containerPort: 80, protocol: "tcp", hostIP: "2001:db8::1" };
  const attached = attach({ ...one, result: only4 }, [mapping]);
  await attached.add();
  assert.deepEqual(attached.warnings, [
    'host port 80/tcp of 2001:db8::1 is not mapped: the pod has no IPv6 address on network "net"',
  ]);
  await attached.check();
  await attached.del();
});

test("portmap: a host port leads to the pod from outside, from the node, over IPv4 and IPv6, until DEL", async () => {
  const attached = attach(one, [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }]);
  assert.deepEqual(await attached.add(), one.result);
  assert.equal(ask(outside, "192.0.2.1 8080"), "192.0.2.2");
  assert.equal(ask(outside, "192.0.2.11 8080"), "192.0.2.2");
  assert.equal(ask(outside, "2001:db8::1 8080"), "2001:db8::2");
  assert.equal(ask(node, "127.0.0.1 8080"), "10.7.0.1");
  assert.equal(ask(node, "192.0.2.1 8080"), "192.0.2.1");
  assert.equal(ask(outside, "192.0.2.1 8081"), "");
  await attached.check();
  await attached.del();
  await attached.del();
  assert.deepEqual(elements(), []);
  assert.equal(ask(outside, "192.0.2.1 8080"), "");
  await assert.rejects(attached.check(), { code: 999, message: /lacks its element/ });
});

test("portmap: a pod reaches itself and its neighbours through the node's address, and sees the node", async () => {
  const mapping = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }];
  const attached = attach(one, mapping);
  await attached.add();
  assert.equal(ask(two.place, "10.7.0.1 8080"), "10.7.0.1");
  assert.equal(ask(one.place, "10.7.0.1 8080"), "10.7.0.1");
  assert.equal(ask(one.place, "fd07::1 8080"), "fd07::1");
  await attached.del();
  for (const config of [{ snat: false }, { backend: "nftables", snat: false }]) {
    const plain = attach(one, mapping, { config });
    await plain.add();
    assert.notEqual(ask(two.place, "10.7.0.1 8080"), "10.7.0.1");
    assert.equal(ask(outside, "192.0.2.1 8080"), "192.0.2.2");
    await plain.del();
  }
  const own = attach(one, mapping, { config: { backend: "nftables" } });
  await own.add();
  assert.notEqual(ask(two.place, "10.7.0.1 8080"), "10.7.0.1");
  assert.equal(ask(one.place, "10.7.0.1 8080"), "10.7.0.1");
  await own.del();
});

test("portmap: with masqAll the pod sees the node", async () => {
  const attached = attach(one, [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }], {
    config: { masqAll: true },
  });
  await attached.add();
  assert.equal(ask(outside, "192.0.2.1 8080"), "10.7.0.1");
  await attached.del();
});

test("portmap: hostIP keeps a mapping to one address, which goes before a mapping of all addresses", async () => {
  const first = attach(
    one,
    [{ hostPort: 8080, containerPort: 80, protocol: "tcp", hostIP: "192.0.2.11" }],
    { id: "one" },
  );
  const second = attach(
    two,
    [{ hostPort: 8080, containerPort: 80, protocol: "tcp", hostIP: "0.0.0.0" }],
    { id: "two", config: { masqAll: true } },
  );
  await first.add();
  assert.equal(ask(outside, "192.0.2.11 8080"), "192.0.2.2");
  assert.equal(ask(outside, "192.0.2.1 8080"), "");
  await second.add();
  assert.equal(ask(outside, "192.0.2.11 8080"), "192.0.2.2");
  assert.equal(ask(outside, "192.0.2.1 8080"), "10.7.0.1");
  assert.equal(ask(outside, "2001:db8::1 8080"), "");
  await Promise.all([first.del(), second.del()]);
  assert.deepEqual(elements(), []);
});

test("portmap: UDP follows a new pod at once, though the node tracks the old connection", async () => {
  await town.serve(two.place, 53, "udp");
  const mapping = [{ hostPort: 5353, containerPort: 53, protocol: "udp" }];
  const config = { masqAll: true };
  const first = attach(one, mapping, { id: "one" });
  await first.add();
  assert.equal(ask(outside, "192.0.2.1 5353", { protocol: "udp", source: "4000" }), "192.0.2.2");
  await first.del();
  const second = attach(two, mapping, { id: "two", config });
  await second.add();
  assert.equal(ask(outside, "192.0.2.1 5353", { protocol: "udp", source: "4000" }), "10.7.0.1");
  await second.del();
});

test("portmap: conditions of both languages decide who is forwarded", async () => {
  const mapping = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }];
  const cases: readonly [JsonObject, string][] = [
    [{ conditionsV4: ["!", "-d", "192.0.2.0/24"] }, ""],
    [{ conditionsV4: ["-s", "192.0.2.2", "-i", "up+"] }, "192.0.2.2"],
    [{ backend: "nftables", conditionsV4: ["ip saddr != 192.0.2.2"] }, ""],
    [{ backend: "nftables", conditionsV4: ["iifname", "up0"] }, "192.0.2.2"],
  ];
  for (const [config, seen] of cases) {
    const attached = attach(one, mapping, { config });
    await attached.add();
    assert.equal(ask(outside, "192.0.2.1 8080"), seen, JSON.stringify(config));
    assert.equal(ask(outside, "2001:db8::1 8080"), "2001:db8::2");
    await attached.check();
    await attached.del();
    assert.deepEqual(elements(), []);
  }
});

test("portmap: a port that another attachment has is refused with the owner's name, and stays the owner's", async () => {
  const mapping = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }];
  const owner = attach(one, mapping, { id: "first-container", network: "blue" });
  await owner.add();
  const late = attach(two, [...mapping, { hostPort: 8090, containerPort: 80, protocol: "tcp" }], {
    id: "second",
  });
  await assert.rejects(late.add(), {
    code: 11,
    message:
      'map host port 8080/tcp of network "net": it belongs to interface "eth0" of container "first-container" on network "blue": choose another host port or delete that pod',
  });
  await late.del();
  await owner.check();
  assert.equal(ask(outside, "192.0.2.1 8090"), "");
  assert.equal(ask(outside, "192.0.2.1 8080"), "192.0.2.2");
  await owner.del();
  await late.add();
  await late.del();
});

/** What kube-proxy and Docker set up, in short: own chains at the same hooks, with a port of theirs. */
const othersRules = `
table ip nat {
  chain KUBE-SERVICES { ip daddr 10.96.0.1 tcp dport 443 dnat to 10.7.0.3:80; }
  chain DOCKER { tcp dport 9000 dnat to 10.7.0.3:80; }
  chain PREROUTING { type nat hook prerouting priority dstnat; jump KUBE-SERVICES; fib daddr type local jump DOCKER; }
  chain OUTPUT { type nat hook output priority -100; jump KUBE-SERVICES; }
  chain POSTROUTING { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 masquerade; }
}
table inet kube-proxy { set cluster { type ipv4_addr; elements = { 10.96.0.1 }; }; }
table inet cni_plugins_masquerade { comment "others"; }
`;

test("portmap: the rules of others stay as they are and work beside", async () => {
  const file = `${lab.folder()}/rules`;
  writeFileSync(file, othersRules);
  node.run("nft", "-f", file);
  const others = () =>
    nftRuleset(node).filter((item) => !JSON.stringify(item).includes("podnet_portmap"));
  const before = others();
  const attached = attach(one, [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }]);
  await attached.add();
  assert.deepEqual(others(), before);
  assert.equal(ask(outside, "192.0.2.1 8080"), "192.0.2.2");
  assert.equal(ask(outside, "192.0.2.1 9000"), "192.0.2.2");
  await attached.del();
  assert.deepEqual(others(), before);
  for (const table of ["ip nat", "inet kube-proxy", "inet cni_plugins_masquerade"])
    node.run("nft", "delete", "table", ...table.split(" "));
});

test("portmap: DEL without result, and GC, find the elements by their owner", async () => {
  const mapping = [
    { hostPort: 8080, containerPort: 80, protocol: "tcp" },
    { hostPort: 8443, containerPort: 80, protocol: "TCP", hostIP: "192.0.2.1" },
  ];
  const cut = attach(one, mapping);
  await cut.addOnly();
  await cut.delWithoutPod();
  assert.deepEqual(elements(), []);
  const [kept, stale] = [
    attach(one, mapping, { id: "kept" }),
    attach(two, [{ hostPort: 1, containerPort: 1, protocol: "sctp" }], { id: "stale" }),
  ];
  await kept.add();
  await stale.add();
  using host = Rtnetlink.open();
  const call = {
    host,
    config: { type: "portmap" },
    network: "net",
    signal: AbortSignal.timeout(5000),
  };
  await portmap.gc?.({ ...call, network: "other" }, []);
  await stale.check();
  await portmap.gc?.(call, [{ containerID: "kept", ifname: "eth0" }]);
  await kept.check();
  await assert.rejects(stale.check(), { code: 999 });
  await kept.del();
  assert.deepEqual(elements(), []);
});

test("portmap: a wrong configuration is refused with every field", async () => {
  const wrong = attach(one, [{ hostPort: 0, containerPort: 70000, protocol: "icmp", hostIP: "x" }]);
  await assert.rejects(wrong.addOnly(), {
    code: 7,
    message: /hostPort.*containerPort.*protocol.*hostIP.*"x" is not an IP address/s,
  });
  for (const [config, text] of [
    [{ backend: "ipvs" }, /backend/],
    [{ markMasqBit: 32 }, /markMasqBit/],
    [{ markMasqBit: 3, externalSetMarkChain: "KUBE-MARK-MASQ" }, /exclude each other/],
    [{ backend: "nftables", externalSetMarkChain: "KUBE-MARK-MASQ" }, /externalSetMarkChain/],
    [{ backend: "nftables", conditionsV4: ["!", "-d", "10.0.0.0/8"] }, /conditionsV4/],
    [{ conditionsV4: ["-m", "comment"] }, /"-m" is unknown/],
  ] as const) {
    await assert.rejects(attach(one, [], { config: config as JsonObject }).addOnly(), {
      code: 7,
      message: text,
    });
  }
  const twice = { hostPort: 1, containerPort: 2, protocol: "tcp" };
  await assert.rejects(attach(one, [twice, twice]).addOnly(), { message: /twice/ });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Netns } from "../../lib/base/netns.ts";
import type { LinkData, LinkSpec } from "../../lib/netlink/model.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Lab, runCommand } from "../helpers/lab.ts";
import { needsDriver } from "../helpers/needs.ts";

// biome-ignore lint/suspicious/noExplicitAny: what `ip -j` prints is looked into freely
type Shown = any;

interface Kind {
  readonly data: LinkData;
  /** On a lower link. */
  readonly lower?: boolean;
  /** What ip prints as linkinfo.info_data, in part. */
  readonly shown?: Record<string, unknown>;
  /** What the kernel reports back, where it adds to what was asked. */
  readonly read?: LinkData;
}

const kinds: readonly Kind[] = [
  { data: { kind: "dummy" } },
  { data: { kind: "ifb" } },
  { data: { kind: "vrf", table: 1000 }, shown: { table: 1000 } },
  {
    data: { kind: "vlan", id: 5, protocol: 0x88a8 },
    lower: true,
    shown: { id: 5, protocol: "802.1ad" },
  },
  {
    data: { kind: "macvlan", mode: 4, bcQueueLength: 77 },
    lower: true,
    shown: { mode: "bridge" },
    read: { kind: "macvlan", mode: 4, flags: 0, bcQueueLength: 77 },
  },
  {
    data: { kind: "macvtap", mode: 2 },
    lower: true,
    shown: { mode: "vepa" },
    read: { kind: "macvtap", mode: 2, flags: 0, bcQueueLength: 1000 },
  },
  {
    data: { kind: "ipvlan", mode: 1, flags: 1 },
    lower: true,
    shown: { mode: "l3", private: true },
  },
];

/** What the driver is called, for the skip; an ifb is part of every kernel that we know. */
const driver = (kind: string) => kind as Parameters<typeof needsDriver>[0];

for (const { data, lower, shown, read } of kinds) {
  test(`createLink, ${data.kind}, is what ip shows and getLink reads`, {
    skip: needsDriver(driver(data.kind)),
  }, async () => {
    using lab = new Lab();
    const node = lab.node();
    const pod = lab.pod();
    using nodeNetns = Netns.open(node.path);
    using podNetns = Netns.open(pod.path);
    using host = Rtnetlink.open(nodeNetns);
    using inside = Rtnetlink.open(podNetns);
    await host.createLink({
      name: "lower0",
      up: true,
      data: { kind: "veth", peer: { name: "far0" } },
    });
    const base = (await host.getLink({ name: "lower0" }))?.index;
    assert(base);
    const spec: LinkSpec = {
      name: "kind0",
      data,
      ...(lower === true && { link: base }),
      netnsFd: podNetns.fd,
    };
    await host.createLink(spec);
    const [link]: Shown = JSON.parse(
      runCommand(["ip", "-n", pod.name, "-j", "-d", "link", "show", "kind0"]),
    );
    assert.equal(link.linkinfo.info_kind, data.kind);
    for (const [key, value] of Object.entries(shown ?? {}))
      assert.deepEqual(link.linkinfo.info_data[key], value, key);
    const found = await inside.getLink({ name: "kind0" });
    assert.equal(found?.kind, data.kind);
    assert.deepEqual(found?.data, read ?? data);
    if (lower === true) assert.equal(found?.link, base);
    await assert.rejects(inside.createLink({ ...spec, netnsFd: podNetns.fd }), {
      name: "NetlinkError",
    });
    assert.equal(await inside.deleteLink({ name: "kind0" }), true);
  });
}

test("changeLink, a vrf as master, enslaves", { skip: needsDriver("vrf") }, async () => {
  using lab = new Lab();
  using netns = Netns.open(lab.node().path);
  using rtnl = Rtnetlink.open(netns);
  await rtnl.createLink({ name: "vrf0", up: true, data: { kind: "vrf", table: 1000 } });
  await rtnl.createLink({ name: "near0", data: { kind: "veth", peer: { name: "far0" } } });
  const [vrf, near] = [await rtnl.getLink({ name: "vrf0" }), await rtnl.getLink({ name: "near0" })];
  assert(vrf && near);
  await rtnl.changeLink(near.index, { master: vrf.index });
  const enslaved = await rtnl.getLink({ index: near.index });
  assert.deepEqual([enslaved?.master, enslaved?.bridgePort], [vrf.index, undefined]);
  assert.equal(
    (await rtnl.rules(4)).some(({ priority, table }) => priority === 1000 && table === 0),
    true,
  );
});

// A kernel without the vlan driver may also lack the bridge's VLAN filter.
test("bridgeVlans, of a port and of the bridge, agree with bridge", {
  skip: needsDriver("vlan"),
}, async () => {
  using lab = new Lab();
  const node = lab.node();
  using netns = Netns.open(node.path);
  using rtnl = Rtnetlink.open(netns);
  await rtnl.createLink({
    name: "br0",
    up: true,
    data: { kind: "bridge", vlanFiltering: true, vlanDefaultPvid: 2 },
  });
  const bridge = (await rtnl.getLink({ name: "br0" }))?.index ?? 0;
  assert.deepEqual((await rtnl.getLink({ index: bridge }))?.data, {
    kind: "bridge",
    stpState: 0,
    vlanFiltering: true,
    mcastSnooping: true,
    vlanDefaultPvid: 2,
  });
  await rtnl.createLink({
    name: "near0",
    master: bridge,
    data: { kind: "veth", peer: { name: "far0" } },
  });
  const port = (await rtnl.getLink({ name: "near0" }))?.index ?? 0;
  await rtnl.addBridgeVlan(port, { id: 10, pvid: true, untagged: true });
  await rtnl.addBridgeVlan(port, { id: 100, endId: 110 });
  await rtnl.addBridgeVlan(bridge, { id: 10 }, { self: true });
  assert.deepEqual(await rtnl.bridgeVlans(port), [
    { id: 2, untagged: true },
    { id: 10, pvid: true, untagged: true },
    { id: 100, endId: 110 },
  ]);
  assert.deepEqual(await rtnl.bridgeVlans(bridge), [
    { id: 2, pvid: true, untagged: true },
    { id: 10 },
  ]);
  const shown: Shown = JSON.parse(
    node.run("bridge", "-j", "-compressvlans", "vlan", "show", "dev", "near0"),
  );
  assert.deepEqual(shown[0].vlans, [
    { vlan: 2, flags: ["Egress Untagged"] },
    { vlan: 10, flags: ["PVID", "Egress Untagged"] },
    { vlan: 100, vlanEnd: 110, flags: [] },
  ]);
  await rtnl.deleteBridgeVlan(port, { id: 101, endId: 110 });
  await rtnl.deleteBridgeVlan(bridge, { id: 10 }, { self: true });
  assert.deepEqual((await rtnl.bridgeVlans(port)).at(-1), { id: 100 });
  assert.deepEqual((await rtnl.bridgeVlans(bridge)).length, 1);
  await assert.rejects(rtnl.addBridgeVlan(port, { id: 4095 }), {
    name: "NetlinkError",
    code: "EINVAL",
  });
});

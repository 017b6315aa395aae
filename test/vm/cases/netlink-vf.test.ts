import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";
import { runCommand } from "../../helpers/lab.ts";

const [card] = readdirSync("/sys/class/net").filter((name) =>
  existsSync(`/sys/class/net/${name}/device/sriov_numvfs`),
);
assert(card, "no SR-IOV card");
const numVfs = `/sys/class/net/${card}/device/sriov_numvfs`;

test("setVf, each setting of an SR-IOV card's VF, is what ip shows and getLink reads", async () => {
  const before = readFileSync(numVfs, "utf8").trim();
  if (before !== "0") writeFileSync(numVfs, "0");
  writeFileSync(numVfs, "2");
  try {
    using rtnl = Rtnetlink.open();
    const index = (await rtnl.getLink({ name: card }))?.index ?? 0;
    await rtnl.changeLink(index, { up: true });
    assert.equal((await rtnl.getLink({ index }))?.vfs, undefined);
    await rtnl.setVf(index, 1, {
      mac: "02:00:00:00:00:07",
      vlan: 5,
      qos: 3,
      spoofCheck: false,
      trust: true,
    });
    const shown = JSON.parse(runCommand(["ip", "-j", "-d", "link", "show", card]))[0]
      .vfinfo_list[1];
    assert.equal(shown.address, "02:00:00:00:00:07");
    assert.deepEqual(
      [shown.vlan_list[0].vlan, shown.vlan_list[0].qos, shown.spoofchk, shown.trust],
      [5, 3, false, true],
    );
    const link = await rtnl.getLink({ index }, { vfs: true });
    assert.equal(link?.vfs?.length, 2);
    const vf = link?.vfs?.[1];
    assert.deepEqual(
      [vf?.vf, vf?.mac, vf?.vlan, vf?.qos, vf?.vlanProtocol, vf?.spoofCheck, vf?.trust],
      [1, "02:00:00:00:00:07", 5, 3, 0x8100, false, true],
    );
    assert.equal(typeof link?.parentDevName, "string");
    assert.equal(link?.parentDevBusName, "pci");
    await rtnl.setVf(index, 1, { vlan: 0, qos: 0, spoofCheck: true, trust: false });
    const reset = (await rtnl.getLink({ index }, { vfs: true }))?.vfs?.[1];
    assert.deepEqual([reset?.vlan, reset?.spoofCheck, reset?.trust], [0, true, false]);
    await assert.rejects(rtnl.setVf(index, 1, { minTxRate: 100, maxTxRate: 200 }), {
      name: "NetlinkError",
    });
    await assert.rejects(rtnl.setVf(index, 99, { trust: true }), { name: "NetlinkError" });
  } finally {
    writeFileSync(numVfs, "0");
    if (before !== "0") writeFileSync(numVfs, before);
  }
});

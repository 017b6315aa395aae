import assert from "node:assert/strict";
import { test } from "node:test";
import type { AttachmentRecord } from "../../../daemon/node/record.ts";
import { inRuns } from "../../../daemon/node/runs.ts";

const hostLocal = { type: "host-local", ranges: [[{ subnet: "10.1.0.0/16" }]] };

/** An attachment of network `name` with these plugins. */
function attachment(name: string, ...plugins: object[]): AttachmentRecord {
  const conflist = JSON.stringify({ cniVersion: "1.0.0", name, plugins });
  return { network: name, ifName: name, default: false, conflist, capabilityArgs: {}, states: {} };
}

function runsOf(attachments: readonly AttachmentRecord[]): string[][] {
  return inRuns(attachments).map((run) => run.map(({ network }) => network));
}

test("inRuns, interfaces that know nothing of one another, are one run in their order", () => {
  const attachments = [
    attachment(
      "a",
      { type: "bridge", ipam: hostLocal },
      { type: "portmap" },
      { type: "bandwidth" },
    ),
    attachment("b", { type: "macvlan", ipam: { type: "static" } }),
    attachment("c", { type: "ipvlan" }),
    attachment("d", { type: "vlan", master: "eth1" }, { type: "tuning", mtu: 1400 }),
    attachment("e", { type: "ptp", ipam: { ...hostLocal, ranges: [[{ subnet: "10.2.0.0/16" }]] } }),
    attachment("f", { type: "tap" }),
    attachment("g", { type: "sriov" }),
    attachment("h", { type: "host-device", device: "eth2" }),
    attachment("i", { type: "dummy" }),
  ];
  assert.deepEqual(runsOf(attachments), [["a", "b", "c", "d", "e", "f", "g", "h", "i"]]);
});

test("inRuns, an interface in the subnet of another one, or on one that another takes away, begins a run", () => {
  const inside = { type: "static", addresses: [{ address: "10.1.7.7/24" }] };
  const attachments = [
    attachment("a", { type: "bridge", ipam: hostLocal }),
    attachment("b", { type: "macvlan", master: "eth2", ipam: inside }),
    attachment("c", { type: "host-device", device: "eth2" }),
    attachment("d", { type: "vlan", master: "eth2" }),
    attachment("e", { type: "vlan", master: "eth3" }),
  ];
  assert.deepEqual(runsOf(attachments), [["a"], ["b"], ["c"], ["d", "e"]]);
});

test("inRuns, what others may depend on or nobody knows, is a run by itself at its place", () => {
  const own = { type: "bridge" };
  const routes = [{ dst: "10.9.0.0/16" }];
  for (const plugins of [
    [{ type: "executable" }],
    [{ type: "bridge", ipam: { type: "dhcp" } }],
    [own, { type: "sbr" }],
    [{ type: "macvlan", linkInContainer: true, ipam: hostLocal }],
    [{ type: "bridge", ipam: { ...hostLocal, routes } }],
    [{ type: "loopback" }],
    [{ type: "tap", bridge: "br0" }],
    [own, { type: "tuning", sysctl: { "net.core.somaxconn": "5" } }],
    [own, { type: "vrf", vrfname: "red" }],
  ]) {
    const attachments = [
      attachment("a", own),
      attachment("b", own),
      attachment("x", ...plugins),
      attachment("c", own),
      attachment("d", own),
    ];
    assert.deepEqual(runsOf(attachments), [["a", "b"], ["x"], ["c", "d"]]);
  }
});

test("inRuns, no attachments, has no runs", () => {
  assert.deepEqual(runsOf([]), []);
});

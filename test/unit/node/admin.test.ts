import assert from "node:assert/strict";
import { test } from "node:test";
import { attachmentRows } from "../../../daemon/node/admin.ts";
import { sandboxRecord } from "../../../daemon/node/record.ts";

const device = { resource: "acme.io/vf", id: "0000:03:02.1" };
const made = {
  cniVersion: "1.1.0",
  interfaces: [
    { name: "enp3s0f0", pciID: "0000:03:00.0" },
    { name: "net1", sandbox: "/run/netns/x", pciID: "0000:03:02.1" },
  ],
  ips: [],
  routes: [],
};
const attachment = { default: false, conflist: "{}", capabilityArgs: {} };
const record = sandboxRecord.parse({
  version: 1,
  containerId: "c1",
  ifName: "eth0",
  bootId: "boot",
  cniNetwork: "podnet",
  cniArgs: "",
  cniPath: [],
  pod: { namespace: "shop", name: "web" },
  created: "2026-01-01T00:00:00Z",
  phase: "attached",
  attachments: [
    { ...attachment, network: "blue", ifName: "eth0" },
    { ...attachment, network: "shop/fast", ifName: "net1", device, result: made },
  ],
});

test("rows of attachments tell the device of the one that has it, and the PCI address of the pod's interface", () => {
  const rows = attachmentRows([record], false);
  assert.deepEqual(
    rows.map((row) => [row.interface, row.device, row.pciID]),
    [
      ["eth0", undefined, undefined],
      ["net1", device, "0000:03:02.1"],
    ],
  );
});

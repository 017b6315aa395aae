import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { needsDriver } from "../../helpers/needs.ts";

// What the virtual machine is there for. Should a newer kernel package lose one of these, this says so, and not a plugin's test.
for (const kind of [
  "dummy",
  "vrf",
  "bond",
  "vlan",
  "macvlan",
  "macvtap",
  "ipvlan",
  "vxlan",
  "ifb",
]) {
  test(`the virtual machine's kernel has the ${kind} driver`, () => {
    assert.equal(needsDriver(kind), false);
  });
}

test("the virtual machine has two SR-IOV network cards", () => {
  const capable = readdirSync("/sys/class/net").filter((name) =>
    existsSync(`/sys/class/net/${name}/device/sriov_numvfs`),
  );
  assert.equal(capable.length, 2);
});

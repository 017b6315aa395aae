import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { DeviceClaims } from "../../../daemon/plugins/devices/device-claims.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

const one = { network: "blue", containerId: "c1", ifName: "eth0" };
const two = { network: "red", containerId: "c2", ifName: "net1" };
const key = "pci/0000:03:10.1";

function fresh(): { readonly dir: string; readonly claims: DeviceClaims } {
  const folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
  after(() => rmSync(folder, { recursive: true }));
  const dir = join(folder, "claims");
  return { dir, claims: new DeviceClaims(dir) };
}

test("a device has one claimant; another is told who it is, also after the daemon's restart", () => {
  const { dir, claims } = fresh();
  claims.take(key, "eth4", one);
  claims.take(key, "eth4", one);
  const later = new DeviceClaims(dir);
  assert.throws(() => later.take(key, "eth4", two), {
    code: cniCode.noDeviceLeft,
    message:
      /network "red": device "pci\/0000:03:10.1": interface "eth0" of container "c1" on network "blue" has it/,
  });
  assert.equal(later.findByName("eth4")?.containerId, "c1");
  assert.equal(later.isHeldBy(key, two), false);
  assert.deepEqual(readdirSync(dir), ["pci%2F0000%3A03%3A10.1.json"]);
});

test("a device on its way back is not handed out: try again; then it is free", () => {
  const { dir, claims } = fresh();
  claims.take(key, "eth4", one);
  claims.returning(key, two);
  claims.returning(key, one);
  for (const by of [one, two]) {
    assert.throws(() => claims.take(key, "eth4", by), { code: cniCode.tryAgainLater });
  }
  claims.release(key, two);
  assert.equal(claims.isHeldBy(key, one), true);
  claims.release(key, one);
  claims.release(key, one);
  assert.equal(existsSync(dir), false);
  claims.take(key, "eth4", two);
  assert.equal(claims.list().length, 1);
});

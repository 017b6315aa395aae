import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
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

test("a claim whose file was removed is written again by whoever took it, and is no other's meanwhile", () => {
  const { dir, claims } = fresh();
  const looks: readonly (() => unknown)[] = [
    () => assert.equal(claims.isHeldBy(key, one), true),
    () => assert.equal(claims.read(key)?.containerId, "c1"),
    () => assert.equal(claims.findByName("eth4")?.containerId, "c1"),
    () => assert.throws(() => claims.take(key, "eth4", two), { code: cniCode.noDeviceLeft }),
    () => claims.take(key, "eth4", one),
  ];
  for (const look of looks) {
    claims.take(key, "eth4", one);
    rmSync(dir, { recursive: true });
    look();
    assert.equal(new DeviceClaims(dir).read(key)?.containerId, "c1");
  }
  rmSync(dir, { recursive: true });
  claims.returning(key, one);
  rmSync(dir, { recursive: true });
  assert.throws(() => claims.take(key, "eth4", two), { code: cniCode.tryAgainLater });
  claims.release(key, one);
  assert.equal(existsSync(dir), false);
  assert.deepEqual([claims.read(key), claims.list()], [undefined, []]);
});

test("a claim that was found held outlives its file too; one that went to another process' attachment does not come back", () => {
  const { dir, claims } = fresh();
  new DeviceClaims(dir).take(key, "eth4", one);
  assert.equal(claims.isHeldBy(key, two), false);
  assert.equal(claims.isHeldBy(key, one), true);
  rmSync(dir, { recursive: true });
  assert.equal(claims.list().length, 1);
  const other = new DeviceClaims(dir);
  other.release(key, one);
  other.take(key, "eth4", two);
  assert.equal(claims.read(key)?.containerId, "c2");
  other.release(key, two);
  assert.equal(claims.read(key), undefined);
});

test("a claim that can't be written again holds all the same", () => {
  const { dir, claims } = fresh();
  claims.take(key, "eth4", one);
  rmSync(dir, { recursive: true });
  mkdirSync(join(dir, "pci%2F0000%3A03%3A10.1.json.c1-eth0"), { recursive: true });
  assert.equal(claims.isHeldBy(key, one), true);
  assert.throws(() => claims.take(key, "eth4", two), { code: cniCode.noDeviceLeft });
});

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  attachmentInfoPath,
  decodeDeviceInfo,
  deleteDeviceInfo,
  devicePluginInfoPath,
  pciDeviceInfo,
  readDeviceInfo,
  writeDeviceInfo,
} from "../../../daemon/plugins/devices/device-info.ts";
import { DecodeError } from "../../../lib/base/decode.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

const folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
after(() => rmSync(folder, { recursive: true }));

const valid = [
  {
    type: "pci",
    version: "1.1.0",
    pci: { "pci-address": "0000:03:10.1", "rdma-device": "mlx5_3" },
  },
  {
    type: "vdpa",
    version: "1.0.0",
    vdpa: { "parent-device": "vdpa0", driver: "vhost", path: "/dev/vhost-vdpa-0", device: "x" },
  },
  { type: "vhost-user", version: "1.1.0", "vhost-user": { mode: "client", path: "/run/s.sock" } },
  { type: "memif", version: "1.1.0", memif: { role: "master", path: "/run/m.sock", mode: "punt" } },
];

for (const info of valid) {
  test(`device information of type ${info.type} is read as it is, unknown keys included`, () => {
    assert.deepEqual(decodeDeviceInfo({ ...info, vendor: 1 }), { ...info, vendor: 1 });
  });
}

test("device information: all faults are named by their path", () => {
  const broken = { type: "memif", memif: { role: "leader", mode: "ethernet" } };
  assert.throws(
    () => decodeDeviceInfo(broken),
    (error) =>
      error instanceof DecodeError &&
      ["version", "memif.role", "memif.path"].every((path) =>
        error.faults.some((fault) => fault.path === path),
      ),
  );
  assert.throws(() => decodeDeviceInfo({ type: "tape", version: "1.1.0" }), DecodeError);
});

test("device information: a written file is read back, read-only, and never overwritten", () => {
  const path = join(folder, "a/b/info.json");
  const info = pciDeviceInfo("0000:03:10.1", "0000:03:00.0");
  assert.equal(writeDeviceInfo(path, info), true);
  assert.equal(statSync(path).mode & 0o777, 0o444);
  assert.deepEqual(readDeviceInfo(path), info);
  assert.equal(writeDeviceInfo(path, pciDeviceInfo("0000:03:10.2")), false);
  assert.deepEqual(JSON.parse(readFileSync(path, "utf8")), {
    type: "pci",
    version: "1.1.0",
    pci: { "pci-address": "0000:03:10.1", "pf-pci-address": "0000:03:00.0" },
  });
  deleteDeviceInfo(path);
  deleteDeviceInfo(path);
  assert.equal(readDeviceInfo(path), undefined);
});

test("device information: a file that is none says which file", () => {
  const path = join(folder, "bad.json");
  writeFileSync(path, "{");
  assert.throws(() => readDeviceInfo(path), {
    code: cniCode.decodingFailure,
    message: /bad\.json/,
  });
  writeFileSync(path, '{"type":"pci"}');
  assert.throws(() => readDeviceInfo(path), { code: cniCode.decodingFailure, message: /version/ });
});

test("device information: a pipe, a folder or a large file is refused at once", () => {
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  const large = join(folder, "large");
  writeFileSync(large, `{"x":"${"y".repeat(100_000)}"}`);
  for (const path of [pipe, folder, large]) {
    assert.throws(() => readDeviceInfo(path), {
      code: cniCode.ioFailure,
      message: /no regular|more/,
    });
  }
});

test("device information: paths have no slash from names", () => {
  const dir = "/var/run/k8s.cni.cncf.io/devinfo";
  assert.equal(
    devicePluginInfoPath(dir, "vendor.com/vf", "0000:03:10.1"),
    "/var/run/k8s.cni.cncf.io/devinfo/dp/vendor.com-vf-0000:03:10.1-device.json",
  );
  assert.equal(
    devicePluginInfoPath(dir, "vendor.com/vf", "../../../etc/passwd"),
    "/var/run/k8s.cni.cncf.io/devinfo/dp/vendor.com-vf-..-..-..-etc-passwd-device.json",
  );
  assert.equal(
    attachmentInfoPath(dir, "blue/net", { containerId: "c1", ifName: "net1" }),
    "/var/run/k8s.cni.cncf.io/devinfo/cni/blue-net-c1_net1",
  );
});

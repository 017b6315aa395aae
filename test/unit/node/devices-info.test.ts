import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { copyInfo, deleteInfo, readInfo } from "../../../daemon/node/devices/info.ts";
import type { AttachmentRecord } from "../../../daemon/node/record.ts";
import { npwgStatus } from "../../../lib/api/network-status.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { openLog } from "../../../lib/base/log.ts";

const dir = mkdtempSync(join(tmpdir(), "podnet-test-"));
after(() => rmSync(dir, { recursive: true }));
mkdirSync(join(dir, "dp"));
const plugins = join(dir, "dp/vendor.com-vf-d0-device.json");
const attachment = {
  device: { resource: "vendor.com/vf", id: "d0" },
  deviceInfoFile: join(dir, "cni/net-c1_net1"),
} as AttachmentRecord;

/** Every field of the Device Information Specification 1.1.0: required ones, optional ones, and a value that each refuses. */
const types: Readonly<
  Record<string, Readonly<Record<"required" | "optional" | "bad", JsonObject>>>
> = {
  pci: {
    required: { "pci-address": "0000:03:10.1" },
    optional: {
      "vhost-net": "/dev/vhost-net",
      "rdma-device": "mlx5_3",
      "pf-pci-address": "0000:03:00.0",
      "representor-device": "enp3s0_1",
    },
    bad: {
      "pci-address": "03:10.1",
      "vhost-net": 1,
      "rdma-device": "",
      "pf-pci-address": "0000:03:00.9",
      "representor-device": 1,
    },
  },
  vdpa: {
    required: { "parent-device": "vdpa1", driver: "vhost", path: "/dev/vhost-vdpa-1" },
    optional: {
      "pci-address": "0000:03:10.2",
      "pf-pci-address": "0000:03:00.0",
      "representor-device": "enp3s0_2",
    },
    bad: {
      "parent-device": "",
      driver: "uio",
      path: 1,
      "pci-address": "x",
      "pf-pci-address": "x",
      "representor-device": "",
    },
  },
  "vhost-user": {
    required: { mode: "server", path: "/run/vhost/s.sock" },
    optional: {},
    bad: { mode: "both", path: "" },
  },
  memif: {
    required: { role: "slave", path: "/run/memif/m.sock", mode: "inject-punt" },
    optional: {},
    bad: { role: "leader", path: "", mode: "l2" },
  },
};

/** What becomes of a device plugin's file: the attachment's own, what is read of that, and what was warned of. */
function passOn(type: string, fields: JsonObject) {
  const info = { type, version: "1.1.0", [type]: fields };
  const warnings: string[] = [];
  const log = openLog("warn", { write: (line) => void warnings.push(line) });
  writeFileSync(plugins, JSON.stringify(info));
  copyInfo(dir, attachment, log);
  const copied = existsSync(attachment.deviceInfoFile ?? "")
    ? (JSON.parse(readFileSync(attachment.deviceInfoFile ?? "", "utf8")) as JsonObject)
    : undefined;
  const read = readInfo(attachment, log);
  deleteInfo(attachment);
  assert.equal(existsSync(attachment.deviceInfoFile ?? ""), false);
  return { info, copied, read, warnings };
}

function status(deviceInfo: JsonObject | undefined): unknown {
  assert.ok(deviceInfo);
  const [row] = npwgStatus([
    {
      ...{ network: "net", ifName: "net1", default: false, defaultRoutes: [], deviceInfo },
      result: { interfaces: [], ips: [], routes: [], dns: {} },
    },
  ]);
  return row?.["device-info"];
}

for (const [type, { required, optional, bad }] of Object.entries(types)) {
  const whole = { ...required, ...optional };

  test(`device information of type ${type}: each field is read, copied and in the status`, () => {
    const optionals = Object.entries(optional).map(([key, value]) => ({
      ...required,
      [key]: value,
    }));
    for (const fields of [whole, required, ...optionals]) {
      const { info, copied, read, warnings } = passOn(type, fields);
      assert.deepEqual(copied, info);
      assert.deepEqual(status(read), info);
      assert.deepEqual(warnings, []);
    }
  });

  test(`device information of type ${type}: a required field that is missing, and any that is wrong, is named in the log`, () => {
    assert.deepEqual(Object.keys(bad), Object.keys(whole));
    const missing = Object.keys(required).map((key) => [key, undefined] as const);
    for (const [key, value] of [...missing, ...Object.entries(bad)]) {
      const fields = { ...whole, [key]: value } as JsonObject;
      const { copied, read, warnings } = passOn(type, fields);
      assert.deepEqual([copied, read], [undefined, undefined], `${key}: ${value}`);
      assert.equal(warnings.length, 1);
      assert.ok(warnings[0]?.includes(`${type}.${key}`), `${key}: ${warnings[0]}`);
    }
  });
}

test("device information: every mode and role of the specification is taken", () => {
  for (const [type, key, values] of [
    ["vdpa", "driver", ["vhost", "virtio"]],
    ["vhost-user", "mode", ["client", "server"]],
    ["memif", "role", ["master", "slave"]],
    ["memif", "mode", ["ethernet", "ip", "punt", "inject-punt"]],
  ] as const) {
    for (const value of values) {
      const { info, read } = passOn(type, { ...types[type]?.required, [key]: value });
      assert.deepEqual(read, info);
    }
  }
});

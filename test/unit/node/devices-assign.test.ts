import assert from "node:assert/strict";
import { test } from "node:test";
import { assignDevices } from "../../../daemon/node/devices/assign.ts";
import type { PlannedAttachment } from "../../../daemon/node/plan.ts";
import type { SandboxRecord } from "../../../daemon/node/record.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

const vf = "acme.io/vf";
const planned = (
  ifName: string,
  resourceName?: string,
  capabilityArgs: JsonObject = {},
): PlannedAttachment => ({
  network: `net-${ifName}`,
  ifName,
  default: ifName === "eth0",
  conflist: "{}",
  capabilityArgs,
  ...(resourceName === undefined ? {} : { resourceName }),
});
const record = (id: string, phase: SandboxRecord["phase"], resource = vf): SandboxRecord => ({
  version: 1,
  containerId: "older",
  ifName: "eth0",
  bootId: "b",
  cniNetwork: "podnet",
  cniArgs: "",
  cniPath: [],
  pod: { namespace: "app", name: "old" },
  created: "",
  phase,
  attachments: [{ ...planned("eth0"), device: { resource, id }, states: {} }],
});
const given = new Map([
  [vf, ["a", "b", "c"]],
  ["acme.io/slot", ["a"]],
]);
const ids = (attachments: readonly PlannedAttachment[], records: readonly SandboxRecord[] = []) =>
  assignDevices(attachments, given, { records, bootId: "b" }).map(({ device, capabilityArgs }) => [
    device?.id,
    capabilityArgs["deviceID"],
  ]);

test("devices: each attachment of a resource gets the next one, those without a resource none", () => {
  assert.deepEqual(
    ids([planned("eth0", vf), planned("net1"), planned("net2", vf), planned("n3", "acme.io/slot")]),
    [
      ["a", "a"],
      [undefined, undefined],
      ["b", "b"],
      ["a", "a"],
    ],
  );
});

test("devices: what a record has is nobody else's, and a retry gets what it had", () => {
  const wanted = [planned("eth0", vf), planned("net1", vf)];
  assert.deepEqual(ids(wanted, [record("b", "attached")]).flat(), ["a", "a", "c", "c"]);
  assert.deepEqual(ids(wanted, [record("a", "attached", "acme.io/slot")]), ids(wanted));
  const beforeReboot = { ...record("a", "attached"), bootId: "older" };
  assert.deepEqual(ids(wanted, [beforeReboot]), ids(wanted));
});

test("devices: a selection that names one gets it, whatever its place", () => {
  const wanted = [planned("eth0", vf), planned("net1", vf, { deviceID: "a" })];
  assert.deepEqual(ids(wanted).flat(), ["b", "b", "a", "a"]);
});

const refusals: readonly [
  string,
  readonly PlannedAttachment[],
  readonly SandboxRecord[],
  number,
  RegExp,
][] = [
  [
    "none was given",
    [planned("net1", "acme.io/none")],
    [],
    cniCode.noDeviceLeft,
    /^attach network "net-net1" \(net1\): resource "acme\.io\/none": the pod was given no such device: request/,
  ],
  [
    "more interfaces than devices",
    [planned("net1", "acme.io/slot"), planned("net2", "acme.io/slot")],
    [],
    cniCode.noDeviceLeft,
    /"net-net2" .*no device is left: "a" is another interface's of this pod/,
  ],
  [
    "another sandbox has it",
    [planned("net1", "acme.io/slot")],
    [record("a", "attached", "acme.io/slot")],
    cniCode.noDeviceLeft,
    /"a" is in use by container "older" \(pod "app\/old"\)/,
  ],
  [
    "it is on its way back",
    [planned("net1", "acme.io/slot")],
    [record("a", "deleting", "acme.io/slot")],
    cniCode.tryAgainLater,
    /"a" is on its way back/,
  ],
  [
    "one is named that the pod has not",
    [planned("net1", vf, { deviceID: "z" })],
    [],
    cniCode.noDeviceLeft,
    /device "z" was not given to the pod \(it has "a", "b", "c"\)/,
  ],
];
for (const [title, attachments, records, code, message] of refusals) {
  test(`devices: when ${title} the ADD fails with code ${code}`, () => {
    assert.throws(() => assignDevices(attachments, given, { records, bootId: "b" }), {
      code,
      message,
    });
  });
}

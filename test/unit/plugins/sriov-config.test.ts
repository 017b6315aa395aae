import assert from "node:assert/strict";
import { test } from "node:test";
import type { VfBefore } from "../../../daemon/plugins/devices/borrowed-state.ts";
import type { PluginCall } from "../../../daemon/plugins/plugin.ts";
import { decodeSriov, type SriovConfig } from "../../../daemon/plugins/sriov/config.ts";
import { requireInfiniband, type Vf, vfDifference } from "../../../daemon/plugins/sriov/vf.ts";
import { cniCode } from "../../../lib/cni/errors.ts";

function decode(config: object, runtimeConfig: object = {}): SriovConfig {
  const call = {
    network: "ib",
    config: { type: "sriov", deviceID: "0000:03:10.1", ...config },
    runtimeConfig,
  } as unknown as PluginCall;
  return decodeSriov(call, (mac) => mac);
}

const guids = ["11:22:33:44:55:66:77:01", "11:22:33:44:55:66:77:02", "11:22:33:44:55:66:77:03"];

test("decodeSriov, the GUID of an InfiniBand function, comes from runtimeConfig, args.cni or the key, in this order", () => {
  const [runtime = "", args = "", key = ""] = guids;
  const config = { guid: key, args: { cni: { guid: args } } };
  assert.equal(decode(config, { infinibandGUID: runtime.toUpperCase() }).guid, runtime);
  assert.equal(decode(config).guid, args);
  assert.equal(decode({ guid: key }).guid, key);
  assert.deepEqual(decode({ guid: key }).settings, { nodeGuid: key, portGuid: key });
  assert.equal(decode({}).guid, undefined);
  assert.deepEqual(decode({ guid: "" }).settings, {});
});

test("decodeSriov, a GUID that is none, is refused with its place", () => {
  for (const [config, runtimeConfig, place] of [
    [{ guid: "11:22" }, {}, /sriov configuration of network "ib".*guid: "11:22" is not a GUID/],
    [{ args: { cni: { guid: "x" } } }, {}, /args\.cni\.guid: "x" is not a GUID/],
    [{}, { infinibandGUID: "y" }, /runtimeConfig\.infinibandGUID.*"y" is not a GUID/],
    [{}, { infinibandGUID: 5 }, /infinibandGUID/],
  ] as const) {
    assert.throws(() => decode(config, runtimeConfig), {
      code: cniCode.invalidNetworkConfig,
      message: place,
    });
  }
});

test("requireInfiniband, an Ethernet card, refuses the capability and names the card", () => {
  const call = { network: "ib" } as PluginCall;
  const vf = (mac: string): Vf =>
    ({ pf: { name: "eth4", mac }, pfAddress: "0000:03:00.0", vf: 1 }) as unknown as Vf;
  assert.throws(() => requireInfiniband(call, vf("02:00:00:00:00:01"), "g"), {
    code: cniCode.capabilityUnsupported,
    message: /network "ib": infinibandGUID "g": physical function "eth4" is an Ethernet device/,
  });
  requireInfiniband(call, vf(Array.from({ length: 20 }, () => "00").join(":")), "g");
});

const before: VfBefore = {
  pfAddress: "0000:03:00.0",
  vf: 1,
  mac: "00:00:00:00:00:00",
  vlan: 0,
  qos: 0,
  vlanProtocol: 0x8100,
  spoofCheck: true,
  trust: false,
  linkState: 0,
  minTxRate: 0,
  maxTxRate: 0,
};

test("vfDifference gives back each setting that differs, and no other", () => {
  const changes: readonly (readonly [Partial<VfBefore>, object])[] = [
    [{}, {}],
    [
      { vlan: 5, vlanProtocol: 0x88a8 },
      { vlan: 0, qos: 0, vlanProtocol: 0x8100 },
    ],
    [
      { minTxRate: 5, maxTxRate: 9 },
      { minTxRate: 0, maxTxRate: 0 },
    ],
    [{ maxTxRate: 9 }, { maxTxRate: 0 }],
    [{ linkState: 2 }, { linkState: 0 }],
    [
      { trust: true, spoofCheck: false },
      { trust: false, spoofCheck: true },
    ],
  ];
  for (const [change, wanted] of changes) {
    assert.deepEqual(vfDifference(before, { ...before, ...change }), wanted);
  }
  const guid = { ...before, nodeGuid: guids[0] ?? "", portGuid: "00:00:00:00:00:00:00:00" };
  const now = { ...before, nodeGuid: guids[1] ?? "", portGuid: guids[1] ?? "" };
  assert.deepEqual(vfDifference(guid, now), {
    nodeGuid: guids[0],
    portGuid: "ff:ff:ff:ff:ff:ff:ff:ff",
  });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { createStatic } from "../../../daemon/ipam/static.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { type CallParts, ipamCall } from "./ipam-call.ts";

const plugin = createStatic();
const addresses = [{ address: "10.0.0.5/24", gateway: "10.0.0.1" }, { address: "FD00::5/64" }];
const call = (parts: Partial<CallParts> = {}) =>
  ipamCall({ ...parts, ipam: { type: "static", addresses, ...parts.ipam } });
const code = (number: number, text: RegExp) => (error: unknown) =>
  error instanceof CniError && error.code === number && text.test(error.message);

test("static, at ADD, gives what the configuration names", async () => {
  const dns = { nameservers: ["1.1.1.1"], domain: "d", search: ["a"], options: ["o"] };
  const routes = [{ dst: "10.0.0.0/8", gw: "10.0.0.9", mtu: 1300, priority: 5 }];
  assert.deepEqual(await plugin.add(call({ ipam: { routes, dns } })), {
    interfaces: [],
    ips: [{ address: "10.0.0.5/24", gateway: "10.0.0.1" }, { address: "fd00::5/64" }],
    routes,
    dns,
  });
});

test("static, with IP and GATEWAY in CNI_ARGS, adds addresses with the last gateway that fits each", async () => {
  const { ips } = await plugin.add(
    call({ cniArgs: { IP: "10.3.0.4/24, fd01::1/64", GATEWAY: "10.0.0.7,fd01::2" } }),
  );
  assert.deepEqual(ips, [
    { address: "10.0.0.5/24", gateway: "10.0.0.1" },
    { address: "fd00::5/64" },
    { address: "10.3.0.4/24" },
    { address: "fd01::1/64", gateway: "fd01::2" },
  ]);
});

test("static, with args and runtimeConfig, takes the latter's addresses and no others", async () => {
  const args = { cni: { ips: ["10.7.0.1/24"] } };
  assert.deepEqual((await plugin.add(call({ args, cniArgs: { IP: "10.3.0.4/24" } }))).ips, [
    { address: "10.7.0.1/24" },
  ]);
  const runtimeConfig = { ips: ["10.8.0.1/24"] };
  assert.deepEqual((await plugin.add(call({ args, runtimeConfig }))).ips, [
    { address: "10.8.0.1/24" },
  ]);
});

const refused: [string, number, Partial<CallParts>, RegExp][] = [
  [
    "an address without prefix length",
    7,
    { ipam: { addresses: [{ address: "10.0.0.5" }] } },
    /ipam.addresses\[0\].address: "10.0.0.5"/,
  ],
  [
    "a gateway that is none",
    7,
    { ipam: { addresses: [{ address: "10.0.0.5/24", gateway: "x" }] } },
    /gateway/,
  ],
  ["args without prefix length", 7, { args: { cni: { ips: ["10.0.0.5"] } } }, /args.cni.ips\[0\]/],
  ["runtimeConfig without prefix length", 7, { runtimeConfig: { ips: ["10.0.0.5"] } }, /ips\[0\]/],
  ["CNI_ARGS IP without prefix length", 4, { cniArgs: { IP: "10.0.0.5" } }, /IP: "10.0.0.5"/],
  ["CNI_ARGS GATEWAY that is none", 4, { cniArgs: { GATEWAY: "x" } }, /GATEWAY: "x"/],
  [
    "two addresses of a family for version 0.2.0",
    7,
    { cniVersion: "0.2.0", cniArgs: { IP: "10.9.0.1/24" } },
    /0\.2\.0/,
  ],
];
for (const [what, number, parts, reason] of refused) {
  test(`static, with ${what}, fails with code ${number}`, async () => {
    await assert.rejects(plugin.add(call(parts)), code(number, reason));
  });
}

test("static, at DEL, succeeds whatever the configuration says", async () => {
  await plugin.del(call({ ipam: { addresses: 5 } }));
});

test("static, at CHECK, compares the gateways with the result's", async () => {
  const check = (gateway?: string) =>
    plugin.check({
      ...call(),
      prevResult: {
        interfaces: [],
        ips: [{ address: "10.0.0.5/24", ...(gateway !== undefined && { gateway }) }],
        routes: [],
        dns: {},
      },
    });
  await check("10.0.0.1");
  await assert.rejects(check("10.0.0.2"), code(7, /gateway of "10.0.0.5" is not "10.0.0.1"/));
  await assert.rejects(check(), code(7, /gateway/));
  await assert.rejects(plugin.check(call()), code(7, /prevResult is missing/));
});

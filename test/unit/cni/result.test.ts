import assert from "node:assert/strict";
import { test } from "node:test";
import type { Json } from "../../../lib/base/json.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { decodeResult, encodeResult } from "../../../lib/cni/result.ts";
import {
  type CniResult,
  type CniVersion,
  cniVersions,
  emptyResult,
} from "../../../lib/cni/types.ts";

const full: CniResult = {
  interfaces: [
    { name: "br0", mac: "02:00:00:00:00:01" },
    {
      name: "eth0",
      mac: "02:00:00:00:00:02",
      mtu: 1400,
      sandbox: "/run/netns/x",
      socketPath: "/run/vhost",
      pciID: "0000:00:02.0",
      podNetwork: "blue",
    },
  ],
  ips: [
    { address: "10.1.0.5/24", gateway: "10.1.0.1", interface: 1, podNetwork: "blue" },
    { address: "fd00::5/64", interface: 1, podNetwork: "blue" },
    { address: "10.2.0.5/24" },
  ],
  routes: [
    {
      dst: "0.0.0.0/0",
      gw: "10.1.0.1",
      mtu: 1300,
      advmss: 1260,
      priority: 5,
      table: 100,
      scope: 0,
    },
    { dst: "fd01::/64" },
  ],
  dns: { nameservers: ["10.1.0.1"], domain: "a.b", search: [], options: ["ndots:5"] },
};
const dns = { nameservers: ["10.1.0.1"], domain: "a.b", options: ["ndots:5"] };
const interfaces: Json = [
  { name: "br0", mac: "02:00:00:00:00:01" },
  { name: "eth0", mac: "02:00:00:00:00:02", sandbox: "/run/netns/x", podNetwork: "blue" },
];
const routes = [{ dst: "0.0.0.0/0", gw: "10.1.0.1" }, { dst: "fd01::/64" }];
const oldShape = {
  ip4: { ip: "10.1.0.5/24", gateway: "10.1.0.1", routes: [{ dst: "0.0.0.0/0", gw: "10.1.0.1" }] },
  ip6: { ip: "fd00::5/64", routes: [{ dst: "fd01::/64" }] },
  dns,
};
const withFamily = {
  interfaces,
  ips: [
    { version: "4", address: "10.1.0.5/24", gateway: "10.1.0.1", interface: 1, podNetwork: "blue" },
    { version: "6", address: "fd00::5/64", interface: 1, podNetwork: "blue" },
    { version: "4", address: "10.2.0.5/24" },
  ],
  routes,
  dns,
};
const written: Readonly<Record<CniVersion, Json>> = {
  "0.1.0": oldShape,
  "0.2.0": oldShape,
  "0.3.0": withFamily,
  "0.3.1": withFamily,
  "0.4.0": withFamily,
  "1.0.0": { interfaces, ips: full.ips as unknown as Json, routes, dns },
  "1.1.0": { ...full, dns } as unknown as Json,
};
for (const version of cniVersions) {
  test(`result: written as ${version}, it has what that version can carry`, () => {
    assert.deepEqual(encodeResult(full, version), {
      cniVersion: version,
      ...(written[version] as object),
    });
  });

  test(`result: what is written as ${version} reads back and writes the same again`, () => {
    const once = encodeResult(full, version);
    assert.deepEqual(encodeResult(decodeResult(once, "1.1.0"), version), once);
  });
}

test("result: the newest version loses nothing", () => {
  const { search: _, ...known } = full.dns;
  assert.deepEqual(decodeResult(encodeResult(full, "1.1.0"), "0.1.0"), { ...full, dns: known });
});

test("result: an empty result is the version alone, and can't be written before 0.3.0", () => {
  assert.deepEqual(encodeResult(emptyResult, "1.0.0"), { cniVersion: "1.0.0" });
  for (const version of ["0.1.0", "0.2.0"] as const) {
    assert.throws(
      () => encodeResult(emptyResult, version),
      (error: unknown) =>
        error instanceof CniError && error.code === 1 && /no IP address/.test(error.message),
    );
  }
});

test("result: without its own version it is read as the configuration's", () => {
  const old = { ip4: { ip: "10.1.0.5/24", routes: null } };
  assert.deepEqual(decodeResult(old, "0.2.0").ips, [{ address: "10.1.0.5/24" }]);
  assert.deepEqual(decodeResult({ cniVersion: "", ...old }, "0.2.0").ips, [
    { address: "10.1.0.5/24" },
  ]);
  assert.deepEqual(decodeResult(old, "1.0.0").ips, []);
});

test("result: the old shape becomes addresses without interfaces", () => {
  assert.deepEqual(decodeResult({ cniVersion: "0.2.0", ...oldShape }, "1.1.0"), {
    interfaces: [],
    ips: [{ address: "10.1.0.5/24", gateway: "10.1.0.1" }, { address: "fd00::5/64" }],
    routes,
    dns,
  });
});

test("result: unknown keys, null and empty texts are passed over", () => {
  const value = {
    cniVersion: "0.4.0",
    extra: { deep: [] },
    interfaces: [{ name: "eth0", mac: "", sandbox: null, colour: "red" }],
    ips: [{ version: "4", address: "10.1.0.5/24", gateway: "", interface: 0, z: 1 }],
    routes: null,
    dns: { nameservers: null, domain: "" },
  };
  assert.deepEqual(decodeResult(value, "0.4.0"), {
    interfaces: [{ name: "eth0" }],
    ips: [{ address: "10.1.0.5/24", interface: 0 }],
    routes: [],
    dns: {},
  });
});

test("result: every fault is named with its path", () => {
  const value = {
    interfaces: [{ mac: "x" }, { name: "a", mtu: -1 }],
    ips: [
      { address: "10.1.0.5" },
      { address: "10.1.0.5/33" },
      { address: "10.1.0.5/24", interface: 2, gateway: "gw" },
    ],
    routes: [{ gw: "10.1.0.1" }, { dst: "default" }, { dst: "10.0.0.0/8", mtu: 1.5 }],
    dns: { nameservers: "10.1.0.1" },
  };
  assert.throws(
    () => decodeResult(value, "1.1.0"),
    (error: unknown) => {
      assert.ok(error instanceof CniError);
      assert.equal(error.code, 6);
      const faults = error.message.replace("decode CNI result: ", "").split("; ");
      const paths = faults.map((text) => text.slice(0, text.indexOf(":")));
      assert.deepEqual(paths, [
        "interfaces[0].name",
        "interfaces[1].mtu",
        "ips[0].address",
        "ips[1].address",
        "ips[2].gateway",
        "routes[0].dst",
        "routes[1].dst",
        "routes[2].mtu",
        "dns.nameservers",
      ]);
      return true;
    },
  );
});

const refused: readonly [string, unknown, number, RegExp][] = [
  [
    "an index beyond the interfaces",
    { ips: [{ address: "10.1.0.5/24", interface: 0 }] },
    6,
    /ips\[0\]\.interface: 0/,
  ],
  [
    "a negative index",
    { ips: [{ address: "10.1.0.5/24", interface: -1 }] },
    6,
    /ips\[0\]\.interface/,
  ],
  [
    "an address of the wrong family",
    { cniVersion: "0.2.0", ip4: { ip: "fd00::1/64" } },
    6,
    /ip4\.ip: must be IPv4/,
  ],
  ["a version that podnet does not speak", { cniVersion: "9.9.9" }, 1, /"9\.9\.9"/],
  ["a version that is no text", { cniVersion: 1 }, 1, /cniVersion: 1/],
  ["a list", [], 6, /must be a JSON object/],
  ["null", null, 6, /must be a JSON object/],
];
for (const [title, value, code, message] of refused) {
  test(`result: ${title} is refused with code ${code}`, () => {
    assert.throws(
      () => decodeResult(value, "1.0.0"),
      (error: unknown) =>
        error instanceof CniError && error.code === code && message.test(error.message),
    );
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeMultusCache } from "../../../daemon/node/multus/cache.ts";

const defaults = { ifName: "eth0", cniVersion: "1.0.0" } as const;

const base64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");

const bridge = { cniVersion: "0.3.1", name: "default-net", type: "bridge", bridge: "br{0}" };
const list = { cniVersion: "0.4.0", name: "blue", plugins: [{ type: "macvlan", master: "up0" }] };

/** Two delegates as Multus 4 writes them: Go structs with their zero values. */
const file = JSON.stringify([
  {
    Conf: { cniVersion: "0.3.1", name: "default-net", type: "bridge", ipam: {}, dns: {} },
    ConfList: { plugins: null },
    Name: "default-net",
    IsFilterV4Gateway: false,
    IsFilterV6Gateway: false,
    Bytes: base64(bridge),
  },
  {
    Conf: { cniVersion: "0.4.0", name: "blue", ipam: {}, dns: {} },
    ConfList: { cniVersion: "0.4.0", name: "blue", plugins: [{ type: "macvlan", ipam: {} }] },
    Name: "team-a/blue",
    macRequest: "02:00:00:00:00:07",
    ipRequest: ["10.0.0.7/24"],
    deviceID: "0000:01:00.2",
    Bytes: base64(list),
  },
]);

function summary(content: string) {
  const { delegates, faults } = decodeMultusCache(content, defaults);
  const rows = delegates.map(({ network, ifName, conflist, capabilityArgs }) => ({
    network,
    ifName,
    name: conflist.name,
    types: conflist.plugins.map(({ type }) => type),
    capabilityArgs,
  }));
  return { rows, faults };
}

test("Multus' cache: each delegate with its interface, the very configuration, and what the pod asked for", () => {
  const { rows, faults } = summary(file);
  assert.deepEqual(faults, []);
  assert.deepEqual(rows, [
    {
      network: "default-net",
      ifName: "eth0",
      name: "default-net",
      types: ["bridge"],
      capabilityArgs: {},
    },
    {
      network: "team-a/blue",
      ifName: "net1",
      name: "blue",
      types: ["macvlan"],
      capabilityArgs: {
        mac: "02:00:00:00:00:07",
        ips: ["10.0.0.7/24"],
        deviceID: "0000:01:00.2",
      },
    },
  ]);
  const [first] = decodeMultusCache(file, defaults).delegates;
  assert.equal(first?.conflist.plugins[0]?.["bridge"], "br{0}");
});

test("Multus' cache: a requested interface name counts, also for the first delegate", () => {
  const entry = { Name: "a", Bytes: base64(bridge), ifnameRequest: "data0" };
  assert.equal(summary(JSON.stringify([entry])).rows[0]?.ifName, "data0");
});

test("Multus' cache: entries of releases before 3.0 are configurations", () => {
  const old = [
    { ...bridge, masterplugin: true },
    { name: "old", type: "ptp", ifnameRequest: "ptp0" },
  ];
  const { rows, faults } = summary(JSON.stringify(old));
  assert.deepEqual(faults, []);
  assert.deepEqual(
    rows.map(({ name, ifName, types }) => [name, ifName, types[0]]),
    [
      ["default-net", "eth0", "bridge"],
      ["old", "ptp0", "ptp"],
    ],
  );
});

test("Multus' cache: a configuration without name gets its NAD's, one of an unknown version is run all the same", () => {
  const nameless = { Name: "team-a/plain", Bytes: base64({ type: "bridge" }) };
  const future = { Name: "f", Bytes: base64({ cniVersion: "9.0.0", name: "f", type: "bridge" }) };
  const { rows, faults } = summary(JSON.stringify([nameless, future]));
  assert.deepEqual(faults, []);
  assert.deepEqual(
    rows.map(({ name }) => name),
    ["plain", "f"],
  );
});

test("Multus' cache: cut off after any byte, what is whole is found and the rest is a fault", () => {
  const ends = [...file.matchAll(/\}(?=,\{"Conf"|\]$)/g)].map(({ index }) => index + 1);
  const [firstEnd = 0, secondEnd = 0] = ends;
  assert.equal(ends.length, 2);
  for (let length = 0; length < file.length; length += 1) {
    const { rows, faults } = summary(file.slice(0, length));
    const whole = length >= secondEnd ? 2 : length >= firstEnd ? 1 : 0;
    assert.equal(rows.length, whole, `${length} bytes`);
    assert.ok(faults.length > 0, `${length} bytes: the damage is said`);
  }
});

test("Multus' cache: anything else is a fault, never an exception", () => {
  for (const content of [
    "",
    "\0\0\0\0",
    "{}",
    "7",
    '"x"',
    "[[]]",
    "[null]",
    "[7]",
    "}{",
    '[{"a":"',
  ]) {
    assert.ok(decodeMultusCache(content, defaults).faults.length > 0, JSON.stringify(content));
  }
  const broken = [{ Name: "a" }, { Name: 7 }, { Bytes: "e30=" }, { Bytes: "!!!" }, { type: "a/b" }];
  const { rows, faults } = summary(JSON.stringify([...broken, { Name: "b", Bytes: base64(list) }]));
  assert.equal(faults.length, broken.length);
  assert.deepEqual(
    rows.map(({ ifName }) => ifName),
    ["net5"],
  );
  assert.deepEqual(summary("null"), { rows: [], faults: [] });
});

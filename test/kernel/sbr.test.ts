import assert from "node:assert/strict";
import { test } from "node:test";
import { sbr } from "../../daemon/plugins/sbr.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import { Attached, moveIntoNode } from "../helpers/attached.ts";
import { Lab, type Place } from "../helpers/lab.ts";

const lab = new Lab();
moveIntoNode(lab);

interface Setup {
  readonly pod: Place;
  readonly routers: readonly [Place, Place];
  readonly prevResult: CniResult;
}

/** A pod with two interfaces, each to a router of its own that both have the address 192.0.2.1 behind them. */
function setUp(): Setup {
  const pod = lab.pod();
  const routers = [lab.node(), lab.node()] as const;
  for (const [number, router] of routers.entries()) {
    const name = `net${number}`;
    const run = (place: Place, text: string) => place.run("ip", ...text.split(" "));
    run(router, `link add down0 type veth peer name ${name} netns ${pod.name}`);
    run(router, "link set down0 up");
    run(router, `address add 10.${number}.0.1/24 dev down0`);
    run(router, `-6 address add fd0${number}::1/64 dev down0 nodad`);
    run(router, "address add 192.0.2.1/32 dev lo");
    run(pod, `link set ${name} up`);
    run(pod, `address add 10.${number}.0.2/24 dev ${name}`);
    run(pod, `-6 address add fd0${number}::2/64 dev ${name} nodad`);
  }
  pod.run("ip", "route", "add", "default", "via", "10.0.0.1");
  pod.run("ip", "-6", "route", "add", "default", "via", "fd01::1", "dev", "net1");
  const prevResult: CniResult = {
    interfaces: [{ name: "v" }, { name: "net1", sandbox: pod.path }],
    ips: [
      { address: "10.1.0.2/24", gateway: "10.1.0.1", interface: 1 },
      { address: "fd01::2/64", gateway: "fd01::1", interface: 1 },
    ],
    routes: [],
    dns: {},
  };
  return { pod, routers, prevResult };
}

function attach({ pod, prevResult }: Setup, config: JsonObject = {}): Attached {
  return new Attached(sbr, { pod, prevResult, ifName: "net1", config: { type: "sbr", ...config } });
}

function rules(pod: Place, family: string): string[] {
  return pod
    .run("ip", family, "rule")
    .split("\n")
    .filter((line) => line.includes("from 10") || line.includes("from fd"))
    .map((line) => line.replace(/^\d+:\s*/, "").trim());
}

test("sbr: what comes from an address leaves by its interface; CHECK passes; DEL takes the rules away", async () => {
  const setup = setUp();
  const { pod, routers } = setup;
  const reaches = (source: string, router: Place) => {
    router.run("ip", "address", "add", "198.51.100.1/32", "dev", "lo");
    try {
      pod.run("ping", "-c1", "-W1", "-I", source, "198.51.100.1");
      return true;
    } catch {
      return false;
    } finally {
      router.run("ip", "address", "del", "198.51.100.1/32", "dev", "lo");
    }
  };
  assert.equal(reaches("10.1.0.2", routers[1]), false);
  const attached = attach(setup);
  assert.deepEqual(await attached.add(), setup.prevResult);
  assert.equal(reaches("10.1.0.2", routers[1]), true);
  assert.equal(reaches("10.0.0.2", routers[0]), true);
  assert.equal(reaches("10.0.0.2", routers[1]), false);
  // As after the reference executable from the same state.
  assert.deepEqual(rules(pod, "-4"), ["from 10.1.0.2 lookup 100"]);
  assert.deepEqual(rules(pod, "-6"), ["from fd01::2 lookup 101"]);
  const table = (family: string, number: string) =>
    pod
      .run("ip", family, "route", "show", "table", number)
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "" && !line.startsWith("fe80"));
  assert.deepEqual(table("-4", "100"), [
    "default via 10.1.0.1 dev net1",
    "10.1.0.0/24 dev net1 proto kernel scope link src 10.1.0.2",
  ]);
  assert.deepEqual(table("-6", "101"), [
    "fd01::/64 dev net1 proto kernel metric 256 pref medium",
    "default via fd01::1 dev net1 metric 1024 pref medium",
  ]);
  assert.deepEqual(table("-4", "main"), [
    "default via 10.0.0.1 dev net0",
    "10.0.0.0/24 dev net0 proto kernel scope link src 10.0.0.2",
  ]);
  assert.deepEqual(table("-6", "main"), ["fd00::/64 dev net0 proto kernel metric 256 pref medium"]);
  await attached.check();
  await attached.del();
  await attached.del();
  assert.deepEqual([...rules(pod, "-4"), ...rules(pod, "-6")], []);
  await assert.rejects(attached.check(), {
    code: 999,
    message: /rule for what comes from 10.1.0.2/,
  });
});

test("sbr: with a table only rules are made; tables that rules lead to are not taken", async () => {
  const setup = setUp();
  const { pod } = setup;
  const before = pod.run("ip", "route", "show", "table", "all");
  const attached = attach(setup, { table: 77 });
  await attached.add();
  assert.deepEqual(
    [...rules(pod, "-4"), ...rules(pod, "-6")],
    ["from 10.1.0.2 lookup 77", "from fd01::2 lookup 77"],
  );
  assert.equal(pod.run("ip", "route", "show", "table", "all"), before);
  await attached.check();
  await attached.del();
  pod.run("ip", "rule", "add", "from", "10.5.5.5", "lookup", "100");
  const free = attach(setup);
  await free.add();
  assert.deepEqual(rules(pod, "-4").toSorted(), [
    "from 10.1.0.2 lookup 101",
    "from 10.5.5.5 lookup 100",
  ]);
  pod.run("ip", "route", "flush", "table", "101");
  await assert.rejects(free.check(), {
    code: 999,
    message: /table 101 lacks the default route via 10.1.0.1/,
  });
  await free.del();
  assert.deepEqual(rules(pod, "-4"), ["from 10.5.5.5 lookup 100"]);
});

test("sbr: a wrong table, and an interface without addresses, are refused", async () => {
  const setup = setUp();
  for (const table of [0, -1, "x", 1.5])
    await assert.rejects(attach(setup, { table }).addOnly(), { code: 7, message: /table/ });
  const empty = { ...setup, prevResult: { ...setup.prevResult, ips: [] } };
  await assert.rejects(attach(empty).add(), { code: 7, message: /has no address/ });
});

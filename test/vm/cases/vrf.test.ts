import assert from "node:assert/strict";
import { test } from "node:test";
import { vrf } from "../../../daemon/plugins/vrf.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import type { CniResult } from "../../../lib/cni/types.ts";
import { Attached, moveIntoNode } from "../../helpers/attached.ts";
import { Lab, type Place } from "../../helpers/lab.ts";
import { part } from "../../helpers/parts.ts";
import { mustRunPlugin } from "../../helpers/plugin-call.ts";

const lab = new Lab();
const node = moveIntoNode(lab);

const run = (place: Place, text: string) => place.run("ip", ...text.split(" "));

/** A pod with two interfaces whose other ends on the node both are 10.1.0.1 and fd01::1, each in a namespace of its own. */
function makePod(): { readonly pod: Place; readonly routers: readonly Place[] } {
  const pod = lab.pod();
  const routers = [0, 1].map((number) => {
    const router = lab.node();
    const name = `net${number}`;
    run(router, `link add down0 type veth peer name ${name} netns ${pod.name}`);
    run(router, "link set down0 up");
    run(router, "address add 10.1.0.1/24 dev down0");
    run(router, "-6 address add fd01::1/64 dev down0 nodad");
    run(router, `address add 192.0.2.${number}/32 dev lo`);
    run(pod, `link set ${name} up`);
    run(pod, `address add 10.1.0.${number + 2}/24 dev ${name}`);
    run(pod, `-6 address add fd01::${number + 2}/64 dev ${name} nodad`);
    return router;
  });
  return { pod, routers };
}

function attach(pod: Place, ifName: string, config: JsonObject): Attached {
  const prevResult: CniResult = {
    interfaces: [{ name: ifName, sandbox: pod.path }],
    ips: [],
    routes: [],
    dns: {},
  };
  return new Attached(vrf, { pod, ifName, prevResult, config: { type: "vrf", ...config } });
}

function tableOf(pod: Place, name: string): number | undefined {
  const [link] = JSON.parse(pod.run("ip", "-j", "-d", "link", "show", name));
  return link.linkinfo.info_data.table;
}

test("vrf: two interfaces in VRFs of their own have the same addresses and reach each its own router", async () => {
  const { pod } = makePod();
  run(pod, "route add 192.0.2.0/24 via 10.1.0.1 dev net0");
  run(pod, "-6 route add 2001:db8::/64 via fd01::1 dev net0");
  const blue = attach(pod, "net0", { vrfname: "blue" });
  const red = attach(pod, "net1", { vrfname: "red", table: 77 });
  await Promise.all([blue.add(), red.add()]);
  assert.deepEqual([tableOf(pod, "blue"), tableOf(pod, "red")], [1, 77]);
  const routes = (family: string, table: string) =>
    pod.run("ip", family, "route", "show", "table", table);
  assert.match(routes("-4", "1"), /192.0.2.0\/24 via 10.1.0.1 dev net0/);
  assert.match(routes("-6", "1"), /2001:db8::\/64 via fd01::1 dev net0/);
  assert.match(routes("-6", "1"), /fd01::\/64 dev net0/);
  assert.doesNotMatch(routes("-4", "main"), /net0/);
  pod.run("ping", "-c1", "-W2", "-I", "blue", "192.0.2.0");
  assert.throws(() => pod.run("ping", "-c1", "-W1", "-I", "blue", "192.0.2.1"));
  pod.run("ping", "-c1", "-W2", "-I", "red", "10.1.0.1");
  pod.run("ping", "-6", "-c1", "-W2", "-I", "red", "fd01::1");
  await blue.check();
  await red.check();
  await blue.del();
  await blue.del();
  assert.throws(() => pod.run("ip", "link", "show", "blue"));
  await red.check();
  await assert.rejects(blue.check(), { code: 999, message: /VRF "blue" is gone/ });
  run(pod, "link set net1 nomaster");
  await assert.rejects(red.check(), { code: 999, message: /"net1" is not in VRF "red"/ });
  await red.del();
  assert.throws(() => pod.run("ip", "link", "show", "red"));
});

test("vrf: a second interface joins; the VRF goes with the last one", async () => {
  const { pod } = makePod();
  const [first, second] = [
    attach(pod, "net0", { vrfname: "blue", table: 50 }),
    attach(pod, "net1", { vrfname: "blue" }),
  ];
  await first.add();
  await second.add();
  assert.equal(pod.run("ip", "-br", "link", "show", "master", "blue").trim().split("\n").length, 2);
  assert.match(pod.run("ip", "-6", "address", "show", "net1"), /fd01::3\/64/);
  await first.del();
  assert.equal(tableOf(pod, "blue"), 50);
  await second.del();
  assert.throws(() => pod.run("ip", "link", "show", "blue"));
  await second.delWithoutPod();
});

test("vrf: wrong configurations are refused, and a VRF of another table or a link that is none", async () => {
  const { pod } = makePod();
  for (const config of [
    {},
    { vrfname: "much-too-long-a-name" },
    { vrfname: "a/b" },
    { vrfname: "blue", table: -3 },
    { vrfname: "blue", table: "x" },
  ]) {
    await assert.rejects(attach(pod, "net0", config).addOnly(), { code: 7 });
  }
  await assert.rejects(attach(pod, "net0", { vrfname: "net1" }).addOnly(), {
    code: 7,
    message: /no VRF/,
  });
  const blue = attach(pod, "net0", { vrfname: "blue", table: 5 });
  await blue.add();
  await assert.rejects(attach(pod, "net1", { vrfname: "blue", table: 6 }).addOnly(), {
    code: 7,
    message: /routing table 5, not 6/,
  });
  await blue.del();
  assert.equal(node.run("ip", "-br", "link", "show", "type", "vrf"), "");
});

/** Routes of all tables, rules and masters, without what differs from run to run. */
function state(pod: Place): string[] {
  const lines = [
    pod.run("ip", "-4", "route", "show", "table", "all"),
    pod.run("ip", "-6", "route", "show", "table", "all"),
    pod.run("ip", "rule"),
    pod
      .run("ip", "-br", "link", "show", "type", "vrf")
      .replaceAll(/([0-9a-f]{2}:){5}[0-9a-f]{2}/g, ""),
    ...["net0", "net1"].map((name) => {
      const [link] = JSON.parse(pod.run("ip", "-j", "link", "show", name)) as { master?: string }[];
      return `${name} in ${link?.master}`;
    }),
  ];
  // The kernel's own routes come and go with duplicate address detection.
  return lines
    .flatMap((text) => text.split("\n").map((line) => line.trim()))
    .filter((line) => line !== "" && !/fe80|ff00|anycast|^local |^broadcast /.test(line))
    .toSorted();
}

test("vrf: routes, rules and masters are those that the reference leaves, after each ADD and DEL", async () => {
  const calls = [
    { ifName: "net0", config: { vrfname: "blue" } },
    { ifName: "net1", config: { vrfname: "red", table: 77 } },
  ];
  const prepare = () => {
    const { pod } = makePod();
    run(pod, "route add 192.0.2.0/24 via 10.1.0.1 dev net0");
    run(pod, "route add default via 10.1.0.1 dev net1");
    run(pod, "-6 route add 2001:db8::/64 via fd01::1 dev net0");
    return pod;
  };
  const reference = async (
    verb: "ADD" | "DEL",
    pod: Place,
    { ifName, config }: (typeof calls)[number],
  ) => {
    const interfaces = [{ name: ifName, sandbox: pod.path }];
    const prevResult = { cniVersion: "1.1.0", interfaces, ips: [] };
    const path = part("reference-plugins");
    await mustRunPlugin({
      program: `${path}/vrf`,
      verb,
      path,
      ifName,
      node,
      containerId: "c1",
      netns: pod.path,
      config: { cniVersion: "1.1.0", name: "blue", type: "vrf", ...config, prevResult },
    });
  };
  const [theirs, ours] = [prepare(), prepare()];
  const attached = calls.map(({ ifName, config }) => attach(ours, ifName, config));
  for (const [index, call] of calls.entries()) {
    await reference("ADD", theirs, call);
    await attached[index]?.add();
    assert.deepEqual(state(ours), state(theirs), `after ADD of ${call.ifName}`);
  }
  for (const [index, call] of calls.entries()) {
    await reference("DEL", theirs, call);
    await attached[index]?.del();
    assert.deepEqual(state(ours), state(theirs), `after DEL of ${call.ifName}`);
  }
});

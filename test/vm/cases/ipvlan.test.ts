import assert from "node:assert/strict";
import { test } from "node:test";
import { ipvlan } from "../../../daemon/plugins/ipvlan.ts";
import type { CniResult } from "../../../lib/cni/types.ts";
import { Attached, moveIntoNode, staticIpam } from "../../helpers/attached.ts";
import { Lab, type Place } from "../../helpers/lab.ts";

const lab = new Lab();
const node = moveIntoNode(lab);
node.run("ip", "link", "add", "up0", "type", "dummy");
node.run("ip", "link", "set", "up0", "up");

interface Shape {
  readonly config?: object;
  readonly containerId?: string;
  readonly prevResult?: CniResult;
}

function attachment(pod: Place, shape: Shape): Attached {
  const { config, ...others } = shape;
  return new Attached(ipvlan, {
    pod,
    config: { type: "ipvlan", master: "up0", ...config },
    ...others,
  });
}

for (const mode of ["l2", "l3", "l3s"]) {
  test(`ipvlan: two pods in mode ${mode} reach each other in both families; CHECK passes; DEL leaves nothing`, async () => {
    const [one, two] = [lab.pod(), lab.pod()];
    const first = attachment(one, {
      config: { mode, mtu: 1300, ipam: staticIpam(["10.1.0.1/24"], ["fd00:1::1/64"]) },
    });
    const second = attachment(two, {
      containerId: "other",
      config: { mode, ipam: staticIpam(["10.1.0.2/24"], ["fd00:1::2/64"]) },
    });
    const [{ interfaces }] = await Promise.all([first.add(), second.add()]);
    assert.equal(interfaces[0]?.mtu, 1300);
    assert.match(one.run("ip", "-d", "link", "show", "eth0"), new RegExp(`ipvlan +mode ${mode} `));
    one.run("ping", "-c1", "-W3", "10.1.0.2");
    one.run("ping", "-6", "-c1", "-W3", "fd00:1::2");
    await first.check();
    await Promise.all([first.del(), second.del()]);
    assert.equal(one.run("ip", "-o", "link").trim().split("\n").length, 1);
  });
}

test("ipvlan: after another plugin it is on that one's interface and takes its addresses", async () => {
  const pod = lab.pod();
  const previous: CniResult = {
    interfaces: [{ name: "up0", mac: "02:00:00:00:00:01" }],
    ips: [{ address: "10.2.0.1/24", interface: 0 }],
    routes: [],
    dns: {},
  };
  const chained = attachment(pod, { config: { master: "" }, prevResult: previous });
  const result = await chained.add();
  assert.deepEqual(
    result.interfaces.map(({ name }) => name),
    ["eth0"],
  );
  assert.deepEqual(result.ips, [{ address: "10.2.0.1/24", interface: 0 }]);
  assert.match(pod.run("ip", "-br", "addr", "show", "eth0"), /10\.2\.0\.1\/24/);
  await chained.del();
  const two = { ...previous, interfaces: [{ name: "a" }, { name: "b" }] };
  await assert.rejects(attachment(pod, { config: { master: "" }, prevResult: two }).add(), {
    code: 7,
    message: /its result has 2 interfaces, must be one: set "master"/,
  });
});

test("ipvlan: without addresses, with an unknown mode, or with a changed mode at CHECK it says so", async () => {
  const pod = lab.pod();
  await assert.rejects(attachment(pod, {}).add(), {
    code: 7,
    message: /ipvlan needs addresses: set "ipam"/,
  });
  const ipam = staticIpam(["10.1.0.1/24"]);
  await assert.rejects(attachment(pod, { config: { mode: "l4", ipam } }).add(), {
    code: 7,
    message: /"l4" is not a mode: must be l2, l3, l3s/,
  });
  const attached = attachment(pod, { config: { ipam } });
  await attached.add();
  pod.run("ip", "link", "set", "eth0", "type", "ipvlan", "mode", "l3");
  await assert.rejects(attached.check(), { message: /its mode is not "l2"/ });
  await attached.del();
});

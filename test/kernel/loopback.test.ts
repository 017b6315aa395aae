import assert from "node:assert/strict";
import { test } from "node:test";
import { InProcess } from "../helpers/in-process.ts";
import { Lab } from "../helpers/lab.ts";

test("loopback, over its life, sets lo up, finds that it is down, and sets it down again", async () => {
  using lab = new Lab();
  const pod = lab.pod();
  await using plugins = InProcess.start(lab.node());
  const config = { cniVersion: "1.1.0", name: "lo", type: "loopback" };
  const call = { type: "loopback", containerId: "c1", ifName: "lo", netns: pod.path, config };
  const before = pod.run("ip", "-j", "address");
  const result = await plugins.mustRun({ ...call, verb: "ADD" });
  assert.deepEqual(result, {
    cniVersion: "1.1.0",
    interfaces: [{ name: "lo", mac: "00:00:00:00:00:00", sandbox: pod.path }],
    ips: [
      { address: "127.0.0.1/8", interface: 0 },
      { address: "::1/128", interface: 0 },
    ],
  });
  pod.run("ping", "-c1", "-W1", "127.0.0.1");
  await plugins.mustRun({ ...call, verb: "CHECK" });
  pod.run("ip", "link", "set", "lo", "down");
  const { json } = await plugins.run({ ...call, verb: "CHECK" });
  assert.match(json.msg, /interface "lo" is down/);
  await plugins.mustRun({ ...call, verb: "DEL" });
  await plugins.mustRun({ ...call, verb: "DEL" });
  await plugins.mustRun({ ...call, verb: "DEL", netns: "/run/netns/podnet-test-none" });
  assert.notEqual(before, "");
  assert.match(pod.run("ip", "link", "show", "lo"), /<LOOPBACK>/);
});

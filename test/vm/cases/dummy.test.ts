import assert from "node:assert/strict";
import { test } from "node:test";
import { dummy } from "../../../daemon/plugins/dummy.ts";
import { Attached, moveIntoNode, staticIpam } from "../../helpers/attached.ts";
import { Lab } from "../../helpers/lab.ts";

const lab = new Lab();
moveIntoNode(lab);

test("dummy: carries addresses of both families, CHECK finds it down, DEL leaves nothing", async () => {
  const pod = lab.pod();
  const attached = new Attached(dummy, {
    pod,
    config: {
      type: "dummy",
      ipam: { ...staticIpam(["10.1.0.1/24"], ["fd00:1::1/64"]), dns: { domain: "example.org" } },
    },
  });
  const result = await attached.add();
  assert.deepEqual(result.dns, { domain: "example.org" });
  assert.deepEqual(
    result.ips.map(({ address }) => address),
    ["10.1.0.1/24", "fd00:1::1/64"],
  );
  pod.run("ip", "link", "set", "lo", "up");
  pod.run("ping", "-c1", "-W2", "10.1.0.1");
  pod.run("ping", "-6", "-c1", "-W2", "fd00:1::1");
  await attached.check();
  pod.run("ip", "link", "set", "eth0", "down");
  await assert.rejects(attached.check(), { message: /it is down/ });
  await attached.del();
  assert.equal(pod.run("ip", "-o", "link").trim().split("\n").length, 1);
});

test("dummy: without IPAM it is refused", async () => {
  const attached = new Attached(dummy, { pod: lab.pod(), config: { type: "dummy" } });
  await assert.rejects(attached.add(), { code: 7, message: /dummy needs addresses: set "ipam"/ });
});

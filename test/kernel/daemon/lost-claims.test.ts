import assert from "node:assert/strict";
import { readdirSync, rmSync } from "node:fs";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Netns } from "../../../lib/base/netns.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import { podNetwork } from "../../helpers/daemon.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";

function claims(node: NodeFixture): string[] {
  using netns = Netns.open(node.place.path);
  try {
    return readdirSync(`/run/podnet/devices/${netns.cookie()}`);
  } catch {
    return [];
  }
}

function removeClaims(node: NodeFixture): void {
  using netns = Netns.open(node.place.path);
  rmSync(`/run/podnet/devices/${netns.cookie()}`, { recursive: true });
}

async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 100; turn += 1) {
    if (holds()) return;
    await sleep(100);
  }
  assert.fail(`${what} did not come true within 10 s`);
}

test("claims on devices that were removed while pods have them are made again, by the running daemon and by the next one", async () => {
  const lent = podNetwork("lent", { type: "host-device", device: "lent0" });
  await using node = await NodeFixture.start({ networks: { lent } });
  const far = node.lab.pod();
  node.place.run(
    "ip",
    "link",
    "add",
    "lent0",
    "type",
    "veth",
    "peer",
    "name",
    "far0",
    "netns",
    far.name,
  );
  node.place.run("ip", "link", "set", "lent0", "mtu", "1400", "up");
  const [one, two] = [node.sandbox("one"), node.sandbox("two")];
  const refused = async (): Promise<{ code?: unknown }> =>
    (await node.run("ADD", two, { networks: ["lent"] })).json;
  await node.must("ADD", one, { networks: ["lent"] });
  const [made = ""] = claims(node);
  assert.notEqual(made, "");

  removeClaims(node);
  rmSync(node.daemon.socket);
  await eventually("the claim", () => claims(node).includes(made));
  assert.equal((await refused()).code, cniCode.noDeviceLeft);

  await node.daemon.stop();
  removeClaims(node);
  await node.daemon.restart();
  assert.deepEqual(claims(node), [made]);
  assert.equal((await refused()).code, cniCode.noDeviceLeft);

  await node.must("DEL", one);
  assert.deepEqual(claims(node), []);
  await node.must("ADD", two, { networks: ["lent"] });
  await node.must("DEL", two);
});

test("claims that are removed while podnetd runs: a device that is away is lent once, and DEL restores it", async () => {
  const lent = podNetwork("lent", { type: "host-device", device: "lent0" });
  await using node = await NodeFixture.start({ networks: { lent } });
  const far = node.lab.pod();
  node.place.run("sh", "-ec", `ip link add lent0 type veth peer name far0 netns ${far.name}`);
  node.place.run(
    "sh",
    "-ec",
    "ip link set lent0 mtu 1400 up; ip address add 192.0.2.7/24 dev lent0",
  );
  const [one, two] = [node.sandbox("one"), node.sandbox("two")];
  await node.must("ADD", one, { networks: ["lent"] });
  const made = claims(node);
  assert.equal(made.length, 1);

  removeClaims(node);
  const { json } = await node.run("ADD", two, { networks: ["lent"] });
  assert.equal((json as { code?: unknown }).code, cniCode.noDeviceLeft, JSON.stringify(json));
  assert.deepEqual(claims(node), made);

  removeClaims(node);
  await node.must("DEL", one);
  assert.deepEqual(claims(node), []);
  const [link] = JSON.parse(node.place.run("ip", "-j", "address", "show", "lent0"));
  assert.equal(link.mtu, 1400);
  assert(link.flags.includes("UP"));
  assert.equal(
    link.addr_info.some(({ local }: { local: string }) => local === "192.0.2.7"),
    true,
  );
  await node.must("ADD", two, { networks: ["lent"] });
  await node.must("DEL", two);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { podNetwork } from "../../helpers/daemon.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";

test("podnetctl ls -o wide of a device that a pod has borrowed: its row while the pod has it, none once it is back", async () => {
  await using node = await NodeFixture.start({
    networks: { lent: podNetwork("lent", { type: "host-device", device: "lent0" }) },
  });
  const far = node.lab.pod();
  const ends = ["lent0", "type", "veth", "peer", "name", "far0", "netns", far.name];
  node.place.run("ip", "link", "add", ...ends);
  const [link] = JSON.parse(node.place.run("ip", "-j", "link", "show", "lent0"));
  const ls = async (...args: readonly string[]) =>
    (await podnetctl(node.place, ["--socket", node.daemon.socket, "ls", ...args])).stdout;
  const pod = node.sandbox("borrower");
  await node.must("ADD", pod, { networks: ["blue", "lent"] });
  const [head = "", ...rows] = (await ls("-o", "wide")).trimEnd().split("\n");
  assert.match(head, / STATE +AGE +DEVICE +PCI$/);
  assert.deepEqual(
    rows.map((row) => row.split(/ {2,}/)).map((cells) => [cells[2], cells[3], ...cells.slice(-2)]),
    [
      ["blue", "eth0", "-", "-"],
      // Named by no resource, and on no PCI bus.
      ["lent", "net1", "-", "-"],
    ],
  );
  const row = JSON.parse(await ls("-o", "json"))[1];
  assert.deepEqual([row.network, row.interface, row.mac], ["lent", "net1", link.address]);
  assert.doesNotMatch(await ls(), /DEVICE|PCI/);
  await node.must("DEL", pod);
  assert.equal(await ls("-o", "wide"), "Nothing is attached.\n");
  node.place.run("ip", "link", "show", "lent0");
});

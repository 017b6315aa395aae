import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";

const bridge = (keys: object) => ({ type: "bridge", bridge: "br9", ...keys });

test("podnetctl resolve: shows what a pod would get, and what in a network's configuration would make its ADD fail", async () => {
  using tools = new Lab();
  await using node = await NodeFixture.start({
    withDefault: true,
    networks: {
      sound: podNetwork("sound", bridge({ mtu: 1400 })),
      odd: podNetwork(
        "odd",
        bridge({ mtu: "lots", ipam: { type: "host-local", subnet: "10.300.0.0/24" } }),
      ),
      unicorn: podNetwork("unicorn", { type: "unicorn" }),
    },
  });
  const resolve = (...names: string[]) => {
    const file = join(tools.folder(), "pod.yaml");
    const list = JSON.stringify(["default", ...names].map((name) => ({ name })));
    const annotations = { "podnet.dev/networks": list };
    writeFileSync(file, JSON.stringify({ kind: "Pod", metadata: { annotations } }));
    return podnetctl(node.place, ["--socket", node.daemon.socket, "resolve", "-f", file]);
  };
  const good = await resolve("sound");
  assert.deepEqual([good.status, good.stderr], [0, ""]);
  const [head = "", ...rows] = good.stdout.trimEnd().split("\n");
  assert.match(head, /^NETWORK +INTERFACE +PLUGINS +IPAM +DEFAULT ROUTE +RUNTIME SEES$/);
  assert.deepEqual(
    rows.map((row) => row.split(/ {2,}/)),
    [
      ["default", "eth0", "bridge", "host-local", "IPv4", "yes"],
      ["sound", "net1", "bridge", "-", "-", "no"],
    ],
  );
  const bad = await resolve("odd", "unicorn");
  assert.equal(bad.status, 1);
  assert.match(bad.stdout, /odd +net1 +bridge/);
  assert.match(bad.stderr, /network "odd": plugins\[0\]\.mtu: must be/);
  assert.match(bad.stderr, /network "odd": plugins\[0\]\.ipam\.subnet: .*10\.300\.0\.0/);
  assert.match(bad.stderr, /network "unicorn": .*"unicorn"/);
  assert.equal(bad.stderr.trim().split("\n").length, 1);
});

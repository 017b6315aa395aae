import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Daemon } from "../helpers/daemon.ts";
import { Lab } from "../helpers/lab.ts";
import { MountedNode } from "../helpers/mounts.ts";
import { part } from "../helpers/parts.ts";
import { runPlugin } from "../helpers/plugin-call.ts";
import { LeakCheck } from "../helpers/state.ts";

// Sandboxes that a runtime attached before podnet: the reference library itself wrote the cache that podnet works from.
const stack = new AsyncDisposableStack();
let lab: Lab;
let node: MountedNode;
let daemon: Daemon;
let stores = "";

before(async () => {
  lab = stack.use(new Lab());
  node = stack.use(MountedNode.make(lab));
  stores = lab.folder();
  const bin = join(lab.folder(), "bin");
  mkdirSync(bin);
  const reference = part("reference-plugins");
  for (const name of ["bridge", "host-local", "portmap", "tuning"])
    copyFileSync(join(reference, name), join(bin, name));
  daemon = await Daemon.start({
    lab,
    node,
    binDirs: [bin],
    conflists: {
      "10-old.conflist": {
        cniVersion: "1.0.0",
        name: "old",
        plugins: [
          {
            type: "bridge",
            bridge: "br-old",
            isGateway: true,
            ipMasq: true,
            ipam: { type: "host-local", dataDir: stores, ranges: [[{ subnet: "10.9.0.0/24" }]] },
          },
          { type: "portmap", capabilities: { portMappings: true } },
          { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
        ],
      },
    },
  });
  stack.use(daemon);
  const cnitool = (verb: string, netns: string): void => {
    const command = [part("cnitool"), verb, "old", netns];
    const [program = "", ...args] = node.wrap(command);
    const done = spawnSync(program, args, {
      encoding: "utf8",
      env: {
        ...process.env,
        NETCONFPATH: daemon.confDir,
        CNI_PATH: bin,
        CNI_IFNAME: "eth0",
        CAP_ARGS: JSON.stringify({
          portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
        }),
      },
    });
    assert.equal(done.status, 0, done.stderr);
  };
  add = (netns) => {
    const results = () => files().filter((name) => name.startsWith("old-"));
    const known = new Set(results());
    cnitool("add", netns);
    const [made = ""] = results().filter((name) => !known.has(name));
    const id = made.slice("old-".length, -"-eth0".length);
    return id;
  };
});
after(() => stack.disposeAsync());

/** Attaches with cnitool, and gives the container's id. */
let add: (netns: string) => string;

const files = (): string[] =>
  node
    .run("sh", "-c", "ls /var/lib/cni/results 2>/dev/null || true")
    .split("\n")
    .filter((name) => name !== "");

const held = () => readdirSync(join(stores, "old")).filter((name) => name.startsWith("10."));

test("a sandbox that a runtime attached before podnet is given back from the library's cache, host ports and masquerading included", async () => {
  const warm = lab.pod();
  await del(add(warm.path), warm.path);
  const pod = lab.pod();
  const leaks = new LeakCheck([node, pod]);
  const id = add(pod.path);
  assert.match(node.run("iptables-save", "-t", "nat"), /dport 8080/);
  assert.equal(held().length, 1);
  await del(id, pod.path);
  leaks.assertClean();
  assert.deepEqual([held(), files()], [[], []]);
});

async function del(containerId: string, netns: string): Promise<void> {
  const { status, stdout } = await runPlugin(
    daemon.call({ verb: "DEL", containerId, netns, ifName: "eth0" }),
  );
  assert.equal(status, 0, stdout);
}

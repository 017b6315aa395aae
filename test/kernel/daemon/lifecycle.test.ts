import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab, runCommand } from "../../helpers/lab.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";

let node: NodeFixture;
let tools: Lab;
let bin = "";
/** host-local's folder of network `lone`, whose attachments leave nothing on the node by which they could be known. */
let loneAddresses = "";

/** A delegate whose DEL fails while a file named "stuck" lies beside it. */
const stubborn = `#!/bin/sh
dir=\${0%/*}
cat >/dev/null
case $CNI_COMMAND in
  ADD) echo '{"cniVersion":"1.0.0","interfaces":[],"ips":[]}' ;;
  DEL) if [ -e "$dir/stuck" ]; then echo '{"code":11,"msg":"device is busy"}'; exit 1; fi ;;
esac
`;

before(async () => {
  tools = new Lab();
  bin = join(tools.folder(), "bin");
  mkdirSync(bin);
  writeFileSync(join(bin, "stubborn"), stubborn);
  chmodSync(join(bin, "stubborn"), 0o755);
  loneAddresses = tools.folder();
  node = await NodeFixture.start({
    binDirs: [bin],
    networks: {
      stubborn: podNetwork("stubborn", { type: "stubborn" }),
      lone: podNetwork("lone", {
        type: "tap",
        ipam: {
          type: "host-local",
          dataDir: loneAddresses,
          ranges: [[{ subnet: "10.30.0.0/24" }]],
        },
      }),
    },
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 150; turn += 1) {
    if (holds()) return;
    await sleep(100);
  }
  assert.fail(`${what} did not come true within 15 s`);
}

test("a daemon that is killed and started again knows what is attached: same answer, CHECK, DEL", async () => {
  const pod = node.sandbox("survivor");
  const first = await node.must("ADD", pod, { networks: ["blue", "dual"] });
  await node.daemon.kill();
  await node.daemon.restart();
  assert.deepEqual(await node.must("ADD", pod, { networks: ["blue", "dual"] }), first);
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  await node.must("ADD", node.sandbox("keeper"), { networks: ["blue", "dual"] });
  assert.equal(node.records().length, 1);
});

test("a repeated ADD of a network that makes no interface gets the same answer", async () => {
  const pod = node.sandbox("invisible");
  const first = await node.must("ADD", pod, { networks: ["blue", "stubborn"] });
  assert.deepEqual(await node.must("ADD", pod, { networks: ["blue", "stubborn"] }), first);
  await node.must("DEL", pod);
});

test("a DEL while the daemon is away fails so that the runtime comes again, and then succeeds", async () => {
  const pod = node.sandbox("away");
  await node.must("ADD", pod, { networks: ["red"] });
  await node.daemon.stop();
  const { status, json } = await node.run("DEL", pod, { config: { daemonWait: 1 } });
  assert.equal(status, 1);
  assert.equal(json.code, 11);
  const status50 = await node.run("STATUS", pod);
  assert.equal(status50.json.code, 50);
  await node.daemon.restart();
  await node.must("DEL", pod);
  assert.deepEqual(node.held("red"), []);
});

test("an ADD waits for a daemon that is being restarted", async () => {
  const pod = node.sandbox("patient");
  await node.daemon.stop();
  const added = node.must("ADD", pod, { networks: ["blue"] });
  await sleep(500);
  await node.daemon.restart();
  assert.equal((await added).ips.length, 1);
  await node.must("DEL", pod);
});

test("a DEL that can't be finished is an error, is shown as pending, and is finished by the daemon itself", async () => {
  const pod = node.sandbox("stuck");
  await node.must("ADD", pod, { networks: ["red", "stubborn"] });
  writeFileSync(join(bin, "stuck"), "");
  const { status, json } = await node.run("DEL", pod);
  assert.equal(status, 1);
  assert.equal(json.code, 11);
  assert.match(json.msg, /"stubborn" \(net1\).*device is busy/);
  assert.deepEqual(node.held("red"), [], "the other network is given back all the same");
  assert.deepEqual(
    node.records().filter((name) => name.startsWith("stuck")),
    ["stuck@eth0.json"],
  );
  await node.daemon.kill();
  await node.daemon.restart();
  rmSync(join(bin, "stuck"));
  await eventually("the daemon's own retry", () => !node.records().includes("stuck@eth0.json"));
});

test("GC keeps all attachments of a container that is listed by its eth0, and gives back the others", async () => {
  const kept = node.sandbox("kept");
  const left = node.sandbox("left");
  const foreign = node.sandbox("foreign");
  await node.must("ADD", kept, { networks: ["blue", "red"] });
  await node.must("ADD", left, { networks: ["blue", "red"] });
  await node.must("ADD", foreign, { networks: ["red"], config: { name: "other-runtime" } });
  const valid = { "cni.dev/valid-attachments": [{ containerID: "kept", ifname: "eth0" }] };
  await node.must("GC", kept, { config: valid });
  await node.must("CHECK", kept);
  await node.must("CHECK", foreign, { config: { name: "other-runtime" } });
  assert.deepEqual(
    node.records().filter((name) => !name.startsWith("keeper")),
    ["foreign@eth0.json", "kept@eth0.json"],
  );
  assert.equal(node.held("red").length, 2);
  assert.throws(() => left.place.run("ip", "link", "show", "eth0"));
  for (const pod of [kept, left, foreign]) await node.must("DEL", pod);
});

test("GC without a list frees nothing", async () => {
  const pod = node.sandbox("listless");
  await node.must("ADD", pod, { networks: ["blue"] });
  await node.must("GC", pod);
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
});

test("podnetctl gc frees what lived in a namespace that has gone", async () => {
  const pod = node.sandbox("vanished");
  await node.must("ADD", pod, { networks: ["red"] });
  node.lab.remove(pod.place);
  const text = runCommand(["dist/bin/podnetctl", "--socket", node.daemon.socket, "gc"]);
  assert.match(text, /freed vanished red eth0 10\.20\./);
  assert.deepEqual(node.held("red"), []);
});

/** The addresses of network `lone` that are held. */
function lone(): string[] {
  return readdirSync(join(loneAddresses, "lone")).filter((name) => /^[\d.]+$/.test(name));
}

/** What `podnetctl gc` prints. */
function collected(): string {
  return runCommand(["dist/bin/podnetctl", "--socket", node.daemon.socket, "gc"]);
}

test("podnetctl gc leaves a pod whose namespace lives, although its path is gone, and says so", async () => {
  const pod = node.sandbox("hidden");
  await node.must("ADD", pod, { networks: ["lone"] });
  const held = lone();
  const [program = "", ...args] = pod.place.wrap(["sleep", "60"]);
  const child = spawn(program, args, { stdio: "ignore" });
  await once(child, "spawn");
  await eventually(
    "the process in the pod",
    () => readlinkSync(`/proc/${child.pid}/ns/net`) !== readlinkSync("/proc/self/ns/net"),
  );
  node.lab.remove(pod.place);
  assert.match(
    collected(),
    new RegExp(
      `left container hidden \\(lone\\): its network namespace lives, kept by process ${child.pid}`,
    ),
  );
  assert.deepEqual(lone(), held);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.match(collected(), /freed hidden lone eth0 10\.30\./);
  assert.deepEqual(lone(), []);
});

test("podnetctl gc leaves the address of a pod that is older than podnet, by whatever it is known", async () => {
  const pod = node.sandbox("older");
  await node.must("ADD", pod, { networks: ["lone"] });
  const [address = ""] = lone();
  await node.must("DEL", pod);
  const put = (ip: string, owner: string) => writeFileSync(join(loneAddresses, "lone", ip), owner);
  pod.place.run("ip", "link", "add", "eth0", "type", "bridge");
  pod.place.run("ip", "address", "add", `${address}/24`, "dev", "eth0");
  put(address, "older-container\r\neth0");
  put("10.30.0.77", "dead-container\r\neth0");
  assert.match(
    collected(),
    new RegExp(
      `left address ${address} of network lone, container older-container eth0: it is on an interface in a namespace kept by mount `,
    ),
  );
  assert.deepEqual(lone(), [address]);
  pod.place.run("ip", "link", "del", "eth0");
  collected();
  assert.deepEqual(lone(), []);
});

test("GC passes over what is not installed of a network that nothing is attached to, and says so; one that is in use fails", async () => {
  const garbage = join(loneAddresses, "elsewhere", "10.31.0.9");
  mkdirSync(join(loneAddresses, "elsewhere"));
  writeFileSync(garbage, "dead-container\r\neth0");
  const ranges = [[{ subnet: "10.31.0.0/24" }]];
  const ipam = { type: "host-local", dataDir: loneAddresses, ranges };
  node.daemon.writeNetwork("elsewhere", podNetwork("elsewhere", { type: "not-here", ipam }));
  assert.match(collected(), /^left unused network "elsewhere": find plugin "not-here": no exec/m);
  assert.equal(existsSync(garbage), false, "its address plugin is here, and is called");
  const pod = node.sandbox("user");
  await node.must("ADD", pod, { networks: ["stubborn"] });
  renameSync(join(bin, "stubborn"), join(bin, "away"));
  const valid = { "cni.dev/valid-attachments": [{ containerID: "user", ifname: "eth0" }] };
  const { status, json } = await node.run("GC", pod, { config: valid });
  renameSync(join(bin, "away"), join(bin, "stubborn"));
  assert.equal(status, 1);
  assert.match(json.msg, /^collect network "stubborn": .*find plugin "stubborn": no executable/);
  await node.must("GC", pod, { config: valid });
  await node.must("DEL", pod);
  rmSync(join(node.daemon.networksDir, "elsewhere.yaml"));
});

test("STATUS does not ask secondary networks, and says what is missing of the default one", async () => {
  const pod = node.sandbox("status");
  node.daemon.writeNetwork("absurd", "this: is: no manifest");
  await node.must("STATUS", pod);
});

test("two operations of one container never overlap, and many containers at once all succeed", async () => {
  const pods = Array.from({ length: 24 }, (_, index) => node.sandbox(`crowd-${index}`));
  const held = node.held("blue");
  await Promise.all(
    pods.map((pod) => node.must("ADD", pod, { networks: ["blue", "red", "dual"] })),
  );
  const repeated = pods
    .slice(0, 4)
    .flatMap((pod) => [
      node.run("DEL", pod),
      node.run("ADD", pod, { networks: ["blue"] }),
      node.run("DEL", pod),
    ]);
  await Promise.all(repeated);
  await Promise.all(pods.map((pod) => node.must("DEL", pod)));
  assert.deepEqual(node.held("blue"), held);
  assert.deepEqual(node.held("red"), []);
});

test("a second daemon on the same state or socket is refused and the first goes on", async () => {
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const flags = [
    ["--socket", `${node.daemon.socket}.second`, "--state-dir", node.daemon.stateDir],
    ["--socket", node.daemon.socket, "--state-dir", tools.folder()],
  ];
  for (const pair of flags) {
    const second = spawnSync(
      "dist/bin/podnetd",
      [...pair, "--networks-dir", node.daemon.networksDir],
      {
        encoding: "utf8",
        timeout: 20_000,
      },
    );
    assert.equal(second.status, 1);
    assert.match(second.stderr, /another podnetd/);
  }
  await node.must("STATUS", node.sandbox("still-there"));
});

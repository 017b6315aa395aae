import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConfWatch } from "../../helpers/conf-watch.ts";
import { Daemon } from "../../helpers/daemon.ts";
import { Lab, type Place } from "../../helpers/lab.ts";
import { part } from "../../helpers/parts.ts";
import { mustRunPlugin, runPlugin } from "../../helpers/plugin-call.ts";

const own = "00-podnet.conflist";

let lab: Lab;
let node: Place;
let bin: string;
let addresses: string;
let daemon: Daemon | undefined;

beforeEach(() => {
  lab = new Lab();
  node = lab.node();
  bin = lab.folder();
  addresses = lab.folder();
});
afterEach(async () => {
  await daemon?.[Symbol.asyncDispose]();
  daemon = undefined;
  lab[Symbol.dispose]();
});

async function start(
  config: object = {},
  conflists: Record<string, unknown> = {},
): Promise<Daemon> {
  const options = { lab, node, binDirs: [bin], config: { install: true, ...config }, conflists };
  daemon = await Daemon.start(options);
  return daemon;
}

/** A list of the reference bridge and its host-local: what stands on a node before podnet. */
function theirs(name = "theirs", subnet = "10.40.0.0/24"): object {
  const ipam = { type: "host-local", dataDir: addresses, ranges: [[{ subnet }]] };
  return { cniVersion: "1.0.0", name, plugins: [{ type: "bridge", bridge: "br-theirs", ipam }] };
}

function copyReference(...names: string[]): void {
  for (const name of names) {
    writeFileSync(join(bin, name), readFileSync(join(part("reference-plugins"), name)));
    chmodSync(join(bin, name), 0o755);
  }
}

/** A plugin that is ready when a file named "ready" lies beside it. */
function fakePlugin(name: string): void {
  const script = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
  STATUS) [ -e "\${0%/*}/ready" ] || { echo '{"cniVersion":"1.1.0","code":50,"msg":"no agent yet"}'; exit 1; } ;;
  ADD) echo '{"cniVersion":"1.1.0","interfaces":[],"ips":[]}' ;;
esac
`;
  writeFileSync(join(bin, name), script);
  chmodSync(join(bin, name), 0o755);
}

const files = (): string[] => readdirSync(daemon?.confDir ?? "").sort();
const textOf = (name: string): string => readFileSync(join(daemon?.confDir ?? "", name), "utf8");

function put(name: string, content: unknown): void {
  const text = typeof content === "string" ? content : JSON.stringify(content);
  writeFileSync(join(daemon?.confDir ?? "", name), text);
}

async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const until = Date.now() + 15_000; Date.now() < until; await sleep(20)) {
    if (await holds()) return;
  }
  assert.fail(`not within 15 s: ${what}\n${daemon?.log}`);
}

/** GET on the daemon's socket. */
async function ask(path: string): Promise<{ status: number; text: string }> {
  const { Agent, request } = await import("undici");
  const dispatcher = new Agent({ connect: { socketPath: daemon?.socket ?? "" } });
  const { statusCode, body } = await request(`http://podnetd${path}`, { dispatcher });
  const text = await body.text();
  await dispatcher.close();
  return { status: statusCode, text };
}

const isInstalled = (): boolean => files().includes(own);
const readiness = async (): Promise<string> => (await ask("/readyz")).text;

/** Far more than the installer needs for a look of its own. */
const settle = (): Promise<void> => sleep(1_500);

test("install: waits until the default network is whole, has its executables, and says by STATUS that it is ready", async () => {
  await start();
  await eventually("a reason", async () => /no other network/.test(await readiness()));
  assert.equal((await ask("/readyz")).status, 503);
  assert.deepEqual(files(), []);
  assert.ok(existsSync(join(bin, "podnet")), "the stub does not wait");
  put("10-agent.conflist", '{"cniVersion":"1.1.0","name":"agent","plu');
  await settle();
  assert.ok(!isInstalled(), "half a file");
  put("10-agent.conflist", { cniVersion: "1.1.0", name: "agent", plugins: [{ type: "agent" }] });
  await eventually("a reason", async () => /find plugin \\"agent\\"/.test(await readiness()));
  fakePlugin("agent");
  await eventually("its STATUS", async () => /no agent yet/.test(await readiness()));
  assert.ok(!isInstalled(), "STATUS fails");
  writeFileSync(join(bin, "ready"), "");
  await eventually("installed", isInstalled);
  await eventually("ready", async () => (await ask("/readyz")).status === 200);
});

test("install: another meta plugin's configuration is no default network, and one that comes first is reported", async () => {
  const multus = { cniVersion: "1.0.0", name: "multus-cni-network", type: "multus-shim" };
  await start({}, { "05-multus.conf": multus });
  await eventually("a reason", async () => /is of \\"multus-shim\\"/.test(await readiness()));
  assert.ok(!isInstalled());
  copyReference("bridge", "host-local");
  put("10-theirs.conflist", theirs());
  await eventually("installed", isInstalled);
  await eventually("ready", async () => (await ask("/readyz")).status === 200);
  put("00-multus.conf", multus);
  await eventually("a reason", async () => /comes before/.test(await readiness()));
  assert.match((await ask("/metrics")).text, /^podnet_installed 0$/m);
  rmSync(join(daemon?.confDir ?? "", "00-multus.conf"));
  await eventually("ready again", async () => (await ask("/readyz")).status === 200);
});

test("install: nothing is missing or half for a moment while the daemon is killed, stopped, started and rewritten", async () => {
  copyReference("bridge", "host-local");
  const agent = await start({}, { "10-theirs.conflist": theirs() });
  await eventually("installed", isInstalled);
  const watched = { confDir: agent.confDir, confName: own, stub: join(bin, "podnet") };
  const watch = await ConfWatch.start(watched);
  await agent.kill();
  await agent.restart();
  await agent.stop();
  // Another build of the stub is in place when the next daemon starts.
  writeFileSync(
    join(bin, "other"),
    Buffer.concat([readFileSync(join(bin, "podnet")), Buffer.from("\n")]),
  );
  chmodSync(join(bin, "other"), 0o755);
  renameSync(join(bin, "other"), join(bin, "podnet"));
  await agent.restart();
  await eventually("the stub of this build", () =>
    readFileSync(join(bin, "podnet")).equals(readFileSync("dist/bin/podnet")),
  );
  // What the default network declares must reach podnet: its own file is written anew.
  const chain = [
    ...(theirs() as { plugins: object[] }).plugins,
    { type: "portmap", capabilities: { dns: true } },
  ];
  put("10-theirs.conflist", { ...theirs(), plugins: chain });
  await eventually("the new capability", () => textOf(own).includes('"dns": true'));
  const { misses, looks, events } = await watch.end();
  assert.deepEqual(misses, []);
  assert.ok(looks > 100 && events > 4, `looked ${looks} times, ${events} events`);
});

test("install: what somebody renames, replaces or removes comes back, is counted, and the stub also while it runs", async () => {
  copyReference("bridge", "host-local");
  const agent = await start({}, { "10-theirs.conflist": theirs() });
  await eventually("installed", isInstalled);
  const wanted = textOf(own);
  const path = join(agent.confDir, own);
  renameSync(path, `${path}.cilium_bak`);
  await eventually("back after a rename", isInstalled);
  assert.match(agent.log, /was renamed to \\"00-podnet.conflist.cilium_bak\\", and is back/);
  writeFileSync(path, JSON.stringify(theirs("hijack")));
  await eventually("back after a replacement", () => textOf(own) === wanted);
  rmSync(path);
  await eventually("back after a removal", isInstalled);
  // A stub that waits for a daemon is being executed: it can't be written to, only renamed over.
  const waiting = spawn(join(bin, "podnet"), {
    env: { CNI_COMMAND: "DEL", CNI_CONTAINERID: "c", CNI_IFNAME: "eth0", CNI_PATH: bin },
    stdio: ["pipe", "ignore", "ignore"],
  });
  const config = { cniVersion: "1.0.0", name: "podnet", type: "podnet", daemonSocket: "/nowhere" };
  waiting.stdin.end(JSON.stringify(config));
  rmSync(join(bin, "podnet"));
  await eventually("the stub", () => existsSync(join(bin, "podnet")));
  waiting.kill();
  await once(waiting, "exit");
  const { text } = await ask("/metrics");
  assert.match(text, /^podnet_install_restored_total\{file="conflist"\} 3$/m);
  assert.match(text, /^podnet_install_restored_total\{file="stub"\} 1$/m);
});

function call(verb: string, pod: Place, more: object = {}) {
  assert.ok(daemon !== undefined);
  return daemon.call({
    verb,
    containerId: `c-${pod.name}`,
    netns: pod.path,
    ifName: "eth0",
    ...more,
  });
}

test("install: half a file of the default network means what it said before, the new one counts from when it is whole", async () => {
  copyReference("bridge", "host-local");
  await start({}, { "10-theirs.conflist": theirs() });
  await eventually("installed", isInstalled);
  const address = async (): Promise<string> =>
    (await mustRunPlugin(call("ADD", lab.pod()))).ips[0].address;
  assert.match(await address(), /^10\.40\./);
  put("10-theirs.conflist", JSON.stringify(theirs()).slice(0, 60));
  assert.match(await address(), /^10\.40\./);
  put("10-theirs.conflist", theirs("theirs", "10.41.0.0/24"));
  assert.match(await address(), /^10\.41\./);
});

/** What a runtime does with the first file of the folder: each plugin's executable in turn. */
async function runTheirs(verb: "ADD" | "DEL", pod: Place): Promise<void> {
  const list = theirs() as { name: string; cniVersion: string; plugins: object[] };
  const { name, cniVersion } = list;
  const config = { name, cniVersion, ...list.plugins[0] };
  const base = { program: join(bin, "bridge"), node, path: bin, ifName: "eth0" };
  await mustRunPlugin({ ...base, verb, containerId: `c-${pod.name}`, netns: pod.path, config });
}

function held(): string[] {
  const folder = join(addresses, "theirs");
  if (!existsSync(folder)) return [];
  return readdirSync(folder).filter((name) => name.startsWith("10."));
}

test("install: pods from before are deleted cleanly through podnet, and pods of podnet after it is gone", async () => {
  copyReference("bridge", "host-local");
  const before = lab.pod();
  await runTheirs("ADD", before);
  assert.equal(held().length, 1);
  const agent = await start({}, { "10-theirs.conflist": theirs() });
  await eventually("installed", isInstalled);
  await mustRunPlugin(call("DEL", before));
  assert.deepEqual(held(), []);
  const after = lab.pod();
  await mustRunPlugin(call("ADD", after));
  assert.equal(held().length, 1);
  const uninstall = (...args: string[]) => {
    const program = resolve("dist/bin/podnetctl");
    const child = spawn(program, ["--socket", agent.socket, "uninstall", "--node", ...args]);
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        output += text;
      });
    return once(child, "close").then(([status]) => ({ status, output }));
  };
  const first = await uninstall("--wait", "1");
  assert.equal(first.status, 1, first.output);
  assert.match(first.output, /done {2}configuration: removed .*00-podnet\.conflist/);
  assert.match(first.output, /wait {2}attachments: 1 sandboxes still have/);
  assert.deepEqual(files(), ["10-theirs.conflist"]);
  assert.ok(existsSync(join(bin, "podnet")), "a pod may still need it");
  await runTheirs("DEL", after);
  lab.remove(after);
  const second = await uninstall("--wait", "30");
  assert.equal(second.status, 0, second.output);
  assert.match(second.output, /done {2}executable: removed/);
  assert.ok(!existsSync(join(bin, "podnet")));
  assert.deepEqual(held(), []);
  const third = await uninstall("--wait", "5");
  assert.equal(third.status, 0, third.output);
  assert.deepEqual(files(), ["10-theirs.conflist"]);
});

test("uninstall: the configuration stays where the runtime would have no other network, unless forced", async () => {
  const networks = lab.folder();
  mkdirSync(networks, { recursive: true });
  await start({ defaultConflist: "none" });
  await eventually("installed", isInstalled);
  const send = async (force: boolean) => {
    const { Agent, request } = await import("undici");
    const dispatcher = new Agent({ connect: { socketPath: daemon?.socket ?? "" } });
    const url = `http://podnetd/v1/uninstall?force=${force}`;
    const { body } = await request(url, { method: "POST", dispatcher });
    const answer = JSON.parse(await body.text());
    await dispatcher.close();
    return answer;
  };
  const kept = await send(false);
  assert.equal(kept.done, false);
  assert.match(kept.steps[0].detail, /without it no pod could start/);
  assert.ok(isInstalled());
  assert.equal((await send(true)).done, true);
  assert.deepEqual(files(), []);
});

test("upgrade: the next daemon waits for the one before, and no ADD is refused meanwhile", async () => {
  copyReference("bridge", "host-local");
  const agent = await start({}, { "10-theirs.conflist": theirs() });
  await eventually("installed", isInstalled);
  const folders = ["--state-dir", agent.stateDir, "--networks-dir", agent.networksDir];
  const conf = ["--cni-conf-dir", agent.confDir, "--cni-bin-dir", bin];
  const [program = "", ...args] = node.wrap([
    resolve("dist/bin/podnetd"),
    ...["--socket", agent.socket, "--install", "true"],
    ...folders,
    ...conf,
  ]);
  const next = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  next.stderr.setEncoding("utf8").on("data", (text: string) => {
    log += text;
  });
  let isOver = false;
  let work: Promise<void>[] = [];
  try {
    const answers: { status: number | null; stdout: string }[] = [];
    const pods = async (): Promise<void> => {
      while (!isOver) {
        const pod = lab.pod();
        answers.push(await runPlugin(call("ADD", pod)));
        answers.push(await runPlugin(call("DEL", pod)));
        lab.remove(pod);
      }
    };
    work = [pods(), pods()];
    await sleep(1_000);
    assert.doesNotMatch(log, /ready/);
    await agent.stop();
    await eventually("the next one", () => log.includes('"ready"'));
    await sleep(500);
    isOver = true;
    await Promise.all(work);
    assert.deepEqual(
      answers.filter(({ status }) => status !== 0),
      [],
    );
    assert.ok(answers.length > 4, `${answers.length} answers`);
  } finally {
    isOver = true;
    await Promise.allSettled(work);
    if (next.exitCode === null) {
      const ended = once(next, "exit");
      next.kill("SIGTERM");
      await ended;
    }
  }
});

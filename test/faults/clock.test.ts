import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { podNetwork } from "../helpers/daemon.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { Lab } from "../helpers/lab.ts";
import { NodeFixture, type Sandbox } from "../helpers/node-fixture.ts";
import { podnetctl } from "../helpers/podnetctl.ts";

// Somebody sets the machine's clock while pods run, come and go: nothing is put off, hurried, forgotten or freed for it. The clock of the
// daemon's process alone jumps (clock-jump.ts).

const day = 86_400_000;
const year = 365 * day;

let node: NodeFixture;
let tools: Lab;
let clock: string;
let busy: string;

/** Its DEL fails, and its ADD waits, as long as the file "busy" is there. */
const moody = (file: string) => `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
  ADD) while [ -e ${file} ]; do sleep 0.1; done
       echo '{"cniVersion":"1.1.0","interfaces":[],"ips":[]}' ;;
  DEL) [ ! -e ${file} ] || { echo '{"cniVersion":"1.1.0","code":11,"msg":"busy"}'; exit 1; } ;;
esac
`;

before(async () => {
  tools = new Lab();
  const folder = tools.folder();
  const bin = join(folder, "bin");
  clock = join(folder, "clock");
  busy = join(folder, "busy");
  mkdirSync(bin);
  writeFileSync(join(bin, "moody"), moody(busy), { mode: 0o755 });
  node = await NodeFixture.start({
    binDirs: [bin],
    networks: { moody: podNetwork("moody", { type: "moody" }) },
    env: {
      NODE_OPTIONS: `--import=${resolve("test/helpers/clock-jump.ts")}`,
      PODNET_CLOCK: clock,
    },
  });
});
after(async () => {
  rmSync(busy, { force: true });
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

function setClock(ahead: number): void {
  writeFileSync(clock, String(ahead));
}

const fileOf = ({ id }: Sandbox) => join(node.daemon.stateDir, "records", `${id}@eth0.json`);

/** The latest state of a sandbox' record. */
function recordOf(pod: Sandbox): { readonly created: string; readonly phase: string } {
  const [last = ""] = readFileSync(fileOf(pod), "utf8").trim().split("\n").slice(-1);
  return JSON.parse(last) as { created: string; phase: string };
}

const ctl = async (...args: string[]) =>
  await podnetctl(node.place, ["--socket", node.daemon.socket, ...args]);

test("pods come, are checked and go while the clock jumps by days and years, and over restarts in between", async () => {
  const networks = ["blue", "dual"];
  const lasting = node.sandbox("lasting");
  await node.must("ADD", lasting, { networks });
  const jumps = [day, -day, -20 * year, 20 * year, 0];
  for (const [at, jump] of jumps.entries()) {
    setClock(jump);
    const pod = node.sandbox(`jump-${at}`);
    const leaks = node.watch(pod);
    await node.must("ADD", pod, { networks });
    const ahead = Date.parse(recordOf(pod).created) - Date.now();
    assert.ok(Math.abs(ahead - jump) < day / 2, "the daemon's clock did not jump");
    if (at % 2 === 1) {
      await node.daemon.stop();
      await node.daemon.restart();
    }
    for (const one of [lasting, pod]) await node.must("CHECK", one);
    const valid = [lasting, pod].map(({ id }) => ({ containerID: id, ifname: "eth0" }));
    await node.must("GC", pod, { config: { "cni.dev/valid-attachments": valid } });
    for (const one of [lasting, pod]) await node.must("CHECK", one);
    await node.must("DEL", pod);
    leaks.assertClean();
  }
  await node.must("DEL", lasting);
  for (const network of networks) assert.deepEqual(node.held(network), []);
  reportFigures({ "jumps of the clock": jumps.length });
});

for (const [title, jump] of [
  ["put back", -year],
  ["put forward", year],
] as const) {
  test(`a DEL that could not be finished is repeated although the clock was ${title} meanwhile`, async () => {
    setClock(0);
    const pod = node.sandbox(jump < 0 ? "back" : "forward");
    await node.must("ADD", pod, { networks: ["blue", "moody"] });
    writeFileSync(busy, "");
    assert.equal((await node.run("DEL", pod)).status, 1);
    // The daemon has tried by itself, and decided when it does again.
    const tries = new RegExp(`"containerId":"${pod.id}".*"detach is not finished yet"`);
    await until(() => tries.test(node.daemon.log));
    setClock(jump);
    assert.match((await ctl("ls", "--pending")).stdout, new RegExp(pod.id));
    assert.doesNotMatch((await ctl("doctor")).stdout, /for -\d/);
    rmSync(busy);
    await until(() => !existsSync(fileOf(pod)));
    assert.deepEqual(node.held("blue"), []);
  });
}

/** Looks until it is so; the runner's own limit ends what never is. */
async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 600; turn += 1) {
    if (condition()) return;
    await sleep(100);
  }
  throw new Error(`not within a minute:\n${node.daemon.log.slice(-2000)}`);
}

test("an ADD that was cut off is left to its caller, who comes again, although the clock was put forward", async () => {
  setClock(0);
  const pod = node.sandbox("cut-off");
  writeFileSync(busy, "");
  const gone = new AbortController();
  const call = node.run("ADD", pod, { networks: ["blue", "moody"], signal: gone.signal });
  await until(() => existsSync(fileOf(pod)) && node.held("blue").length > 0);
  await node.daemon.kill();
  gone.abort();
  await call;
  await node.daemon.restart();
  setClock(day);
  // Two looks of the daemon at what nobody came for.
  await sleep(2_500);
  assert.equal(recordOf(pod).phase, "adding");
  rmSync(busy);
  await node.must("ADD", pod, { networks: ["blue", "moody"] });
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  assert.deepEqual(node.held("blue"), []);
  setClock(0);
});

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { sandboxRecord } from "../../daemon/node/record.ts";
import { Store } from "../../daemon/node/store.ts";
import { openLog } from "../../lib/base/log.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { expect, rehearse } from "../helpers/scenario.ts";
import type { Expected } from "../helpers/scenario-fault.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode, type ScenarioPod } from "../helpers/scenario-node.ts";

// Files that a crash, a full disk, an editor or another build left. What can't be read is said; what can be freed is.

let node: ScenarioNode;
let clean: Expected["clean"];
before(async () => {
  node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
  // What stays for good (bridges, tables) is there from now on.
  for (const { networks } of attachmentKinds) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks });
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
  }
  clean = (await rehearse(node, ["bridge", "pair"])).clean;
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

const recordsDir = () => join(node.daemon.stateDir, "records");
const recordOf = ({ id }: ScenarioPod) => join(recordsDir(), `${id}@eth0.json`);

function ctl(...args: string[]): { readonly status: number | null; readonly text: string } {
  const command = ["dist/bin/podnetctl", "--socket", node.daemon.socket, ...args];
  const [program = "", ...rest] = node.place.wrap(command);
  const done = spawnSync(program, rest, { encoding: "utf8" });
  return { status: done.status, text: `${done.stdout}${done.stderr}` };
}

test("records of each kind of attachment, cut at any length or with any byte changed, are what they were or are set aside", async () => {
  const folder = node.lab.folder();
  mkdirSync(join(folder, "records"));
  const log = openLog("silent");
  let tried = 0;
  for (const { networks } of attachmentKinds) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks });
    const bytes = readFileSync(recordOf(pod));
    const states = new Set(statesOf(bytes.toString()));
    const file = join(folder, "records", `${pod.id}@eth0.json`);
    const look = (damaged: Uint8Array, what: string) => {
      tried += 1;
      writeFileSync(file, damaged);
      const store = new Store(folder, log);
      const [read] = store.all();
      if (read === undefined) assert.ok(store.unreadable.length === 1 || !existsSync(file), what);
      else assert.ok(states.has(JSON.stringify(read)), `${what}: read as something else`);
      for (const name of readdirSync(join(folder, "records")))
        rmSync(join(folder, "records", name));
    };
    for (let length = 0; length < bytes.length; length += 7)
      look(bytes.subarray(0, length), `cut at ${length}`);
    const last = bytes.lastIndexOf(10, bytes.length - 2) + 1;
    for (let place = last; place < bytes.length - 1; place += 3) {
      const flipped = Buffer.from(bytes);
      flipped[place] = (flipped[place] ?? 0) ^ (1 << (place % 8));
      look(flipped, `byte ${place}`);
    }
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
  }
  reportFigures({ "damaged files tried": tried });
});

/** Each line's record, as the store gives it. */
function statesOf(text: string): string[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.stringify(sandboxRecord.parse(JSON.parse(line))));
}

test("DEL of a pod whose record is damaged succeeds; doctor tells of the record before, and gc frees what is left", async () => {
  const pod = node.pod();
  await node.must("ADD", pod, { networks: ["bridge", "pair"] });
  await node.daemon.stop();
  const file = recordOf(pod);
  const bytes = readFileSync(file);
  bytes[bytes.length - 200] = (bytes[bytes.length - 200] ?? 0) ^ 1;
  writeFileSync(file, bytes);
  await node.recover();
  const told = ctl("doctor");
  assert.match(told.text, new RegExp(`${pod.id}@eth0\\.json\\.unreadable`));
  node.lab.remove(pod.place);
  await node.must("DEL", pod);
  assert.ok(!existsSync(`${file}.unreadable`));
  assert.equal(ctl("gc").status, 0);
  await expect(node, clean, { pods: [node.pod()], when: "after gc" });
});

test("an address file cut at any length or with any byte changed stops no DEL and no other pod, and gc frees it", async () => {
  const folder = join(node.addresses, "bridge");
  const holder = node.pod();
  await node.must("ADD", holder, { networks: ["bridge"] });
  const [name = ""] = readdirSync(folder).filter((file) => file.startsWith("10."));
  const { length } = readFileSync(join(folder, name));
  await node.must("DEL", holder);
  node.lab.remove(holder.place);
  let tried = 0;
  for (let place = 0; place < length * 2; place += 1) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks: ["bridge"] });
    const file = readdirSync(folder).find((one) =>
      readFileSync(join(folder, one), "utf8").startsWith(pod.id),
    );
    assert.ok(file);
    const bytes = readFileSync(join(folder, file));
    if (place < length) writeFileSync(join(folder, file), bytes.subarray(0, place));
    else {
      bytes[place - length] = (bytes[place - length] ?? 0) ^ (1 << (place % 8));
      writeFileSync(join(folder, file), bytes);
    }
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
    tried += 1;
  }
  for (const text of ["", "10.101.0", "fd00::1", "\0\0\0", "999.1.1.1"]) {
    const pod = node.pod();
    writeFileSync(join(folder, "last_reserved_ip.0"), text);
    await node.must("ADD", pod, { networks: ["bridge"] });
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
    tried += 1;
  }
  const told = ctl("gc").text;
  // What names no container may be somebody else's: a person decides.
  for (const [, address = ""] of told.matchAll(
    /left address (\S+) of network bridge: its file names no/g,
  ))
    rmSync(join(folder, address));
  await expect(node, clean, { pods: [node.pod()], when: `after gc, which said ${told}` });
  reportFigures({ "damaged files tried": tried });
});

test("folders, links, sockets and foreign files among the state stop nothing and are not followed", async () => {
  const outside = join(node.lab.folder(), "outside");
  writeFileSync(outside, "untouched");
  const folder = join(node.addresses, "bridge");
  const script = [
    `ln -s ${outside} 10.101.9.1`,
    `ln -s ${outside} .podnet-tmp`,
    "mkdir 10.101.9.2",
    "mkfifo 10.101.9.3",
    "echo 'somebody else' > 10.101.9.4",
    `cd ${recordsDir()}`,
    "mkdir x.json",
    "mkfifo y.json",
    `ln -s ${outside} z.json`,
    `ln -s ${outside} link@eth0.json.tmp`,
    "echo '{}' > strange.json",
    "echo hello > README",
  ];
  spawnSync("sh", ["-ec", script.join("\n")], { cwd: folder });
  await node.daemon.stop();
  await node.recover();
  const pod = node.pod();
  await node.must("ADD", pod, { networks: ["bridge"] });
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
  assert.equal(readFileSync(outside, "utf8"), "untouched");
  for (const name of readdirSync(recordsDir()))
    rmSync(join(recordsDir(), name), { recursive: true });
  for (const name of readdirSync(folder).filter((one) => one.startsWith("10.101.9.")))
    rmSync(join(folder, name), { recursive: true });
  await node.daemon.stop();
  await node.recover();
  await expect(node, clean, { pods: [pod], when: "without the foreign files" });
});

test("a record of another boot: the kernel's part is left alone, the addresses are given back", async () => {
  const pod = node.pod();
  await node.must("ADD", pod, { networks: ["bridge", "pair"] });
  await node.daemon.stop();
  const file = recordOf(pod);
  const [last = ""] = statesOf(readFileSync(file, "utf8")).slice(-1);
  const record = JSON.parse(last) as Record<string, unknown>;
  writeFileSync(file, `${JSON.stringify({ ...record, bootId: "another", netnsCookie: "1" })}\n`);
  await node.recover();
  const newer = node.pod(pod.uid);
  await node.must("ADD", newer, { networks: ["bridge", "pair"] });
  await node.must("DEL", pod);
  await node.must("CHECK", newer);
  await node.must("DEL", newer);
  node.lab.remove(pod.place);
  await expect(node, clean, { pods: [newer], when: "after both DELs" });
});

test("the clock goes back and forth by years: nothing is forgotten or freed", async () => {
  const pod = node.pod();
  await node.must("ADD", pod, { networks: ["bridge", "pair"] });
  await node.daemon.stop();
  const file = recordOf(pod);
  const [last = ""] = statesOf(readFileSync(file, "utf8")).slice(-1);
  for (const created of ["1970-01-01T00:00:00.000Z", "2099-01-01T00:00:00.000Z"]) {
    const record = JSON.parse(last) as Record<string, unknown>;
    writeFileSync(file, `${JSON.stringify({ ...record, created })}\n`);
    spawnSync("touch", ["-d", created, file, node.addresses, join(node.addresses, "bridge")]);
    await node.recover();
    await node.must("CHECK", pod);
    await node.collect([pod], pod);
    await node.must("CHECK", pod);
    await node.daemon.stop();
  }
  await node.recover();
  await node.must("DEL", pod);
  await expect(node, clean, { pods: [pod], when: "after DEL" });
});

test("records of earlier builds are read, checked and given back", async () => {
  const fixtures = "test/fixtures/records";
  const names = readdirSync(fixtures);
  assert.ok(names.length > 0);
  for (const name of names) {
    await node.daemon.stop();
    const id = name.split("@")[0] ?? "";
    const text = readFileSync(join(fixtures, name), "utf8");
    writeFileSync(join(recordsDir(), name), text.replaceAll("/opt/cni/bin", node.binDir));
    await node.recover();
    assert.match(ctl("ls", "-o", "json").text, new RegExp(`"containerId": ?"${id}"`));
    const gone = { ...node.pod(), id };
    node.lab.remove(gone.place);
    await node.must("DEL", gone);
    assert.ok(!existsSync(join(recordsDir(), name)));
  }
  await expect(node, clean, { pods: [node.pod()], when: "after their DELs" });
});

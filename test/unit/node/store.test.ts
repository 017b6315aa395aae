import assert from "node:assert/strict";
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import type { SandboxRecord } from "../../../daemon/node/record.ts";
import { Store } from "../../../daemon/node/store.ts";
import { openLog } from "../../../lib/base/log.ts";

const log = openLog("silent");
let dir = "";

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "podnet-test-"));
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

function record(containerId: string, ifName = "eth0"): SandboxRecord {
  return {
    version: 1,
    containerId,
    ifName,
    bootId: "b",
    netns: "/run/netns/x",
    netnsCookie: "17",
    cniNetwork: "podnet",
    cniArgs: "",
    cniPath: ["/opt/cni/bin"],
    pod: {},
    created: "2026-01-01T00:00:00.000Z",
    phase: "attached",
    attachments: [
      {
        network: "blue",
        ifName,
        default: true,
        conflist: '{"name":"blue"}',
        capabilityArgs: {},
        states: { "0": { made: 1 } },
      },
    ],
  };
}

test("a record is read again by the next store as it was written", () => {
  new Store(dir, log).put(record("c1"));
  assert.deepEqual(new Store(dir, log).get({ containerId: "c1", ifName: "eth0" }), record("c1"));
});

test("a removed record is gone from memory and disk, and removing it again is fine", () => {
  const store = new Store(dir, log);
  store.put(record("c1"));
  store.remove(record("c1"));
  store.remove(record("c1"));
  assert.equal(store.size, 0);
  assert.deepEqual(readdirSync(join(dir, "records")), []);
});

test("container ids and interface names that run together when joined stay apart", () => {
  const store = new Store(dir, log);
  store.put(record("a", "b-c"));
  store.put(record("a-b", "c"));
  assert.equal(new Store(dir, log).size, 2);
});

test("a container id longer than a file name is kept by its hash", () => {
  const long = record("c".repeat(4000));
  new Store(dir, log).put(long);
  assert.deepEqual(new Store(dir, log).get(long), long);
});

test("a file cut off at any length gives the state before, none when there was none, and never stops the store", () => {
  const store = new Store(dir, log);
  const before = { ...record("c1"), phase: "adding" as const };
  store.put(before);
  const file = join(dir, "records", "c1@eth0.json");
  const intent = readFileSync(file, "utf8").length;
  store.put(record("c1"));
  const text = readFileSync(file, "utf8");
  for (let length = 0; length < text.length; length += 1) {
    writeFileSync(file, text.slice(0, length));
    const expected = length < intent ? undefined : before;
    assert.deepEqual(new Store(dir, log).get(before), expected, `cut at ${length}`);
    // A store that has mended the file must find the same again.
    assert.deepEqual(new Store(dir, log).get(before), expected, `cut at ${length}, second look`);
  }
});

test("a file with any byte changed is read or set aside, and the other records are read", () => {
  const store = new Store(dir, log);
  store.put(record("c1"));
  store.put(record("c2"));
  const file = join(dir, "records", "c1@eth0.json");
  const bytes = readFileSync(file);
  for (let place = 0; place < bytes.length; place += 1) {
    const flipped = Buffer.from(bytes);
    flipped[place] = (flipped[place] ?? 0) ^ 0x15;
    rmSync(`${file}.unreadable`, { force: true });
    writeFileSync(file, flipped);
    const read = new Store(dir, log);
    assert.ok(read.get({ containerId: "c2", ifName: "eth0" }), `byte ${place}`);
    assert.ok(read.size === 2 || read.unreadable.length === 1 || place === bytes.length - 1);
    // A record that says something else would undo somebody else's work.
    const damaged = read.get({ containerId: "c1", ifName: "eth0" });
    assert.deepEqual(damaged ?? record("c1"), record("c1"), `byte ${place}`);
  }
});

test("a record of a build without checksums, or with keys of a later one, is read", () => {
  const folder = join(dir, "records");
  new Store(dir, log);
  writeFileSync(join(folder, "old@eth0.json"), `${JSON.stringify(record("old"))}\n`);
  const later = { ...record("later"), colour: "blue" };
  writeFileSync(join(folder, "later@eth0.json"), `${JSON.stringify(later)}\n`);
  assert.deepEqual(new Store(dir, log).all(), [record("later"), record("old")]);
});

test("a damaged record's file goes with its sandbox, and no other", () => {
  const store = new Store(dir, log);
  for (const id of ["c1", "c2"]) {
    store.put(record(id));
    writeFileSync(join(dir, "records", `${id}@eth0.json`), "garbage\n");
  }
  const read = new Store(dir, log);
  assert.equal(read.unreadable.length, 2);
  assert.match(read.forgetUnreadable(record("c1")) ?? "", /c1@eth0\.json\.unreadable$/);
  assert.equal(read.forgetUnreadable(record("c1")), undefined);
  assert.deepEqual(readdirSync(join(dir, "records")), ["c2@eth0.json.unreadable"]);
});

test("many states of one record do not let its file grow without end", () => {
  const store = new Store(dir, log);
  for (let turn = 0; turn < 500; turn += 1) store.put({ ...record("c1"), fault: `try ${turn}` });
  assert.ok(readFileSync(join(dir, "records", "c1@eth0.json"), "utf8").split("\n").length < 40);
  assert.equal(new Store(dir, log).get(record("c1"))?.fault, "try 499");
});

test("a half-written temporary file is removed and the record of before is kept", () => {
  const store = new Store(dir, log);
  store.put(record("c1"));
  writeFileSync(join(dir, "records", "c1@eth0.json.tmp"), '{"ver');
  assert.deepEqual(new Store(dir, log).all(), [record("c1")]);
  assert.deepEqual(readdirSync(join(dir, "records")), ["c1@eth0.json"]);
});

test("where the folder can't be tidied, records are read, and what was torn is written anew with the next state", () => {
  new Store(dir, log).put(record("c1"));
  const file = join(dir, "records", "c1@eth0.json");
  appendFileSync(file, '{"version":1,"contai');
  // As on a full or read-only disk: the temporary file can't be made, and what is there can't be removed.
  mkdirSync(`${file}.tmp`);
  const store = new Store(dir, log);
  assert.deepEqual(store.get(record("c1")), record("c1"));
  assert.deepEqual(store.unreadable, []);
  assert.throws(() => store.put({ ...record("c1"), phase: "deleting" }), /c1@eth0/);
  rmdirSync(`${file}.tmp`);
  store.put({ ...record("c1"), phase: "deleting" });
  assert.equal(new Store(dir, log).get(record("c1"))?.phase, "deleting");
});

test("what was given back is known until the same call is made anew, and not without end", () => {
  const store = new Store(dir, log);
  assert.equal(store.wasGivenBack(record("c1")), false);
  store.put(record("c1"));
  store.remove(record("c1"));
  assert.equal(store.wasGivenBack(record("c1")), true);
  store.put(record("c1"));
  assert.equal(store.wasGivenBack(record("c1")), false);
  store.remove(record("c1"));
  for (let turn = 0; turn < 4_096; turn += 1) store.remove(record(`other-${turn}`));
  assert.equal(store.wasGivenBack(record("c1")), false);
  assert.equal(new Store(dir, log).wasGivenBack(record("other-1")), false);
});

test("files and the folder are root's alone", () => {
  new Store(dir, log).put(record("c1"));
  const modes = ["records", "records/c1@eth0.json"].map((name) => {
    const { mode } = process.getBuiltinModule("node:fs").statSync(join(dir, name));
    return (mode & 0o777).toString(8);
  });
  assert.deepEqual(modes, ["700", "600"]);
});

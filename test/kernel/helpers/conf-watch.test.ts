import assert from "node:assert/strict";
import {
  closeSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { ConfWatch, type Miss } from "../../helpers/conf-watch.ts";
import { Lab } from "../../helpers/lab.ts";

// What is wrong lasts for one system call: between two of them no other thread has to have run.

const whole = JSON.stringify({ name: "podnet", plugins: [{ type: "podnet" }] });
const others = JSON.stringify({ name: "theirs", plugins: [{ type: "bridge" }] });
const confName = "00-podnet.conflist";

let lab: Lab;
let confDir: string;
let conf: string;
let stub: string;

beforeEach(() => {
  lab = new Lab();
  confDir = join(lab.folder(), "net.d");
  mkdirSync(confDir);
  conf = join(confDir, confName);
  stub = join(lab.folder(), "podnet");
  writeFileSync(conf, whole);
  writeFileSync(join(confDir, "10-theirs.conflist"), others);
  writeFileSync(stub, Buffer.alloc(150_000));
});
afterEach(() => lab[Symbol.dispose]());

/** As podnet does it: a name that no runtime reads, then the file's own. */
function place(path: string, content: string | Buffer): void {
  const temporary = join(path, `../.${confName}.new`);
  writeFileSync(temporary, content);
  renameSync(temporary, path);
}

async function watched(work: () => void) {
  const watch = await ConfWatch.start({ confDir, confName, stub });
  work();
  return await watch.end();
}

test("files that are replaced by whole ones, and what else happens in the folders, are no misses", async () => {
  const { misses, events, looks } = await watched(() => {
    for (let turn = 0; turn < 50; turn += 1) {
      place(conf, whole);
      place(stub, Buffer.alloc(150_000 + turn));
      writeFileSync(join(confDir, "10-theirs.conflist"), others);
    }
    rmSync(join(confDir, "10-theirs.conflist"));
    writeFileSync(join(confDir, "00-a.conflist.bak"), "");
    writeFileSync(join(stub, "../other"), "");
  });
  assert.deepEqual(misses, []);
  assert.ok(events > 300, `${events} events`);
  assert.ok(looks > 0);
});

function assertFound(misses: readonly Miss[], expected: RegExp): void {
  const texts = misses.map(({ what }) => what);
  const isFound = texts.some((text) => expected.test(text));
  assert.ok(isFound, `${expected} is not among the misses: ${texts.join("; ") || "none"}`);
}

const steps = {
  cut: () => truncateSync(conf),
  write: () => writeFileSync(conf, whole),
  remove: () => rmSync(conf),
  place: () => place(conf, whole),
  rename: () => renameSync(conf, `${conf}.bak`),
  renameBack: () => renameSync(`${conf}.bak`, conf),
  link: () => linkSync(`${conf}.bak`, conf),
  renameTooEarly,
  folderAway,
  comesBefore: () => comesBefore("00-a.conf"),
  comesBeforeAsJson: () => comesBefore("0.json"),
};
const wrongs: readonly (readonly [string, readonly (keyof typeof steps)[], RegExp])[] = [
  ["cut off and written again", ["cut", "write"], /^MODIFY of "00-podnet/],
  ["written in place", ["write"], /^MODIFY of "00-podnet/],
  ["removed and put back", ["remove", "place"], /^DELETE of "00-podnet/],
  ["removed and made anew", ["remove", "write"], /^CREATE of "00-podnet/],
  ["renamed and back", ["rename", "renameBack"], /^MOVED_FROM of "00-podnet/],
  ["renamed over before it is whole", ["renameTooEarly"], /^MODIFY of "00-podnet/],
  ["removed and another name of a file", ["remove", "link"], /^DELETE of "00-podnet/],
  ["not the first", ["comesBefore"], /^"00-a.conf" comes before/],
  ["not the first, which is of the old form", ["comesBeforeAsJson"], /^"0.json" comes before/],
  ["in a folder that is away", ["folderAway"], /^MOVE_SELF of the folder/],
];
for (const [what, names, expected] of wrongs) {
  test(`a configuration that is ${what}, for an instant, is a miss`, async () => {
    writeFileSync(`${conf}.bak`, whole);
    const { misses } = await watched(() => {
      for (const name of names) steps[name]();
    });
    assertFound(misses, expected);
    assert.equal(readFileSync(conf, "utf8"), whole, "in the end all is well");
  });
}

test("an executable that is away for a moment, or written to, is a miss", async () => {
  const gone = await watched(() => {
    rmSync(stub);
    place(stub, Buffer.alloc(150_000));
  });
  assertFound(gone.misses, /^DELETE of "podnet"/);
  const written = await watched(() => {
    const fd = openSync(stub, "r+");
    writeSync(fd, "x");
    closeSync(fd);
  });
  assertFound(written.misses, /^MODIFY of "podnet"/);
});

test("what a change brings is read: half a file, another network's, an executable that is not whole", async () => {
  for (const [path, content, expected] of [
    [conf, whole.slice(0, 20), /SyntaxError/],
    [conf, others, /plugin is bridge/],
    [stub, Buffer.alloc(1_000), /executable is not whole/],
  ] as const) {
    const { misses } = await watched(() => place(path, content));
    assertFound(misses, expected);
    place(path, path === conf ? whole : Buffer.alloc(150_000));
  }
});

function renameTooEarly(): void {
  const temporary = join(confDir, ".new");
  const fd = openSync(temporary, "w");
  writeSync(fd, whole.slice(0, 10));
  renameSync(temporary, conf);
  writeSync(fd, whole.slice(10));
  closeSync(fd);
}

function comesBefore(name: string): void {
  writeFileSync(join(confDir, name), others);
  rmSync(join(confDir, name));
}

function folderAway(): void {
  renameSync(confDir, `${confDir}.old`);
  renameSync(`${confDir}.old`, confDir);
}

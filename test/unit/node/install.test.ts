import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  type ConflistState,
  conflistStep,
  isOwnConflist,
  ownConflist,
} from "../../../daemon/node/install/conflist.ts";
import { Fight } from "../../../daemon/node/install/fight.ts";
import { placeFile } from "../../../daemon/node/install/files.ts";
import { InstalledStub } from "../../../daemon/node/install/stub.ts";
import { decodeConflist } from "../../../lib/cni/conflist.ts";

const socket = "/run/podnet/podnetd.sock";
let folder: string;
before(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "podnet-test-"));
});
after(() => fs.rmSync(folder, { recursive: true }));

test("podnet's own configuration: the shipped sample is what the installer writes", () => {
  const shipped = fs.readFileSync("conf/conflist/00-podnet.conflist", "utf8");
  assert.equal(ownConflist({ socket }), shipped);
  assert.equal(decodeConflist(shipped).cniVersion, "1.1.0");
});

test("podnet's own configuration: what the default network's plugins declare is declared", () => {
  const capabilities = { dns: true, ipRanges: false };
  const plugins = [{ type: "a", capabilities }, { type: "b" }];
  const defaultNetwork = decodeConflist(
    JSON.stringify({ cniVersion: "1.0.0", name: "n", plugins }),
  );
  const [own] = decodeConflist(ownConflist({ socket, defaultNetwork })).plugins;
  const names = ["io.kubernetes.cri.pod-annotations", "portMappings", "bandwidth", "dns"];
  assert.deepEqual(Object.keys(own?.capabilities ?? {}), names);
});

const own = ownConflist({ socket });
const ofOthers = JSON.stringify({ cniVersion: "1.0.0", name: "n", plugins: [{ type: "a" }] });

test("podnet's own configuration is known by its type and socket, whole only", () => {
  assert.equal(isOwnConflist(own, socket), true);
  assert.equal(isOwnConflist(own, "/run/other.sock"), false);
  assert.equal(isOwnConflist(own.slice(0, 100), socket), false);
  assert.equal(isOwnConflist(ofOthers, socket), false);
  assert.equal(isOwnConflist("", socket), false);
});

const base: ConflistState = {
  present: undefined,
  wanted: own,
  socket,
  defaultKnown: true,
  defaultReady: false,
  installed: false,
};
const older = ownConflist({ socket }).replace('"bandwidth": true', '"mac": true');

for (const [what, change, step] of [
  ["nothing there, the default network not ready", {}, "wait"],
  ["nothing there, the default network ready", { defaultReady: true }, "install"],
  ["what was there is gone, whatever the default network does", { installed: true }, "restore"],
  ["as it should be", { present: own }, "keep"],
  ["podnet's of an older release", { present: older }, "update"],
  ["podnet's, the default network not known now", { present: older, defaultKnown: false }, "keep"],
  ["somebody else's before this daemon looked", { present: ofOthers }, "update"],
  ["somebody else's in place of ours", { present: ofOthers, installed: true }, "restore"],
  ["half of ours", { present: own.slice(0, 50), installed: true }, "restore"],
] as const) {
  test(`installer: ${what}: ${step}`, () => {
    assert.equal(conflistStep({ ...base, ...change }), step);
  });
}

test("a fight about a file: at once, then with pauses that double to half a minute, at once again after calm", () => {
  const fight = new Fight();
  const pauses: number[] = [];
  let now = 0;
  for (let round = 0; round < 8; round++) {
    const pause = fight.pause(now);
    pauses.push(pause);
    now += pause;
    fight.struck(now);
  }
  assert.deepEqual(pauses, [0, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  assert.equal(fight.pause(now + 120_001), 0);
});

/** Runs `work`, and `look` after each call of node:fs that it makes. */
function between(work: () => void, look: () => void): number {
  const originals = Object.entries(fs).filter(
    (entry): entry is [string, (...args: unknown[]) => unknown] =>
      typeof entry[1] === "function" && entry[0].endsWith("Sync"),
  );
  let calls = 0;
  let isLooking = false;
  for (const [name, original] of originals) {
    Reflect.set(fs, name, (...args: unknown[]) => {
      const answer = original(...args);
      if (!isLooking) {
        calls++;
        isLooking = true;
        look();
        isLooking = false;
      }
      return answer;
    });
  }
  syncBuiltinESMExports();
  try {
    work();
  } finally {
    for (const [name, original] of originals) Reflect.set(fs, name, original);
    syncBuiltinESMExports();
  }
  return calls;
}

test("a file is put in place in one step: after each system call it is the old one or the new one, whole, and synced before", () => {
  const path = join(folder, "00-podnet.conflist");
  placeFile({ path, content: "old", mode: 0o600 });
  const seen = new Set<string>();
  const look = () => seen.add(fs.readFileSync(path, "utf8"));
  const calls = between(() => placeFile({ path, content: "new and longer", mode: 0o644 }), look);
  assert.deepEqual([...seen], ["old", "new and longer"]);
  assert.ok(calls >= 6, `${calls} calls`);
  assert.equal(fs.statSync(path).mode & 0o777, 0o644);
  assert.deepEqual(fs.readdirSync(folder), ["00-podnet.conflist"]);
});

test("the stub is known to be right by its content and mode, and is replaced while it is open", () => {
  const source = join(folder, "source");
  fs.writeFileSync(source, "new");
  const path = join(folder, "bin", "podnet");
  const stub = new InstalledStub(path, source);
  assert.equal(stub.isRight(), false);
  assert.equal(stub.seen, false);
  stub.place();
  assert.equal(stub.isRight(), true);
  assert.equal(stub.seen, true);
  const before = fs.openSync(path, "r");
  fs.chmodSync(path, 0o644);
  assert.equal(stub.isRight(), false, "not executable");
  stub.place();
  assert.notEqual(fs.fstatSync(before).ino, fs.statSync(path).ino);
  fs.closeSync(before);
  fs.writeFileSync(path, "own");
  assert.equal(stub.isRight(), false);
});

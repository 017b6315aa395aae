import assert from "node:assert/strict";
import { test } from "node:test";
import { type ConfFile, chooseDefault } from "../../../daemon/node/install/choice.ts";
import { type Conflist, decodeConflist } from "../../../lib/cni/conflist.ts";

function list(name: string, type = "bridge"): Conflist {
  return decodeConflist(JSON.stringify({ cniVersion: "1.0.0", name, plugins: [{ type }] }));
}

const whole = (file: string, conflist: Conflist): ConfFile => ({
  file,
  list: conflist,
  age: 60_000,
});
const broken = (file: string, more: Partial<ConfFile> = {}): ConfFile => ({
  file,
  fault: "it is not JSON",
  age: 60_000,
  ...more,
});
const podnet = whole("00-podnet.conflist", list("podnet", "podnet"));

const cases: readonly {
  readonly name: string;
  readonly files: readonly ConfFile[];
  readonly wanted?: string;
  /** A file that is found, or what the reason says. */
  readonly file?: string;
  readonly reason?: RegExp;
}[] = [
  { name: "an empty folder", files: [], reason: /no other network configuration/ },
  { name: "podnet's own file alone", files: [podnet], reason: /no other network configuration/ },
  {
    name: "the first other file",
    files: [podnet, whole("10-a.conflist", list("a")), whole("20-b.conflist", list("b"))],
    file: "10-a.conflist",
  },
  {
    name: "a file that is being written for the first time: waited for",
    files: [broken("10-a.conflist", { age: 100 }), whole("20-b.conflist", list("b"))],
    reason: /"10-a.conflist" can't be used: it is not JSON/,
  },
  {
    name: "a file that has been wrong for long: passed over",
    files: [broken("10-a.conflist"), whole("20-b.conflist", list("b"))],
    file: "20-b.conflist",
  },
  {
    name: "a file that was whole before: what it said",
    files: [broken("10-a.conflist", { before: list("a"), age: 100 })],
    file: "10-a.conflist",
  },
  {
    name: "another meta plugin: passed over",
    files: [whole("00-multus.conf", list("m", "multus")), whole("10-a.conflist", list("a"))],
    file: "10-a.conflist",
  },
  {
    name: "another meta plugin alone: named",
    files: [podnet, whole("00-multus.conf", list("m", "multus-shim"))],
    reason: /"00-multus.conf" is of "multus-shim", which delegates itself/,
  },
  {
    name: "a named network",
    files: [whole("10-a.conflist", list("a")), whole("20-b.conflist", list("b"))],
    wanted: "b",
    file: "20-b.conflist",
  },
  {
    name: "a named file",
    files: [whole("10-a.conflist", list("a")), whole("20-b.conflist", list("b"))],
    wanted: "20-b.conflist",
    file: "20-b.conflist",
  },
  {
    name: "a named file that is wrong: never another one",
    files: [broken("10-a.conflist"), whole("20-b.conflist", list("b"))],
    wanted: "10-a.conflist",
    reason: /"10-a.conflist" can't be used/,
  },
  {
    name: "podnet by its name: refused",
    files: [podnet, whole("10-a.conflist", list("a"))],
    wanted: "podnet",
    reason: /is of "podnet", which delegates itself/,
  },
  {
    name: "a name that nothing has",
    files: [whole("10-a.conflist", list("a"))],
    wanted: "c",
    reason: /none has the file or network name "c"/,
  },
];

for (const { name, files, wanted = "auto", file, reason } of cases) {
  test(`default network of the node: ${name}`, () => {
    const choice = chooseDefault(files, wanted);
    if (choice.kind === "found") assert.equal(choice.file, file);
    else assert.match(choice.reason, reason ?? /nothing/);
  });
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { closeConflist, decodeConflist, decodeOpenConflist } from "../../../lib/cni/conflist.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const list = `{ "cniVersion": "1.0.0", "name": "blue",
  "plugins": [ {"type":"bridge","x-unknown":{"a":[1]},"capabilities":{"ips":true,"mac":false}}, {"type":"portmap"} ] }`;

test("conflist: a list keeps its bytes and every key of its plugins", () => {
  const { plugins, ...rest } = decodeConflist(list);
  assert.deepEqual(rest, {
    name: "blue",
    cniVersion: "1.0.0",
    disableCheck: false,
    disableGC: false,
    text: list,
  });
  assert.deepEqual(plugins, [
    { type: "bridge", "x-unknown": { a: [1] }, capabilities: { ips: true, mac: false } },
    { type: "portmap" },
  ]);
});

test("conflist: a single plugin object becomes a list of one", () => {
  const text = '{"cniVersion":"0.3.1","name":"n","type":"bridge","bridge":"b0","ipam":{}}';
  const decoded = decodeConflist(text);
  assert.equal(decoded.cniVersion, "0.3.1");
  assert.equal(decoded.text, text);
  assert.deepEqual(decoded.plugins, [JSON.parse(text)]);
});

test("conflist: defaults fill in what is missing, and the text says so from then on", () => {
  const decoded = decodeConflist('{"type":"bridge","y":1}', { name: "red", cniVersion: "1.0.0" });
  assert.equal(decoded.name, "red");
  assert.equal(decoded.cniVersion, "1.0.0");
  assert.deepEqual(decodeConflist(decoded.text), decoded);
});

test("conflist: defaults change nothing that is there", () => {
  assert.equal(decodeConflist(list, { name: "red", cniVersion: "0.4.0" }).text, list);
});

const versions: readonly [string, string][] = [
  ['"cniVersion":"0.4.0","cniVersions":["1.0.0","9.0.0"]', "1.0.0"],
  ['"cniVersions":["0.3.1","1.1.0","0.4.0"]', "1.1.0"],
  ['"cniVersion":"1.0.0","cniVersions":["0.4.0"]', "1.0.0"],
  ['"cniVersion":"1.0.0","cniVersions":[]', "1.0.0"],
  ['"cniVersion":"9.0.0","cniVersions":["0.4.0"]', "0.4.0"],
  ['"cniVersion":""', "0.1.0"],
  ['"x":1', "0.1.0"],
];
for (const [keys, version] of versions) {
  test(`conflist: of ${keys} version ${version} is chosen`, () => {
    assert.equal(
      decodeConflist(`{${keys},"name":"n","plugins":[{"type":"a"}]}`).cniVersion,
      version,
    );
  });
}

const flags: readonly [string, boolean][] = [
  ["true", true],
  ["false", false],
  ['"true"', true],
  ['"false"', false],
  ['"True"', true],
  ["null", false],
];
for (const [value, wanted] of flags) {
  test(`conflist: disableCheck and disableGC may be ${value}`, () => {
    const text = `{"name":"n","disableCheck":${value},"disableGC":${value},"plugins":[{"type":"a"}]}`;
    const { disableCheck, disableGC } = decodeConflist(text);
    assert.deepEqual([disableCheck, disableGC], [wanted, wanted]);
  });
}

const refused: readonly [string, string, number, RegExp][] = [
  ["no JSON", "{", 6, /network configuration/],
  ["10,000 nested lists", `{"a":${"[".repeat(10_000)}`, 6, /nested deeper/],
  ["no version in common", '{"cniVersion":"9.0.0","name":"n","type":"a"}', 1, /\["9\.0\.0"\]/],
  ["a version that is a number", '{"cniVersion":1,"name":"n","type":"a"}', 1, /\[1\]/],
  ["no name", '{"type":"a"}', 7, /name: missing/],
  ["a name that leads out of a directory", '{"name":"../a","type":"a"}', 7, /name: "\.\.\/a"/],
  ["no plugins", '{"name":"n"}', 7, /at least one plugin/],
  ["an empty list", '{"name":"n","plugins":[]}', 7, /at least one plugin/],
  ["plugins that are no list", '{"name":"n","plugins":{}}', 7, /plugins: must be a list/],
  [
    "a plugin that is no object",
    '{"name":"n","plugins":[{"type":"a"},5]}',
    7,
    /plugins\[1\]: must be an object/,
  ],
  [
    "a plugin without a type",
    '{"name":"n","plugins":[{"type":"a"},{}]}',
    7,
    /plugins\[1\]\.type: missing/,
  ],
  ["an empty type", '{"name":"n","plugins":[{"type":""}]}', 7, /plugins\[0\]\.type: missing/],
  [
    "a type that is a path",
    '{"name":"n","plugins":[{"type":"../sh"}]}',
    7,
    /plugins\[0\]\.type: "\.\.\/sh"/,
  ],
  ["a type that is a number", '{"name":"n","plugins":[{"type":7}]}', 7, /plugins\[0\]\.type: 7/],
  [
    "an IPAM type that is a path",
    '{"name":"n","plugins":[{"type":"a","ipam":{"type":"/bin/sh"}}]}',
    7,
    /plugins\[0\]\.ipam\.type/,
  ],
  [
    "ipam that is no object",
    '{"name":"n","plugins":[{"type":"a","ipam":"x"}]}',
    7,
    /plugins\[0\]\.ipam: must be an object/,
  ],
  [
    "a capability that is no boolean",
    '{"name":"n","plugins":[{"type":"a","capabilities":{"ips":"yes"}}]}',
    7,
    /plugins\[0\]\.capabilities\.ips/,
  ],
  [
    "disableGC that is no boolean",
    '{"name":"n","type":"a","disableGC":"maybe"}',
    7,
    /disableGC: "maybe"/,
  ],
  [
    "loadOnlyInlinedPlugins without plugins",
    '{"name":"n","loadOnlyInlinedPlugins":true}',
    7,
    /at least one plugin/,
  ],
];
for (const [title, text, code, message] of refused) {
  test(`conflist: ${title} is refused with code ${code}`, () => {
    assert.throws(
      () => decodeConflist(text),
      (error: unknown) =>
        error instanceof CniError && error.code === code && message.test(error.message),
    );
  });
}

test("conflist: all faults are reported at once", () => {
  const text = '{"disableGC":1,"plugins":[{"type":"a/b"},{"type":"c","capabilities":[]}]}';
  assert.throws(
    () => decodeConflist(text),
    (error: unknown) => error instanceof CniError && error.message.split("; ").length === 4,
  );
});

test("conflist: a key named __proto__ is a key like any other", () => {
  const decoded = decodeConflist(
    '{"name":"n","plugins":[{"type":"a","__proto__":{"capabilities":{"ips":true}}}]}',
  );
  assert.equal(decoded.plugins[0]?.capabilities, undefined);
  assert.match(JSON.stringify(decoded.plugins), /__proto__/);
});

test("conflist: plugins of a directory come after the inlined ones and stay in the text", () => {
  const open = decodeOpenConflist(
    '{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"}],"z":1}',
  );
  const closed = closeConflist(open, [{ type: "b", k: 2 }]);
  assert.deepEqual(closed.plugins, [{ type: "a" }, { type: "b", k: 2 }]);
  assert.deepEqual(decodeConflist(closed.text), closed);
  // What was read once must not be added again from the same directory.
  assert.equal(decodeOpenConflist(closed.text).loadOnlyInlinedPlugins, true);
});

test("conflist: a wrong plugin of a directory is named by its place in the chain", () => {
  const open = decodeOpenConflist('{"name":"n","plugins":[{"type":"a"}]}');
  assert.throws(() => closeConflist(open, [{ type: "b/c" }]), /plugins\[1\]\.type/);
});

test("conflist: loadOnlyInlinedPlugins and single plugin objects take nothing from a directory", () => {
  for (const text of [
    '{"name":"n","loadOnlyInlinedPlugins":"true","plugins":[{"type":"a"}]}',
    '{"name":"n","type":"a"}',
  ]) {
    const open = decodeOpenConflist(text);
    assert.equal(open.loadOnlyInlinedPlugins, true);
    assert.equal(closeConflist(open, [{ type: "b" }]).plugins.length, 1);
  }
});

test("conflist: a text that was decoded before is not decoded again, unless other defaults complete it", () => {
  const text = JSON.stringify({ plugins: [{ type: "bridge" }] });
  const list = decodeConflist(text, { name: "blue" });
  assert.equal(decodeConflist(text, { name: "blue" }), list);
  assert.equal(decodeConflist(text, { name: "red" }).name, "red");
  assert.equal(decodeConflist(text, { name: "blue", cniVersion: "0.4.0" }).cniVersion, "0.4.0");
  for (const _ of [1, 2]) assert.throws(() => decodeConflist(text), /name: missing/);
});

test("conflist: only lists of usual size are kept, and so many", () => {
  const text = (name: string, size: number) =>
    JSON.stringify({ name, plugins: [{ type: "bridge", padding: "x".repeat(size) }] });
  const large = decodeConflist(text("large", 20_000));
  assert.notEqual(decodeConflist(text("large", 20_000)), large);
  const first = decodeConflist(text("first", 10));
  const second = decodeConflist(text("second", 10));
  for (let count = 0; count < 254; count += 1) decodeConflist(text(`other${count}`, 10));
  assert.equal(decodeConflist(text("first", 10)), first);
  decodeConflist(text("other", 10));
  assert.notEqual(decodeConflist(text("second", 10)), second);
});

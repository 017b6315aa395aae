import assert from "node:assert/strict";
import { test } from "node:test";
import { CniError } from "../../../lib/cni/errors.ts";
import { isInterfaceName, isPluginType } from "../../../lib/cni/names.ts";
import {
  answerVersion,
  decodeCniArgs,
  decodeRequest,
  encodeCniArgs,
} from "../../../lib/cni/request.ts";

const environment = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1.a_b-c",
  CNI_NETNS: "/run/netns/x",
  CNI_IFNAME: "eth0",
  CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_NAMESPACE=a",
  CNI_PATH: "/opt/cni/bin::/usr/lib/cni",
  TRACEPARENT: "00-1-2-01",
};
const config = '{"cniVersion":"1.1.0", "name":"podnet","type":"podnet","x":{"y":[1]}}';

test("request: a complete ADD becomes typed, its configuration kept as it came", () => {
  const request = decodeRequest(environment, config);
  assert.equal(request.verb, "ADD");
  assert.equal(request.containerId, "c1.a_b-c");
  assert.equal(request.netnsPath, "/run/netns/x");
  assert.equal(request.ifName, "eth0");
  assert.equal(request.args.get("K8S_POD_NAME"), "web");
  assert.equal(request.ignoreUnknown, true);
  assert.deepEqual(request.cniPath, ["/opt/cni/bin", "/usr/lib/cni"]);
  assert.equal(request.netnsOverride, false);
  assert.equal(request.traceparent, "00-1-2-01");
  assert.equal(request.cniVersion, "1.1.0");
  assert.equal(request.networkName, "podnet");
  assert.equal(request.configText, config);
  assert.deepEqual(request.config["x"], { y: [1] });
});

test("request: DEL without a namespace is fine", () => {
  const request = decodeRequest({ ...environment, CNI_COMMAND: "DEL", CNI_NETNS: "" }, config);
  assert.equal(request.verb, "DEL");
  assert.equal(request.netnsPath, undefined);
});

test("request: STATUS and GC have no attachment", () => {
  for (const verb of ["STATUS", "GC"]) {
    const request = decodeRequest({ CNI_COMMAND: verb, CNI_PATH: "/a" }, config);
    assert.equal(request.verb, verb);
    assert.equal(request.containerId, undefined);
  }
});

test("request: VERSION needs no configuration and refuses no version", () => {
  assert.equal(decodeRequest({ CNI_COMMAND: "VERSION" }, "").cniVersion, "1.1.0");
  assert.equal(
    decodeRequest({ CNI_COMMAND: "VERSION" }, '{"cniVersion":"9.9.9"}').cniVersion,
    "1.1.0",
  );
  assert.equal(
    decodeRequest({ CNI_COMMAND: "VERSION" }, '{"cniVersion":"0.4.0"}').cniVersion,
    "0.4.0",
  );
});

test("request: CNI_NETNS_OVERRIDE is 1 or true in any case", () => {
  const given = (value: string) =>
    decodeRequest({ ...environment, CNI_NETNS_OVERRIDE: value }, config).netnsOverride;
  assert.deepEqual(["1", "true", "TRUE", "0", "yes", ""].map(given), [
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});

type Row = readonly [string, Readonly<Record<string, string>>, string, number, RegExp];
const faulty: readonly Row[] = [
  ["no command", { CNI_COMMAND: "" }, config, 4, /CNI_COMMAND/],
  ["an unknown command", { CNI_COMMAND: "add" }, config, 4, /unknown CNI_COMMAND "add"/],
  [
    "missing variables, all named",
    { CNI_IFNAME: "", CNI_NETNS: "" },
    config,
    4,
    /\[CNI_NETNS,CNI_IFNAME\] missing/,
  ],
  ["GC without CNI_PATH", { CNI_COMMAND: "GC", CNI_PATH: "" }, config, 4, /\[CNI_PATH\] missing/],
  [
    "CHECK without a namespace",
    { CNI_COMMAND: "CHECK", CNI_NETNS: "" },
    config,
    4,
    /\[CNI_NETNS\] missing/,
  ],
  [
    "a container id with a slash",
    { CNI_CONTAINERID: "../x" },
    config,
    4,
    /CNI_CONTAINERID "\.\.\/x"/,
  ],
  [
    "an interface name that is too long",
    { CNI_IFNAME: "abcdefghijklmnop" },
    config,
    4,
    /CNI_IFNAME "abcdefghijklmnop"/,
  ],
  ["CNI_ARGS without =", { CNI_ARGS: "A=b;C" }, config, 4, /CNI_ARGS: "C"/],
  ["CNI_ARGS without a key", { CNI_ARGS: "=b" }, config, 4, /CNI_ARGS: "=b"/],
  ["an empty piece in CNI_ARGS", { CNI_ARGS: "A=b;" }, config, 4, /CNI_ARGS: ""/],
  [
    "IgnoreUnknown that is no boolean",
    { CNI_ARGS: "IgnoreUnknown=maybe" },
    config,
    4,
    /IgnoreUnknown "maybe"/,
  ],
  ["no configuration", {}, "", 6, /network configuration/],
  ["cut JSON", {}, "{", 6, /network configuration/],
  ["a list", {}, "[1]", 6, /must be a JSON object/],
  ["null", {}, "null", 6, /must be a JSON object/],
  [
    "10,000 nested lists",
    {},
    `{"a":${"[".repeat(10_000)}${"]".repeat(10_000)}}`,
    6,
    /nested deeper/,
  ],
  [
    "10,000 nested objects",
    {},
    `${'{"a":'.repeat(10_000)}1${"}".repeat(10_000)}`,
    6,
    /nested deeper/,
  ],
  [
    "a version that is a number",
    {},
    '{"name":"x","cniVersion":1}',
    6,
    /cniVersion: 1 must be a text/,
  ],
  ["no name", {}, '{"cniVersion":"1.0.0"}', 7, /name: missing/],
  ["a name that is a path", {}, '{"cniVersion":"1.0.0","name":"a/b"}', 7, /name: "a\/b"/],
  ["a name that is a number", {}, '{"cniVersion":"1.0.0","name":5}', 7, /name: 5/],
  [
    "an unknown version",
    {},
    '{"cniVersion":"9.9.9","name":"x"}',
    1,
    /"9\.9\.9" is none of 0\.1\.0/,
  ],
  [
    "CHECK before 0.4.0",
    { CNI_COMMAND: "CHECK" },
    '{"cniVersion":"0.3.1","name":"x"}',
    1,
    /"0\.3\.1" has no CHECK.*0\.4\.0/,
  ],
  [
    "GC before 1.1.0",
    { CNI_COMMAND: "GC" },
    '{"cniVersion":"1.0.0","name":"x"}',
    1,
    /has no GC.*1\.1\.0/,
  ],
  [
    "STATUS before 1.1.0",
    { CNI_COMMAND: "STATUS" },
    '{"cniVersion":"1.0.0","name":"x"}',
    1,
    /has no STATUS/,
  ],
];
for (const [title, variables, text, code, message] of faulty) {
  test(`request: ${title} is refused with code ${code}`, () => {
    assert.throws(
      () => decodeRequest({ ...environment, ...variables }, text),
      (error: unknown) =>
        error instanceof CniError && error.code === code && message.test(error.message),
    );
  });
}

test("request: no version means 0.1.0", () => {
  assert.equal(decodeRequest(environment, '{"name":"x"}').cniVersion, "0.1.0");
  assert.equal(decodeRequest(environment, '{"name":"x","cniVersion":""}').cniVersion, "0.1.0");
});

test("request: brackets inside of strings do not count as nesting", () => {
  const text = JSON.stringify({ name: "x", cniVersion: "1.0.0", note: `\\"${"[{".repeat(500)}` });
  assert.equal(decodeRequest(environment, text).cniVersion, "1.0.0");
});

test("request: of a key given twice the last counts", () => {
  assert.equal(decodeRequest(environment, '{"name":"x","name":"y"}').networkName, "y");
});

test("request: an answer's version is the configuration's when podnet speaks it", () => {
  const given = ['{"cniVersion":"0.4.0"}', '{"cniVersion":"9.9.9"}', "{", ""].map(answerVersion);
  assert.deepEqual(given, ["0.4.0", "1.1.0", "1.1.0", "1.1.0"]);
});

test("request: a value in CNI_ARGS may contain =", () => {
  const args = decodeCniArgs("A=b=c;D=");
  assert.deepEqual(
    [...args],
    [
      ["A", "b=c"],
      ["D", ""],
    ],
  );
  assert.equal(encodeCniArgs(args), "A=b=c;D=");
});

test("names: interface names by Linux' rules, length in bytes", () => {
  const good = ["eth0", "a", "é".repeat(7), "net-1.100", "a@b"];
  const bad = [
    "",
    ".",
    "..",
    "a/b",
    "a:b",
    "a b",
    "a\tb",
    "a\0b",
    "é".repeat(8),
    "0123456789abcdef",
  ];
  assert.deepEqual(good.filter(isInterfaceName), good);
  assert.deepEqual(bad.filter(isInterfaceName), []);
});

test("names: a plugin type is a file name and no path", () => {
  assert.deepEqual(["bridge", "my.plugin_2"].filter(isPluginType), ["bridge", "my.plugin_2"]);
  assert.deepEqual(["", ".", "..", "a/b", "/a", "a\\b", "a\nb", "a\0"].filter(isPluginType), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Dialect, SelectionError } from "../../../lib/api/selection.ts";
import {
  readSelectionList,
  readSelectionText,
  readShortForm,
  refuseHostNetwork,
} from "../../../lib/api/selection-list.ts";

const from = (dialect: Dialect) => ({ dialect, origin: "annotation x", namespace: "app" });
const read = (dialect: Dialect, text: string) => readSelectionText(from(dialect), text);

function faultsOf(dialect: Dialect, text: string): string[] {
  try {
    read(dialect, text);
  } catch (error) {
    assert.ok(error instanceof SelectionError, String(error));
    return error.faults.map(({ path, message }) => `${path}: ${message}`);
  }
  return assert.fail(`accepted: ${text.slice(0, 200)}`);
}

/** Text, path of the first fault, and a part of what it says. */
const refusedPodnet: readonly [string, string, string, string][] = [
  [
    "both names (E-5 a)",
    '[{"name":"x","attachmentName":"y"}]',
    "[0]",
    "both name and attachmentName",
  ],
  ["neither name (E-5 b)", '[{"interfaceName":"net1"}]', "[0]", "neither name nor attachmentName"],
  [
    "a network twice (E-5 c)",
    '[{"name":"x"},{"name":"x"}]',
    "[1].name",
    '"x" is listed already, in entry 0',
  ],
  [
    "an attachment twice",
    '[{"attachmentName":"x"},{"attachmentName":"x"}]',
    "[1].attachmentName",
    "entry 0",
  ],
  [
    "two v4 gateways (E-5 d)",
    '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW4":true}]',
    "[1].isDefaultGW4",
    "entry 0",
  ],
  [
    "two v6 gateways",
    '[{"name":"x","isDefaultGW6":true},{"name":"y","isDefaultGW":true}]',
    "[1].isDefaultGW6",
    "entry 0",
  ],
  [
    "an interface twice (E-5 e)",
    '[{"name":"x","interfaceName":"n1"},{"name":"y","interfaceName":"n1"}]',
    "[1].interfaceName",
    '"n1" is taken by entry 0',
  ],
  [
    "16 characters (E-5 f)",
    '[{"name":"x","interfaceName":"abcdefghijklmnop"}]',
    "[0].interfaceName",
    "at most 15 bytes, not 16",
  ],
  [
    "16 bytes in 8 letters",
    `[{"name":"x","interfaceName":"${"ä".repeat(8)}"}]`,
    "[0].interfaceName",
    "at most 15 bytes, not 16",
  ],
  [
    "35 characters",
    `[{"name":"x","interfaceName":"${"a".repeat(35)}"}]`,
    "[0].interfaceName",
    "not 35",
  ],
  [
    "a slash (E-5 g)",
    '[{"name":"x","interfaceName":"a/b"}]',
    "[0].interfaceName",
    "must not contain",
  ],
  ["dot dot", '[{"name":"x","interfaceName":".."}]', "[0].interfaceName", "no interface name"],
  ["a colon", '[{"name":"x","interfaceName":"a:1"}]', "[0].interfaceName", "must not contain"],
  [
    "a percent sign",
    '[{"name":"x","interfaceName":"eth%d"}]',
    "[0].interfaceName",
    "must not contain",
  ],
  ["a NUL", '[{"name":"x","interfaceName":"a\\u0000"}]', "[0].interfaceName", "must not contain"],
  [
    "a line break",
    '[{"name":"x","interfaceName":"a\\nb"}]',
    "[0].interfaceName",
    "must not contain",
  ],
  [
    "an empty interface",
    '[{"name":"x","interfaceName":""}]',
    "[0].interfaceName",
    "must not be empty",
  ],
  ["no list (E-5 i)", '"x"', "", "must be a list"],
  ["an object", '{"name":"x"}', "", "must be a list"],
  ["null in the list", "[null]", "[0]", "must be an object"],
  ["a number in the list", "[1]", "[0]", "must be an object"],
  ["a path as name", '[{"name":"../../etc"}]', "[0].name", "must be lower-case"],
  ["a homoglyph", '[{"name":"bl\u0443e"}]', "[0].name", "must be lower-case"],
  ["an empty name", '[{"name":""}]', "[0].name", "must not be empty"],
  ["254 characters", `[{"name":"${"a".repeat(254)}"}]`, "[0].name", "at most 253 characters"],
  ["a name that is a number", '[{"name":3}]', "[0].name", "must be a string"],
  ["a misspelt key", '[{"name":"x","interfacename":"n1"}]', "[0]", 'did you mean "interfaceName"?'],
  ["a key twice", '[{"name":"x","name":"y"}]', "", 'key "name" occurs twice'],
  ["a key twice, escaped", '[{"name":"x","n\\u0061me":"y"}]', "", 'key "name" occurs twice'],
  ["an old and a new name", '[{"name":"x","podNetworkName":"y"}]', "[0]", "mean the same"],
  ["a trailing comma", '[{"name":"x"},]', "", "not JSON"],
  ["text", "blue,red", "", "not JSON"],
  ["10,000 levels", "[".repeat(10_000) + "]".repeat(10_000), "", "nested deeper than 64"],
  ["10 MB", `[${" ".repeat(10_000_000)}]`, "", "at most 262144 characters"],
  [
    "129 networks",
    JSON.stringify(Array.from({ length: 129 }, (_, n) => ({ name: `n${n}` }))),
    "",
    "at most 128 networks",
  ],
  [
    "a flag that is a text",
    '[{"name":"x","isDefaultGW":"true"}]',
    "[0].isDefaultGW",
    "must be true or false",
  ],
];

for (const [title, text, path, message] of refusedPodnet) {
  test(`selection: podnet.dev/networks with ${title} is refused by entry and field`, () => {
    const [first = ""] = faultsOf("podnet", text);
    assert.ok(first.startsWith(`${path}: `), first);
    assert.ok(first.includes(message), first);
  });
}

const refusedNpwg: readonly [string, string, string, string][] = [
  ["no address (E-17)", '[{"name":"a","ips":[]}]', "[0].ips", "at least one address"],
  [
    "a wrong address",
    '[{"name":"a","ips":["10.0.0.300"]}]',
    "[0].ips[0]",
    '"10.0.0.300" must be an IP address',
  ],
  ["a wrong prefix", '[{"name":"a","ips":["10.0.0.1/33"]}]', "[0].ips[0]", "must be an IP address"],
  ["leading zeros", '[{"name":"a","ips":["010.0.0.1"]}]', "[0].ips[0]", "must be an IP address"],
  ["a wrong MAC", '[{"name":"a","mac":"zz"}]', "[0].mac", "six bytes"],
  ["a multicast MAC", '[{"name":"a","mac":"01:00:5e:00:00:01"}]', "[0].mac", "one interface"],
  ["the zero MAC", '[{"name":"a","mac":"00:00:00:00:00:00"}]', "[0].mac", "one interface"],
  [
    "a MAC with a line break",
    '[{"name":"a","mac":"02:00:00:00:00:05\\n"}]',
    "[0].mac",
    "six bytes",
  ],
  [
    "a short GUID",
    '[{"name":"a","infiniband-guid":"c2:11:22:33:44:55"}]',
    "[0].infiniband-guid",
    "eight bytes",
  ],
  [
    "port 0",
    '[{"name":"a","portMappings":[{"hostPort":0,"containerPort":80}]}]',
    "[0].portMappings[0].hostPort",
    "1 to 65535",
  ],
  [
    "port 65536",
    '[{"name":"a","portMappings":[{"hostPort":80,"containerPort":65536}]}]',
    "[0].portMappings[0].containerPort",
    "1 to 65535",
  ],
  [
    "a port as text",
    '[{"name":"a","portMappings":[{"hostPort":"80","containerPort":80}]}]',
    "[0].portMappings[0].hostPort",
    "integer",
  ],
  ["no ports", '[{"name":"a","portMappings":[]}]', "[0].portMappings", "at least one port"],
  [
    "an unknown protocol",
    '[{"name":"a","portMappings":[{"hostPort":1,"containerPort":1,"protocol":"icmp"}]}]',
    "[0].portMappings[0].protocol",
    "TCP, UDP or SCTP",
  ],
  [
    "a burst without rate",
    '[{"name":"a","bandwidth":{"ingressBurst":1}}]',
    "[0].bandwidth.ingressBurst",
    "needs ingressRate",
  ],
  ["rate 0", '[{"name":"a","bandwidth":{"egressRate":0}}]', "[0].bandwidth.egressRate", "above 0"],
  ["no rate", '[{"name":"a","bandwidth":{}}]', "[0].bandwidth", "ingressRate or egressRate"],
  [
    "two default-routes",
    '[{"name":"a","default-route":["10.1.0.1"]},{"name":"b","default-route":[]}]',
    "[1].default-route",
    "entry 0 has it",
  ],
  [
    "two v4 gateways",
    '[{"name":"a","default-route":["10.1.0.1","10.1.0.2"]}]',
    "[0].default-route",
    "one gateway for each family",
  ],
  [
    "a gateway with prefix",
    '[{"name":"a","default-route":["10.1.0.1/24"]}]',
    "[0].default-route[0]",
    "without prefix length",
  ],
  [
    "addresses and a claim",
    '[{"name":"a","ips":["10.0.0.1"],"ipam-claim-reference":"c"}]',
    "[0].ipam-claim-reference",
    "can't be combined with ips",
  ],
  ["no name", '[{"namespace":"x"}]', "[0].name", "missing"],
  ["a dotted namespace", '[{"name":"a","namespace":"x.y"}]', "[0].namespace", "must be lower-case"],
  [
    "an interface twice",
    '[{"name":"a","interface":"n1"},{"name":"a","interface":"n1"}]',
    "[1].interface",
    "taken by entry 0",
  ],
  ["two slashes", "a/b/c", "[0]", 'more than one "/"'],
  ["two at signs", "ok,a@b@c", "[1]", 'more than one "@"'],
  ["an empty item", "a,,b", "[1]", "must not be empty"],
  ["a trailing comma", "a,", "[1]", "must not be empty"],
  ["no name before @", "@net1", "[0].name", "must not be empty"],
  ["no interface after @", "a@", "[0].interface", "must not be empty"],
  ["no namespace before /", "/a", "[0].namespace", "must not be empty"],
  ["a long interface", "a@abcdefghijklmnop", "[0].interface", "at most 15 bytes"],
  ["a dot dot path", "../a", "[0].namespace", "must be lower-case"],
  ["200,000 commas", ",".repeat(200_000), "", "at most 128 networks"],
  ["10 MB", "a,".repeat(5_000_000), "", "at most 262144 characters"],
  ["an object", '{"name":"a"}', "", "must be a list"],
  ["a text in the list", '["a"]', "[0]", "must be an object"],
];

for (const [title, text, path, message] of refusedNpwg) {
  test(`selection: k8s.v1.cni.cncf.io/networks with ${title} is refused by entry and field`, () => {
    const [first = ""] = faultsOf("npwg", text);
    assert.ok(first.startsWith(`${path}: `), first);
    assert.ok(first.includes(message), first);
  });
}

test("selection: all faults of all entries come at once, in one line", () => {
  const text = '[{"name":"A","mac":"x"},{"name":"b","ips":[]},{"namespace":"c"}]';
  assert.deepEqual(
    faultsOf("npwg", text).map((fault) => fault.split(": ")[0]),
    ["[0].name", "[0].mac", "[1].ips", "[2].name"],
  );
  assert.throws(
    () => read("npwg", text),
    (error: Error) => !error.message.includes("\n"),
  );
});

test("selection: a fault in one entry does not keep the rules between the others from being checked", () => {
  const text = '[{"name":"A"},{"name":"b","interface":"n"},{"name":"c","interface":"n"}]';
  assert.deepEqual(
    faultsOf("npwg", text).map((fault) => fault.split(": ")[0]),
    ["[0].name", "[2].interface"],
  );
});

test("selection: v4 and v6 gateways may stand on different entries", () => {
  const [x, y] = read(
    "podnet",
    '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW6":true}]',
  );
  assert.deepEqual(x?.defaultRoute, { v4: true, v6: false, strict: true });
  assert.deepEqual(y?.defaultRoute, { v4: false, v6: true, strict: true });
});

test("selection: isDefaultGW and primary mean both families, as far as the network has them", () => {
  for (const key of ["isDefaultGW", "primary"]) {
    const [x] = read("podnet", `[{"name":"x","${key}":true}]`);
    assert.deepEqual(x?.defaultRoute, { v4: true, v6: true, strict: false });
  }
  const [none] = read("podnet", '[{"name":"x","isDefaultGW":false}]');
  assert.equal(none?.defaultRoute, undefined);
});

test("selection: the older field names mean the same as the newest (E-4)", () => {
  const newest = '[{"name":"default","interfaceName":"eth0"},{"attachmentName":"fast"}]';
  for (const [name, attachment] of [
    ["podNetworkName", "podNetworkAttachmentName"],
    ["podNetwork", "podNetworkAttachmentName"],
  ]) {
    const older = newest.replace("attachmentName", attachment ?? "").replace("name", name ?? "");
    assert.deepEqual(read("podnet", older), read("podnet", newest));
  }
  assert.deepEqual(read("podnet", newest), [
    { index: 0, ref: { kind: "podNetwork", name: "default" }, ifName: "eth0" },
    { index: 1, ref: { kind: "podNetworkAttachment", namespace: "app", name: "fast" } },
  ]);
});

test("selection: the short form is the JSON form (E-14)", () => {
  const json =
    '[{"name":"net-a","namespace":"app"},{"name":"net-b","namespace":"infra","interface":"data0"}]';
  assert.deepEqual(read("npwg", " net-a , infra/net-b@data0 "), read("npwg", json));
  assert.deepEqual(read("npwg", json)[1], {
    index: 1,
    ref: { kind: "nad", namespace: "infra", name: "net-b" },
    ifName: "data0",
  });
});

test("selection: a NAD may be listed twice (E-15)", () => {
  assert.equal(read("npwg", "net-a,net-a").length, 2);
});

test("selection: every key of the JSON form arrives, in one spelling", () => {
  const [selection] = read(
    "npwg",
    JSON.stringify([
      {
        name: "caps",
        interfaceRequest: "n1",
        ips: ["10.9.0.5/24", "FD00:0::1"],
        mac: "02-00-00-00-00-0A",
        "infiniband-guid": "C2:11:22:33:44:55:66:77",
        portMappings: [{ hostPort: 1, containerPort: 2, protocol: "UDP", hostIP: "" }],
        bandwidth: { ingressRate: 1000 },
        "cni-args": { a: [1] },
        "default-route": ["10.9.0.1", "fd00::2"],
        deviceID: "0000:01:02.3",
        namespace: null,
        later: true,
      },
    ]),
  );
  assert.deepEqual(selection, {
    index: 0,
    ref: { kind: "nad", namespace: "app", name: "caps" },
    ifName: "n1",
    ips: ["10.9.0.5/24", "fd00::1"],
    mac: "02:00:00:00:00:0a",
    infinibandGuid: "c2:11:22:33:44:55:66:77",
    portMappings: [{ hostPort: 1, containerPort: 2, protocol: "udp" }],
    bandwidth: { ingressRate: 1000 },
    deviceId: "0000:01:02.3",
    cniArgs: { a: [1] },
    defaultRoute: { v4: true, v6: true, gateway4: "10.9.0.1", gateway6: "fd00::2", strict: true },
  });
});

test("selection: an empty default-route means the network's own gateways", () => {
  const [selection] = read("npwg", '[{"name":"a","default-route":[]}]');
  assert.deepEqual(selection?.defaultRoute, { v4: true, v6: true, strict: false });
});

test("selection: keys with a dot belong to other programs", () => {
  assert.equal(read("podnet", '[{"name":"x","acme.io/colour":"red"}]').length, 1);
});

test("selection: empty text and an empty list select nothing", () => {
  for (const text of ["", "  ", "[]"]) {
    assert.deepEqual(read("podnet", text), []);
    assert.deepEqual(read("npwg", text), []);
  }
});

test("selection: PODNET_NETWORKS and a configuration's list take plain names", () => {
  const expected = [
    { index: 0, ref: { kind: "podNetwork", name: "blue" } },
    { index: 1, ref: { kind: "podNetwork", name: "red" }, ifName: "data0" },
  ];
  assert.deepEqual(readShortForm(from("podnet"), "blue,red@data0"), expected);
  const list = ["blue", { name: "red", interfaceName: "data0" }];
  assert.deepEqual(readSelectionList(from("podnet"), list), expected);
  assert.throws(() => readShortForm(from("podnet"), "team/blue"), /\[0\]\.name/);
});

test("selection: a pod with hostNetwork selects nothing (E-5 h)", () => {
  refuseHostNetwork("annotation x", []);
  const list = read("podnet", '[{"name":"x"}]');
  assert.throws(() => refuseHostNetwork("annotation x", list), /hostNetwork/);
});

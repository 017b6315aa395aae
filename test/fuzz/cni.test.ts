import assert from "node:assert/strict";
import fc from "fast-check";
import type { JsonObject } from "../../lib/base/json.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { decodeError } from "../../lib/cni/delegate-answer.ts";
import { CniError } from "../../lib/cni/errors.ts";
import { parseJsonObject } from "../../lib/cni/json-text.ts";
import {
  answerVersion,
  decodeCniArgs,
  decodeRequest,
  encodeCniArgs,
} from "../../lib/cni/request.ts";
import { decodeResult, encodeResult } from "../../lib/cni/result.ts";
import { type CniResult, cniVerbs, cniVersions } from "../../lib/cni/types.ts";
import { versionAtLeast } from "../../lib/cni/versions.ts";
import { fuzz } from "../helpers/fuzz.ts";

function holds<T>(title: string, values: fc.Arbitrary<T>, property: (value: T) => void): void {
  fuzz(`cni: ${title}`, fc.property(values, property));
}

/** A value or a CniError, nothing else. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    assert.ok(error instanceof CniError, `not a CniError: ${String(error)}`);
    assert.ok(error.message !== "" && error.code > 0);
    return undefined;
  }
}

// Plain options first: what fails shrinks towards them.
const leaf = fc.oneof(
  fc.constantFrom<unknown>(
    "eth0",
    "10.1.0.5/24",
    "10.1.0.1",
    "fd00::1/64",
    "0.0.0.0/0",
    "",
    null,
    0,
    1,
    -1,
    1.5,
    true,
    "1.0.0",
    "9.9.9",
  ),
  fc.string(),
  fc.jsonValue({ maxDepth: 2 }),
);
const key = fc.constantFrom(
  "cniVersion",
  "cniVersions",
  "name",
  "type",
  "plugins",
  "interfaces",
  "ips",
  "routes",
  "dns",
  "ip4",
  "ip6",
  "ip",
  "address",
  "interface",
  "gateway",
  "gw",
  "dst",
  "mtu",
  "mac",
  "sandbox",
  "capabilities",
  "ipam",
  "disableCheck",
  "disableGC",
  "loadOnlyInlinedPlugins",
  "nameservers",
  "prevResult",
  "code",
  "msg",
  "details",
  "__proto__",
  "constructor",
);
const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
  tree: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    leaf,
    fc.array(tie("tree"), { maxLength: 4 }),
    fc
      .array(fc.tuple(key, tie("tree")), { maxLength: 8 })
      .map((pairs) => Object.fromEntries(pairs)),
  ),
}));
const json = tree.map((value) => JSON.stringify(value) ?? "null");
const cutJson = fc.tuple(json, fc.nat(200)).map(([text, length]) => text.slice(0, length));
const anyText = fc.oneof(
  json,
  cutJson,
  fc.string({ unit: "binary" }),
  fc.constantFrom("[", '{"a":', "{").map((open) => open.repeat(5_000)),
);

holds(
  "any text as a network configuration gives a list that reads back, or an error",
  anyText,
  (text) => {
    const list = attempt(() => decodeConflist(text));
    if (list === undefined) return;
    assert.equal(list.text, text);
    assert.ok(list.plugins.length > 0);
    assert.deepEqual(decodeConflist(list.text), list);
  },
);

holds("defaults make a list that reads back without them, or an error", json, (text) => {
  const list = attempt(() => decodeConflist(text, { name: "n", cniVersion: "1.0.0" }));
  if (list !== undefined) assert.deepEqual(decodeConflist(list.text), list);
});

function rewrites(value: unknown): void {
  const result = attempt(() => decodeResult(value, "1.0.0"));
  if (result === undefined) return;
  for (const version of cniVersions) {
    const written: JsonObject | undefined = attempt(
      (): JsonObject => encodeResult(result, version),
    );
    if (written === undefined) assert.ok(!versionAtLeast(version, "0.3.0"));
    else assert.deepEqual(encodeResult(decodeResult(written, "1.1.0"), version), written);
  }
}
holds(
  "any value as a result gives one that can be written in every version that can say it, or an error",
  tree,
  rewrites,
);

const environment = fc.record(
  {
    CNI_COMMAND: fc.constantFrom(...cniVerbs, "", "add"),
    CNI_CONTAINERID: fc.oneof(fc.constant("c1"), fc.string()),
    CNI_NETNS: fc.oneof(fc.constant("/run/netns/x"), fc.string()),
    CNI_IFNAME: fc.oneof(fc.constant("eth0"), fc.string()),
    CNI_ARGS: fc.oneof(fc.constant("A=b"), fc.string()),
    CNI_PATH: fc.oneof(fc.constant("/opt/cni/bin"), fc.string()),
    CNI_NETNS_OVERRIDE: fc.string(),
  },
  { requiredKeys: [] },
);
holds(
  "any environment and text give a request or an error",
  fc.tuple(environment, anyText),
  ([env, text]) => {
    const request = attempt(() => decodeRequest(env, text));
    assert.ok((cniVersions as readonly string[]).includes(answerVersion(text)));
    if (request === undefined) return;
    assert.equal(request.configText, text);
    assert.equal(request.verb, env.CNI_COMMAND);
  },
);

holds("any text as a plugin's error gives one with a code, or none", anyText, (text) => {
  const error = decodeError(text);
  assert.ok(error === undefined || (error.code > 0 && error.message !== ""));
});

holds(
  "text that parses is what JSON.parse says, and nothing deep gets through",
  anyText,
  (text) => {
    const value = attempt(() => parseJsonObject(text, "text"));
    if (value !== undefined) assert.deepEqual(value, JSON.parse(text));
  },
);

const word = fc.string({ minLength: 1 }).filter((text) => !/[;=]/.test(text));
const args = fc.array(
  fc.tuple(
    word,
    fc.string().filter((text) => !text.includes(";")),
  ),
);
holds("CNI_ARGS that are written read back", args, (pairs) => {
  const map = new Map(pairs);
  assert.deepEqual(decodeCniArgs(encodeCniArgs(map)), map);
});

const octet = fc.nat(255);
const address4 = fc.tuple(octet, octet, octet, octet).map((bytes) => bytes.join("."));
const address6 = fc
  .array(fc.nat(0xffff), { minLength: 8, maxLength: 8 })
  .map((words) => words.map((w) => w.toString(16)).join(":"));
const cidr = fc.oneof(
  fc.tuple(address4, fc.nat(32)).map(([ip, length]) => `${ip}/${length}`),
  fc.tuple(address6, fc.nat(128)).map(([ip, length]) => `${ip}/${length}`),
);
const text = fc.string({ minLength: 1 });
const result: fc.Arbitrary<CniResult> = fc
  .array(
    fc.record(
      {
        name: text,
        mac: text,
        mtu: fc.nat(),
        sandbox: text,
        socketPath: text,
        pciID: text,
        podNetwork: text,
      },
      { requiredKeys: ["name"] },
    ),
    { maxLength: 4 },
  )
  .chain((interfaces) => {
    const gateway = fc.oneof(address4, address6);
    const index = fc.nat(Math.max(0, interfaces.length - 1));
    const withIndex = fc.record(
      { address: cidr, gateway, interface: index, podNetwork: text },
      { requiredKeys: ["address"] },
    );
    const without = fc.record(
      { address: cidr, gateway, podNetwork: text },
      { requiredKeys: ["address"] },
    );
    return fc.record({
      interfaces: fc.constant(interfaces),
      ips: fc.array<CniResult["ips"][number]>(interfaces.length === 0 ? without : withIndex, {
        maxLength: 5,
      }),
      routes: fc.array(
        fc.record(
          {
            dst: cidr,
            gw: gateway,
            mtu: fc.nat(),
            advmss: fc.nat(),
            priority: fc.nat(),
            table: fc.nat(),
            scope: fc.nat(),
          },
          { requiredKeys: ["dst"] },
        ),
        { maxLength: 5 },
      ),
      dns: fc.record(
        {
          nameservers: fc.array(text, { minLength: 1 }),
          domain: text,
          search: fc.array(text, { minLength: 1 }),
        },
        { requiredKeys: [] },
      ),
    });
  });
const plain = result.map((value) => structuredClone(value));

holds("a result written in the newest version reads back the same", plain, (value) => {
  assert.deepEqual(
    decodeResult(JSON.parse(JSON.stringify(encodeResult(value, "1.1.0"))), "0.1.0"),
    value,
  );
});

/** Replaces the nth value of a tree, counted depth first. */
function replaceNth(value: unknown, nth: number, by: unknown): unknown {
  let left = nth;
  const walk = (node: unknown): unknown => {
    if (left-- === 0) return by;
    if (Array.isArray(node)) return node.map(walk);
    if (typeof node !== "object" || node === null) return node;
    return Object.fromEntries(Object.entries(node).map(([name, member]) => [name, walk(member)]));
  };
  return walk(value);
}

const nearly = fc
  .tuple(plain, fc.constantFrom(...cniVersions), fc.nat(60), leaf)
  .filter(([value, version]) => versionAtLeast(version, "0.3.0") || value.ips.length > 0)
  .map(([value, version, nth, by]) => replaceNth(encodeResult(value, version), nth, by));
holds(
  "a result with one wrong value gives one that can be written again, or an error",
  nearly,
  rewrites,
);

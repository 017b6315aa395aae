import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError, decodeConfig } from "../../daemon/node/config.ts";
import { readManifests } from "../../daemon/node/manifests.ts";
import { type AttachmentResult, mergeResults } from "../../daemon/node/merge.ts";
import { planAttachments } from "../../daemon/node/plan.ts";
import { decodeNetworkObject } from "../../lib/api/decode-objects.ts";
import { apiVersion, ifNameFault } from "../../lib/api/names.ts";
import { type Dialect, type Selection, SelectionError } from "../../lib/api/selection.ts";
import { readSelectionText } from "../../lib/api/selection-list.ts";
import { DecodeError } from "../../lib/base/decode.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError } from "../../lib/cni/errors.ts";
import { fuzz } from "../helpers/fuzz.ts";

/** Milliseconds of processor time that one input may take; a search that runs away takes far longer. */
const bounded = 2_000;

/** Processor time of this process so far, in milliseconds: it does not grow because the machine is busy. */
function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** What people with bad intentions, and broken templates, write. */
const hostile = fc.constantFrom(
  "",
  " ",
  "../",
  "../../etc/passwd",
  "a\nb",
  "a\0b",
  "a".repeat(35),
  "abcdefghijklmno",
  "bl\u0443e",
  "\u202eevil",
  "__proto__",
  "constructor",
  "toString",
  "\ud800",
  "%s%n",
  "$(id)",
  "net1",
  "eth0",
  "default",
  "a/b/c",
  "a@b@c",
  ",",
  ",,",
  "[null]",
  "[",
  "{",
  '"',
  '\\"'.repeat(2_000),
  "[".repeat(10_000),
  '{"a":'.repeat(10_000),
  `[${"[],".repeat(5_000)}[]]`,
  '[{"name":"a","name":"b"}]',
  '[{"name":"a"},]',
  "a,".repeat(100_000),
  "x".repeat(300_000),
  "- ".repeat(10_000),
  "&a [*a,*a]",
  "a: &x [1]\nb: *x",
  "? ".repeat(10_000),
  "!!js/function x",
  "---\n".repeat(5_000),
);
const word = fc.oneof(hostile, fc.string(), fc.string({ unit: "binary" }));
const key = fc.oneof(
  fc.constantFrom(
    "name",
    "namespace",
    "interface",
    "interfaceName",
    "attachmentName",
    "podNetworkName",
    "isDefaultGW",
    "isDefaultGW4",
    "ips",
    "mac",
    "infiniband-guid",
    "portMappings",
    "bandwidth",
    "cni-args",
    "default-route",
    "ipam-claim-reference",
    "deviceID",
    "hostPort",
    "containerPort",
    "protocol",
    "ingressRate",
    "ingressBurst",
    "spec",
    "metadata",
    "kind",
    "apiVersion",
    "parameters",
    "plugins",
    "type",
    "provider",
    "enabled",
    "parametersRefs",
    "config",
    "items",
  ),
  word,
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    word,
    fc.constantFrom(
      null,
      true,
      false,
      0,
      1,
      -1,
      80,
      65_536,
      1e308,
      "10.0.0.1/24",
      "fd00::1",
      "02:00:00:00:00:05",
      "tcp",
    ),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(key, tie("value"), { maxKeys: 6 }),
  ),
}));

/** Runs a decoder: it gives a value or throws one of these errors, with a message of one line, in bounded time. */
function valueOrError<T>(
  work: () => T,
  ...errors: (new (
    ...args: never[]
  ) => Error)[]
): T | undefined {
  const started = processorMs();
  try {
    return work();
  } catch (error) {
    assert.ok(
      errors.some((kind) => error instanceof kind),
      String(error),
    );
    assert.ok(error instanceof Error && !error.message.includes("\n"), "one line");
    return undefined;
  } finally {
    const took = processorMs() - started;
    assert.ok(took < bounded, `took ${took} ms`);
  }
}

/** What everybody behind the resolver relies on. */
function checkSelections(selections: readonly Selection[]): void {
  const names = selections.flatMap(({ ifName }) => ifName ?? []);
  assert.equal(new Set(names).size, names.length);
  for (const { ref, ifName, defaultRoute } of selections) {
    assert.match(ref.name, /^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$/);
    assert.ok(!ref.name.includes(".."));
    if (ifName !== undefined) assert.equal(ifNameFault(ifName), undefined);
    if (defaultRoute !== undefined) assert.ok(defaultRoute.v4 || defaultRoute.v6);
  }
}

for (const dialect of ["podnet", "npwg"] satisfies Dialect[]) {
  const from = { dialect, origin: "annotation x", namespace: "app" };
  const read = (text: string) => valueOrError(() => readSelectionText(from, text), SelectionError);
  fuzz(
    `selection (${dialect}): any text gives sound selections or a SelectionError`,
    fc.property(word, (text) => checkSelections(read(text) ?? [])),
  );
  fuzz(
    `selection (${dialect}): any JSON gives sound selections or a SelectionError`,
    fc.property(fc.oneof(value, fc.array(value, { maxLength: 5 })), (json) =>
      checkSelections(read(JSON.stringify(json)) ?? []),
    ),
  );
}

const name = fc.constantFrom("a", "b", "default", "x.y");
const entry = fc.record(
  {
    name,
    interfaceName: fc.constantFrom("eth0", "net1", "net2", "net3", "data0"),
    isDefaultGW4: fc.boolean(),
    isDefaultGW6: fc.boolean(),
  },
  { requiredKeys: ["name"] },
);
fuzz(
  "plan: valid lists give one first attachment, distinct names and owners that exist, or code 106",
  fc.property(fc.array(entry, { minLength: 1, maxLength: 6 }), fc.boolean(), (list, additional) => {
    const from = { dialect: "podnet", origin: "x", namespace: "app" } as const;
    const selections = valueOrError(
      () => readSelectionText(from, JSON.stringify(list)),
      SelectionError,
    );
    if (selections === undefined) return;
    const conflist = decodeConflist('{"name":"n","plugins":[{"type":"bridge"}]}');
    const networks = selections.map((selection) => ({
      network: selection.ref.name,
      isDefaultNetwork: selection.ref.name === "default",
      selection,
      conflist,
    }));
    const mode = additional ? "additional" : "explicit";
    const plan = valueOrError(
      () => planAttachments({ networks, mode, ifName: "eth0", runtimeConfig: {} }),
      CniError,
    );
    if (plan === undefined) return;
    const { attachments, defaultRoute } = plan;
    assert.equal(attachments.length, list.length);
    assert.equal(new Set(attachments.map(({ ifName }) => ifName)).size, list.length);
    assert.deepEqual(
      attachments.map((item) => item.default),
      list.map((_, place) => place === 0),
    );
    assert.equal(attachments[0]?.ifName, "eth0");
    for (const [family, flag] of [
      ["v4", "isDefaultGW4"],
      ["v6", "isDefaultGW6"],
    ] as const) {
      const asked = list.find((item) => item[flag] === true)?.name;
      const owner = defaultRoute[family].attachment;
      assert.equal(owner === undefined ? undefined : attachments[owner]?.network, asked);
    }
  }),
);

const result = fc.nat({ max: 3 }).chain((count) =>
  fc.record({
    interfaces: fc.array(fc.record({ name: fc.string() }), { minLength: count, maxLength: count }),
    ips: fc.array(
      fc.record({ address: fc.string(), interface: fc.integer({ min: -1, max: count - 1 }) }),
      { maxLength: 3 },
    ),
    routes: fc.constant([]),
    dns: fc.constant({}),
  }),
);
fuzz(
  "merge: every address points to the interface it pointed to, in its own network",
  fc.property(fc.array(result, { maxLength: 4 }), (results) => {
    const parts: AttachmentResult[] = results.map((item, place) => ({
      network: `n${place}`,
      result: item,
    }));
    const merged = mergeResults(parts, "all");
    const pairs = merged.ips.map((ip) => {
      const target = ip.interface === undefined ? undefined : merged.interfaces[ip.interface];
      if (target !== undefined) assert.equal(target.podNetwork, ip.podNetwork);
      return [ip.podNetwork, ip.address, target?.name];
    });
    const expected = parts.flatMap(({ network, result: { interfaces, ips } }) =>
      ips.map((ip) => [network, ip.address, interfaces[ip.interface ?? -1]?.name]),
    );
    assert.deepEqual(pairs, expected);
  }),
);

fuzz(
  "objects: any value, alone or under a known head, gives an object or a DecodeError",
  fc.property(
    value,
    fc.constantFrom("PodNetwork", "PodNetworkAttachment", "NetworkAttachmentDefinition"),
    (spec, kind) => {
      valueOrError(() => decodeNetworkObject(spec), DecodeError);
      const head = {
        apiVersion: kind === "NetworkAttachmentDefinition" ? "k8s.cni.cncf.io/v1" : apiVersion,
        kind,
        metadata: { name: "a" },
      };
      valueOrError(() => decodeNetworkObject({ ...head, spec }), DecodeError);
    },
  ),
);

fuzz(
  "manifests: any text gives objects and faults, and never throws",
  fc.property(
    fc.oneof(
      word,
      value.map((json) => JSON.stringify(json)),
    ),
    (text) => {
      const manifests = valueOrError(() => readManifests("f.yaml", text));
      for (const { object, faults, line } of manifests ?? []) {
        assert.equal(object === undefined, faults.length > 0);
        assert.ok(line >= 1 && faults.every((fault) => fault.line >= 1));
      }
    },
  ),
);

test("huge input: what costs a parser most, up to the limit and beyond, is answered in bounded time", () => {
  const from = { dialect: "npwg", origin: "x", namespace: "app" } as const;
  const texts = [
    Array.from({ length: 20_000 }, (_, n) => `k${n}: 1`).join("\n"),
    "---\na: 1\n".repeat(10_000),
    '\\"'.repeat(130_000),
    "x".repeat(11_000_000),
  ];
  for (const text of texts) {
    const started = processorMs();
    readManifests("f.yaml", text);
    valueOrError(() => decodeConfig({}, { name: "f", text }), ConfigError);
    valueOrError(() => readSelectionText(from, `[${text}`), SelectionError);
    const took = processorMs() - started;
    assert.ok(took < 5 * bounded, `${text.slice(0, 20)}: took ${took} ms`);
  }
});

fuzz(
  "config: any text gives a configuration or a ConfigError",
  fc.property(
    fc.oneof(
      word,
      value.map((json) => JSON.stringify(json)),
    ),
    (text) => {
      valueOrError(() => decodeConfig({}, { name: "f", text }), ConfigError);
    },
  ),
);

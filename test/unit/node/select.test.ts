import assert from "node:assert/strict";
import { test } from "node:test";
import { type SelectInput, selectNetworks } from "../../../daemon/node/select.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";
const override = "v1.multus-cni.io/default-network";

interface Request {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly args?: Readonly<Record<string, string>>;
  readonly networks?: unknown;
  readonly policy?: SelectInput["policy"];
}

function select({ annotations, args = {}, networks, policy = "fail" }: Request) {
  const config = JSON.parse(
    JSON.stringify({
      networks,
      runtimeConfig: { "io.kubernetes.cri.pod-annotations": annotations },
    }),
  );
  return selectNetworks({ config, args: new Map(Object.entries(args)), policy });
}

const names = (selected: ReturnType<typeof select>) =>
  selected.selections.map(({ ref }) =>
    ref.kind === "nad" ? `${ref.namespace}/${ref.name}` : ref.name,
  );

const everything: Request = {
  annotations: { [own]: '[{"name":"a"}]', [npwg]: "b" },
  args: { PODNET_NETWORKS: "c" },
  networks: ["d"],
};

const precedence: readonly [string, Request, readonly string[], string, string][] = [
  ["all of them", everything, ["a"], "podnet.dev", "explicit"],
  [
    "the NPWG annotation, arguments and a list",
    { ...everything, annotations: { [npwg]: "b" } },
    ["default/b"],
    "npwg",
    "additional",
  ],
  ["arguments and a list", { ...everything, annotations: {} }, ["c"], "arguments", "explicit"],
  ["a list", { networks: ["d"] }, ["d"], "configuration", "explicit"],
  ["nothing", {}, [], "none", "additional"],
  [
    "an empty own annotation and the NPWG one",
    { annotations: { [own]: "[]", [npwg]: "b" } },
    ["default/b"],
    "npwg",
    "additional",
  ],
  ["a list that is null", { networks: null }, [], "none", "additional"],
  ["other annotations", { annotations: { "acme.io/x": "[" } }, [], "none", "additional"],
];
for (const [title, request, expected, source, mode] of precedence) {
  test(`select: with ${title} the networks are [${expected}] from ${source}`, () => {
    const selected = select(request);
    assert.deepEqual(names(selected), expected);
    assert.equal(selected.source, source);
    assert.equal(selected.mode, mode);
  });
}

test("select: namespaces of the NPWG list default to the pod's", () => {
  const selected = select({ annotations: { [npwg]: "b,x/c" }, args: { K8S_POD_NAMESPACE: "app" } });
  assert.deepEqual(names(selected), ["app/b", "x/c"]);
});

test("select: PODNET_NETWORKS may name interfaces", () => {
  const [, red] = select({ args: { PODNET_NETWORKS: "blue, red@data0" } }).selections;
  assert.equal(red?.ifName, "data0");
});

test("select: the default network override looks in Multus' namespace", () => {
  const selected = select({ annotations: { [override]: "macvlan", [npwg]: "b" } });
  assert.deepEqual(selected.defaultNetwork?.ref, {
    kind: "nad",
    namespace: "kube-system",
    name: "macvlan",
  });
  assert.deepEqual(names(selected), ["default/b"]);
  const alone = select({ annotations: { [override]: "x/macvlan" }, networks: ["d"] });
  assert.equal(alone.source, "npwg");
  assert.deepEqual(names(alone), []);
});

const invalid: readonly [string, Request, RegExp][] = [
  [
    "two default networks",
    { annotations: { [override]: "a,b" } },
    /annotation v1\.multus-cni\.io\/default-network: must name one network, not 2/,
  ],
  [
    "a wrong annotation",
    { annotations: { [own]: '[{"name":"a","interfaceName":"a/b"}]' } },
    /annotation podnet\.dev\/networks: \[0\]\.interfaceName: "a\/b"/,
  ],
  [
    "a wrong NPWG annotation",
    { annotations: { [npwg]: "a,b/c/d" } },
    /annotation k8s\.v1\.cni\.cncf\.io\/networks: \[1\]/,
  ],
  ["wrong arguments", { args: { PODNET_NETWORKS: "a,,b" } }, /CNI_ARGS PODNET_NETWORKS: \[1\]/],
  ["a wrong list", { networks: ["a", 3] }, /networks of the CNI configuration: \[1\]/],
  ["a list that is a text", { networks: "a" }, /networks of the CNI configuration: must be a list/],
];
for (const [title, request, message] of invalid) {
  test(`select: ${title} fails with code 106, and is ignored by policy`, () => {
    assert.throws(
      () => select(request),
      (error) => error instanceof CniError && error.code === 106 && message.test(error.message),
    );
    const ignored = select({ ...request, policy: "ignore" });
    assert.deepEqual(ignored.selections, []);
    assert.equal(ignored.mode, "additional");
    assert.match(ignored.warnings.join(), message);
  });
}

test("select: details repeat nothing: they are there when the message can't name all faults", () => {
  const refusal = (count: number) => {
    try {
      select({ networks: Array.from({ length: count }, () => 3) });
    } catch (error) {
      if (error instanceof CniError) return error;
    }
    return assert.fail("it was not refused");
  };
  assert.equal(refusal(1).details, undefined);
  assert.equal(refusal(10).details, undefined);
  assert.match(refusal(12).message, /; and 2 more$/);
  assert.equal(refusal(12).details?.split("\n").length, 12);
});

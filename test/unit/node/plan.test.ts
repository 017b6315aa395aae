import assert from "node:assert/strict";
import { test } from "node:test";
import { planAttachments } from "../../../daemon/node/plan.ts";
import type { ResolvedNetwork } from "../../../daemon/node/resolve.ts";
import type { Selection } from "../../../lib/api/selection.ts";
import { readSelectionText } from "../../../lib/api/selection-list.ts";
import type { Json } from "../../../lib/base/json.ts";
import { decodeConflist } from "../../../lib/cni/conflist.ts";
import { CniError } from "../../../lib/cni/errors.ts";

const capabilities = { ips: true, mac: true, portMappings: true, bandwidth: true };
const conflist = decodeConflist(
  JSON.stringify({ name: "n", plugins: [{ type: "bridge", capabilities }] }),
);

function resolved(
  selection: Selection | undefined,
  isDefaultNetwork = selection === undefined,
): ResolvedNetwork {
  const network = selection?.ref.name ?? "default";
  return {
    network,
    isDefaultNetwork: isDefaultNetwork || network === "default",
    conflist,
    ...(selection === undefined ? {} : { selection }),
  };
}

interface PlanOptions {
  readonly ifName?: string;
  readonly runtimeConfig?: Readonly<Record<string, Json>>;
}

/** An explicit list, or (NPWG) the default network and then the list. */
function plan(dialect: "podnet" | "npwg", text: string, options: PlanOptions = {}) {
  const { ifName = "eth0", runtimeConfig = {} } = options;
  const list = readSelectionText({ dialect, origin: "x", namespace: "app" }, text).map((item) =>
    resolved(item),
  );
  return planAttachments({
    networks: dialect === "npwg" ? [resolved(undefined), ...list] : list,
    mode: dialect === "npwg" ? "additional" : "explicit",
    ifName,
    runtimeConfig,
  });
}

const shape = ({ attachments }: ReturnType<typeof plan>) =>
  attachments.map(
    ({ network, ifName, default: isDefault }) => `${network}:${ifName}${isDefault ? "*" : ""}`,
  );

const orders: readonly [string, "podnet" | "npwg", string, readonly string[]][] = [
  [
    "names as written (E-4)",
    "podnet",
    '[{"name":"default","interfaceName":"eth0"},{"name":"dataplane","interfaceName":"net1"}]',
    ["default:eth0*", "dataplane:net1"],
  ],
  [
    "no names",
    "podnet",
    '[{"name":"a"},{"name":"b"},{"name":"c"}]',
    ["a:eth0*", "b:net1", "c:net2"],
  ],
  [
    "default listed later",
    "podnet",
    '[{"name":"a"},{"name":"default"},{"name":"c"}]',
    ["default:eth0*", "a:net1", "c:net2"],
  ],
  [
    "another entry named eth0",
    "podnet",
    '[{"name":"default","interfaceName":"mgmt0"},{"name":"b","interfaceName":"eth0"}]',
    ["b:eth0*", "default:mgmt0"],
  ],
  [
    "the standard's example (E-14)",
    "npwg",
    "net-a,infra/net-b@data0",
    ["default:eth0*", "net-a:net1", "net-b:data0"],
  ],
  ["a name counts as a place", "npwg", "a@x0,b", ["default:eth0*", "a:x0", "b:net2"]],
  ["the same NAD twice (E-15)", "npwg", "a,a", ["default:eth0*", "a:net1", "a:net2"]],
  ["a number taken by name", "npwg", "a@net2,b,c", ["default:eth0*", "a:net2", "b:net3", "c:net4"]],
  ["a number taken by a later name", "npwg", "a,b@net1", ["default:eth0*", "a:net2", "b:net1"]],
];
for (const [title, dialect, text, expected] of orders) {
  test(`plan: with ${title} the attachments are ${expected.join(", ")}`, () => {
    assert.deepEqual(shape(plan(dialect, text)), expected);
  });
}

const refusedNames: readonly [string, "podnet" | "npwg", string, RegExp][] = [
  [
    "an NPWG entry wants the default network's interface",
    "npwg",
    "a@eth0",
    /^network "a" \(entry 0\): interface name "eth0" is taken by network "default"/,
  ],
  [
    "the first network wants another name than the runtime's",
    "podnet",
    '[{"name":"a","interfaceName":"x0"}]',
    /^network "a" \(entry 0\): interface name "x0": .* "eth0"/,
  ],
];
for (const [title, dialect, text, message] of refusedNames) {
  test(`plan: when ${title}, the list is refused with code 106`, () => {
    assert.throws(
      () => plan(dialect, text),
      (error) => error instanceof CniError && error.code === 106 && message.test(error.message),
    );
  });
}

test("plan: the runtime's own name is used, whatever it is", () => {
  assert.deepEqual(shape(plan("podnet", '[{"name":"a"},{"name":"b"}]', { ifName: "net1" })), [
    "a:net1*",
    "b:net2",
  ]);
});

test("plan: the runtime's capability arguments go to the first network alone, and only what it declares", () => {
  const runtimeConfig = {
    portMappings: [{ hostPort: 80, containerPort: 80 }],
    "io.kubernetes.cri.pod-annotations": { a: "b" },
    dns: { servers: [] },
  };
  const { attachments } = plan("npwg", "a", { runtimeConfig });
  assert.deepEqual(attachments[0]?.capabilityArgs, { portMappings: runtimeConfig.portMappings });
  assert.deepEqual(attachments[1]?.capabilityArgs, {});
});

test("plan: what a selection asks goes to its own network, over the runtime's", () => {
  const text = JSON.stringify([
    { name: "a", ips: ["10.0.0.5/24"], "cni-args": { x: 1 } },
    {
      name: "b",
      mac: "02:00:00:00:00:05",
      bandwidth: { ingressRate: 50_000_000, egressRate: 1000, egressBurst: 9 },
    },
  ]);
  const { attachments } = plan("podnet", text, { runtimeConfig: { ips: ["10.0.0.9"], mac: "x" } });
  assert.deepEqual(attachments[0]?.capabilityArgs, { ips: ["10.0.0.5/24"], mac: "x" });
  assert.deepEqual(attachments[0]?.cniArgs, { x: 1 });
  assert.deepEqual(attachments[1]?.capabilityArgs, {
    mac: "02:00:00:00:00:05",
    bandwidth: {
      ingressRate: 50_000_000,
      ingressBurst: 5_000_000,
      egressRate: 1000,
      egressBurst: 9,
    },
  });
  assert.equal(attachments[1]?.cniArgs, undefined);
});

const nobody = { strict: false };
const routes: readonly [string, "podnet" | "npwg", string, object, object][] = [
  ["nobody asks", "podnet", '[{"name":"a"},{"name":"b"}]', nobody, nobody],
  [
    "one entry asks for both",
    "podnet",
    '[{"name":"a"},{"name":"b","isDefaultGW":true}]',
    { attachment: 1, strict: false },
    { attachment: 1, strict: false },
  ],
  [
    "the families are split",
    "podnet",
    '[{"name":"a","isDefaultGW6":true},{"name":"b","isDefaultGW4":true}]',
    { attachment: 1, strict: true },
    { attachment: 0, strict: true },
  ],
  [
    "default comes first by order",
    "podnet",
    '[{"name":"a","isDefaultGW":true},{"name":"default"}]',
    { attachment: 1, strict: false },
    { attachment: 1, strict: false },
  ],
  [
    "a gateway is named (E-19)",
    "npwg",
    '[{"name":"a","default-route":["10.1.0.1"]}]',
    { attachment: 1, gateway: "10.1.0.1", strict: true },
    nobody,
  ],
  [
    "default-route is empty",
    "npwg",
    '[{"name":"a"},{"name":"b","default-route":[]}]',
    { attachment: 2, strict: false },
    { attachment: 2, strict: false },
  ],
];
for (const [title, dialect, text, v4, v6] of routes) {
  test(`plan: when ${title}, each family's default route has its owner`, () => {
    assert.deepEqual(plan(dialect, text).defaultRoute, { v4, v6 });
  });
}

test("plan: a network of another provider keeps its place and its name, and is never the first", () => {
  const list =
    '[{"name":"theirs"},{"name":"a"},{"name":"other","interfaceName":"x0"},{"name":"b"}]';
  const selections = readSelectionText({ dialect: "podnet", origin: "x", namespace: "app" }, list);
  const foreignNames = ["theirs", "other"];
  const foreign = selections.flatMap((selection, place) =>
    foreignNames.includes(selection.ref.name)
      ? [{ network: selection.ref.name, provider: "acme.io/x", selection, place }]
      : [],
  );
  const networks = selections
    .filter(({ ref }) => !foreignNames.includes(ref.name))
    .map((selection) => resolved(selection));
  const planned = planAttachments({
    networks,
    foreign,
    mode: "explicit",
    ifName: "eth0",
    runtimeConfig: {},
  });
  assert.deepEqual(shape(planned), ["a:eth0*", "b:net3"]);
  assert.deepEqual(planned.leftAlone, [
    { network: "theirs", provider: "acme.io/x", ifName: "net1" },
    { network: "other", provider: "acme.io/x", ifName: "x0" },
  ]);
});

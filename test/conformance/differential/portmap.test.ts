import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { portmap } from "../../../daemon/plugins/portmap.ts";
import type { JsonObject } from "../../../lib/base/json.ts";
import { Attached, moveIntoNode } from "../../helpers/attached.ts";
import { Lab } from "../../helpers/lab.ts";
import { part } from "../../helpers/parts.ts";
import { runPlugin } from "../../helpers/plugin-call.ts";
import { ask, askAll, Town } from "../../helpers/town.ts";

/**
 * portmap beside the reference executable with its nftables backend: rules differ by intention, so the effect is compared: who reaches what, and
 * as whom the pod sees it.
 */
const lab = new Lab();
const node = moveIntoNode(lab);
let town: Town;

before(async () => {
  town = await Town.build(lab, node);
});
after(() => town[Symbol.dispose]());

type Traffic = Readonly<Record<string, string>>;

/** Every way to a host port that matters: from outside, from the node, from a neighbour and from the pod itself; each address; each family; UDP. */
async function traffic(): Promise<Traffic> {
  const { outside, one, two } = town;
  const ways = [
    [
      "outside",
      outside,
      ["192.0.2.1 8080", "192.0.2.11 8080", "2001:db8::1 8080", "192.0.2.1 8081"],
    ],
    ["node", node, ["127.0.0.1 8080", "192.0.2.1 8080"]],
    ["neighbour", two.place, ["10.7.0.1 8080"]],
    ["itself", one.place, ["10.7.0.1 8080", "fd07::1 8080"]],
  ] as const;
  const seen = await Promise.all(
    ways.map(async ([name, from, targets]) => {
      const answers = await askAll(from, targets);
      return targets.map((target, index) => [`${name} to ${target}`, answers[index] ?? ""]);
    }),
  );
  const udp = ask(outside, "192.0.2.1 8080", { protocol: "udp" });
  return { ...Object.fromEntries(seen.flat()), "outside, UDP": udp };
}

async function reference(
  verb: "ADD" | "DEL",
  config: JsonObject,
): Promise<{ status: number | null; msg: string }> {
  const { place, result } = town.one;
  const { status, json } = await runPlugin({
    program: join(part("reference-plugins"), "portmap"),
    verb,
    containerId: "c1",
    ifName: "eth0",
    netns: place.path,
    path: part("reference-plugins"),
    node,
    config: {
      cniVersion: "1.1.0",
      name: "blue",
      type: "portmap",
      ...config,
      prevResult: { cniVersion: "1.1.0", ...result },
    },
  });
  return { status, msg: String(json?.msg ?? "") };
}

function attach(config: JsonObject): Attached {
  const { runtimeConfig = {}, ...rest } = config;
  return new Attached(portmap, {
    pod: town.one.place,
    prevResult: town.one.result,
    runtimeConfig: runtimeConfig as JsonObject,
    config: { type: "portmap", ...rest },
  });
}

const tcp = { hostPort: 8080, containerPort: 80, protocol: "tcp" };
const withMappings = (config: JsonObject, ...portMappings: JsonObject[]): JsonObject => ({
  backend: "nftables",
  ...config,
  runtimeConfig: { portMappings },
});

const works: readonly JsonObject[] = [
  withMappings({}, tcp),
  withMappings({ snat: false }, tcp),
  withMappings({ masqAll: true }, tcp),
  withMappings({ markMasqBit: 5 }, tcp),
  withMappings({}, { ...tcp, hostIP: "192.0.2.11" }),
  withMappings({}, { ...tcp, hostIP: "0.0.0.0" }),
  withMappings({}, { ...tcp, hostIP: "::" }),
  withMappings({}, { ...tcp, hostIP: "2001:db8::1" }),
  withMappings({}, { ...tcp, hostIP: "127.0.0.1" }),
  withMappings({}, { ...tcp, hostIP: "" }),
  withMappings({}, { hostPort: 8080, containerPort: 53, protocol: "udp" }),
  withMappings({}, { ...tcp, protocol: "sctp" }),
  withMappings(
    {},
    tcp,
    { hostPort: 8080, containerPort: 53, protocol: "udp" },
    { ...tcp, hostPort: 8081 },
  ),
  withMappings({ conditionsV4: ["ip", "saddr", "192.0.2.0/24"] }, tcp),
  withMappings(
    {
      conditionsV4: ["ip", "saddr", "!=", "192.0.2.0/24"],
      conditionsV6: ["ip6", "saddr", "2001:db8::2"],
    },
    tcp,
  ),
  withMappings({ conditionsV4: ["iifname", "br0"], conditionsV6: ["iifname", "up0"] }, tcp),
  withMappings({}),
];

const fails: readonly JsonObject[] = [
  withMappings({ backend: "ipvs" }, tcp),
  withMappings({ externalSetMarkChain: "KUBE-MARK-MASQ" }, tcp),
  withMappings({ conditionsV4: ["!", "-d", "192.0.2.0/24"] }, tcp),
  withMappings({ markMasqBit: 33, backend: "iptables" }, tcp),
  withMappings({ markMasqBit: 3, externalSetMarkChain: "X", backend: "iptables" }, tcp),
  withMappings({ snat: "yes" }, tcp),
  withMappings({ masqAll: 1 }, tcp),
  withMappings({}, { ...tcp, hostPort: 0 }),
  withMappings({}, { ...tcp, hostPort: 70_000 }),
  withMappings({}, { ...tcp, containerPort: 0 }),
  withMappings({}, { ...tcp, protocol: "icmp" }),
  withMappings({}, { hostPort: 8080, containerPort: 80 }),
  withMappings({}, { ...tcp, hostIP: "x" }),
];

for (const config of works) {
  test(`portmap: ${JSON.stringify(config)}: the traffic is the reference's`, async () => {
    assert.deepEqual(await reference("ADD", config), { status: 0, msg: "" });
    const theirs = await traffic();
    assert.equal((await reference("DEL", config)).status, 0);
    node.run(
      "sh",
      "-c",
      "nft delete table ip cni_hostport; nft delete table ip6 cni_hostport; true",
    );
    const attached = attach(config);
    await attached.add();
    await attached.check();
    const ours = await traffic();
    await attached.del();
    assert.deepEqual(ours, theirs);
    const isOpen = Object.values(ours).some((peer) => peer !== "");
    assert.equal(isOpen, !/"sctp"|"portMappings":\[\]/.test(JSON.stringify(config)));
  });
}

for (const config of fails) {
  test(`portmap: ${JSON.stringify(config)}: both refuse`, async () => {
    assert.equal((await reference("ADD", config)).status, 1);
    await assert.rejects(attach(config).addOnly(), { code: 7 });
    await reference("DEL", config);
  });
}

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { JsonObject } from "../../lib/base/json.ts";
import { Netns } from "../../lib/base/netns.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import { CniError } from "../../lib/cni/errors.ts";
import type { CniVerb } from "../../lib/cni/types.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { InProcess } from "../helpers/in-process.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import type { PluginAnswer } from "../helpers/plugin-call.ts";
import { kernelState, nftRuleset, openFiles } from "../helpers/state.ts";
import { type Attempt, chainedTypes, dataDir, type FuzzedType } from "./plugin-configs.ts";

/** A call that took longer than the daemon's own deadline would let it. */
const hangSeconds = 15;
const settleMs = 3000;
/** IFF_PROMISC of linux/if.h. */
const promiscuous = 0x100;

const chained: ReadonlySet<string> = new Set(chainedTypes);

/** How many attempts of each type attached, and how many were refused. */
type Tried = Map<FuzzedType, { attached: number; refused: number }>;

interface Watched {
  readonly place: Place;
  readonly netns: Netns;
  readonly rtnl: Rtnetlink;
}

/**
 * A node with an uplink, an empty pod for types that make an interface, and a pod that has one (`eth0`, the other end of the node's `v0`) for chained types.
 * After each attempt everything must be as before; what is looked at by podnet's own netlink code each time is looked at by `ip` and `tc` at the end.
 */
export class PluginWorld implements AsyncDisposable {
  readonly tried: Tried = new Map();
  /** An attempt failed: nothing is known about the state any more. */
  failed = false;
  readonly #lab = new Lab();
  readonly #folder = this.#lab.folder();
  readonly #node: Watched;
  readonly #pod: Watched;
  readonly #dressed: Watched;
  readonly #plugins: InProcess;
  readonly #dressedResult: JsonObject;
  #number = 0;
  #before = "";
  #beforeByIp: unknown;
  #files: unknown;

  private constructor() {
    this.#node = open(this.#lab.node());
    this.#pod = open(this.#lab.pod());
    this.#dressed = open(this.#lab.pod());
    const node = this.#node.place;
    const [pod, dressed] = [this.#pod.place, this.#dressed.place];
    node.run("bash", "-ec", nodeScript);
    pod.run("bash", "-ec", podScript);
    dressed.run("bash", "-ec", dressedScript);
    node.run("bash", "-ec", dress(dressed.name));
    const sandbox = dressed.path;
    this.#dressedResult = {
      cniVersion: "1.1.0",
      interfaces: [{ name: "v0" }, { name: "eth0", sandbox }],
      ips: [{ address: "10.1.0.5/24", gateway: "10.1.0.1", interface: 1 }],
      routes: [{ dst: "0.0.0.0/0", gw: "10.1.0.1" }],
    };
    this.#plugins = InProcess.start(node);
  }

  /** A new world; `tried` goes on counting what another one tried. */
  static async start(tried: Tried = new Map()): Promise<PluginWorld> {
    const world = new PluginWorld();
    try {
      await delay(100);
      world.#beforeByIp = world.#byIp();
      world.#before = await world.#look();
      const ipam = { type: "static", addresses: [{ address: "10.1.0.5/24" }] };
      const warm = { ipMasq: true, macspoofchk: true, ipam };
      const rates = { egressRate: 8000, egressBurst: 8000 };
      // Sockets that are opened at the first use stay open.
      for (const [type, config] of [
        ["bridge", warm],
        ["bandwidth", rates],
      ] as const)
        await world.attempt({
          type,
          config: { type, ...config },
          runtimeConfig: {},
          forgetful: false,
        });
      world.tried.clear();
      for (const [type, count] of tried) world.tried.set(type, count);
      world.#files = openFiles(world.#plugins.pid);
      return world;
    } catch (error) {
      await world[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** ADD, CHECK when it worked, DEL twice, then nothing must be left. Throws an AssertionError for what no plugin may do. */
  async attempt(one: Attempt): Promise<void> {
    try {
      await this.#attempt(one);
    } catch (error) {
      this.failed = true;
      throw error;
    }
  }

  async #attempt({ type, config, runtimeConfig, forgetful }: Attempt): Promise<void> {
    const plugin = decoded(type, JSON.stringify(config).replaceAll(dataDir, this.#folder));
    const count = this.tried.get(type) ?? { attached: 0, refused: 0 };
    this.tried.set(type, count);
    count.refused += 1;
    if (plugin === undefined) return;
    const whole = { ...plugin, cniVersion: "1.1.0", name: "blue", runtimeConfig };
    const prevResult = chained.has(type) ? { prevResult: this.#dressedResult } : {};
    const netns = (chained.has(type) ? this.#dressed : this.#pod).place.path;
    this.#number += 1;
    const run = (verb: CniVerb, config: JsonObject, from: { netns?: string } = { netns }) =>
      this.#run({ type, verb, config, containerId: `c${this.#number}`, ifName: "eth0", ...from });
    const added = await run("ADD", { ...whole, ...prevResult });
    const result = added.status === 0 ? { prevResult: added.json as JsonObject } : {};
    if (added.status === 0) {
      const { status, json } = await run("CHECK", { ...whole, ...result });
      assert.equal(status, 0, `CHECK after ADD: ${JSON.stringify(json)}`);
      count.attached += 1;
      count.refused -= 1;
    }
    const known = forgetful && !chained.has(type) ? whole : { ...whole, ...result };
    for (let times = 0; times < 2; times += 1) {
      const { status, json } = await run("DEL", known);
      assert.equal(status, 0, `DEL: ${JSON.stringify(json)}`);
    }
    await this.#assertClean(type, /ipMasq|macspoofchk|portMappings/.test(JSON.stringify(whole)));
  }

  /** The second opinion, after the last attempt. */
  assertNothingLeft(): void {
    assert.deepEqual(this.#byIp(), this.#beforeByIp);
    assert.deepEqual(openFiles(this.#plugins.pid), this.#files);
    assert.deepEqual(this.#elements(), []);
  }

  async #run(run: Parameters<InProcess["run"]>[0]): Promise<PluginAnswer> {
    const limit = new AbortController();
    const hang = delay(hangSeconds * 1000, undefined, { signal: limit.signal, ref: false });
    const answer = await Promise.race([this.#plugins.run(run), hang.catch(() => undefined)]);
    limit.abort();
    assert.ok(answer !== undefined, `${run.type} ${run.verb} hangs: ${JSON.stringify(run.config)}`);
    assert.notEqual(answer.status, null, `${run.type} ${run.verb} ended the process`);
    if (answer.status !== 0) {
      const { code, msg } = answer.json ?? {};
      assert.ok(code > 0 && msg !== "", `no CNI error: ${JSON.stringify(answer.json)}`);
    }
    return answer;
  }

  async #assertClean(type: FuzzedType, usesNftables: boolean): Promise<void> {
    const end = performance.now() + settleMs;
    await this.#renew(type);
    let now = await this.#look();
    while (now !== this.#before && performance.now() < end) {
      await delay(20);
      now = await this.#look();
    }
    if (now !== this.#before) assert.deepEqual(JSON.parse(now), JSON.parse(this.#before));
    if (usesNftables) assert.deepEqual(this.#elements(), []);
  }

  /**
   * Bridges, and the gateways of their VLANs, are made for all pods and stay: the next attempt gets a node without. What shapes a pod's pair, and
   * routes of its interface, go with the interface: a pod that stays gets another.
   */
  async #renew(type: FuzzedType): Promise<void> {
    const { rtnl, place } = this.#node;
    for (const { index, kind, name } of await rtnl.links())
      if (kind === "bridge" || /\.\d+$/.test(name)) await rtnl.deleteLink({ index });
    if (type !== "bandwidth" && type !== "sbr") return;
    await rtnl.deleteLink({ name: "v0" });
    place.run("bash", "-ec", dress(this.#dressed.place.name));
  }

  async #look(): Promise<string> {
    const places = await Promise.all([this.#node, this.#pod, this.#dressed].map(stateOf));
    return JSON.stringify({ places, addresses: heldAddresses(this.#folder) });
  }

  #byIp(): unknown {
    return [this.#node, this.#pod, this.#dressed].map(({ place }) => {
      const { nft: _, ...state } = kernelState(place);
      const qdiscs = JSON.parse(place.run("tc", "-j", "qdisc")) as { dev: string; kind: string }[];
      return { ...state, qdiscs: qdiscs.map(({ dev, kind }) => `${dev} ${kind}`) };
    });
  }

  #elements(): unknown[] {
    return nftRuleset(this.#node.place).flatMap((item) => {
      const set = (item["set"] ?? item["map"]) as JsonObject | undefined;
      return set?.["elem"] === undefined ? [] : [set];
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#plugins[Symbol.asyncDispose]();
    for (const { netns, rtnl } of [this.#node, this.#pod, this.#dressed]) {
      rtnl.close();
      netns.close();
    }
    this.#lab[Symbol.dispose]();
  }
}

function open(place: Place): Watched {
  const netns = Netns.open(place.path);
  return { place, netns, rtnl: Rtnetlink.open(netns) };
}

/** As the daemon does it: what is no plugin configuration at all never reaches a plugin. */
function decoded(type: FuzzedType, text: string): JsonObject | undefined {
  try {
    const list = `{"cniVersion":"1.1.0","name":"blue","plugins":[${text}]}`;
    const [plugin] = decodeConflist(list).plugins;
    return plugin?.type === type ? plugin : undefined;
  } catch (error) {
    if (error instanceof CniError) return undefined;
    throw error;
  }
}

async function stateOf({ rtnl }: Watched): Promise<unknown> {
  const [links, addresses, routes, rules] = await Promise.all([
    rtnl.links(),
    rtnl.addresses(),
    rtnl.routes(),
    rtnl.rules(),
  ]);
  const facts = links.map(({ index, name, kind, mac, mtu, up, flags, allmulti, txQueueLength }) => {
    const promisc = (flags & promiscuous) !== 0;
    return { index, name, kind, mac, mtu, up, promisc, allmulti, txQueueLength };
  });
  const lines = (items: readonly unknown[]) => items.map((item) => JSON.stringify(item)).toSorted();
  return {
    links: lines(facts),
    addresses: lines(addresses.map(({ index, address }) => ({ index, address }))),
    routes: lines(
      routes.map(({ destination, gateway, table, index, priority }) => {
        return { destination, gateway, table, index, priority };
      }),
    ),
    rules: lines(rules),
  };
}

function heldAddresses(folder: string): string[] {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  return files
    .filter((file) => file.isFile() && !/^(lock$|last_reserved_ip|\.)/.test(file.name))
    .map((file) => join(file.parentPath, file.name));
}

const nodeScript = `
ip link add up0 type veth peer name up1; ip link set up1 up; ip link set up0 up
ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.2
sysctl -qw net.ipv6.conf.default.dad_transmits=0
for link in up0 up1; do sysctl -qw net.ipv6.conf.$link.disable_ipv6=1; done
`;

/** Loopback addresses stay once it was up; duplicate address detection takes seconds, which are better spent on more attempts. */
const podScript = `
ip link set lo up; ip link set lo down; sysctl -qw net.ipv6.conf.default.dad_transmits=0
`;

/** Without IPv6, whose addresses a small MTU would end for good. */
const dressedScript = `
sysctl -qw net.ipv6.conf.default.disable_ipv6=1; ip link set lo up
`;

const dress = (pod: string) => `
ip link add v0 index 900 address 0a:00:00:00:01:00 type veth peer name eth0 index 901 address 0a:00:00:00:01:01 netns ${pod}
sysctl -qw net.ipv6.conf.v0.disable_ipv6=1; ip link set v0 up; ip address add 10.1.0.1/32 dev v0
ip -n ${pod} link set eth0 up; ip -n ${pod} address add 10.1.0.5/24 dev eth0; ip -n ${pod} route add default via 10.1.0.1
`;

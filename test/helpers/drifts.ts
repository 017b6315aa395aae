import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { Plugin } from "../../daemon/plugins/plugin.ts";
import { inProcessPlugins } from "../../daemon/plugins/registry.ts";
import type { JsonObject } from "../../lib/base/json.ts";
import type { CniResult } from "../../lib/cni/types.ts";
import { Attached } from "./attached.ts";
import type { Lab, Place } from "./lab.ts";

/** A change by hand: shell lines in the pod or on the node, and what CHECK must say. In them `$PORT` is the node's end of the pod's veth pair. */
export interface Drift {
  readonly what: string;
  readonly pod?: string;
  readonly node?: string;
  readonly says: RegExp;
}

/** A chain of plugins, and everything of it that somebody could change by hand. */
export interface DriftCase {
  readonly name: string;
  readonly plugins: readonly (JsonObject & { readonly type: string })[];
  readonly runtimeConfig?: JsonObject;
  /** On the node, before. */
  readonly prepare?: string;
  /** In the pod, before. */
  readonly preparePod?: string;
  readonly drifts: readonly Drift[];
}

interface Chain {
  readonly links: readonly Attached[];
  readonly result: CniResult;
}

async function attach(item: DriftCase, pod: Place): Promise<Chain> {
  const links: Attached[] = [];
  let result: CniResult | undefined;
  for (const config of item.plugins) {
    const plugin = inProcessPlugins.get(config.type) as Plugin;
    const attached = new Attached(plugin, {
      pod,
      config,
      ...(item.runtimeConfig === undefined ? {} : { runtimeConfig: item.runtimeConfig }),
      ...(result === undefined ? {} : { prevResult: result }),
    });
    links.push(attached);
    result = await attached.add();
  }
  assert(result);
  for (const one of links) one.finalResult = result;
  return { links, result };
}

async function check({ links }: Chain): Promise<void> {
  for (const one of links) await one.check();
}

async function detach({ links }: Chain): Promise<void> {
  for (const one of links.toReversed()) await one.del();
}

function portOf(pod: Place, node: Place): string {
  const [link] = JSON.parse(pod.run("ip", "-j", "link")).filter(
    ({ ifname }: JsonObject) => ifname === "eth0",
  ) as { link_index?: number }[];
  const all = JSON.parse(node.run("ip", "-j", "link")) as { ifindex: number; ifname: string }[];
  return all.find(({ ifindex }) => ifindex === link?.link_index)?.ifname ?? "";
}

/** For each case: CHECK passes on what ADD left, and after each change it says what is wrong. Each drift gets an attachment of its own. */
export function testDrifts(lab: Lab, node: Place, cases: readonly DriftCase[]): void {
  for (const item of cases) {
    test(`CHECK of ${item.name} finds each kind of drift`, async () => {
      run(node, item.prepare);
      for (const drift of item.drifts) {
        const pod = lab.pod();
        await tryOne(item, drift, { pod, node });
        lab.remove(pod);
        await delay(20);
      }
    });
  }
}

async function tryOne(
  item: DriftCase,
  drift: Drift,
  { pod, node }: { readonly pod: Place; readonly node: Place },
): Promise<void> {
  // Or each attachment waits a second or two for nobody to answer.
  run(pod, "sysctl -qw net.ipv6.conf.default.accept_dad=0");
  run(pod, item.preparePod);
  const chain = await attach(item, pod);
  try {
    await check(chain);
    const names = [`PORT=${portOf(pod, node)}`, `POD=${pod.name}`];
    run(pod, drift.pod);
    run(node, drift.node, names);
    await assert.rejects(check(chain), (error: Error) => {
      assert.match(error.message, drift.says, drift.what);
      return true;
    });
  } finally {
    await detach(chain).catch(() => undefined);
  }
}

function run(place: Place, script: string | undefined, variables: readonly string[] = []): void {
  if (script !== undefined) place.run("env", ...variables, "sh", "-ec", script);
}

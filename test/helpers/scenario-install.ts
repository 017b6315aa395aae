import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import type { Watched } from "./conf-watch.ts";
import { ScenarioNode } from "./scenario-node.ts";

/** The configuration of a node before podnet: its plugin is the scenario node's own executable. */
const theirs = JSON.stringify({
  cniVersion: "1.0.0",
  name: "theirs",
  plugins: [{ type: "holder" }],
});
const theirName = "10-theirs.conflist";
const ownName = "00-podnet.conflist";

/** What is put in place and taken away on a node, and how it was before. */
export interface InstallEpisode {
  readonly name: string;
  /** Podnet's files before the daemon starts. */
  readonly before: "none" | "older" | "half";
  /** What happens once they are in place. */
  readonly later?: "taken away" | "uninstalled";
  /** A runtime finds podnet at every moment. */
  readonly always?: true;
}

export const installEpisodes: readonly InstallEpisode[] = [
  { name: "a node without podnet", before: "none" },
  { name: "a node that lost power while podnet was being put in place", before: "half" },
  { name: "a node with an older podnet", before: "older", always: true },
  { name: "a node from which podnet's files are taken", before: "none", later: "taken away" },
  { name: "a node that podnet leaves", before: "none", later: "uninstalled" },
];

/** A node whose daemon puts the stub and podnet's configuration in place, beside those of another network. */
export class InstallNode implements AsyncDisposable {
  readonly scenario: ScenarioNode;
  readonly #stub = readFileSync(resolve("dist/bin/podnet"));
  readonly #own: string;

  private constructor(scenario: ScenarioNode, own: string) {
    this.scenario = scenario;
    this.#own = own;
  }

  static async start(wrap?: (command: readonly string[]) => string[]): Promise<InstallNode> {
    const scenario = await ScenarioNode.start(() => ({}), {
      config: { install: true },
      ...(wrap === undefined ? {} : { wrap }),
    });
    try {
      writeFileSync(join(scenario.daemon.confDir, theirName), theirs);
      const path = join(scenario.daemon.confDir, ownName);
      await eventually("podnet is installed", () => textOf(path) !== undefined);
      return new InstallNode(scenario, textOf(path) ?? "");
    } catch (error) {
      await scenario[Symbol.asyncDispose]();
      throw error;
    }
  }

  get watched(): Watched {
    return { confDir: this.#conf, confName: ownName, stub: this.#stubPath };
  }

  /** Makes podnet's files what they are before an episode. The daemon must not run. */
  prepare({ before }: InstallEpisode): void {
    for (const folder of [this.#bin, this.#conf])
      for (const name of readdirSync(folder))
        if (name.includes("podnet")) rmSync(join(folder, name));
    if (before === "older") {
      // Bytes behind an executable's end mean nothing.
      const older = Buffer.concat([this.#stub, Buffer.from("older")]);
      writeFileSync(this.#stubPath, older, { mode: 0o755 });
      const text = this.#own.replace(/"daemonWaitDel": \d+/, '"daemonWaitDel": 1');
      writeFileSync(this.#ownPath, text, { mode: 0o600 });
    }
    if (before === "half") {
      const half = this.#stub.subarray(0, 100_000);
      writeFileSync(join(this.#bin, ".podnet.podnet-new"), half, { mode: 0o755 });
      const text = this.#own.slice(0, 40);
      writeFileSync(join(this.#conf, `.${ownName}.podnet-new`), text, { mode: 0o600 });
    }
  }

  /** Lives through an episode until all is as it should be, or until the daemon is dead (false). */
  async live(episode: InstallEpisode): Promise<boolean> {
    const over = new AbortController();
    const dead = this.scenario.daemon.ended().then(() => {
      over.abort();
      return false;
    });
    // A request on which the daemon dies fails a moment before the kernel tells.
    const happened = this.#happen(episode, over.signal).catch(async (error: unknown) => {
      await Promise.race([dead, sleep(500)]);
      if (!over.signal.aborted) throw error;
      return false;
    });
    return await Promise.race([dead, happened]);
  }

  async #happen({ later }: InstallEpisode, over: AbortSignal): Promise<boolean> {
    await eventually("podnet is in place", () => over.aborted || this.#isInstalled());
    over.throwIfAborted();
    if (later === "taken away") {
      rmSync(this.#ownPath);
      rmSync(this.#stubPath);
      await eventually("podnet is back", () => over.aborted || this.#isInstalled());
    } else if (later === "uninstalled") {
      const dispatcher = new Agent({ connect: { socketPath: this.scenario.daemon.socket } });
      const answer = await request("http://podnetd/v1/uninstall?force=false", {
        method: "POST",
        dispatcher,
      });
      const text = await answer.body.text();
      await dispatcher.close();
      assert.equal((JSON.parse(text) as { done: boolean }).done, true, text);
    }
    return true;
  }

  /** What a runtime must find whenever it looks: a whole configuration, and the executable that it names. */
  assertUsable({ always, later }: InstallEpisode): void {
    const text = textOf(this.#ownPath);
    assert.equal(textOf(join(this.#conf, theirName)), theirs, "another network's file");
    if (text === undefined) {
      assert.ok(always !== true, `"${ownName}" is gone`);
      return;
    }
    const { plugins } = JSON.parse(text) as { plugins: { type: string }[] };
    assert.deepEqual(
      plugins.map(({ type }) => type),
      ["podnet"],
    );
    // Who took the executable made it miss, and the configuration comes back first: pods then wait, instead of starting without podnet.
    if (later === "taken away" && !existsSync(this.#stubPath)) return;
    const found = readFileSync(this.#stubPath);
    assert.ok(found.subarray(0, this.#stub.length).equals(this.#stub), "the executable is whole");
    assert.equal(statSync(this.#stubPath).mode & 0o777, 0o755, "the executable's mode");
  }

  /** Nothing too many or too few in the folders when an episode is over. */
  async assertEnd({ later }: InstallEpisode): Promise<void> {
    const isGone = later === "uninstalled";
    const bin = isGone ? ["holder"] : ["holder", "podnet"];
    const conf = isGone ? [theirName] : [ownName, theirName];
    const isEnd = () => same(readdirSync(this.#bin), bin) && same(readdirSync(this.#conf), conf);
    await eventually(`${bin.join(" ")}, ${conf.join(" ")} and nothing else`, isEnd);
    if (isGone) return;
    this.assertUsable({ name: "", before: "none", always: true });
    assert.equal(textOf(this.#ownPath), this.#own);
    assert.ok(readFileSync(this.#stubPath).equals(this.#stub), "the executable is this podnet's");
    assert.equal(statSync(this.#ownPath).mode & 0o777, 0o600);
  }

  get #bin(): string {
    return this.scenario.binDir;
  }

  get #conf(): string {
    return this.scenario.daemon.confDir;
  }

  get #stubPath(): string {
    return join(this.#bin, "podnet");
  }

  get #ownPath(): string {
    return join(this.#conf, ownName);
  }

  #isInstalled(): boolean {
    const size = statSync(this.#stubPath, { throwIfNoEntry: false })?.size;
    return textOf(this.#ownPath) === this.#own && size === this.#stub.length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scenario[Symbol.asyncDispose]();
  }
}

async function eventually(what: string, holds: () => boolean): Promise<void> {
  for (const until = Date.now() + 15_000; !holds(); await sleep(10))
    if (Date.now() > until) assert.fail(`not within 15 s: ${what}`);
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

function same(found: readonly string[], wanted: readonly string[]): boolean {
  return JSON.stringify(found.toSorted()) === JSON.stringify(wanted);
}

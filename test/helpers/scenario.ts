import { setTimeout as sleep } from "node:timers/promises";
import type { Expected, Fault } from "./scenario-fault.ts";
import type { ScenarioNode, ScenarioPod } from "./scenario-node.ts";
import { difference, differenceTable, isSame, type Row } from "./scenario-state.ts";

export class ScenarioFailure extends Error {
  override readonly name = "ScenarioFailure";
}

/** Attaches and detaches once without a fault, after a round that makes what stays for good (bridges, tables). */
export async function rehearse(
  node: ScenarioNode,
  networks: readonly unknown[],
): Promise<Expected> {
  const first = node.pod();
  await node.must("ADD", first, { networks });
  await node.must("DEL", first);
  node.lab.remove(first.place);
  const pod = node.pod();
  await settled(node, [pod], 500);
  const clean = node.survey(pod);
  const points = { ADD: 0, DEL: 0, GC: 0, CHECK: 0 };
  points.ADD = await counted(node, () => node.must("ADD", pod, { networks }));
  const attached = await settled(node, [pod]);
  points.CHECK = await counted(node, () => node.must("CHECK", pod));
  await expect(node, attached, { pods: [pod], when: "after CHECK" });
  points.DEL = await counted(node, () => node.must("DEL", pod));
  await expect(node, clean, { pods: [pod], when: "after DEL without a fault" });
  await node.must("ADD", pod, { networks });
  points.GC = await counted(node, () => node.collect([], pod));
  await expect(node, clean, { pods: [pod], when: "after GC without a fault" });
  node.lab.remove(pod.place);
  await node.relive();
  return { clean, attached, points, starting: node.passed };
}

async function counted(node: ScenarioNode, work: () => Promise<unknown>): Promise<number> {
  const before = node.passed;
  await work();
  return node.passed - before;
}

/** The survey once it stays the same for a while: carrier and duplicate address detection take their time. */
async function settled(
  node: ScenarioNode,
  pods: readonly ScenarioPod[],
  pause = 60,
): Promise<Row[]> {
  let rows = node.survey(...pods);
  for (let turn = 0; turn < 20; turn += 1) {
    await sleep(pause);
    const next = node.survey(...pods);
    if (isSame(difference(rows, next))) return next;
    rows = next;
  }
  return rows;
}

export interface Expectation {
  readonly pods: readonly ScenarioPod[];
  /** For the message. */
  readonly when: string;
  readonly seconds?: number;
  /** Rows (kind and text) that don't count. */
  readonly except?: RegExp;
}

/** Waits until the node is as it should be. Throws the difference as a table when it isn't within `seconds`. */
export async function expect(
  node: ScenarioNode,
  rows: readonly Row[],
  { pods, when, seconds = 3, except }: Expectation,
): Promise<void> {
  const until = Date.now() + seconds * 1000 * node.slowness;
  for (let pause = 0; ; pause = Math.min(pause * 2 + 20, 300)) {
    const counts = ({ kind, text }: Row) => except?.test(`${kind} ${text}`) !== true;
    const found = difference(rows.filter(counts), node.survey(...pods).filter(counts));
    if (isSame(found)) return;
    if (Date.now() > until) throw new ScenarioFailure(`${when}:\n${differenceTable(found)}`);
    await sleep(pause);
  }
}

/**
 * Plays one fault and what follows, and compares the node with what it should be. Returns how often the daemon was killed: 0 when the
 * verb has fewer points. Throws a ScenarioFailure with a table.
 */
export async function play(node: ScenarioNode, fault: Fault, expected: Expected): Promise<number> {
  const scene = new Scene(node, fault, expected);
  try {
    return await scene.play();
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    const steps = scene.steps.map((step) => `  ${step.slice(0, 160)}`).join("\n");
    throw new ScenarioFailure(
      `${JSON.stringify(fault)}: ${text}\nthe daemon's last effects before it was killed:\n${steps}\nits log:\n${node.daemon.log.slice(-2000)}`,
      { cause: error },
    );
  }
}

class Scene {
  steps: readonly string[] = [];
  readonly #node: ScenarioNode;
  readonly #fault: Fault;
  readonly #expected: Expected;
  readonly #pod: ScenarioPod;
  /** Ends when a daemon that is to be killed again was, and is up. */
  #revived: Promise<void> | undefined;
  #kills = 0;
  readonly #over = new AbortController();

  constructor(node: ScenarioNode, fault: Fault, expected: Expected) {
    this.#node = node;
    this.#fault = fault;
    this.#expected = expected;
    this.#pod = node.pod();
  }

  async play(): Promise<number> {
    try {
      return await this.#play();
    } finally {
      this.#over.abort();
      this.#node.disarm();
    }
  }

  async #play(): Promise<number> {
    const { verb, networks } = this.#fault;
    if (verb !== "ADD") await this.#node.must("ADD", this.#pod, { networks });
    const runtime = new AbortController();
    const point = this.#node.passed + this.#fault.point;
    const call = this.#begin(point, runtime.signal);
    await Promise.race([this.#node.daemon.ended(), call]);
    this.steps = this.#node.steps.slice(-4);
    // The stub may tell of the daemon's end before the kernel does.
    if (this.#node.passed >= point) await this.#node.daemon.ended();
    else {
      this.#node.disarm();
      await this.#clear();
      return 0;
    }
    const waits = this.#fault.aftermath === "the stub repeats";
    if (!waits) runtime.abort();
    this.#kills = 1 + (await this.#node.recover(this.#fault.again));
    if (this.#fault.again !== undefined) {
      this.#revived = this.#node.revive(this.#over.signal, () => {
        this.#kills += 1;
      });
    }
    const answer = await call;
    if (waits && answer.status !== 0) throw new Error(`the repeated call failed: ${answer.stdout}`);
    await this.#follow();
    return this.#kills;
  }

  #begin(point: number, signal: AbortSignal) {
    const { verb, networks } = this.#fault;
    this.#node.arm(point);
    const valid = verb === "GC" ? { "cni.dev/valid-attachments": [] } : {};
    const config = { daemonWait: 20 * this.#node.slowness, ...valid };
    return this.#node.call(verb, this.#pod, {
      ...(verb === "ADD" ? { networks } : {}),
      config,
      signal,
    });
  }

  async #follow(): Promise<void> {
    const { aftermath: then, verb } = this.#fault;
    if (then === "the stub repeats" || then === "same ids") await this.#repeat();
    else if (then.startsWith("new sandbox")) await this.#anew();
    else if (then === "DEL") await this.#must("DEL");
    else if (then === "DEL without namespace") {
      this.#node.lab.remove(this.#pod.place);
      await this.#must("DEL");
    } else if (then === "nothing but GC") {
      this.#node.lab.remove(this.#pod.place);
      await this.#collect([]);
    }
    const isAttached = verb === "ADD" || verb === "CHECK";
    if (isAttached && (then === "the stub repeats" || then === "same ids")) await this.#last();
    await this.#end();
  }

  async #must(verb: string, pod = this.#pod, networks?: readonly unknown[]): Promise<void> {
    await this.#retried(() =>
      this.#node.must(verb, pod, networks === undefined ? {} : { networks }),
    );
  }

  /** A daemon that is to be killed twice may go in the middle of what follows: the runtime then comes again, as ever. */
  async #retried(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      // The stub tells of it a moment before the kernel does.
      await sleep(300);
      if (this.#kills < 2) throw error;
      await this.#revived;
      await work();
    }
  }

  async #repeat(): Promise<void> {
    const { verb, networks, aftermath: then } = this.#fault;
    if (then === "same ids") {
      if (verb === "GC") await this.#collect([]);
      else await this.#must(verb, this.#pod, verb === "ADD" ? networks : undefined);
    }
  }

  /** The pod is attached as if nothing had been: then it goes. */
  async #last(): Promise<void> {
    await expect(this.#node, this.#expected.attached, {
      pods: [this.#pod],
      when: `after the repeated ${this.#fault.verb}`,
    });
    await this.#must("CHECK");
    await this.#must("DEL");
  }

  async #anew(): Promise<void> {
    const { aftermath: then, networks } = this.#fault;
    const newer = this.#node.pod(this.#pod.uid);
    if (then.endsWith("DEL before")) await this.#must("DEL");
    const isIn = await this.#attachBeside(newer);
    if (then.endsWith("DEL after")) await this.#must("DEL");
    this.#node.lab.remove(this.#pod.place);
    if (then.endsWith("GC")) await this.#collect([newer]);
    if (!isIn) await this.#must("ADD", newer, networks);
    await expect(this.#node, this.#expected.attached, {
      pods: [newer],
      when: "with the pod's new sandbox",
    });
    await this.#must("CHECK", newer);
    await this.#must("DEL", newer);
    await expect(this.#node, this.#expected.clean, {
      pods: [newer],
      when: "after the new sandbox' DEL",
    });
    this.#node.lab.remove(newer.place);
  }

  /** Beside the pod's old sandbox, if that is still there. false: that has what one sandbox at a time can have, and the error says so. */
  async #attachBeside(newer: ScenarioPod): Promise<boolean> {
    try {
      await this.#must("ADD", newer, this.#fault.networks);
      return true;
    } catch (error) {
      const text = String(error);
      if (/(has it|it belongs to)/.test(text) && text.includes(`\\"${this.#pod.id}\\"`))
        return false;
      throw error;
    }
  }

  #collect(left: readonly ScenarioPod[]): Promise<void> {
    return this.#retried(() => this.#node.collect(left, this.#pod));
  }

  async #end(): Promise<void> {
    const { aftermath: then, verb } = this.#fault;
    const isGone = then === "nothing but GC" || then === "DEL without namespace";
    // A GC that was cut off before it began frees nothing by itself; and one sandbox' empty survey needs another empty sandbox.
    const pod = isGone || then.startsWith("new") ? this.#node.pod() : this.#pod;
    const seconds = then === "nobody" ? 15 : 3;
    if (then === "nobody" && verb === "DEL") await this.#finishedOrRetried();
    await expect(this.#node, this.#expected.clean, {
      pods: [pod],
      when: `at the end (${then})`,
      seconds,
    });
    this.#node.lab.remove(pod.place);
    this.#node.lab.remove(this.#pod.place);
  }

  /** A DEL that was killed before its first effect left no trace: then the runtime must come again, and does. */
  async #finishedOrRetried(): Promise<void> {
    if (this.#fault.point <= 1) await this.#must("DEL");
  }

  /** No fault came: gives back what there is. */
  async #clear(): Promise<void> {
    await this.#node.must("DEL", this.#pod);
    this.#node.lab.remove(this.#pod.place);
  }
}

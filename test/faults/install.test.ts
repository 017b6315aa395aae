import assert from "node:assert/strict";
import { mkdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ConfWatch, type Watching } from "../helpers/conf-watch.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { Random } from "../helpers/random.ts";
import { type InstallEpisode, InstallNode, installEpisodes } from "../helpers/scenario-install.ts";

// kill -9 at every step of putting the stub and the configuration in place, of putting them back, and of taking them away. Whenever the
// daemon dies a runtime finds either no podnet or a whole one, and at the end nothing is too many or too few. FAULTS=all plays each point,
// and each once more with a second kill; else a few that are drawn.

const all = process.env["FAULTS"] === "all";
const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const few = 3;

let node: InstallNode;
let watch: ConfWatch | undefined;
const renew = async () => {
  node = await InstallNode.start();
};
before(renew);
after(async () => {
  await node[Symbol.asyncDispose]();
});
afterEach(async (context) => {
  await unwatch();
  if (!("passed" in context) || context.passed) return;
  await node[Symbol.asyncDispose]();
  await renew();
});

for (const episode of installEpisodes) {
  test(`${episode.name}: killed anywhere, podnet is whole or not there (FAULTS_SEED=${seed})`, async () => {
    await begin(episode);
    assert.ok(await node.live(episode), "without a fault it does not end");
    await end(episode);
    const points = node.scenario.passed;
    assert.ok(points > 4, `${points} points are too few`);
    reportFigures({ "fault points of the installation": points });
    const random = new Random(seed + episode.name.length);
    for (const point of all ? range(points) : range(points).filter(() => chosen(random, points)))
      await played(episode, [point, ...(random.next() < 0.5 ? [1 + random.below(points)] : [])]);
  });
}

test("an executable that can't be put in place is tried now and then, not at each file that the last attempt made", async () => {
  await node.scenario.daemon.kill();
  const [anyEpisode] = installEpisodes;
  assert.ok(anyEpisode);
  node.prepare(anyEpisode);
  const blocked = join(node.scenario.binDir, "podnet");
  mkdirSync(blocked);
  await node.scenario.relive();
  await sleep(2_000);
  const attempts = node.scenario.steps.filter((step) => step.endsWith("bin/.podnet.podnet-new"));
  assert.match(node.scenario.daemon.log, /"InstallFailed".*EISDIR/);
  assert.ok(attempts.length >= 2 && attempts.length < 40, `${attempts.length} effects`);
  rmdirSync(blocked);
  assert.ok(await node.live(anyEpisode));
  await node.assertEnd(anyEpisode);
});

function chosen(random: Random, points: number): boolean {
  return random.next() < few / points;
}

/** With no daemon: what an episode finds. Then the daemon starts, perhaps to die. */
async function begin(episode: InstallEpisode, point?: number): Promise<boolean> {
  await node.scenario.daemon.kill();
  node.prepare(episode);
  if (episode.always === true) watch = await ConfWatch.start(node.watched);
  return await node.scenario.relive(point);
}

/** At its end: nothing too many or too few, and where a runtime is to find podnet always, it did at every moment since the begin. */
async function end(episode: InstallEpisode): Promise<void> {
  await node.assertEnd(episode);
  assert.deepEqual((await unwatch())?.misses ?? [], []);
}

async function unwatch(): Promise<Watching | undefined> {
  const ended = watch;
  watch = undefined;
  return await ended?.end();
}

/** Dies at these points of one life each, and then lives. */
async function played(episode: InstallEpisode, points: readonly number[]): Promise<void> {
  const [first = 0, ...others] = points;
  try {
    let kills = await outcome(episode, await begin(episode, first));
    for (const point of others) kills += await outcome(episode, await node.scenario.relive(point));
    await node.scenario.relive();
    assert.ok(await node.live(episode), "a daemon without a fault died");
    await end(episode);
    const scenarios = { "scenarios with a kill": kills > 0 ? 1 : 0, "kills of the daemon": kills };
    reportFigures({ ...scenarios, "scenarios that left something": 0 });
  } catch (error) {
    reportFigures({ "scenarios that left something": 1 });
    const text = error instanceof Error ? error.message : String(error);
    const { daemon, steps } = node.scenario;
    throw new Error(
      `killed at ${points.join(" and ")}: ${text}\n${steps.slice(-4).join("\n")}\nits log:\n${daemon.log.slice(-2000)}`,
      { cause: error },
    );
  }
}

/** How often it died: at its start, later, or not at all. */
async function outcome(episode: InstallEpisode, isUp: boolean): Promise<number> {
  const died = !isUp || !(await node.live(episode));
  node.assertUsable(episode);
  return died ? 1 : 0;
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, at) => at + 1);
}

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { reportFigures } from "../helpers/faults-report.ts";
import { Random } from "../helpers/random.ts";
import { play, rehearse } from "../helpers/scenario.ts";
import {
  type Aftermath,
  aftermaths,
  type Expected,
  type Fault,
  type FaultVerb,
} from "../helpers/scenario-fault.ts";
import {
  type AttachmentKind,
  attachmentKinds,
  kindNetworks,
  prepareNode,
} from "../helpers/scenario-kinds.ts";
import { ScenarioNode } from "../helpers/scenario-node.ts";

// kill -9 at every step of ADD, DEL, GC and CHECK, for each kind of attachment, with every way in which a runtime goes on, and for some of them
// once more while that goes on. FAULTS=all plays every point with every aftermath; else as many as FAULTS_SECONDS allow, drawn with
// FAULTS_SEED. Both: those of all, in an order that is drawn, until the time is over. FAULTS_VERBS=GC,CHECK plays those verbs only.

const all = process.env["FAULTS"] === "all";
const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const seconds = Number(process.env["FAULTS_SECONDS"] ?? (all ? Number.POSITIVE_INFINITY : 100));
const milliseconds = (seconds * 1000) / attachmentKinds.length;
const allVerbs: readonly FaultVerb[] = ["ADD", "DEL", "GC", "CHECK"];
const wanted = process.env["FAULTS_VERBS"]?.split(",");
const verbs = allVerbs.filter((verb) => wanted?.includes(verb) ?? true);
/** Failures of one kind of attachment after which the rest of it is left alone. */
const mostFailures = 5;
const start = () => ScenarioNode.start(kindNetworks, { prepare: prepareNode });

let node: ScenarioNode;
before(async () => {
  node = await start();
});
after(async () => {
  await node[Symbol.asyncDispose]();
});
afterEach(async (context) => {
  if (!("passed" in context) || context.passed) return;
  await renew();
});

/** What one failure leaves must not fail the others. */
async function renew(): Promise<void> {
  await node[Symbol.asyncDispose]();
  node = await start();
}

for (const kind of attachmentKinds) {
  const { name, networks } = kind;
  test(`${name}: killed anywhere, nothing too many or too few (FAULTS_SEED=${seed})`, async () => {
    let expected = await rehearse(node, networks);
    const { points } = expected;
    const total = verbs.reduce((sum, verb) => sum + points[verb], 0);
    reportFigures({ "kinds of attachment": 1, "fault points of a verb, all kinds": total });
    const failures: string[] = [];
    for (const fault of all ? everyFault(kind, expected) : someFaults(kind, expected)) {
      const failure = await failureOf(fault, expected);
      if (failure === undefined) continue;
      if (failures.push(failure) === mostFailures) break;
      await renew();
      expected = await rehearse(node, networks);
    }
    assert.deepEqual(failures, [], failures.join("\n\n"));
  });
}

/** Plays it; undefined: nothing was too many or too few. */
async function failureOf(fault: Fault, expected: Expected): Promise<string | undefined> {
  try {
    const kills = await play(node, fault, expected);
    reportFigures({
      "scenarios that left something": 0,
      "scenarios with a kill": kills > 0 ? 1 : 0,
      [`of these, killed again while a killed ${fault.verb} was recovered from`]: kills > 1 ? 1 : 0,
      "kills of the daemon": kills,
    });
    return undefined;
  } catch (error) {
    reportFigures({ "scenarios that left something": 1 });
    return error instanceof Error ? error.message : String(error);
  }
}

test("faults that once left something leave nothing", async () => {
  // The claim on a device, when the daemon ended between writing down that it is back and ending the claim.
  const networks = ["device"];
  const expected = await rehearse(node, networks);
  for (let point = 7; point <= expected.points.DEL; point += 1)
    await play(node, { networks, verb: "DEL", point, aftermath: "same ids" }, expected);
  // Elements of port mappings, when an interrupted ADD was given back by two DELs of which the first was cut off.
  const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: "TCP" }];
  const ports = [{ name: "ports", portMappings }];
  const mapped = await rehearse(node, ports);
  for (const again of [4, 5, 6, 7, 8]) {
    const fault: Fault = { networks: ports, verb: "ADD", point: 16, aftermath: "DEL", again };
    await play(node, fault, mapped);
  }
});

test("killed in the middle of each verb, and again in the middle of what makes up for it", async () => {
  const networks = ["masked"];
  const expected = await rehearse(node, networks);
  const { points, starting } = expected;
  for (const verb of allVerbs) {
    for (const into of [1, 3]) {
      const point = Math.ceil(points[verb] / 2);
      const again = starting + Math.min(into, points[verb]);
      const fault: Fault = { networks, verb, point, aftermath: "same ids", again };
      assert.equal(await play(node, fault, expected), 2, JSON.stringify(fault));
    }
  }
});

/** A link that ends with its namespace can't be given back after it. */
function aftermathsOf(
  verb: FaultVerb,
  { endsWithNamespace }: AttachmentKind,
): readonly Aftermath[] {
  if (endsWithNamespace !== true) return aftermaths[verb];
  return aftermaths[verb].filter((one) => !/without namespace|GC/.test(one));
}

/** A point of the daemon's next life: of its start, of what it repairs by itself, or of the repeated verb. */
function secondPoint(verb: FaultVerb, { points, starting }: Expected, random: Random): number {
  return 1 + random.below(starting + points[verb]);
}

function everyFault(kind: AttachmentKind, expected: Expected): Iterable<Fault> {
  const { networks } = kind;
  const random = new Random(seed);
  const faults: Fault[] = [];
  for (const verb of verbs) {
    for (let point = 1; point <= expected.points[verb]; point += 1) {
      for (const aftermath of aftermathsOf(verb, kind)) {
        const fault = { networks, verb, point, aftermath };
        faults.push(fault);
        if (random.next() < 0.25)
          faults.push({ ...fault, again: secondPoint(verb, expected, random) });
      }
    }
  }
  reportFigures({ "scenarios there are for the verbs": faults.length });
  const order = faults.map((fault) => ({ fault, at: random.next() }));
  return untilLate(order.toSorted((a, b) => a.at - b.at).map(({ fault }) => fault));
}

function* untilLate(faults: readonly Fault[]): Generator<Fault> {
  const until = Date.now() + milliseconds;
  for (const fault of faults) {
    if (Date.now() > until) return;
    yield fault;
  }
}

function* someFaults(kind: AttachmentKind, expected: Expected): Generator<Fault> {
  const { name, networks } = kind;
  const random = new Random(seed + name.length);
  const steps = verbs.flatMap((verb) =>
    Array.from({ length: expected.points[verb] }, (_, at) => ({ verb, point: at + 1 })),
  );
  const until = Date.now() + milliseconds;
  do {
    const { verb, point } = random.pick(steps);
    const aftermath = random.pick(aftermathsOf(verb, kind));
    const again = random.next() < 0.3 ? { again: secondPoint(verb, expected, random) } : {};
    yield { networks, verb, point, aftermath, ...again };
  } while (Date.now() < until);
}

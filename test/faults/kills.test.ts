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

// kill -9 at every step of ADD, DEL and GC, for each kind of attachment, with every way in which a runtime goes on.
// FAULTS=all plays every point with every aftermath; else as many as FAULTS_SECONDS allow, drawn with FAULTS_SEED.

const all = process.env["FAULTS"] === "all";
const seed = Number(process.env["FAULTS_SEED"] ?? Date.now() % 1_000_000_007);
const milliseconds = (Number(process.env["FAULTS_SECONDS"] ?? 100) * 1000) / attachmentKinds.length;
const verbs: readonly FaultVerb[] = ["ADD", "DEL", "GC"];
const start = () => ScenarioNode.start(kindNetworks, { prepare: prepareNode });

let node: ScenarioNode;
before(async () => {
  node = await start();
});
after(async () => {
  await node[Symbol.asyncDispose]();
});
// What one failure leaves must not fail the others.
afterEach(async (context) => {
  if (!("passed" in context) || context.passed) return;
  await node[Symbol.asyncDispose]();
  node = await start();
});

for (const kind of attachmentKinds) {
  const { name, networks } = kind;
  test(`${name}: killed anywhere, nothing too many or too few (FAULTS_SEED=${seed})`, async () => {
    const expected = await rehearse(node, networks);
    const { points } = expected;
    const total = points.ADD + points.DEL + points.GC;
    reportFigures({ "kinds of attachment": 1, "fault points of a verb, all kinds": total });
    for (const fault of all ? everyFault(kind, points) : someFaults(kind, points)) {
      const kills = await played(fault, expected);
      reportFigures({ "scenarios with a kill": kills > 0 ? 1 : 0, "kills of the daemon": kills });
    }
  });
}

/** As play; what a scenario left too many or too few is counted before it fails. */
async function played(fault: Fault, expected: Expected): Promise<number> {
  try {
    const kills = await play(node, fault, expected);
    reportFigures({ "scenarios that left something": 0 });
    return kills;
  } catch (error) {
    reportFigures({ "scenarios that left something": 1 });
    throw error;
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

type Points = Readonly<Record<FaultVerb, number>>;

/** A link that ends with its namespace can't be given back after it. */
function aftermathsOf(
  verb: FaultVerb,
  { endsWithNamespace }: AttachmentKind,
): readonly Aftermath[] {
  if (endsWithNamespace !== true) return aftermaths[verb];
  return aftermaths[verb].filter((one) => !/without namespace|GC/.test(one));
}

function* everyFault(kind: AttachmentKind, points: Points): Generator<Fault> {
  const { networks } = kind;
  const random = new Random(seed);
  for (const verb of verbs) {
    for (let point = 1; point <= points[verb]; point += 1) {
      for (const aftermath of aftermathsOf(verb, kind)) {
        yield { networks, verb, point, aftermath };
        if (random.next() < 0.25)
          yield { networks, verb, point, aftermath, again: 1 + random.below(20) };
      }
    }
  }
}

function* someFaults(kind: AttachmentKind, points: Points): Generator<Fault> {
  const { name, networks } = kind;
  const random = new Random(seed + name.length);
  const until = Date.now() + milliseconds;
  do {
    const verb = random.pick(verbs);
    const point = 1 + random.below(points[verb]);
    const aftermath = random.pick(aftermathsOf(verb, kind));
    const again = random.next() < 0.3 ? { again: 1 + random.below(20) } : {};
    yield { networks, verb, point, aftermath, ...again };
  } while (Date.now() < until);
}

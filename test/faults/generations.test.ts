import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { reportFigures } from "../helpers/faults-report.ts";
import {
  addressFiles,
  captureGeneration,
  exchangedVerbs,
  exchangeWith,
  generalMessage,
  linesOf,
  placesOf,
  recordFile,
} from "../helpers/generation-capture.ts";
import {
  type Exchange,
  type Generation,
  generations,
  particular,
  particularText,
  readGeneration,
  type Written,
} from "../helpers/generations.ts";
import { thisBuild } from "../helpers/previous-build.ts";
import { exchangeRaw, joinMessage } from "../helpers/raw-socket.ts";
import { expect, rehearse } from "../helpers/scenario.ts";
import type { Expected } from "../helpers/scenario-fault.ts";
import { attachmentKinds, kindNetworks, prepareNode } from "../helpers/scenario-kinds.ts";
import { ScenarioNode, type ScenarioPod } from "../helpers/scenario-node.ts";

// What each generation of podnet wrote and said, kept as fixtures, so that this build reads it although the older build can't be had.

const [newest = "", ...older] = generations().toReversed();

test(`this build writes and says what generation ${newest} does`, async () => {
  assert.deepEqual(
    await captureGeneration(thisBuild),
    readGeneration(newest),
    "records, addresses or the stub's protocol have changed. If they are meant to: see that neighbours.test.ts passes, and keep the new form by node test/faults/new-generation.ts",
  );
});

for (const name of older) {
  const generation = readGeneration(name);
  test(`pods of generation ${name} are checked, kept by GC and deleted, with and without their namespaces`, async () => {
    await using node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
    const clean = await asNew(node);
    for (const [at, kind] of attachmentKinds.entries()) {
      const pod = node.pod();
      await node.must("ADD", pod, { networks: kind.networks });
      await node.daemon.stop();
      makeOlder(node, pod, writtenIn(generation, kind.name));
      await node.recover();
      await node.must("CHECK", pod);
      await node.collect([pod], pod);
      await node.must("CHECK", pod);
      if (at % 2 === 1 && kind.endsWithNamespace !== true) node.lab.remove(pod.place);
      await node.must("DEL", pod);
      assert.ok(!existsSync(recordFile(node, pod)));
      node.lab.remove(pod.place);
      await expect(node, clean, { pods: [node.pod()], when: `after DEL of ${kind.name}` });
      reportFigures({ "records of older generations read": 1 });
    }
  });

  test(`a stub of generation ${name} is answered as one of this build`, async () => {
    await using node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
    const pod = node.pod();
    const places = placesOf(node, pod);
    for (const verb of exchangedVerbs) {
      const { request } = exchangeIn(generation, verb);
      const bytes = joinMessage({ ...request, body: particularText(request.body, places) });
      const answer = generalMessage(await exchangeRaw(node.daemon.socket, bytes), places);
      assert.deepEqual(answer, exchangeIn(readGeneration(newest), verb).answer, verb);
    }
  });

  test(`a daemon of generation ${name} is understood by this build's stub`, async () => {
    await using node = await ScenarioNode.start(kindNetworks, { prepare: prepareNode });
    const pod = node.pod();
    for (const verb of exchangedVerbs) {
      const { answer } = exchangeIn(generation, verb);
      const call = { pod, verb, stub: thisBuild.stub, answer: joinMessage(answer) };
      const { status, stdout } = await exchangeWith(node, call);
      assert.equal(status, answer.head.startsWith("HTTP/1.1 200 ") ? 0 : 1, verb);
      assert.equal(stdout.trim(), answer.body.trim(), verb);
    }
  });
}

/** Each kind once, and then as on a new node: addresses are given out in turn, and only from the first on they are those of the fixtures. */
async function asNew(node: ScenarioNode): Promise<Expected["clean"]> {
  for (const { networks } of attachmentKinds) {
    const pod = node.pod();
    await node.must("ADD", pod, { networks });
    await node.must("DEL", pod);
    node.lab.remove(pod.place);
  }
  const { clean } = await rehearse(node, ["bridge", "pair"]);
  await node.daemon.stop();
  for (const name of readdirSync(node.addresses))
    rmSync(join(node.addresses, name), { recursive: true });
  await node.recover();
  return clean;
}

function writtenIn({ nodes }: Generation, kind: string): Written {
  const written = nodes[kind];
  assert.ok(written, `the generation has no ${kind}`);
  return written;
}

function exchangeIn({ exchanges }: Generation, verb: string): Exchange {
  const exchange = exchanges[verb];
  assert.ok(exchange, `the generation has no ${verb}`);
  return exchange;
}

/** Puts files of an older generation in the place of this build's, with what is real on this node in the place of the marks. */
function makeOlder(node: ScenarioNode, pod: ScenarioPod, written: Written): void {
  const places = placesOf(node, pod);
  const real = linesOf(node, pod);
  const lines = written.record.map((line, at) =>
    JSON.stringify(particular(line, real[at], places)),
  );
  writeFileSync(recordFile(node, pod), `${lines.join("\n")}\n`);
  for (const file of addressFiles(node)) rmSync(join(node.addresses, file));
  for (const [file, text] of Object.entries(written.addresses)) {
    mkdirSync(join(node.addresses, dirname(file)), { recursive: true });
    writeFileSync(join(node.addresses, file), particularText(text.join("\n"), places));
  }
}

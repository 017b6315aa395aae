import assert from "node:assert/strict";
import { test } from "node:test";
import { TlsKeeper } from "../../../../daemon/controller/admit/tls-keeper.ts";
import { nextStep } from "../../../../daemon/controller/admit/tls-state.ts";
import { openLog } from "../../../../lib/base/log.ts";
import { endOf, issueServingPair } from "../../../../lib/kube/serving-pair.ts";
import { TlsApi } from "./tls-api.ts";

const names = ["podnet-controller.podnet-system.svc"];
const day = 86_400_000;

/** A keeper; without `clock` it has none of its own. */
function keeperOf(api: TlsApi, clock?: () => number) {
  const served: string[] = [];
  const client = api.api.client();
  const keeper = new TlsKeeper({
    client,
    namespace: "podnet-system",
    names,
    log: openLog("silent"),
    serve: ({ cert }) => served.push(cert),
    settle: 0,
    ...(clock === undefined ? {} : { clock }),
  });
  return { keeper, served, close: () => client.close() };
}

test("a certificate counts by the API server's clock, however wrong the replica's own is", async () => {
  for (const ahead of [-400 * day, 400 * day]) {
    await using api = await TlsApi.start();
    api.configure();
    api.ahead = ahead;
    const one = keeperOf(api);
    await one.keeper.step();
    const end = endOf(api.text("tls.crt") ?? "");
    assert.ok(Math.abs(end - (Date.now() + ahead + 90 * day)) < day, new Date(end).toISOString());
    // The time that passes is the server's too.
    api.ahead = ahead + 61 * day;
    for (let turn = 0; turn < 4; turn++) await one.keeper.step();
    assert.equal(one.served.length, 2);
    await one.close();
  }
});

test("a certificate of the future, as a wrong clock made it, is replaced at once; nobody would believe it", async () => {
  await using api = await TlsApi.start();
  api.configure();
  const wrong = keeperOf(api, () => Date.now() + 30 * day);
  await wrong.keeper.step();
  const [future] = wrong.served;
  const right = keeperOf(api);
  await right.keeper.step();
  assert.equal(right.served.includes(future ?? ""), false);
  assert.equal(right.served.length, 1);
  assert.deepEqual(api.bundles(), [api.text("ca.crt")]);
  await wrong.close();
  await right.close();
});

test("an hour between two clocks changes nothing, and what is prepared for later is not served before", async () => {
  const now = Date.now();
  const pair = (at: number) => issueServingPair({ names, lifetime: 90 * day, now: at });
  const [soon, later] = await Promise.all([pair(now + 3_500_000), pair(now + 2 * day)]);
  const state = { next: undefined, authorities: [soon.ca, later.ca] };
  assert.equal(nextStep({ ...state, current: soon }, { names, now }, true), "keep");
  assert.equal(nextStep({ ...state, current: later }, { names, now }, true), "create");
  assert.equal(nextStep({ ...state, current: soon, next: later }, { names, now }, true), "keep");
});

test("two replicas that both rotate, and a third that starts meanwhile, end with one certificate and one write for each step", async () => {
  await using api = await TlsApi.start();
  api.configure();
  const three = [keeperOf(api), keeperOf(api), keeperOf(api)];
  const [first, second, third] = three;
  await Promise.allSettled([first?.keeper.step(), second?.keeper.step()]);
  api.ahead = 61 * day;
  for (let turn = 0; turn < 8; turn++)
    await Promise.allSettled((turn < 2 ? [first, second] : three).map((one) => one?.keeper.step()));
  await third?.keeper.step();
  const served = new Set(three.map((one) => one.served.at(-1)));
  assert.deepEqual([...served], [api.text("tls.crt")]);
  const secrets = api.writes.filter((write) => write.startsWith("secrets")).length;
  assert.equal(secrets, 3, "made, prepared, promoted");
  for (const one of three) await one.close();
});

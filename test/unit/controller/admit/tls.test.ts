import assert from "node:assert/strict";
import { test } from "node:test";
import { TlsKeeper } from "../../../../daemon/controller/admit/tls-keeper.ts";
import {
  decodeTlsData,
  encodeTlsData,
  nextStep,
  type TlsState,
  takeStep,
} from "../../../../daemon/controller/admit/tls-state.ts";
import { openLog } from "../../../../lib/base/log.ts";
import { KubeClient } from "../../../../lib/kube/client.ts";
import { Credentials } from "../../../../lib/kube/credentials.ts";
import { isConflict } from "../../../../lib/kube/error.ts";
import {
  endOf,
  isSignedBy,
  issueServingPair,
  splitBundle,
} from "../../../../lib/kube/serving-pair.ts";
import { TlsApi } from "./tls-api.ts";

const names = ["podnet-controller.podnet-system.svc"];
const day = 86_400_000;
const start = Date.now();
const pairAt = (now: number, lifetime = 90 * day) => issueServingPair({ names, lifetime, now });
const empty: TlsState = { current: undefined, next: undefined, authorities: [] };

test("the life of a certificate: made, prepared at two thirds of its time, served when trusted, and trusted until it ends", async () => {
  const at = (days: number) => ({ names, now: start + days * day });
  assert.equal(nextStep(empty, at(0), true), "create");
  const one = await pairAt(start);
  const first = takeStep(empty, "create", { fresh: one, now: start });
  assert.equal(nextStep(first, at(59), true), "keep");
  assert.equal(nextStep(first, at(61), true), "prepare");
  const two = await pairAt(start + 61 * day);
  const second = takeStep(first, "prepare", { fresh: two, now: at(61).now });
  assert.equal(second.current, first.current, "nobody trusts the new one yet");
  assert.deepEqual(second.authorities, [one.ca, two.ca]);
  assert.equal(nextStep(second, at(61), false), "wait");
  assert.equal(nextStep(second, at(61), true), "promote");
  const third = takeStep(second, "promote", { now: at(61).now });
  assert.equal(third.current?.cert, two.cert);
  assert.equal(third.next, undefined);
  assert.deepEqual(third.authorities, [one.ca, two.ca], "others may serve the first still");
  const later = takeStep(third, "prepare", {
    fresh: await pairAt(start + 122 * day),
    now: at(122).now,
  });
  assert.equal(later.authorities.includes(one.ca), false, "its certificate has ended");
  assert.equal(later.authorities.length, 2);
});

test("what is spoilt, has ended or is for another name is replaced; a prepared one stands in at once where nothing else is", async () => {
  const [one, two] = await Promise.all([pairAt(start), pairAt(start)]);
  const rules = { names, now: start };
  const state = (over: Partial<TlsState>) => ({
    current: one,
    next: undefined,
    authorities: [one.ca],
    ...over,
  });
  assert.equal(nextStep(state({}), rules, true), "keep");
  const broken: Partial<TlsState>[] = [
    { current: { cert: one.cert, key: two.key } },
    { current: { cert: "x", key: one.key } },
    { authorities: [two.ca] },
    { authorities: [] },
  ];
  for (const over of broken)
    assert.equal(nextStep(state(over), rules, true), "create", JSON.stringify(Object.keys(over)));
  assert.equal(nextStep(state({}), { names, now: start + 91 * day }, true), "create");
  assert.equal(nextStep(state({}), { names: ["other.ns.svc"], now: start }, true), "prepare");
  const prepared = { current: undefined, next: two, authorities: [two.ca] };
  assert.equal(nextStep(prepared, rules, false), "promote");
  assert.equal(nextStep(state({ next: { cert: "x", key: "y" } }), rules, true), "keep");
});

test("authorities never grow without end", async () => {
  let state = empty;
  for (let count = 0; count < 20; count++)
    state = takeStep(state, "create", { fresh: await pairAt(start), now: start });
  assert.equal(state.authorities.length, 16);
  assert.equal(nextStep(state, { names, now: start }, true), "keep");
});

test("a Secret's data is read and written; what is no text or no certificate counts as absent", async () => {
  const [one, two] = await Promise.all([pairAt(start), pairAt(start)]);
  const pair = ({ cert, key }: { cert: string; key: string }) => ({ cert, key });
  const state = { current: pair(one), next: pair(two), authorities: [one.ca, two.ca] };
  assert.deepEqual(decodeTlsData(encodeTlsData(state)), state);
  assert.equal(encodeTlsData({ ...state, next: undefined })["next.crt"], null);
  for (const odd of [{}, { "tls.crt": 5, "tls.key": null }, { "ca.crt": "AAAA", "tls.crt": "AA" }])
    assert.deepEqual(decodeTlsData(odd), empty);
});

let replicas = 0;

interface Replica {
  readonly keeper: TlsKeeper;
  readonly served: string[];
  readonly close: () => Promise<void>;
}

function replica(api: TlsApi, clock: () => number = () => start, settle = 0): Replica {
  const served: string[] = [];
  const client = new KubeClient(new Credentials(api.api.kubeconfig()), `replica-${++replicas}`);
  const keeper = new TlsKeeper({
    client,
    namespace: "podnet-system",
    names,
    log: openLog("silent"),
    serve: ({ cert }) => served.push(cert),
    clock,
    settle,
  });
  return { keeper, served, close: () => client.close() };
}

/** Steps until nobody has anything to do; conflicts are tried again. */
async function settled(replicas: readonly Replica[], api: TlsApi): Promise<void> {
  for (let quiet = 0; quiet < 2; ) {
    const before = api.writes.length;
    const steps = await Promise.allSettled(replicas.map(({ keeper }) => keeper.step()));
    for (const step of steps)
      if (step.status === "rejected" && !isConflict(step.reason)) throw step.reason;
    quiet =
      api.writes.length === before && steps.every(({ status }) => status === "fulfilled")
        ? quiet + 1
        : 0;
  }
}

test("two replicas that start at once agree on one certificate, and tell the API server whom to trust, once", async () => {
  await using api = await TlsApi.start();
  api.configure();
  const both = [replica(api), replica(api)];
  await settled(both, api);
  const [one, two] = both.map(({ served }) => served.at(-1));
  assert.equal(one, two);
  assert.equal(one, api.text("tls.crt"));
  assert.deepEqual(api.bundles(), [api.text("ca.crt")]);
  assert.equal(isSignedBy(one ?? "", api.text("ca.crt") ?? ""), true);
  assert.equal(api.writes.filter((write) => write.startsWith("secrets")).length, 1);
  const { webhooks } = api.objects.get(
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podnet",
  );
  assert.equal(webhooks[0].timeoutSeconds, 3, "the rest stays");
  await Promise.all(both.map(({ close }) => close()));
});

test("a rotation by two replicas: at no moment is a certificate served that the configurations don't trust", async () => {
  await using api = await TlsApi.start();
  api.configure();
  let now = start;
  const both = [replica(api, () => now), replica(api, () => now)];
  await settled(both, api);
  const before = api.text("tls.crt");
  const check = () => {
    for (const { served } of both) {
      const cert = served.at(-1) ?? "";
      for (const bundle of api.bundles())
        assert.ok(
          splitBundle(bundle).some((ca) => isSignedBy(cert, ca)),
          "served and not trusted",
        );
    }
  };
  api.beforeWrite = async () => check();
  now += 61 * day;
  for (let round = 0; round < 8; round++) {
    // One after the other and side by side in turn.
    const step = ({ keeper }: Replica) =>
      keeper.step().catch((error) => assert.ok(isConflict(error), String(error)));
    if (round % 2 === 0) for (const one of both) await step(one);
    else await Promise.all(both.map(step));
    check();
  }
  assert.notEqual(api.text("tls.crt"), before);
  assert.equal(api.text("next.crt"), undefined);
  assert.equal(splitBundle(api.text("ca.crt") ?? "").length, 2);
  for (const { served } of both) assert.deepEqual(served, [before, api.text("tls.crt")]);
  await Promise.all(both.map(({ close }) => close()));
});

test("an authority must have been in every configuration for a while before its certificate is served", async () => {
  await using api = await TlsApi.start();
  api.configure();
  let now = start;
  const one = replica(api, () => now, 3_600_000);
  await settled([one], api);
  now += 61 * day;
  await settled([one], api);
  assert.notEqual(api.text("next.crt"), undefined);
  assert.equal(one.served.length, 1);
  const patient = replica(api, () => now, 0);
  await settled([patient], api);
  assert.equal(api.text("next.crt"), undefined);
  await one.close();
  await patient.close();
});

test("a bundle that somebody took out comes back; a Secret that was deleted or spoilt comes back without a gap in trust", async () => {
  await using api = await TlsApi.start();
  api.configure();
  const one = replica(api);
  await settled([one], api);
  const [cert, bundle] = [api.text("tls.crt"), api.text("ca.crt") ?? ""];
  api.configure();
  assert.deepEqual(api.bundles(), [""]);
  await settled([one], api);
  assert.deepEqual(api.bundles(), [bundle]);
  const spoil: readonly (() => void)[] = [
    () => api.objects.delete("/api/v1/namespaces/podnet-system/secrets/podnet-webhook-tls"),
    () =>
      api.put("/api/v1/namespaces/podnet-system/secrets/podnet-webhook-tls", {
        ...api.secret,
        data: { "tls.crt": "AAAA", own: "eA==" },
      }),
  ];
  let last = cert;
  for (const doIt of spoil) {
    doIt();
    await one.keeper.step();
    assert.equal(
      one.served.at(-1),
      last,
      "what is trusted is served until the next one is trusted too",
    );
    await settled([one], api);
    assert.notEqual(api.text("tls.crt"), last, "who deletes it wants another one");
    for (const ca of splitBundle(bundle))
      assert.ok(splitBundle(api.bundles()[0] ?? "").includes(ca));
    last = api.text("tls.crt");
  }
  assert.equal(api.secret.data.own, "eA==", "keys of others stay");
  await one.close();
});

for (const where of ["between its reads", "before its write"]) {
  test(`a replica that slept ${where} never takes an authority away`, async () => {
    await using api = await TlsApi.start();
    api.configure();
    let now = start;
    const [slow, quick] = [replica(api, () => now), replica(api, () => now)];
    await settled([quick], api);
    const agent = `replica-${replicas - 1}`;
    let slept: Promise<void> | undefined;
    const sleep = () => {
      now += 61 * day;
      return settled([quick], api);
    };
    if (where === "between its reads") {
      const seen = new Set<boolean>();
      api.beforeRead = async (from, path) => {
        if (from !== agent) return;
        seen.add(path.includes("/secrets"));
        if (seen.size < 2) return;
        slept ??= sleep();
        await slept;
      };
    } else {
      api.configure();
      api.beforeWrite = async () => {
        if (slept !== undefined) return;
        slept = Promise.resolve();
        await sleep();
      };
    }
    await slow.keeper.step().catch((error) => assert.ok(isConflict(error), String(error)));
    assert.notEqual(slept, undefined);
    assert.deepEqual(api.bundles(), [api.text("ca.crt")]);
    assert.equal(splitBundle(api.bundles()[0] ?? "").length, 2);
    await slow.close();
    await quick.close();
  });
}

test("a keeper starts without the API and serves as soon as it is there", async () => {
  await using api = await TlsApi.start();
  api.down = true;
  const client = api.api.client();
  const served = Promise.withResolvers<string>();
  const keeper = new TlsKeeper({
    client,
    namespace: "podnet-system",
    names,
    log: openLog("silent"),
    serve: ({ cert }) => served.resolve(cert),
  });
  const started = keeper.start();
  api.down = false;
  assert.ok(endOf(await served.promise) > start);
  await started;
  assert.equal(keeper.certificate, await served.promise);
  await keeper.stop();
  await client.close();
});

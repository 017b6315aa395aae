import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";

/** Two replicas of the controller on a real API server: one works, and another takes over whatever becomes of it. */

const stack = new AsyncDisposableStack();
let at: ControlledApi;
let proxy: KubeProxy;

before(async () => {
  at = stack.use(await ControlledApi.start());
  proxy = stack.use(await KubeProxy.start(at.server));
});
after(() => stack.disposeAsync());

const flags = ["--lease-duration", "2"];
const lease = "leases podnet-system/podnet-controller";
const holder = async (): Promise<string> => (await at.api.find(lease))?.spec?.holderIdentity ?? "";
const leads = (one: ControllerProcess) =>
  one.log.lastIndexOf('"msg":"leading"') > one.log.lastIndexOf('"msg":"not leading any more"');

async function led(by: ControllerProcess): Promise<void> {
  await at.eventually(
    async () => leads(by),
    () => `a new leader:\n${by.log.slice(-3000)}`,
  );
}

test("both started at once, before there is a default network: one leads, and everything is made once", async () => {
  await at.network("early");
  const pair = [new ControllerProcess(at.server, flags), new ControllerProcess(at.server, flags)];
  try {
    await at.until("podnetworks default", "True Ready");
    await at.until("podnetworks early", "True Ready");
    await sleep(1_000);
    assert.equal(pair.filter(leads).length, 1);
    const made = pair.map(({ log }) => log.split('PodNetwork \\"default\\" created').length - 1);
    assert.equal(
      made.reduce((sum, one) => sum + one, 0),
      1,
      "created once",
    );
    assert.deepEqual((await at.api.get("podnetworks early")).metadata.finalizers, [
      "podnet.dev/in-use",
    ]);
    // Finalizer and status of the one, status of the other: nothing is written twice.
    const writers = pair.filter(({ log }) => log.includes("reconcile failed"));
    assert.deepEqual(writers, []);
  } finally {
    for (const one of pair) await one.stop();
  }
  assert.equal(await holder(), "", "given back at the end");
});

test("the leader is killed in the middle of a deletion: the other one finishes it", async () => {
  await using first = new ControllerProcess(at.server, flags);
  await led(first);
  await using second = new ControllerProcess(at.server, flags);
  await second.said('"ready"');
  await at.network("going");
  await at.pod("user", [{ name: "going" }], "Running");
  await at.until("podnetworks going", "True InUse", "InUse");
  await at.api.delete("podnetworks going");
  await at.until("podnetworks going", "False Deleting");
  await first.kill();
  await at.api.delete("pods app/user");
  await led(second);
  await at.untilGone("podnetworks going");
});

test("a leader that the API server can't hear stops by itself before another one leads", async () => {
  await using first = new ControllerProcess(at.server, flags, proxy);
  await led(first);
  await using second = new ControllerProcess(at.server, flags);
  await second.said('"ready"');
  await proxy.set({ down: true });
  await led(second);
  assert.equal(leads(first), false, "at that moment already");
  await proxy.set({});
  await at.network("by-second");
  await at.until("podnetworks by-second", "True Ready");
  await sleep(1_500);
  assert.deepEqual([leads(first), leads(second)], [false, true]);
  await second.stop();
  await led(first);
  await at.network("by-first");
  await at.until("podnetworks by-first", "True Ready");
});

test("a lease that somebody has deleted is taken again", async () => {
  await using only = new ControllerProcess(at.server, flags);
  await led(only);
  await at.api.delete(lease);
  await at.eventually(
    async () => (await holder()) !== "" && leads(only),
    () => "a lease",
  );
  await at.network("again");
  await at.until("podnetworks again", "True Ready");
});

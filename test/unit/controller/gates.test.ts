import assert from "node:assert/strict";
import { test } from "node:test";
import { Registry } from "prom-client";
import type { ControllerContext } from "../../../daemon/controller/context.ts";
import { Gates } from "../../../daemon/controller/gates.ts";
import { ControllerMetrics } from "../../../daemon/controller/metrics.ts";
import { Stores } from "../../../daemon/controller/stores.ts";
import { Users } from "../../../daemon/controller/users.ts";
import { openLog } from "../../../lib/base/log.ts";
import type { ObjectEvent } from "../../../lib/kube/events.ts";
import { until } from "../kube/scripted-api.ts";
import { GateApi } from "./gate-api.ts";

const gate = { name: "podnet.dev/networks-ready" };
const pod = (name: string, networks: string, more: object = {}) => ({
  metadata: { namespace: "app", name, annotations: { "podnet.dev/networks": networks } },
  spec: { schedulingGates: [gate], ...more },
  status: { phase: "Pending", conditions: [{ type: "PodScheduled", status: "False" }] },
});
const condition = (status: string, reason = "Ready") => ({
  conditions: [{ type: "Ready", status, reason, message: "" }],
});
const network = (
  name: string,
  status?: object,
  { spec = {}, metadata = {} }: { spec?: object; metadata?: object } = {},
) => ({
  apiVersion: "podnet.dev/v1alpha1",
  kind: "PodNetwork",
  metadata: { name, ...metadata },
  spec,
  ...(status === undefined ? {} : { status }),
});
const attachment = (name: string, podNetworkName: string, status: object) => ({
  apiVersion: "podnet.dev/v1alpha1",
  kind: "PodNetworkAttachment",
  metadata: { namespace: "app", name },
  spec: { podNetworkName },
  status,
});

async function withGates(
  api: GateApi,
  work: (events: ObjectEvent[]) => Promise<void>,
): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const client = api.api.client();
  stack.defer(() => client.close());
  const log = openLog("silent");
  const stores = stack.use(new Stores(client, log));
  const users = stack.use(new Users(stores));
  const events: ObjectEvent[] = [];
  const metrics = new ControllerMetrics({
    watches: () => [],
    leading: () => true,
    droppedEvents: () => 0,
  });
  const context = {
    client,
    log,
    stores,
    users,
    metrics,
    registry: new Registry(),
    events: { emit: (event: ObjectEvent) => events.push(event) },
  };
  stores.start();
  await stores.ready();
  const stopping = new AbortController();
  const leading = new Gates(context as unknown as ControllerContext).lead(stopping.signal);
  try {
    await work(events);
  } finally {
    stopping.abort();
    await leading;
  }
}

const gatesOf = (object: { spec: { schedulingGates?: readonly unknown[] } }) =>
  object.spec.schedulingGates?.length ?? 0;
const ours = (object: {
  status: { conditions: { type: string; status: string; message: string }[] };
}) => object.status.conditions.find(({ type }) => type === "podnet.dev/NetworksReady");

test("the gate of a pod whose networks are ready goes with one write", async () => {
  await using api = await GateApi.start();
  api.put("podnetworks", network("blue", condition("True")));
  api.put("pods", pod("p", '[{"name":"blue"}]'));
  await withGates(api, async (events) => {
    await until(() => gatesOf(api.pod("p")) === 0, "gate gone");
    api.put("pods", pod("q", '[{"name":"blue"}]'));
    await until(() => gatesOf(api.pod("q")) === 0, "gate gone");
    assert.deepEqual(api.writes, ["p", "q"]);
    assert.equal(ours(api.pod("q")), undefined);
    assert.deepEqual(events, []);
  });
});

test("a missing network is named in condition and event, and heals the same pod when it is ready (E-6, E-7)", async () => {
  await using api = await GateApi.start();
  api.put(
    "pods",
    pod("p", '[{"name":"late"}]', { schedulingGates: [{ name: "other.io/x" }, gate] }),
  );
  await withGates(api, async (events) => {
    await until(() => ours(api.pod("p"))?.status === "False", "condition");
    assert.equal(ours(api.pod("p"))?.message, 'PodNetwork "late" not found');
    // Told after the write has its answer.
    await until(() => events.length > 0, "event");
    assert.deepEqual(
      events.map(({ type, reason, message, uid }) => [type, reason, message, uid]),
      [["Warning", "NetworkNotFound", 'PodNetwork "late" not found', api.pod("p").metadata.uid]],
    );
    api.put("podnetworks", network("late"));
    await until(
      () => ours(api.pod("p"))?.message.includes("no condition Ready yet") === true,
      "not looked at",
    );
    api.put("podnetworks", network("late", condition("False", "ParamsNotReady")));
    await until(
      () => ours(api.pod("p"))?.message === 'PodNetwork "late" is not ready: ParamsNotReady',
      "not ready",
    );
    api.put("podnetworks", network("late", condition("True")));
    await until(() => gatesOf(api.pod("p")) === 1, "gate gone");
    assert.deepEqual(api.pod("p").spec.schedulingGates, [{ name: "other.io/x" }]);
    assert.equal(ours(api.pod("p"))?.status, "True");
    await until(() => events.at(-1)?.reason === "NetworksReady", "event");
    assert.deepEqual(api.writes, ["p/status", "p/status", "p/status", "p/status", "p"]);
    assert.equal(api.pod("p").status.conditions.length, 2);
  });
});

test("a network that is listed and also behind an attachment keeps the pod waiting (E-13)", async () => {
  await using api = await GateApi.start();
  api.put("podnetworks", network("dataplane", condition("True")));
  api.put("podnetworkattachments", attachment("fast", "dataplane", condition("True")));
  api.put("pods", pod("twice", '[{"name":"dataplane"},{"attachmentName":"fast"}]'));
  api.put("pods", pod("once", '[{"name":"default"},{"attachmentName":"fast"}]'));
  await withGates(api, async () => {
    await until(
      () => ours(api.pod("twice")) !== undefined && ours(api.pod("once")) !== undefined,
      "conditions",
    );
    assert.match(
      ours(api.pod("twice"))?.message ?? "",
      /PodNetwork "dataplane" is referenced more than once/,
    );
    assert.equal(ours(api.pod("once"))?.message, 'PodNetwork "default" not found');
    api.put("podnetworks", network("default", condition("True")));
    await until(() => gatesOf(api.pod("once")) === 0, "gate gone");
    assert.equal(gatesOf(api.pod("twice")), 1);
  });
});

test("disabled, deleted and faulty networks, and attachments that are not ready, keep pods waiting; enabling heals", async () => {
  await using api = await GateApi.start();
  api.put("podnetworks", network("off", condition("True"), { spec: { enabled: false } }));
  api.put(
    "podnetworks",
    network("going", condition("True"), {
      metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" },
    }),
  );
  api.put("podnetworks", network("faulty", condition("True"), { spec: { provider: "-" } }));
  api.put(
    "podnetworkattachments",
    attachment("slow", "x", condition("False", "PodNetworkNotReady")),
  );
  const list =
    '[{"name":"off"},{"name":"going"},{"name":"faulty"},{"attachmentName":"slow"},{"attachmentName":"none"}]';
  api.put("pods", pod("p", list));
  api.put("pods", pod("q", '[{"name":"off"}]'));
  await withGates(api, async () => {
    await until(() => ours(api.pod("p")) !== undefined, "condition");
    const message = ours(api.pod("p"))?.message ?? "";
    for (const part of [
      /"off" is not ready: AdministrativelyDisabled/,
      /"going" is not ready: it is being deleted/,
      /"faulty" is not ready: spec\.provider/,
      /PodNetworkAttachment "app\/slow" is not ready: PodNetworkNotReady/,
      /PodNetworkAttachment "app\/none" not found/,
    ])
      assert.match(message, part);
    api.put("podnetworks", network("off", condition("True"), { spec: { enabled: true } }));
    await until(() => gatesOf(api.pod("q")) === 0, "gate gone");
  });
});

test("a controller that starts anew, or whose write met another's, writes nothing twice", async () => {
  await using api = await GateApi.start();
  api.put("pods", pod("p", '[{"name":"late"}]'));
  await withGates(api, () => until(() => ours(api.pod("p")) !== undefined, "condition"));
  assert.deepEqual(api.writes, ["p/status"]);
  await withGates(api, async (events) => {
    await new Promise((done) => setTimeout(done, 100));
    assert.deepEqual(api.writes, ["p/status"]);
    assert.deepEqual(events, []);
    // Somebody writes the pod between the decision and the write.
    let changed = 0;
    api.beforeWrite = () => {
      if (changed++ === 0)
        api.put("pods", {
          ...api.pod("p"),
          metadata: { ...api.pod("p").metadata, labels: { a: "b" } },
        });
    };
    api.put("podnetworks", network("late", condition("True")));
    await until(() => gatesOf(api.pod("p")) === 0, "gate gone");
    assert.deepEqual(api.writes, ["p/status", "p/status", "p"]);
    assert.equal(api.pod("p").metadata.labels.a, "b");
  });
});

test("pods without the gate, pods that are deleted and lists that can't be read are let be; the last with a reason", async () => {
  await using api = await GateApi.start();
  api.put("pods", { ...pod("free", '[{"name":"late"}]'), spec: {} });
  api.put("pods", {
    ...pod("going", '[{"name":"late"}]'),
    metadata: { ...pod("going", "[]").metadata, deletionTimestamp: "2026-01-01T00:00:00Z" },
  });
  api.put("pods", pod("odd", "[{]"));
  await withGates(api, async () => {
    await until(() => ours(api.pod("odd")) !== undefined, "condition");
    assert.match(ours(api.pod("odd"))?.message ?? "", /not JSON/);
    assert.deepEqual(api.writes, ["odd/status"]);
  });
});

test("the fake refuses what a server refuses: a gate later, a gate beside a node, a removal twice or of an old version", async () => {
  await using api = await GateApi.start();
  assert.throws(() => api.put("pods", pod("p", "[]", { nodeName: "n" })), /nodeName/);
  api.put("pods", { ...pod("p", "[]"), spec: {} });
  assert.throws(() => api.put("pods", pod("p", "[]")), /only deletion/);
  const patch = async (name: string, change: object, version?: string) => {
    const { uid, resourceVersion } = api.pod(name).metadata;
    const metadata = { uid, resourceVersion: version ?? resourceVersion };
    const body = JSON.stringify({ metadata, spec: { schedulingGates: [change] } });
    const path = `${api.api.server}/api/v1/namespaces/app/pods/${name}`;
    return (await fetch(path, { method: "PATCH", body })).status;
  };
  const removal = { ...gate, $patch: "delete" };
  assert.equal(await patch("p", gate), 422, "a gate later");
  assert.equal(await patch("p", removal), 422, "of what is not there");
  api.put("pods", pod("q", "[]"));
  const { resourceVersion } = api.pod("q").metadata;
  assert.equal(await patch("q", { name: "other.io/x" }), 422, "another gate later");
  assert.equal(await patch("q", removal), 200);
  assert.equal(await patch("q", removal, resourceVersion), 409, "of an old version");
  assert.equal(await patch("q", removal), 422, "twice");
  assert.equal(await patch("q", gate), 422, "back again");
  assert.deepEqual([gatesOf(api.pod("q")), api.writes], [0, ["q"]]);
});

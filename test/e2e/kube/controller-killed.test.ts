import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";

/**
 * The controller killed after each of its writes, without the answer, and started again: what there is in the end is what there is
 * when nothing happens. The same with answers that are lost and a controller that lives on.
 */

const stack = new AsyncDisposableStack();
let at: ControlledApi;
let proxy: KubeProxy;

before(async () => {
  at = stack.use(await ControlledApi.start());
  proxy = stack.use(await KubeProxy.start(at.server));
});
after(() => stack.disposeAsync());

interface Scenario {
  readonly name: string;
  /** Makes what the controller finds; it does not run. */
  readonly before: () => Promise<void>;
  /** What happens while it runs. */
  readonly act?: () => Promise<void>;
  /** Resolves when everything is as it should be in the end. */
  readonly settled: () => Promise<void>;
}

const nad = { group: "k8s.cni.cncf.io", kind: "NetworkAttachmentDefinition", name: "cfg" };

const scenarios: readonly Scenario[] = [
  {
    name: "a network and an attachment that a pod uses, with the default network missing",
    before: async () => {
      await at.network("blue", { parametersRefs: [{ ...nad, namespace: "app" }] });
      await at.nad("app/cfg", { name: "cfg", type: "bridge" });
      await at.attachment("app/fast", "blue");
      await at.pod("web", [{ name: "default" }, { attachmentName: "fast" }], "Running");
    },
    settled: async () => {
      await at.until("podnetworks default", "True Ready");
      await at.until("podnetworks default", "True InUse", "InUse");
      await at.until("podnetworks blue", "True Ready");
      await at.until("podnetworks blue", "True InUse", "InUse");
      await at.until("podnetworkattachments app/fast", "True Ready");
      await at.until("podnetworkattachments app/fast", "True InUse", "InUse");
    },
  },
  {
    name: "a network is deleted while a pod and an attachment use it, and they go",
    before: async () => {
      await at.network("blue");
      await at.attachment("app/fast", "blue");
      await at.pod("web", [{ name: "blue" }], "Running");
      await at.pod("other", [{ attachmentName: "fast" }], "Running");
    },
    act: async () => {
      await at.until("podnetworks blue", "True InUse", "InUse");
      await at.until("podnetworkattachments app/fast", "True InUse", "InUse");
      await at.api.delete("podnetworks blue");
      await at.api.delete("podnetworkattachments app/fast");
      await at.phase("app/web", "Succeeded");
      await at.api.delete("pods app/other");
    },
    settled: async () => {
      await at.untilGone("podnetworkattachments app/fast");
      await at.untilGone("podnetworks blue");
      await at.until("podnetworks default", "True Ready");
    },
  },
  {
    name: "the default network is deleted, another one is disabled",
    before: async () => {
      await at.network("blue");
      await at.network("default", { enabled: true, provider: "podnet.dev/conflist" });
    },
    act: async () => {
      await at.until("podnetworks blue", "True Ready");
      await at.until("podnetworks default", "True Ready");
      await at.api.delete("podnetworks default");
      await at.api.patch("podnetworks blue", { spec: { enabled: false } });
    },
    settled: async () => {
      await at.until("podnetworks blue", "False AdministrativelyDisabled");
      await at.eventually(
        async () => (await at.api.find("podnetworks default"))?.spec.provider === undefined,
        () => "a default network of the controller's own",
      );
      await at.until("podnetworks default", "True Ready");
    },
  },
];

/** Everything that the controller decides about, without what differs from run to run. */
async function state(): Promise<unknown> {
  const networks = (await at.api.get("podnetworks")).items;
  const attachments = (await at.api.get("podnetworkattachments app/")).items;
  return [...networks, ...attachments].map(({ kind, metadata, spec, status }) => ({
    kind,
    name: metadata.name,
    finalizers: metadata.finalizers,
    deleted: metadata.deletionTimestamp !== undefined,
    spec,
    conditions: (status?.conditions ?? [])
      .map((one: { lastTransitionTime: string }) => ({ ...one, lastTransitionTime: "" }))
      .toSorted((a: { type: string }, b: { type: string }) => a.type.localeCompare(b.type)),
  }));
}

async function cleanUp(): Promise<void> {
  for (const { metadata } of (await at.api.get("pods app/")).items)
    await at.api.delete(`pods app/${metadata.name}`);
  for (const [list, plural] of [
    ["podnetworkattachments app/", "podnetworkattachments app/"],
    ["podnetworks", "podnetworks "],
  ]) {
    for (const { metadata } of (await at.api.get(list ?? "")).items) {
      const name = `${plural}${metadata.name}`;
      await at.api.patch(name, { metadata: { finalizers: null } });
      await at.api.delete(name);
    }
  }
  await at.api.delete("network-attachment-definitions app/cfg");
}

const start = () => new ControllerProcess(at.server, ["--no-leader-elect"], proxy);

/** Runs a scenario, cut after the n-th write; false when it has fewer. */
async function run(
  scenario: Scenario,
  cutAfter: number | undefined,
  stay: boolean,
): Promise<{ readonly state: unknown; readonly cut: boolean }> {
  await scenario.before();
  await proxy.set(cutAfter === undefined ? {} : { cutAfter, stay });
  await using stack = new AsyncDisposableStack();
  const first = stack.use(start());
  let last = first;
  // What is waited for is waited for until the end, by whichever controller runs.
  const acted = (scenario.act?.() ?? Promise.resolve()).then(() => scenario.settled());
  acted.catch(() => undefined);
  const cut = await proxy.wasCut(acted.catch(() => undefined));
  if (cut && !stay) {
    await first.kill();
    await proxy.set({});
    last = stack.use(start());
  }
  await acted.catch((error: unknown) => {
    throw new Error(`${String(error)}\n${last.log.slice(-5000)}`, { cause: error });
  });
  // The count of users is written a little later.
  await sleep(300);
  const seen = await state();
  return { state: seen, cut };
}

for (const scenario of scenarios) {
  describe(scenario.name, () => {
    let reference: unknown;

    before(async () => {
      reference = (await run(scenario, undefined, false)).state;
      await cleanUp();
    });

    for (const stay of [false, true]) {
      test(`${stay ? "the answer lost" : "killed"} after each write: the same in the end`, async () => {
        let count = 0;
        for (;;) {
          const result = await run(scenario, count + 1, stay);
          if (result.cut) count++;
          assert.deepEqual(result.state, reference, `after write ${count}`);
          await cleanUp();
          if (!result.cut) break;
        }
        assert.ok(count >= 4, `${count} writes`);
      });
    }
  });
}

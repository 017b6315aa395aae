import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { nothingLeft } from "./leftovers.ts";
import { own, type Whole } from "./networks.ts";

const many = { [own]: '[{"name":"default"},{"name":"blue"}]' };

function interfaceNames({ cluster }: Whole, path: string): string[] {
  return cluster.pods.interfaces(path).map(({ name }) => name);
}

/** Starts a pod before podnet is there. */
export async function startElder({ cluster }: Whole): Promise<void> {
  await cluster.pods.run({ name: "elder" });
}

export function installTests(whole: () => Whole): void {
  test("a pod from before the installation keeps its network, and is deleted cleanly", async () => {
    const { cluster } = whole();
    assert.deepEqual(interfaceNames(whole(), "default/elder"), ["eth0"]);
    await cluster.pods.end("default/elder");
    await nothingLeft(cluster);
  });
}

export function uninstallTests(whole: () => Whole): void {
  describe("podnet is uninstalled", () => {
    test("pods start and end at every moment, and the node is as it was before", async () => {
      const { cluster, podnet } = whole();
      const { api, node } = cluster;
      await cluster.pods.run({ name: "plain" });
      await cluster.pods.run({ name: "rich", annotations: many });
      api.must("apply", "-k", "conf/kustomize/uninstall");
      await cluster.eventually(
        "podnet's configuration gone",
        () => (node.exists("/etc/cni/net.d/00-podnet.conflist") ? undefined : true),
        { about: () => podnet.about() },
      );
      // podnetd waits for the pods that it attached; meanwhile new pods are the default network's own.
      await cluster.pods.run({ name: "during", annotations: many });
      assert.deepEqual(interfaceNames(whole(), "default/during"), ["eth0"]);
      assert.deepEqual(interfaceNames(whole(), "default/rich"), ["eth0", "net1"]);
      assert.deepEqual(interfaceNames(whole(), "default/plain"), ["eth0"]);
      await cluster.pods.end("default/plain", "default/rich");
      await cluster.eventually(
        "the Job done",
        async () => {
          const job = await cluster.get(
            "/apis/batch/v1/namespaces/podnet-system/jobs/podnet-uninstall",
          );
          return job.status.succeeded === 1 ? true : undefined;
        },
        { seconds: 300, about: () => podnet.about() },
      );
      await cluster.eventually("podnetd gone", async () =>
        (await podnet.pods()).length === 0 ? true : undefined,
      );
      await cluster.pods.run({ name: "afterwards" });
      assert.deepEqual(interfaceNames(whole(), "default/afterwards"), ["eth0"]);
      await cluster.pods.end("default/during", "default/afterwards");
      await nothingLeft(cluster);
      assert.equal(node.exists("/opt/cni/bin/podnet"), false);
      const kinds = api.must("get", "crd", "-o", "name");
      assert.doesNotMatch(kinds, /podnet\.dev/);
    });
  });
}

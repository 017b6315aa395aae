import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Store } from "../../../../daemon/node/store.ts";
import { openLog } from "../../../../lib/base/log.ts";
import type { KubeObject } from "../../../helpers/whole-cluster-object.ts";
import { nothingLeft, reservedAddresses } from "./leftovers.ts";
import { own, type Whole } from "./networks.ts";

const names = ["survivor-0", "survivor-1", "survivor-2"];
const annotations = { [own]: '[{"name":"default"},{"name":"blue"}]' };

/** A container sees the machine's own boot id, which a test can't change: so the records are made to be of another boot. */
function ofAnotherBoot({ cluster }: Whole): number {
  const store = new Store(join(cluster.node.folder, "upper/var/lib/podnet"), openLog("silent"));
  const bootId = randomUUID();
  for (const record of store.all()) store.put({ ...record, bootId });
  return store.size;
}

/** The pod runs again in a sandbox that was made since. */
async function runsAgain({ cluster }: Whole, name: string): Promise<KubeObject> {
  return await cluster.eventually(
    `pod "${name}" running again`,
    async () => {
      const pod = await cluster.get(`/api/v1/namespaces/default/pods/${name}`);
      const [container] = pod.status.containerStatuses ?? [];
      const again = pod.status.phase === "Running" && container?.restartCount > 0;
      return again && container?.ready && cluster.pods.seen(pod) !== undefined ? pod : undefined;
    },
    { seconds: 240, about: () => `${cluster.pods.events(`default/${name}`)}\n${cluster.logs()}` },
  );
}

export function rebootTests(whole: () => Whole): void {
  describe("the node goes down without a word and comes up again", () => {
    test("its pods get their networks anew, and what they held before is free", async () => {
      const { cluster, podnet } = whole();
      for (const name of names) await cluster.pods.run({ name, annotations });
      const before = reservedAddresses(cluster);
      assert.equal(before.length, 2 * names.length);
      await cluster.node.crash();
      assert.equal(ofAnotherBoot(whole()), names.length);
      cluster.pods.forgetSeen();
      await cluster.rebootNode();
      await podnet.ready();
      for (const name of names) {
        const pod = await runsAgain(whole(), name);
        const seen = cluster.pods.seen(pod)?.map((one) => one.name);
        assert.deepEqual(seen, ["eth0", "net1"], name);
        assert.deepEqual(cluster.pods.interfaces(`default/${name}`), cluster.pods.seen(pod));
      }
      await cluster.eventually(
        "no address of before",
        () => (reservedAddresses(cluster).length === 2 * names.length ? true : undefined),
        { about: () => `${reservedAddresses(cluster).join("\n")}\n${podnet.about()}` },
      );
      await cluster.pods.end(...names.map((name) => `default/${name}`));
      await nothingLeft(cluster);
    });
  });
}

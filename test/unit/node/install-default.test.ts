import assert from "node:assert/strict";
import { test } from "node:test";
import { withNodeDefault } from "../../../daemon/node/install/default.ts";
import type { NetworkSource } from "../../../daemon/node/networks.ts";

const cluster: NetworkSource = {
  podNetwork: async () => undefined,
  podNetworkAttachment: async () => undefined,
  nad: async () => undefined,
  conflist: async () => undefined,
  list: async () => [],
  podCidrs: async () => ["10.244.1.0/24"],
  unreadable: async () => ['"a.yaml" line 1: odd'],
};

const config = { cniConfDir: "/nowhere", install: true, requireDefaultPodNetwork: false } as const;

test("the node's default network hides nothing of the source that it is added to", async () => {
  const source = withNodeDefault(cluster, { ...config, defaultConflist: undefined });
  assert.deepEqual(Object.keys(source).toSorted(), Object.keys(cluster).toSorted());
  assert.deepEqual(await source.podCidrs?.(), ["10.244.1.0/24"]);
  assert.deepEqual(await source.unreadable?.(), ['"a.yaml" line 1: odd']);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { podResourcesService } from "../../../daemon/node/devices/pod-resources-proto.ts";

const text = (tag: number, value: string) =>
  Buffer.concat([Buffer.from([tag, value.length]), Buffer.from(value)]);
const inside = (tag: number, ...parts: readonly Buffer[]) => {
  const all = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag, all.length]), all]);
};

test("the kubelet's bytes: devices, claims and their devices by number; what podnet does not read is skipped", () => {
  const cpuIds = Buffer.from([0x1a, 2, 4, 5]);
  const memory = inside(0x22, text(0x0a, "memory"));
  const topology = inside(0x1a, inside(0x0a, Buffer.from([0x08, 1])));
  const devices = inside(
    0x12,
    text(0x0a, "acme.io/vf"),
    text(0x12, "a"),
    text(0x12, "b"),
    topology,
  );
  const claimed = inside(
    0x22,
    inside(0x0a, text(0x0a, "acme.io/nic=vf-1")),
    text(0x12, "nic.acme.io"),
    text(0x1a, "node-a"),
    text(0x22, "vf-1"),
  );
  const dynamic = inside(0x2a, text(0x0a, "class"), text(0x12, "nic"), text(0x1a, "app"), claimed);
  const container = inside(0x1a, text(0x0a, "main"), devices, cpuIds, memory, dynamic);
  const pod = [text(0x0a, "web"), text(0x12, "app"), container];
  const { Get, List } = podResourcesService();
  const expected = {
    name: "web",
    namespace: "app",
    containers: [
      {
        name: "main",
        devices: [{ resourceName: "acme.io/vf", deviceIds: ["a", "b"] }],
        dynamicResources: [
          {
            claimName: "nic",
            claimNamespace: "app",
            claimResources: [
              {
                cdiDevices: [{ name: "acme.io/nic=vf-1" }],
                driverName: "nic.acme.io",
                poolName: "node-a",
                deviceName: "vf-1",
              },
            ],
          },
        ],
      },
    ],
  };
  assert.deepEqual(plain(Get?.responseDeserialize(inside(0x0a, ...pod))), {
    podResources: expected,
  });
  const two = Buffer.concat([inside(0x0a, ...pod), inside(0x0a, text(0x0a, "other"))]);
  assert.deepEqual(plain(List?.responseDeserialize(two)), {
    podResources: [expected, { name: "other", namespace: "", containers: [] }],
  });
  const asked = Get?.requestSerialize({ podName: "web", podNamespace: "app" });
  assert.deepEqual(asked, Buffer.concat([text(0x0a, "web"), text(0x12, "app")]));
  assert.equal(Get?.path, "/v1.PodResourcesLister/Get");
});

function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

import assert from "node:assert/strict";
import { test } from "node:test";
import { askKubelet } from "../../../daemon/node/devices/pod-resources.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import { FakeKubelet, type FakeMode, type FakePod } from "../../helpers/fake-kubelet.ts";

const vf = (...deviceIds: string[]) => ({ resourceName: "acme.io/vf", deviceIds });
const web: FakePod = {
  namespace: "app",
  name: "web",
  containers: [
    { name: "a", devices: [vf("0000:03:10.2", "0000:03:10.1"), vf("0000:03:02.7")] },
    {
      name: "b",
      devices: [vf("0000:03:10.1"), { resourceName: "acme.io/slot", deviceIds: ["slot-3"] }],
    },
  ],
};
const others: readonly FakePod[] = [
  { namespace: "other", name: "web", containers: [{ devices: [vf("0000:03:10.9")] }] },
  { namespace: "app", name: "web-1", containers: [{ devices: [vf("0000:03:10.8")] }] },
];

const ask = (socket: string, signal = new AbortController().signal) =>
  askKubelet({ socket, namespace: "app", name: "web", signal });

const modes: readonly [string, FakeMode, readonly string[]][] = [
  ["serves Get", {}, ["Get"]],
  ["does not know Get", { get: "unknown-method" }, ["Get", "List"]],
  ["has Get switched off", { get: "switched-off" }, ["Get", "List"]],
  ["refuses for its rate at first", { refuse: 2 }, ["Get", "Get", "Get"]],
];
for (const [title, mode, calls] of modes) {
  test(`pod resources: a kubelet that ${title} tells the pod's devices, sorted, each once`, async () => {
    await using kubelet = await FakeKubelet.start([...others, web], mode);
    const { plugin, claims } = await ask(kubelet.socket);
    assert.deepEqual(Object.fromEntries(plugin), {
      "acme.io/vf": ["0000:03:02.7", "0000:03:10.1", "0000:03:10.2"],
      "acme.io/slot": ["slot-3"],
    });
    assert.deepEqual(claims, []);
    assert.deepEqual(kubelet.calls, calls);
  });
}

test("pod resources: claims of containers are told once, with devices where the kubelet names them", async () => {
  const dynamic = (claimResources: readonly object[]) => ({
    claimNamespace: "app",
    claimName: "nic",
    claimResources,
  });
  const named = { driverName: "nic.acme.io", poolName: "node-a", deviceName: "vf-1" };
  await using kubelet = await FakeKubelet.start([
    {
      namespace: "app",
      name: "web",
      containers: [
        {
          dynamicResources: [
            dynamic([{ ...named, cdiDevices: [{ name: "acme.io/nic=vf-1" }] }]),
            { ...dynamic([{ cdiDevices: [{ name: "acme.io/gpu=0" }] }]), claimName: "gpu" },
          ],
        },
        { dynamicResources: [dynamic([{ cdiDevices: [{ name: "acme.io/nic=vf-1" }] }])] },
      ],
    },
  ]);
  const { claims } = await ask(kubelet.socket);
  assert.deepEqual(claims, [
    {
      namespace: "app",
      name: "nic",
      devices: [{ driver: "nic.acme.io", pool: "node-a", device: "vf-1" }],
      cdi: ["acme.io/nic=vf-1"],
    },
    { namespace: "app", name: "gpu", devices: [], cdi: ["acme.io/gpu=0"] },
  ]);
});

test("pod resources: a kubelet that is away, silent or does not know the pod is code 11, and an end is kept", async () => {
  await using kubelet = await FakeKubelet.start(others);
  const retriable = (message: RegExp) => ({ code: cniCode.tryAgainLater, message });
  await assert.rejects(
    ask(kubelet.socket),
    retriable(/^ask the kubelet \(".*kubelet\.sock"\).*pod "app\/web": it does not know the pod$/),
  );
  kubelet.mode = { silent: true };
  const ending = new AbortController();
  const asking = ask(kubelet.socket, ending.signal);
  while (kubelet.calls.length < 3) await new Promise((done) => setTimeout(done, 5));
  ending.abort(new Error("podnetd stops"));
  await assert.rejects(asking, retriable(/podnetd stops/));
  kubelet.away();
  await assert.rejects(ask(kubelet.socket), retriable(/UNAVAILABLE/));
  kubelet.mode = {};
  kubelet.pods = [web];
  await kubelet.listen();
  assert.equal((await ask(kubelet.socket)).plugin.size, 2);
});

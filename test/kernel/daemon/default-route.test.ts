import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { bridgeNetwork, NodeFixture, type Sandbox } from "../../helpers/node-fixture.ts";

let node: NodeFixture;

before(async () => {
  node = await NodeFixture.start({ withDefault: true });
  node.daemon.writeNetwork(
    "gated2",
    bridgeNetwork("gated2", {
      dataDir: node.addresses,
      subnets: ["10.50.0.0/16", "fd50::/64"],
      extra: { isDefaultGateway: true },
    }),
  );
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

function defaults(pod: Sandbox, family: "-4" | "-6"): string[] {
  const text = pod.place.run("ip", "-j", family, "route", "show", "default");
  const list = JSON.parse(text || "[]") as { gateway: string; dev: string }[];
  return list.map(({ gateway, dev }) => `${gateway} ${dev}`);
}

let count = 0;
async function withNetworks(networks: unknown): Promise<Sandbox> {
  count += 1;
  const pod = node.sandbox(`route-${count}`);
  await node.must("ADD", pod, { networks });
  return pod;
}

test("of two networks that bring a default route the first keeps it, in each family", async () => {
  const pod = await withNetworks(["gated", "gated2"]);
  assert.deepEqual(defaults(pod, "-4"), ["10.40.0.1 eth0"]);
  assert.deepEqual(defaults(pod, "-6"), ["fd40::1 eth0"]);
});

test("after the default routes are settled the result says what is, and CHECK passes", async () => {
  const selections = [
    ["gated", "gated2"],
    [{ name: "gated" }, { name: "gated2", isDefaultGW: true }],
    [{ name: "gated" }, { name: "blue", isDefaultGW4: true }],
  ];
  for (const [place, networks] of selections.entries()) {
    const pod = node.sandbox(`told-${place}`);
    const { routes } = await node.must("ADD", pod, { networks });
    const told = (routes as { dst: string; gw: string }[]).map(({ gw }) => gw).toSorted();
    const there = [...defaults(pod, "-4"), ...defaults(pod, "-6")].map(
      (text) => text.split(" ")[0],
    );
    assert.deepEqual(told, there.toSorted());
    await node.must("CHECK", pod);
    await node.must("DEL", pod);
  }
});

test("isDefaultGW gives both families to its network and takes them from the others", async () => {
  const pod = await withNetworks([{ name: "gated" }, { name: "gated2", isDefaultGW: true }]);
  assert.deepEqual(defaults(pod, "-4"), ["10.50.0.1 net1"]);
  assert.deepEqual(defaults(pod, "-6"), ["fd50::1 net1"]);
});

test("isDefaultGW4 and isDefaultGW6 may be of different networks", async () => {
  const pod = await withNetworks([
    { name: "gated", isDefaultGW6: true },
    { name: "gated2", isDefaultGW4: true },
  ]);
  assert.deepEqual(defaults(pod, "-4"), ["10.50.0.1 net1"]);
  assert.deepEqual(defaults(pod, "-6"), ["fd40::1 eth0"]);
});

test("a network without its own default route gets one by the gateway of its result", async () => {
  const pod = await withNetworks([{ name: "gated" }, { name: "blue", isDefaultGW4: true }]);
  assert.deepEqual(defaults(pod, "-4"), ["10.10.0.1 net1"]);
  assert.deepEqual(defaults(pod, "-6"), ["fd40::1 eth0"]);
});

test("a family that the network does not have is an error when asked for by name, and undoes the ADD", async () => {
  const pod = node.sandbox("strict");
  const leaks = node.watch(pod);
  const { json } = await node.run("ADD", pod, {
    networks: [{ name: "gated" }, { name: "blue", isDefaultGW6: true }],
  });
  assert.equal(json.code, 7);
  assert.match(json.msg, /"blue" \(net1\).*IPv6 gateway/);
  leaks.assertClean();
});

test("default-route of the NPWG annotation takes the route to the named gateway; one that can't be reached undoes the ADD", async () => {
  node.daemon.writeNetwork("nads", {
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { name: "nad", namespace: "default" },
    spec: {
      config: JSON.stringify({
        cniVersion: "1.0.0",
        name: "nad",
        type: "bridge",
        bridge: "br-nad",
        ipam: { type: "host-local", dataDir: node.addresses, subnet: "10.60.0.0/24" },
      }),
    },
  });
  const annotated = (route: string) => ({
    config: {
      runtimeConfig: {
        "io.kubernetes.cri.pod-annotations": {
          "k8s.v1.cni.cncf.io/networks": JSON.stringify([
            { name: "nad", "default-route": [route] },
          ]),
        },
      },
    },
  });
  const pod = node.sandbox("npwg");
  await node.must("ADD", pod, annotated("10.60.0.77"));
  assert.deepEqual(defaults(pod, "-4"), ["10.60.0.77 net1"]);
  assert.match(pod.place.run("ip", "-o", "-4", "address", "show", "dev", "eth0"), / 10\.1\./);
  const lost = node.sandbox("npwg-lost");
  const leaks = node.watch(lost);
  const { json } = await node.run("ADD", lost, annotated("192.0.2.1"));
  assert.equal(json.code, 7);
  assert.match(json.msg, /"192\.0\.2\.1".*"default\/nad" \(net1\).*reached/);
  leaks.assertClean();
});

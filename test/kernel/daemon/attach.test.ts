import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { NodeFixture } from "../../helpers/node-fixture.ts";

let node: NodeFixture;

before(async () => {
  node = await NodeFixture.start();
});
after(async () => {
  await node[Symbol.asyncDispose]();
});

interface TaggedResult {
  readonly interfaces: { name: string; mac: string; sandbox?: string; podNetwork: string }[];
  readonly ips: { address: string; interface: number; podNetwork: string }[];
}

test("ADD of three networks answers one result in which each interface and IP is tagged and indexed right", async () => {
  const pod = node.sandbox("three");
  const result = (await node.must("ADD", pod, {
    networks: ["blue", "dual", "red"],
  })) as TaggedResult;
  const inPod = result.interfaces.filter(({ sandbox }) => sandbox === pod.place.path);
  assert.deepEqual(
    inPod.map(({ name, podNetwork }) => [name, podNetwork]),
    [
      ["eth0", "blue"],
      ["net1", "dual"],
      ["net2", "red"],
    ],
  );
  for (const ip of result.ips) {
    const link = result.interfaces[ip.interface];
    assert.equal(link?.podNetwork, ip.podNetwork);
    const shown = pod.place.run("ip", "-o", "address", "show", "dev", link?.name ?? "");
    assert.ok(shown.includes(` ${ip.address} `), `${ip.address} is on ${link?.name}: ${shown}`);
  }
  assert.deepEqual(
    result.ips.map(({ podNetwork }) => podNetwork),
    ["blue", "dual", "dual", "red"],
  );
  await node.must("CHECK", pod);
  await node.must("DEL", pod);
});

test("DEL gives back everything, and may be repeated", async () => {
  await node.must("ADD", node.sandbox("first"), { networks: ["blue", "dual", "red"] });
  const pod = node.sandbox("again");
  const leaks = node.watch(pod);
  const held = ["blue", "dual", "red"].map((network) => node.held(network));
  await node.must("ADD", pod, { networks: ["blue", "dual", "red"] });
  await node.must("DEL", pod);
  await node.must("DEL", pod);
  leaks.assertClean();
  assert.deepEqual(
    ["blue", "dual", "red"].map((network) => node.held(network)),
    held,
  );
  assert.deepEqual(
    node.records().filter((name) => name.startsWith("again")),
    [],
  );
});

test("a network that fails while others are attached at the same time undoes all and names itself", async () => {
  const pod = node.sandbox("full");
  node.daemon.writeNetwork("full", {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "full" },
    spec: {
      parameters: {
        type: "bridge",
        bridge: "full",
        ipam: {
          type: "host-local",
          dataDir: node.addresses,
          ranges: [[{ subnet: "10.77.0.0/30", rangeStart: "10.77.0.1", rangeEnd: "10.77.0.1" }]],
        },
      },
    },
  });
  const leaks = node.watch(pod);
  const held = ["blue", "red"].map((network) => node.held(network));
  const { status, json } = await node.run("ADD", pod, { networks: ["blue", "full", "red"] });
  assert.equal(status, 1);
  assert.equal(json.code, 108);
  assert.match(json.msg, /^attach network "full" \(net1\)/);
  leaks.assertClean();
  assert.deepEqual(
    ["blue", "red"].map((network) => node.held(network)),
    held,
  );
  assert.deepEqual(
    node.records().filter((name) => name.startsWith("full")),
    [],
  );
});

test("a network that can't be attached undoes the ones before it and names itself", async () => {
  const pod = node.sandbox("broken");
  node.daemon.writeNetwork("broken", {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "broken" },
    spec: { parameters: { type: "no-such-plugin" } },
  });
  const leaks = node.watch(pod);
  const held = node.held("blue");
  const { status, json } = await node.run("ADD", pod, { networks: ["blue", "broken", "red"] });
  assert.equal(status, 1);
  assert.match(json.msg, /"broken" \(net1\).*no-such-plugin/);
  leaks.assertClean();
  assert.deepEqual(node.held("blue"), held);
  assert.deepEqual(
    node.records().filter((name) => name.startsWith("broken")),
    [],
  );
});

test("an interface that exists already is refused by name and not touched", async () => {
  const pod = node.sandbox("taken");
  pod.place.run("ip", "link", "add", "net1", "type", "bridge");
  const before = pod.place.run("ip", "-d", "link", "show", "net1");
  const { status, json } = await node.run("ADD", pod, { networks: ["blue", "red"] });
  assert.equal(status, 1);
  assert.equal(json.code, 4);
  assert.match(json.msg, /"red".*"net1" exists already/);
  assert.equal(pod.place.run("ip", "-d", "link", "show", "net1"), before);
  assert.throws(() => pod.place.run("ip", "link", "show", "eth0"));
});

test("DEL works without the namespace, after the network's manifest has gone", async () => {
  const pod = node.sandbox("gone");
  const held = node.held("red");
  node.daemon.writeNetwork("short", {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "short" },
    spec: {
      parameters: {
        type: "bridge",
        bridge: "br-short",
        ipam: { type: "host-local", dataDir: node.addresses, subnet: "10.99.0.0/24" },
      },
    },
  });
  await node.must("ADD", pod, { networks: ["red", "short"] });
  assert.equal(node.held("short").length, 1);
  rmSync(join(node.daemon.networksDir, "short.yaml"));
  node.lab.remove(pod.place);
  await node.must("DEL", pod);
  assert.deepEqual(node.held("red"), held);
  assert.deepEqual(node.held("short"), []);
});

test("DEL without CNI_NETNS gives everything back", async () => {
  const pod = node.sandbox("no-netns");
  const leaks = node.watch(pod);
  await node.must("ADD", pod, { networks: ["blue", "red"] });
  await node.must("DEL", pod, { netns: "" });
  leaks.assertClean();
});

test("DEL of a container that nobody knows succeeds", async () => {
  await node.must("DEL", node.sandbox("stranger"));
});

test("a late DEL does not touch a namespace that took over the path", async () => {
  const pod = node.sandbox("old-owner");
  await node.must("ADD", pod, { networks: ["blue"] });
  node.lab.remove(pod.place);
  node.place.run("ip", "netns", "add", pod.place.name);
  const heir = { id: "new-owner", place: pod.place };
  const result = await node.must("ADD", heir, { networks: ["blue"] });
  await node.must("DEL", pod);
  assert.match(
    pod.place.run("ip", "-o", "address", "show", "dev", "eth0"),
    new RegExp(result.ips[0].address),
  );
  await node.must("CHECK", heir);
  await node.must("DEL", heir);
});

test("a repeated ADD of the same sandbox gets the same answer and attaches nothing twice", async () => {
  const pod = node.sandbox("twice");
  const first = await node.must("ADD", pod, { networks: ["blue", "dual"] });
  const leaks = node.watch(pod);
  assert.deepEqual(await node.must("ADD", pod, { networks: ["blue", "dual"] }), first);
  leaks.assertClean();
  await node.must("DEL", pod);
});

test("CHECK finds an address that was taken away, and names network and interface", async () => {
  const pod = node.sandbox("drift");
  const { ips } = await node.must("ADD", pod, { networks: ["blue", "red"] });
  await node.must("CHECK", pod);
  pod.place.run("ip", "address", "del", ips[1].address, "dev", "net1");
  const { status, json } = await node.run("CHECK", pod);
  assert.equal(status, 1);
  assert.match(json.msg, /"red" \(net1\)/);
  await node.must("DEL", pod);
});

test("CHECK of a sandbox that was never attached has code 3", async () => {
  const { json } = await node.run("CHECK", node.sandbox("never"));
  assert.equal(json.code, 3);
});

test("the node's own namespace is refused with code 8", async () => {
  const own = { id: "own", place: node.place };
  const { json } = await node.run("ADD", own, { networks: ["blue"] });
  assert.equal(json.code, 8);
  assert.match(json.msg, /CNI_NETNS_OVERRIDE/);
});

test("a namespace path that leads nowhere has code 3, one that is no namespace code 8", async () => {
  const pod = node.sandbox("nowhere");
  const gone = await node.run("ADD", pod, {
    networks: ["blue"],
    netns: "/run/netns/podnet-test-no",
  });
  assert.equal(gone.json.code, 3);
  const file = await node.run("ADD", pod, { networks: ["blue"], netns: "/etc/passwd" });
  assert.equal(file.json.code, 8);
});

test("ipam4 and ipam6 are promises about the result: one that is not kept undoes the ADD", async () => {
  const write = (name: string, spec: object) => {
    const ipam = { type: "host-local", dataDir: node.addresses, subnet: "10.98.0.0/24" };
    const parameters = { type: "bridge", bridge: "br-promise", ipam };
    node.daemon.writeNetwork(name, {
      apiVersion: "podnet.dev/v1alpha1",
      kind: "PodNetwork",
      metadata: { name },
      spec: { ...spec, parameters },
    });
  };
  write("kept", { ipam4: "external", ipam6: "none" });
  const pod = node.sandbox("promise");
  await node.must("ADD", pod, { networks: ["kept"] });
  await node.must("DEL", pod);
  const leaks = node.watch(pod);
  const broken: readonly (readonly [object, number, RegExp])[] = [
    [{ ipam6: "external" }, 7, /"broken-0": .*IPv6.*ipam6/],
    [{ ipam4: "none" }, 7, /"broken-1": .*IPv4.*ipam4/],
    [{ ipam4: "kubernetes" }, 101, /"broken-2".*ipam4.*for the PodNetwork "default" only/],
  ];
  for (const [place, [spec, code, text]] of broken.entries()) {
    write(`broken-${place}`, spec);
    const { json } = await node.run("ADD", pod, { networks: [`broken-${place}`] });
    assert.equal(json.code, code, json.msg);
    assert.match(json.msg, text);
    assert.deepEqual(node.held(`broken-${place}`), []);
  }
  leaks.assertClean();
});

test("what is invalid or missing in a selection is named with entry and field, and nothing changes", async () => {
  const pod = node.sandbox("bad-selection");
  const leaks = node.watch(pod);
  const cases: readonly (readonly [unknown, number, RegExp])[] = [
    [["blue", "lilac"], 100, /"lilac".*not found/],
    [[{ name: "blue" }, { name: "blue" }], 106, /\[1\]/],
    [[{ name: "blue", interfaceName: "much-too-long-for-linux" }], 106, /\[0\]\.interfaceName/],
    [[{ name: "blue", attachmentName: "x" }], 106, /\[0\]/],
    [[null], 106, /\[0\]/],
    ["blue", 106, /list/],
    [[{ name: "blue", ips: ["10.10.0.9/16"] }], 103, /"blue" \(entry 0\).*ips/],
  ];
  for (const [networks, code, text] of cases) {
    const { status, json } = await node.run("ADD", pod, { networks });
    assert.equal(status, 1, JSON.stringify(networks));
    assert.equal(json.code, code, `${JSON.stringify(networks)}: ${json.msg}`);
    assert.match(json.msg, text);
  }
  leaks.assertClean();
});

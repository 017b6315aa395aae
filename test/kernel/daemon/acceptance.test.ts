import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cniVersions } from "../../../lib/cni/types.ts";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { NodeFixture, type Sandbox } from "../../helpers/node-fixture.ts";
import { Recorder } from "../../helpers/recorder.ts";

/** Acceptance examples as they are written, on a node without a cluster; docs/testing.md lists where each other one is tried. */

let tools: Lab;
let recorder: Recorder;
let node: NodeFixture;

const bridge = (name: string, subnet: string, more: object = {}) => ({
  type: "bridge",
  bridge: `br-${name}`,
  ipam: { type: "host-local", dataDir: addresses, ranges: [[{ subnet }]] },
  ...more,
});
let addresses = "";

function nad(at: string, config: object): object {
  const [namespace, name] = at.split("/");
  const text = JSON.stringify({ cniVersion: "1.0.0", name, ...config });
  return {
    apiVersion: "k8s.cni.cncf.io/v1",
    kind: "NetworkAttachmentDefinition",
    metadata: { namespace, name },
    spec: { config: text },
  };
}

/** A bridge, and the recorder behind it. */
const watched = (name: string, subnet: string) => ({
  plugins: [bridge(name, subnet), { type: "recorder" }],
});

before(async () => {
  tools = new Lab();
  recorder = new Recorder(tools);
  addresses = tools.folder();
  node = await NodeFixture.start({
    binDirs: [recorder.bin],
    networks: {
      default: podNetwork("default", watched("default", "10.1.0.0/16")),
      "net-a": nad("app/net-a", watched("net-a", "10.50.0.0/24")),
      "net-b": nad("infra/net-b", watched("net-b", "10.51.0.0/24")),
      "net-c": nad("app/net-c", watched("net-c", "10.52.0.0/24")),
      caps: nad("app/caps", {
        plugins: [
          { type: "bridge", bridge: "br1", capabilities: { ips: true }, ipam: { type: "static" } },
          { type: "tuning", capabilities: { mac: true } },
          { type: "recorder", capabilities: { mac: true } },
        ],
      }),
    },
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

/** What a runtime passes on of a pod in namespace `app`. */
function asked(networks: string | object) {
  const text = typeof networks === "string" ? networks : JSON.stringify(networks);
  const annotations = { "k8s.v1.cni.cncf.io/networks": text };
  return {
    args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=app;K8S_POD_NAME=p",
    config: { runtimeConfig: { "io.kubernetes.cri.pod-annotations": annotations } },
  };
}

/** Names of the pod's links, and where each one's address is from. */
function links({ place }: Sandbox): Record<string, string> {
  const rows = JSON.parse(place.run("ip", "-j", "-4", "address")) as {
    ifname: string;
    addr_info: { local: string }[];
  }[];
  return Object.fromEntries(
    rows
      .filter(({ ifname }) => ifname !== "lo")
      .map(({ ifname, addr_info: [first] }) => [ifname, first?.local.replace(/\.\d+$/, "") ?? ""]),
  );
}

const macOf = ({ place }: Sandbox, ifName: string): string =>
  JSON.parse(place.run("ip", "-j", "link", "show", ifName))[0].address;

test("E-14: the short form gives the same attachments as the JSON form", async () => {
  const forms = [
    "net-a, infra/net-b@data0",
    [
      { name: "net-a", namespace: "app" },
      { name: "net-b", namespace: "infra", interface: "data0" },
    ],
  ];
  for (const [index, form] of forms.entries()) {
    const pod = node.sandbox(`form-${index}`);
    await node.must("ADD", pod, asked(form));
    assert.deepEqual(links(pod), { eth0: "10.1.0", net1: "10.50.0", data0: "10.51.0" });
    await node.must("DEL", pod);
  }
});

test("E-15: the same NAD twice is two interfaces with hardware addresses of their own, and DEL frees both addresses", async () => {
  const pod = node.sandbox("same");
  await node.must("ADD", pod, asked("net-a,net-a"));
  assert.deepEqual(links(pod), { eth0: "10.1.0", net1: "10.50.0", net2: "10.50.0" });
  assert.notEqual(macOf(pod, "net1"), macOf(pod, "net2"));
  const held = () => readdirSync(join(addresses, "net-a")).filter((name) => name.startsWith("10."));
  assert.equal(held().length, 2);
  await node.must("DEL", pod);
  assert.deepEqual(held(), []);
});

test("E-16: each plugin gets the capabilities that it declares and no others; one that nobody declares fails the ADD", async () => {
  const pod = node.sandbox("caps");
  const wish = { name: "caps", ips: ["10.9.0.5/24"], mac: "02:00:00:00:00:05" };
  await node.must("ADD", pod, asked([wish]));
  assert.equal(links(pod)["net1"], "10.9.0");
  assert.equal(macOf(pod, "net1"), "02:00:00:00:00:05");
  assert.deepEqual(recorder.got("ADD", "net1").runtimeConfig, { mac: wish.mac });
  await node.must("DEL", pod);
  const more = node.sandbox("more");
  const { status, json } = await node.run(
    "ADD",
    more,
    asked([{ ...wish, bandwidth: { ingressRate: 1000 } }]),
  );
  assert.equal(status, 1);
  assert.equal(json.code, 103);
  assert.match(json.msg, /bandwidth/);
  assert.deepEqual(links(more), {}, "the default network is torn down, or was never made");
});

test("E-17: with selectionPolicy ignore a selection that can't be read leaves the pod its default network, else it fails", async () => {
  const wrong: readonly string[] = [
    '[{"name":"net-a","ips":[]}]',
    '[{"name":"net-a","ips":["10.0.0.300"]}]',
    '[{"name":"net-a","mac":"zz"}]',
    '[{"name":"net-a","portMappings":[{"hostPort":0,"containerPort":80}]}]',
    '[{"name":"net-a","bandwidth":{"ingressBurst":1}}]',
    '[{"name":"net-a","default-route":["10.0.0.1"]},{"name":"net-c","default-route":["10.0.0.2"]}]',
    '[{"name":"net-a","ips":["10.0.0.3"],"ipam-claim-reference":"c"}]',
    "a/b/c",
    "a@b@c",
  ];
  const pod = node.sandbox("wrong");
  for (const text of wrong) {
    const { status, json } = await node.run("ADD", pod, asked(text));
    assert.deepEqual([status, json.code], [1, 106], `${text}: ${json.msg}`);
  }
  assert.deepEqual(links(pod), {});
  const networks = { default: podNetwork("default", bridge("lenient", "10.3.0.0/16")) };
  const config = { selectionPolicy: "ignore" };
  await using lenient = await NodeFixture.start({ networks, config });
  for (const [index, text] of wrong.entries()) {
    const one = lenient.sandbox(`lenient-${index}`);
    await lenient.must("ADD", one, asked(text));
    assert.deepEqual(links(one), { eth0: "10.3.0" }, text);
    await lenient.must("DEL", one);
  }
});

test("E-21: a network that fails is undone with those before it, the ones after it are never called, and a retry is clean", async () => {
  const pod = node.sandbox("partial");
  // Bridges stay.
  await node.must("ADD", pod, asked("net-a,infra/net-b,net-c"));
  await node.must("DEL", pod);
  const leaks = node.watch(pod);
  recorder.fail("ADD-net-b", true);
  for (const attempt of ["first", "retry"]) {
    recorder.calls();
    const { status, json } = await node.run("ADD", pod, asked("net-a,infra/net-b,net-c"));
    assert.equal(status, 1, attempt);
    assert.match(json.msg, /"infra\/net-b" \(net2\).*told to fail/);
    const calls = recorder.calls();
    const order = (call: string) => calls.indexOf(call);
    for (const name of ["net-b", "net-a", "default"])
      assert.ok(calls.includes(`DEL ${name}`), `DEL ${name}: ${calls.join(", ")}`);
    assert.ok(!calls.includes("ADD net-c"), calls.join(", "));
    assert.ok(order("DEL net-b") < order("DEL net-a"), calls.join(", "));
    assert.ok(order("DEL net-a") < order("DEL default"), calls.join(", "));
    leaks.assertClean();
  }
  recorder.fail("ADD-net-b", false);
  await node.must("ADD", pod, asked("net-a,infra/net-b,net-c"));
  await node.must("DEL", pod);
});

test("E-22: one network that can't be detached fails the DEL, the others are called all the same, and the next DEL ends it", async () => {
  const pod = node.sandbox("stuck");
  await node.must("ADD", pod, asked("net-a,infra/net-b"));
  recorder.fail("DEL-net-b", true);
  recorder.calls();
  const { status } = await node.run("DEL", pod, asked("net-a,infra/net-b"));
  assert.equal(status, 1);
  assert.deepEqual(recorder.calls().toSorted(), ["DEL default", "DEL net-a", "DEL net-b"]);
  recorder.fail("DEL-net-b", false);
  await node.must("DEL", pod);
  await node.must("DEL", pod);
});

test("E-23: each cniVersion gets a result of its own form", async () => {
  for (const cniVersion of cniVersions) {
    const pod = node.sandbox(`v${cniVersion}`);
    const { json } = await node.run("ADD", pod, { config: { cniVersion } });
    assert.equal(json.cniVersion, cniVersion, JSON.stringify(json));
    const [first] = json.ips ?? [];
    if (cniVersion <= "0.2.0") assert.match(json.ip4.ip, /^10\.1\.0\.\d+\/16$/);
    else assert.match(first.address, /^10\.1\.0\.\d+\/16$/);
    const hasVersion = ["0.3.0", "0.3.1", "0.4.0"].includes(cniVersion);
    assert.equal(first?.version, hasVersion ? "4" : undefined, cniVersion);
    const mtu = (json.interfaces ?? []).some((one: object) => "mtu" in one);
    if (cniVersion !== "1.1.0") assert.equal(mtu, false, cniVersion);
    await node.must("DEL", pod, { config: { cniVersion } });
  }
});

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Cluster, type TestPod } from "../../helpers/cluster.ts";

let cluster: Cluster;

before(async () => {
  cluster = await Cluster.start();
  await cluster.startDaemon(cluster.api.kubeconfig("podnet"), { namespaceIsolation: true });
});
after(() => cluster?.[Symbol.asyncDispose]());

const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";

interface Place {
  readonly name: string;
  readonly ips: readonly string[];
  readonly mac: string;
  readonly mtu: number;
}

/** Interfaces of the pod as the kernel has them. */
function kernel(pod: TestPod): Place[] {
  const links = JSON.parse(pod.place.run("ip", "-j", "address"));
  return links
    .filter((link: { ifname: string }) => link.ifname !== "lo")
    .map((link: Record<string, unknown>) => ({
      name: link["ifname"],
      mac: link["address"],
      mtu: link["mtu"],
      ips: (link["addr_info"] as { scope: string; local: string }[])
        .filter(({ scope }) => scope === "global")
        .map(({ local }) => local),
    }));
}

test("a pod's own annotation is read from the API, and what it got is written there, as the kernel has it", async () => {
  const networks = '[{"name":"default"},{"name":"blue","interfaceName":"data0"}]';
  const pod = cluster.pod("own", { [own]: networks });
  const result = await cluster.must("ADD", pod);
  const names = result.interfaces.filter((one: { sandbox?: string }) => one.sandbox !== undefined);
  assert.deepEqual(
    names.map((one: { name: string }) => one.name),
    ["eth0", "data0"],
  );
  const eth0 = kernel(pod).find(({ name }) => name === "eth0");
  const data0 = kernel(pod).find(({ name }) => name === "data0");
  assert.ok(eth0 && data0);
  assert.deepEqual(await cluster.status(pod), [
    { name: "default", interfaceName: "eth0", ip: eth0.ips[0], isDefaultGW: true },
    { name: "blue", interfaceName: "data0", ip: data0.ips[0] },
  ]);
  const [route] = JSON.parse(pod.place.run("ip", "-j", "route", "show", "default"));
  assert.deepEqual(await cluster.status(pod, "k8s.v1.cni.cncf.io/network-status"), [
    {
      name: "default",
      interface: "eth0",
      ips: eth0.ips,
      mac: eth0.mac,
      mtu: eth0.mtu,
      default: true,
      dns: {},
      gateway: [route.gateway],
      "default-route": [route.gateway],
    },
    { name: "blue", interface: "data0", ips: data0.ips, mac: data0.mac, mtu: data0.mtu, dns: {} },
  ]);
  const events = await cluster.eventually(() => {
    const all = cluster.events(pod);
    return all.length === 0 ? undefined : all;
  }, "an event");
  assert.match(
    events.join("\n"),
    /^AttachedNetwork: Added eth0 \[10\.1\..*\] from default, data0 \[10\.10\..*\] from blue$/,
  );
  await cluster.must("DEL", pod);
});

test("the standard's annotation is read from the API: the default network first, then the NADs", async () => {
  const pod = cluster.pod("npwg", { [npwg]: "n, n@x0" });
  await cluster.must("ADD", pod);
  const names = kernel(pod).map(({ name }) => name);
  assert.deepEqual(names.toSorted(), ["eth0", "net1", "x0"]);
  const rows = (await cluster.status(pod)).map((row: { name: string }) => row.name);
  assert.deepEqual(rows, ["default", "app/n", "app/n"]);
  await cluster.must("DEL", pod);
});

test("a pod without annotations gets the default network, or its namespace's own", async () => {
  for (const [namespace, network] of [
    ["app", "default"],
    ["tenant", "blue"],
  ] as const) {
    const pod = cluster.pod("plain", {}, namespace);
    await cluster.must("ADD", pod);
    assert.deepEqual(
      (await cluster.status(pod)).map((row: { name: string }) => row.name),
      [network],
    );
    await cluster.must("DEL", pod);
  }
});

test("what a pod may not use, or asks for wrongly, fails with its code and an event of its class", async () => {
  cluster.api.apply(
    cluster.podNetwork("closed", cluster.bridge("closed", "10.70.0.0/16"), {
      "podnet.dev/allowed-namespace-selector": "team in (b, c)",
    }),
    cluster.nad("app/taking", { type: "host-device", device: "eth0" }),
    cluster.nad("app/writing", {
      type: "bridge",
      ipam: { type: "host-local", dataDir: "/etc" },
    }),
  );
  const cases: readonly [string, object, number, RegExp][] = [
    [
      "missing",
      { [own]: '[{"name":"late"}]' },
      100,
      /^NetworkNotFound: .*PodNetwork "late" not found/,
    ],
    ["no-nad", { [npwg]: "nowhere" }, 102, /^NetworkNotFound: .*"app\/nowhere" not found/],
    [
      "isolated",
      { [npwg]: "infra/n" },
      104,
      /^NamespaceNotAllowed: .*"infra\/n".*namespaceIsolation/,
    ],
    [
      "closed",
      { [own]: '[{"name":"closed"}]' },
      104,
      /^NamespaceNotAllowed: .*"closed".*namespace "app"/,
    ],
    ["taking", { [npwg]: "taking" }, 104, /^NamespaceNotAllowed: .*"host-device"/],
    ["writing", { [npwg]: "writing" }, 104, /^NamespaceNotAllowed: .*dataDir/],
    [
      "broken",
      { [own]: '[{"name":"blue","interfaceName":"a/b"}]' },
      106,
      /^SelectionInvalid: .*\[0\]\.interfaceName/,
    ],
  ];
  for (const [name, annotations, code, event] of cases) {
    const pod = cluster.pod(name, annotations);
    const answer = await cluster.run("ADD", pod);
    assert.equal(answer.json?.code, code, `${name}: ${answer.stdout}`);
    const found = () => cluster.events(pod).find((text) => event.test(text));
    await cluster.eventually(found, `${event} for ${name}`);
    assert.deepEqual(kernel(pod), []);
  }
});

test("a network that comes later heals the pod that waits for it, without a restart", async () => {
  const pod = cluster.pod("waiting", { [own]: '[{"name":"soon"}]' });
  assert.equal((await cluster.run("ADD", pod)).json.code, 100);
  cluster.api.apply(cluster.podNetwork("soon", cluster.bridge("soon", "10.80.0.0/16")));
  await cluster.eventually(async () => {
    const { status } = await cluster.run("ADD", pod);
    return status === 0 ? true : undefined;
  }, "an ADD that succeeds");
  await cluster.must("DEL", pod);
});

test("a PodNetwork that is disabled, or said not to be ready, attaches nothing new", async () => {
  cluster.api.apply(cluster.podNetwork("off", cluster.bridge("off", "10.90.0.0/16")));
  cluster.api.must(
    "patch",
    "podnetwork",
    "off",
    "--type=merge",
    "-p",
    '{"spec":{"enabled":false}}',
  );
  const pod = cluster.pod("disabled", { [own]: '[{"name":"off"}]' });
  const code = async (expected: RegExp) =>
    await cluster.eventually(async () => {
      const { json } = await cluster.run("ADD", pod);
      return json?.code === 101 && expected.test(json.msg) ? true : undefined;
    }, `code 101, ${expected}`);
  await code(/is disabled/);
});

test("a pod that is gone, or whose name another one has, is refused for now", async () => {
  const pod = cluster.pod("replaced", { [own]: '[{"name":"blue"}]' });
  const other = await cluster.run("ADD", pod, { uid: "11111111-2222-3333-4444-555555555555" });
  assert.equal(other.json.code, 11);
  assert.match(other.json.msg, /its uid is ".*", and the runtime asks for "1111/);
  cluster.api.must("delete", "pod", "-n", "app", "replaced", "--force", "--grace-period=0");
  const gone = await cluster.eventually(async () => {
    const answer = await cluster.run("ADD", pod);
    return answer.status === 0 ? undefined : answer;
  }, "a refusal");
  assert.equal(gone.json.code, 11);
  assert.match(gone.json.msg, /the API server has no such pod/);
});

test("a static pod is known by its mirror", async () => {
  const pod = cluster.pod("static", {
    [own]: '[{"name":"blue"}]',
    "kubernetes.io/config.mirror": "0123abcd",
    "kubernetes.io/config.hash": "0123abcd",
  });
  const answer = await cluster.run("ADD", pod, { uid: "0123abcd" });
  assert.equal(answer.status, 0, answer.stdout);
  assert.deepEqual(
    (await cluster.status(pod)).map((row: { name: string }) => row.name),
    ["blue"],
  );
  await cluster.must("DEL", pod);
});

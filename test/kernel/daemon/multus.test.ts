import assert from "node:assert/strict";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cleanSoon } from "../../helpers/attached.ts";
import { Daemon } from "../../helpers/daemon.ts";
import { Lab, type Place } from "../../helpers/lab.ts";
import { type Delegate, MultusLeftovers } from "../../helpers/multus-leftovers.ts";
import { part } from "../../helpers/parts.ts";
import { runPlugin } from "../../helpers/plugin-call.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";
import { LeakCheck } from "../../helpers/state.ts";

// podnet in place of a Multus: sandboxes that Multus' delegates attached are podnet's to check and to give back.
const lab = new Lab();
let place: Place;
let daemon: Daemon;
let multus: MultusLeftovers;
let addresses = "";
let torn = 0;

const subnets: Readonly<Record<string, string>> = {
  default: "10.1.0.0/24",
  bluenet: "10.2.0.0/24",
  rednetw: "10.3.0.0/24",
};

const delegate = (name: string, extra: object = {}): Delegate => ({
  name: `team-a/${name}`,
  config: {
    cniVersion: "0.4.0",
    name,
    type: "bridge",
    bridge: `br-${name}`,
    ipMasq: true,
    ipam: {
      type: "host-local",
      dataDir: addresses,
      ranges: [[{ subnet: subnets[name] ?? "10.9.0.0/24" }]],
    },
    ...extra,
  },
});

before(async () => {
  place = lab.node();
  addresses = lab.folder();
  const bin = process.env["PODNET_DELEGATES"] ?? part("reference-plugins");
  multus = new MultusLeftovers(lab, place, bin);
  daemon = await Daemon.start({
    lab,
    node: place,
    binDirs: [bin],
    config: multus.config,
    networks: {
      default: {
        apiVersion: "podnet.dev/v1alpha1",
        kind: "PodNetwork",
        metadata: { name: "default" },
        spec: { parameters: delegate("default").config },
      },
    },
  });
  // Bridges stay, whoever made them: what is compared later has them from the beginning.
  const first = lab.pod();
  const all = ["default", "bluenet", "rednetw"].map((name) => delegate(name));
  await multus.attach({ id: "first", netns: first.path }, all);
  await del("first", first.path);
});
after(async () => {
  await daemon[Symbol.asyncDispose]();
  lab[Symbol.dispose]();
});

interface Target {
  readonly id: string;
  readonly netns: string;
  readonly config?: object;
}

const call = (verb: string, { id, netns, config = {} }: Target) =>
  runPlugin(
    daemon.call({
      verb,
      containerId: id,
      netns,
      ifName: "eth0",
      args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=old",
      config,
    }),
  );

async function del(id: string, netns: string): Promise<void> {
  const { status, stdout } = await call("DEL", { id, netns });
  assert.equal(status, 0, stdout);
}

function held(): string[] {
  return readdirSync(addresses).flatMap((network) =>
    readdirSync(join(addresses, network))
      .filter((name) => /^10\./.test(name))
      .map((name) => `${network} ${name}`),
  );
}

const records = () => readdirSync(join(daemon.stateDir, "records"));
const setAside = () => {
  const folder = join(daemon.stateDir, "multus-unreadable");
  return existsSync(folder) ? readdirSync(folder) : [];
};

for (const release of ["thin-3", "thick-4"] as const) {
  test(`a sandbox that Multus attached (${release}) passes CHECK and is given back by DEL: links, addresses, rules, files`, async () => {
    const pod = lab.pod();
    const leaks = new LeakCheck([place, pod]);
    const delegates = [
      delegate("default"),
      delegate("bluenet"),
      { ...delegate("rednetw"), ifnameRequest: "data0" },
    ];
    await multus.attach({ id: `pod-${release}`, netns: pod.path }, delegates, release);
    assert.equal(held().length, 3);
    const told = await podnetctl(place, [
      ...["--socket", daemon.socket, "explain", "--container", `pod-${release}`],
    ]);
    assert.match(told.stdout, /net1 of network bluenet: attached before podnet/);
    const checked = await call("CHECK", { id: `pod-${release}`, netns: pod.path });
    assert.equal(checked.status, 0, checked.stdout);
    const [address = ""] =
      /10\.3\.0\.\d+\/24/.exec(pod.run("ip", "address", "show", "data0")) ?? [];
    pod.run("ip", "address", "del", address, "dev", "data0");
    const drifted = await call("CHECK", { id: `pod-${release}`, netns: pod.path });
    assert.equal(drifted.status, 1);
    assert.match(drifted.json.msg, /check network "team-a\/rednetw" \(data0\)/);
    // The reference reads from the interface whose rules it deletes.
    pod.run("ip", "address", "add", address, "dev", "data0");
    await del(`pod-${release}`, pod.path);
    await cleanSoon(leaks);
    assert.deepEqual([held(), multus.files(), records()], [[], [], []]);
    await del(`pod-${release}`, pod.path);
  });
}

test("a sandbox of Multus whose namespace is gone: its addresses are given back", async () => {
  const pod = lab.pod();
  // Masquerading stays: the reference looks for the addresses in the namespace.
  const delegates = ["default", "bluenet"].map((name) => delegate(name, { ipMasq: false }));
  await multus.attach({ id: "gone", netns: pod.path }, delegates);
  lab.remove(pod);
  await del("gone", pod.path);
  assert.deepEqual([held(), multus.files(), records()], [[], [], []]);
});

test("delegates whose executables are gone fall to podnet's own types", async () => {
  const pod = lab.pod();
  const plain = { ...delegate("bluenet", { ipMasq: false }), ifnameRequest: "data0" };
  const leaks = new LeakCheck([place, pod]);
  await multus.attach({ id: "bare", netns: pod.path }, [
    delegate("default", { ipMasq: false }),
    plain,
  ]);
  const own = await Daemon.start({ lab, node: place, config: multus.config });
  try {
    const done = await runPlugin(
      own.call({ verb: "DEL", containerId: "bare", netns: pod.path, ifName: "eth0" }),
    );
    assert.equal(done.status, 0, done.stdout);
  } finally {
    await own[Symbol.asyncDispose]();
  }
  await cleanSoon(leaks);
  assert.deepEqual([held(), multus.files()], [[], []]);
});

test("a delegate that can't be detached fails the DEL, the others are detached, and nothing is forgotten", async () => {
  const pod = lab.pod();
  const lost: Delegate = { name: "x/lost", config: { name: "lost", type: "no-such-plugin" } };
  await multus.attach({ id: "half", netns: pod.path }, [delegate("default")]);
  const entries = [delegate("default"), lost].map(({ name, config }) => ({
    Name: name,
    Bytes: Buffer.from(JSON.stringify(config)).toString("base64"),
  }));
  multus.write("half", JSON.stringify(entries));
  const { status, json } = await call("DEL", { id: "half", netns: pod.path });
  assert.equal(status, 1);
  assert.match(json.msg, /detach network "x\/lost" \(net1\): find plugin "no-such-plugin"/);
  assert.deepEqual(held(), []);
  assert.deepEqual(
    multus.files().filter((name) => name === "half"),
    ["half"],
  );
  assert.deepEqual(records(), ["half@eth0.json"]);
  writeFileSync(join(multus.cacheDir, "half"), JSON.stringify(entries.slice(0, 1)));
  // The record has taken over: only what it says is done.
  assert.equal((await call("DEL", { id: "half", netns: pod.path })).status, 1);
  await daemon.stop();
  process.getBuiltinModule("node:fs").rmSync(join(daemon.stateDir, "records", "half@eth0.json"));
  await daemon.restart();
  await del("half", pod.path);
  assert.deepEqual([multus.files(), records()], [[], []]);
});

test("a pod older than any meta plugin: the runtime's own cache says what it has, else the default network does", async () => {
  const pod = lab.pod();
  const leaks = new LeakCheck([place, pod]);
  const old = delegate("bluenet").config;
  const at = { containerId: "ancient", netns: pod.path, ifName: "eth0", config: old };
  multus.writeResult("thin-3", { ...at, result: await multus.run("ADD", at) });
  await del("ancient", pod.path);
  await cleanSoon(leaks);
  assert.deepEqual([held(), multus.files(), records()], [[], [], []]);
  const plain = delegate("default").config;
  await multus.run("ADD", { ...at, containerId: "bare", config: plain });
  await del("bare", pod.path);
  await cleanSoon(leaks);
  assert.deepEqual(held(), []);
});

test("a Multus that is alive and delegates to podnet is left alone", async () => {
  const pod = lab.pod();
  await multus.attach({ id: "alive", netns: pod.path }, [delegate("bluenet")]);
  const entries = [{ name: "podnet", type: "podnet" }, delegate("bluenet").config].map(
    (config) => ({ Bytes: Buffer.from(JSON.stringify(config)).toString("base64") }),
  );
  multus.write("alive", JSON.stringify(entries));
  await del("alive", pod.path);
  assert.ok(multus.files().includes("alive"));
  assert.equal(held().length, 1);
  pod.run("ip", "link", "show", "eth0");
  multus.write("alive", JSON.stringify(entries.slice(1)));
  await del("alive", pod.path);
  assert.deepEqual([held(), multus.files()], [[], []]);
});

test("GC takes nothing of what Multus' sandboxes hold, and gives back one whose namespace is gone", async () => {
  const pod = lab.pod();
  const dead = lab.pod();
  await multus.attach({ id: "living", netns: pod.path }, [
    delegate("default"),
    delegate("bluenet"),
  ]);
  await multus.attach({ id: "dead", netns: dead.path }, [delegate("default"), delegate("bluenet")]);
  lab.remove(dead);
  const collected = await call("GC", {
    id: "",
    netns: "",
    config: { "cni.dev/valid-attachments": [] },
  });
  assert.equal(collected.status, 0, collected.stdout);
  assert.deepEqual(
    [held().length, multus.files().filter((name) => !name.includes("-"))],
    [2, ["living"]],
  );
  pod.run("ip", "link", "show", "net1");
  await del("living", pod.path);
  assert.deepEqual([held(), multus.files()], [[], []]);
});

test("a file that was cut off after any byte: DEL ends, everything that was attached is given back, the damage is kept for a person", async () => {
  const whole = JSON.stringify(
    [delegate("default"), delegate("bluenet")].map(({ name, config }) => ({
      Name: name,
      Bytes: Buffer.from(JSON.stringify(config)).toString("base64"),
    })),
  );
  const pod = lab.pod();
  const leaks = new LeakCheck([place, pod]);
  // Attachments for some of the lengths, the mere file for all: each DEL runs executables.
  const lengths = [...Array(whole.length).keys()].filter(
    (length) => length % 97 === 0 || length < 3 || whole.length - length < 3,
  );
  for (const length of lengths) {
    torn += 1;
    const id = `torn-${torn}`;
    await multus.attach({ id: id, netns: pod.path }, [delegate("default"), delegate("bluenet")]);
    multus.write(id, whole.slice(0, length));
    await del(id, pod.path);
    assert.deepEqual([held(), multus.files(), records()], [[], [], []], `${length} bytes`);
    assert.ok(setAside().includes(id));
  }
  await cleanSoon(leaks);
  assert.match(daemon.log, /Multus' cache is damaged/);
});

test("the way back: pods that podnet attached and a Multus deletes by the executables, or forgets; podnetctl gc gives back the rest", async () => {
  const ctl = (...args: readonly string[]) =>
    podnetctl(place, ["--socket", daemon.socket, ...args]);
  const deleted = lab.pod();
  const forgotten = lab.pod();
  const warm = lab.pod();
  for (const [id, pod] of [
    ["warm", warm],
    ["deleted", deleted],
    ["forgotten", forgotten],
  ] as const) {
    const { status, stdout } = await call("ADD", { id, netns: pod.path });
    assert.equal(status, 0, stdout);
  }
  // The executables may have a table with comments of their own.
  const masqueraded = () =>
    (place.run("nft", "list", "table", "inet", "podnet").match(/comment "/g) ?? []).length;
  const before = masqueraded();
  const { config } = delegate("default");
  const at = { containerId: "deleted", netns: deleted.path, ifName: "eth0", config };
  await runPlugin({
    verb: "DEL",
    ...at,
    program: join(process.env["PODNET_DELEGATES"] ?? part("reference-plugins"), "bridge"),
    node: place,
    path: process.env["PODNET_DELEGATES"] ?? part("reference-plugins"),
  });
  assert.equal(held().length, 2, "the executable knows podnet's addresses");
  assert.throws(() => deleted.run("ip", "link", "show", "eth0"));
  lab.remove(deleted);
  lab.remove(forgotten);
  const freed = await ctl("gc");
  assert.equal(freed.status, 0, freed.stderr);
  assert.match(freed.stdout, /freed deleted default eth0[\s\S]*freed forgotten default eth0/);
  assert.equal(held().length, 1);
  assert.equal(masqueraded(), before / 3);
  await del("warm", warm.path);
  assert.deepEqual([held(), records()], [[], []]);
});

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { Readable } from "node:stream";
import { test } from "node:test";
import * as libc from "../../lib/base/libc.ts";
import { Netns } from "../../lib/base/netns.ts";
import { NetlinkError } from "../../lib/netlink/error.ts";
import { emitLinkRef } from "../../lib/netlink/link.ts";
import { emitMessage, messageType } from "../../lib/netlink/message.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { NetlinkSocket } from "../../lib/netlink/socket.ts";
import { Lab, type Place, runCommand } from "../helpers/lab.ts";

// biome-ignore lint/suspicious/noExplicitAny: what `ip -j` prints is looked into freely
type Shown = any;
const ip = (place: Place, ...args: string[]): Shown =>
  JSON.parse(runCommand(["ip", "-n", place.name, "-j", "-d", ...args]) || "[]");

/** A namespace with its loopback up, a second one, and a socket in each. */
class Pair {
  readonly lab = new Lab();
  readonly node = this.lab.node();
  readonly pod = this.lab.pod();
  readonly nodeNetns = Netns.open(this.node.path);
  readonly podNetns = Netns.open(this.pod.path);
  readonly host = Rtnetlink.open(this.nodeNetns);
  readonly inside = Rtnetlink.open(this.podNetns);

  async index(name: string, where = this.host): Promise<number> {
    const link = await where.getLink({ name });
    assert(link, `no link "${name}"`);
    return link.index;
  }

  /** A veth pair within the node, both ends up: `a` and `b`. */
  async veth(): Promise<{ a: number; b: number }> {
    await this.host.createLink({
      name: "a",
      up: true,
      data: { kind: "veth", peer: { name: "b" } },
    });
    const [a, b] = [await this.index("a"), await this.index("b")];
    await this.host.changeLink(b, { up: true });
    return { a, b };
  }

  [Symbol.dispose](): void {
    for (const one of [this.host, this.inside, this.nodeNetns, this.podNetns]) one.close();
    this.lab[Symbol.dispose]();
  }
}

test("createLink, a veth into another namespace, makes both ends final in one message", async () => {
  using pair = new Pair();
  await pair.host.createLink({
    name: "br0",
    up: true,
    mac: "02:00:00:00:00:01",
    data: { kind: "bridge", mcastSnooping: false },
  });
  const bridge = await pair.index("br0");
  await pair.host.createLink({
    name: "v0",
    mtu: 1400,
    up: true,
    master: bridge,
    group: 7,
    alias: "to the pod",
    txQueueLength: 11,
    numTxQueues: 2,
    numRxQueues: 2,
    data: {
      kind: "veth",
      peer: { name: "eth0", mac: "02:00:00:00:00:05", mtu: 1400, netnsFd: pair.podNetns.fd },
    },
  });
  const [near] = ip(pair.node, "link", "show", "v0");
  assert.deepEqual(
    [
      near.mtu,
      near.master,
      near.group,
      near.ifalias,
      near.txqlen,
      near.linkinfo.info_kind,
      near.flags.includes("UP"),
    ],
    [1400, "br0", "7", "to the pod", 11, "veth", true],
  );
  const [far] = ip(pair.pod, "link", "show", "eth0");
  assert.deepEqual(
    [far.address, far.mtu, far.flags.includes("UP")],
    ["02:00:00:00:00:05", 1400, false],
  );
  const link = await pair.host.getLink({ name: "v0" });
  assert.deepEqual(
    [
      link?.kind,
      link?.mtu,
      link?.master,
      link?.group,
      link?.alias,
      link?.txQueueLength,
      link?.link,
      link?.up,
      link?.numTxQueues,
    ],
    ["veth", 1400, bridge, 7, "to the pod", 11, far.ifindex, true, 2],
  );
  const [shown] = ip(pair.node, "link", "show", "br0");
  assert.deepEqual(
    [shown.linkinfo.info_data.mcast_snooping, shown.address],
    [0, "02:00:00:00:00:01"],
  );
});

test("createLink and changeLink, faults, carry the kernel's code and words", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  const refused = (work: Promise<unknown>, code: string, message: string) =>
    assert.rejects(
      work,
      (error) => error instanceof NetlinkError && error.code === code && error.message === message,
    );
  await refused(
    pair.host.createLink({ name: "a", data: { kind: "bridge" } }),
    "EEXIST",
    'create bridge link "a": EEXIST',
  );
  await refused(
    pair.host.changeLink(a, { mtu: 10 }),
    "EINVAL",
    `set mtu of link ${a}: mtu less than device minimum (EINVAL)`,
  );
  await refused(pair.host.changeLink(9999, { up: true }), "ENODEV", "set up of link 9999: ENODEV");
  await refused(
    pair.host.createLink({ name: "x", data: { kind: "nosuch" as "dummy" } }),
    "EOPNOTSUPP",
    'create nosuch link "x": Unknown device type (EOPNOTSUPP)',
  );
  await assert.rejects(pair.host.setBridgePort(a, { hairpin: true }), NetlinkError);
});

test("changeLink, each key, is what ip shows", async () => {
  using pair = new Pair();
  const { a, b } = await pair.veth();
  await pair.host.createLink({ name: "br0", data: { kind: "bridge" } });
  const bridge = await pair.index("br0");
  await pair.host.changeLink(a, {
    mac: "02:00:00:00:00:0a",
    mtu: 1300,
    promisc: true,
    allmulti: true,
    master: bridge,
    txQueueLength: 5,
    group: 9,
    alias: "other",
  });
  let [shown] = ip(pair.node, "link", "show", "a");
  assert.deepEqual(
    [shown.address, shown.mtu, shown.master, shown.txqlen, shown.group, shown.ifalias],
    ["02:00:00:00:00:0a", 1300, "br0", 5, "9", "other"],
  );
  assert.deepEqual(
    ["PROMISC", "ALLMULTI", "UP"].map((flag) => shown.flags.includes(flag)),
    [true, true, true],
  );
  assert.equal((await pair.host.getLink({ index: a }))?.allmulti, true);
  await pair.host.changeLink(a, { promisc: false, allmulti: false, master: 0, up: false });
  [shown] = ip(pair.node, "link", "show", "a");
  assert.deepEqual(
    [shown.master, shown.flags.includes("PROMISC"), shown.flags.includes("UP")],
    [undefined, false, false],
  );
  await pair.host.changeLink(b, { up: false });
  await pair.host.changeLink(b, { name: "moved", netnsFd: pair.podNetns.fd });
  assert.equal(await pair.host.getLink({ name: "b" }), undefined);
  assert.equal(ip(pair.pod, "link", "show", "moved")[0].ifname, "moved");
});

test("changeLink, a move into another namespace, does not stop the event loop while the kernel sleeps", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  let moved = false;
  const move = pair.host.changeLink(a, { netnsFd: pair.podNetns.fd }).then(() => {
    moved = true;
  });
  await new Promise(setImmediate);
  assert.equal(moved, false);
  await move;
  assert.ok(await pair.inside.getLink({ name: "a" }));
});

test("links, every link of the namespace, agree with ip", async () => {
  using pair = new Pair();
  await pair.veth();
  await pair.host.createLink({ name: "br0", data: { kind: "bridge" } });
  const shown = ip(pair.node, "link").map((link: Shown) => [
    link.ifindex,
    link.ifname,
    link.mtu,
    link.address,
  ]);
  assert.deepEqual(
    (await pair.host.links()).map(({ index, name, mtu, mac }) => [index, name, mtu, mac]),
    shown,
  );
});

test("getLink, by index, name and alternative names, finds it or gives undefined", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  const long = "a-name-that-is-longer-than-fifteen-bytes";
  await pair.host.addAltName(a, "short");
  await pair.host.addAltName(a, long);
  assert.deepEqual(ip(pair.node, "link", "show", "a")[0].altnames, ["short", long]);
  for (const ref of [{ index: a }, { name: "a" }, { name: "short" }, { name: long }]) {
    assert.equal((await pair.host.getLink(ref))?.index, a, JSON.stringify(ref));
  }
  await assert.rejects(pair.host.addAltName(a, "short"), { code: "EEXIST" });
  await pair.host.deleteAltName(a, "short");
  assert.equal(await pair.host.getLink({ name: "short" }), undefined);
  assert.equal(await pair.host.getLink({ index: 9999 }), undefined);
  assert.deepEqual((await pair.host.getLink({ index: a }))?.altNames, [long]);
  assert.equal((await pair.host.getLink({ index: a }, { vfs: true }))?.vfs, undefined);
});

test("setBridgePort, each flag, is what bridge shows and getLink reads", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  await pair.host.createLink({ name: "br0", data: { kind: "bridge" } });
  await pair.host.changeLink(a, { master: await pair.index("br0") });
  const flags = { hairpin: true, isolated: true, learning: false, unicastFlood: false };
  await pair.host.setBridgePort(a, flags);
  assert.deepEqual((await pair.host.getLink({ index: a }))?.bridgePort, flags);
  const port = ip(pair.node, "link", "show", "a")[0].linkinfo.info_slave_data;
  assert.deepEqual(
    [port.hairpin, port.isolated, port.learning, port.flood],
    [true, true, false, false],
  );
  await pair.host.setBridgePort(a, { hairpin: false });
  assert.deepEqual((await pair.host.getLink({ index: a }))?.bridgePort, {
    ...flags,
    hairpin: false,
  });
});

test("addresses, both families with flags, agree with ip and come and go", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  await pair.host.addAddress({
    index: a,
    address: "10.0.0.5/24",
    broadcast: "10.0.0.255",
    label: "a:x",
  });
  await pair.host.addAddress({ index: a, address: "fd00::5/64", flags: 0x02 | 0x200 });
  const [shown] = ip(pair.node, "address", "show", "a");
  const four = shown.addr_info.find((info: Shown) => info.family === "inet");
  assert.deepEqual(
    [four.local, four.prefixlen, four.broadcast, four.label, four.scope],
    ["10.0.0.5", 24, "10.0.0.255", "a:x", "global"],
  );
  const six = shown.addr_info.find((info: Shown) => info.local === "fd00::5");
  assert.deepEqual([six.nodad, six.noprefixroute, six.tentative], [true, true, undefined]);
  const found = await pair.host.addresses(a);
  assert.deepEqual(
    found.find(({ address }) => address.startsWith("10.")),
    {
      index: a,
      address: "10.0.0.5/24",
      broadcast: "10.0.0.255",
      label: "a:x",
      scope: 0,
      flags: 0x80,
    },
  );
  assert.equal(found.find(({ address }) => address === "fd00::5/64")?.flags, 0x282);
  assert.equal(
    found.every(({ index }) => index === a),
    true,
  );
  await assert.rejects(pair.host.addAddress({ index: a, address: "10.0.0.5/24" }), {
    code: "EEXIST",
  });
  await pair.host.deleteAddress({ index: a, address: "10.0.0.5/24" });
  await assert.rejects(pair.host.deleteAddress({ index: a, address: "10.0.0.5/24" }), {
    code: "EADDRNOTAVAIL",
  });
  await assert.rejects(
    pair.host.addAddress({ index: a, address: "nonsense/24" }),
    /parse "nonsense"/,
  );
  assert.deepEqual(
    (await pair.host.addresses()).map(({ address }) => address).includes("127.0.0.1/8"),
    true,
  );
  assert.deepEqual(await pair.host.addresses(9999), []);
});

test("routes, every key and filter, agree with ip", async () => {
  using pair = new Pair();
  const { a, b } = await pair.veth();
  await pair.host.addAddress({ index: a, address: "10.0.0.5/24" });
  await pair.host.addAddress({ index: a, address: "fd00::5/64", flags: 2 });
  const spec = {
    destination: "10.1.0.0/16",
    gateway: "10.0.0.1",
    index: a,
    table: 1000,
    priority: 7,
    source: "10.0.0.5",
    mtu: 1300,
    advmss: 1200,
  };
  await pair.host.addRoute(spec);
  const [shown] = ip(pair.node, "route", "show", "table", "1000");
  assert.deepEqual(
    [shown.dst, shown.gateway, shown.dev, shown.metric, shown.prefsrc, shown.metrics],
    ["10.1.0.0/16", "10.0.0.1", "a", 7, "10.0.0.5", [{ mtu: 1300, advmss: 1200 }]],
  );
  assert.deepEqual(await pair.host.routes({ table: 1000 }), [
    { family: 4, scope: 0, protocol: 3, type: 1, flags: 0, ...spec },
  ]);
  await assert.rejects(pair.host.addRoute(spec), { code: "EEXIST" });
  await pair.host.addRoute({ ...spec, mtu: 1200 }, "replace");
  assert.equal((await pair.host.routes({ table: 1000 }))[0]?.mtu, 1200);
  await pair.host.addRoute({
    destination: "0.0.0.0/0",
    gateway: "10.9.9.9",
    index: a,
    onlink: true,
  });
  await pair.host.addRoute({ destination: "::/0", gateway: "fd00::1" });
  await pair.host.addRoute({ destination: "::/0", gateway: "fd00::2", index: a }, "append");
  const six = (await pair.host.routes({ family: 6, table: 254 })).filter(
    ({ destination }) => destination === "::/0",
  );
  assert.deepEqual(
    six.map(({ gateway }) => gateway),
    ["fd00::1", "fd00::2"],
  );
  const [onlink] = (await pair.host.routes({ family: 4, table: 254 })).filter(
    ({ destination }) => destination === "0.0.0.0/0",
  );
  assert.deepEqual([onlink?.gateway, (onlink?.flags ?? 0) & 4], ["10.9.9.9", 4]);
  assert.deepEqual(await pair.host.routes({ table: 4242 }), []);
  assert.deepEqual(await pair.host.routes({ index: b, family: 4 }), []);
  assert.equal(
    (await pair.host.routes({ index: a })).every(({ index }) => index === a),
    true,
  );
  await assert.rejects(
    pair.host.addRoute({ destination: "10.2.0.0/16", gateway: "9.9.9.9" }),
    /Nexthop has invalid gateway \(ENETUNREACH\)/,
  );
});

test("deleteRoute and routeTo, what is there and what is not, say so", async () => {
  using pair = new Pair();
  const { a } = await pair.veth();
  await pair.host.addAddress({ index: a, address: "10.0.0.5/24" });
  await pair.host.addRoute({ destination: "10.1.0.0/16", gateway: "10.0.0.1" });
  const way = await pair.host.routeTo("10.1.2.3");
  assert.deepEqual([way?.gateway, way?.index, way?.source], ["10.0.0.1", a, "10.0.0.5"]);
  assert.equal(
    await pair.host.deleteRoute({ destination: "10.1.0.0/16", gateway: "10.0.0.9" }),
    false,
  );
  assert.equal(await pair.host.deleteRoute({ destination: "10.1.0.0/16" }), true);
  assert.equal(await pair.host.deleteRoute({ destination: "10.1.0.0/16" }), false);
  assert.equal(await pair.host.routeTo("10.1.2.3"), undefined);
  assert.equal(await pair.host.routeTo("2001:db8::1"), undefined);
});

test("rules, both families, agree with ip and come and go", async () => {
  using pair = new Pair();
  const four = {
    family: 4,
    table: 1000,
    priority: 77,
    source: "10.0.0.0/8",
    destination: "10.1.0.0/16",
    iifName: "a",
    mark: 5,
  } as const;
  const six = { family: 6, table: 100, source: "fd00::/8" } as const;
  await pair.host.addRule(four);
  await pair.host.addRule(six);
  const [shown] = ip(pair.node, "rule", "show", "priority", "77");
  assert.deepEqual(
    [shown.src, shown.srclen, shown.dst, shown.iif, shown.fwmark, shown.table],
    ["10.0.0.0", 8, "10.1.0.0", "a", "0x5", "1000"],
  );
  assert.deepEqual(
    (await pair.host.rules(4)).find(({ priority }) => priority === 77),
    { oifName: undefined, ...four },
  );
  assert.equal((await pair.host.rules(6)).find(({ table }) => table === 100)?.source, "fd00::/8");
  assert.equal(
    (await pair.host.rules()).length,
    ip(pair.node, "-4", "rule").length + ip(pair.node, "-6", "rule").length,
  );
  await assert.rejects(pair.host.addRule(four), { code: "EEXIST" });
  assert.equal(await pair.host.deleteRule(four), true);
  assert.equal(await pair.host.deleteRule(four), false);
  assert.equal(await pair.host.deleteRule(six), true);
});

test("neighbours, set and read, agree with ip", async () => {
  using pair = new Pair();
  const { a, b } = await pair.veth();
  const neighbour = {
    index: a,
    address: "10.0.0.9",
    mac: "02:00:00:00:00:09",
    state: 128,
    flags: 0,
  };
  await pair.host.setNeighbour(neighbour);
  const [shown] = ip(pair.node, "-4", "neigh", "show", "dev", "a");
  assert.deepEqual(
    [shown.dst, shown.lladdr, shown.state],
    ["10.0.0.9", "02:00:00:00:00:09", ["PERMANENT"]],
  );
  assert.deepEqual(
    (await pair.host.neighbours(a)).find(({ address }) => address === "10.0.0.9"),
    neighbour,
  );
  assert.equal(
    (await pair.host.neighbours(b)).some(({ address }) => address === "10.0.0.9"),
    false,
  );
  await pair.host.setNeighbour({ ...neighbour, mac: "02:00:00:00:00:0a" });
  assert.equal(
    (await pair.host.neighbours()).find(({ address }) => address === "10.0.0.9")?.mac,
    "02:00:00:00:00:0a",
  );
});

test("links, while others come and go, always has those that stay, once each", async () => {
  using pair = new Pair();
  const stay = Array.from({ length: 60 }, (_, at) => `stay${at}`);
  for (const name of stay.filter((_, at) => at % 2 === 0)) {
    await pair.host.createLink({
      name,
      data: { kind: "veth", peer: { name: `stay${Number(name.slice(4)) + 1}` } },
    });
  }
  using _changes = changing(pair.node);
  const until = Date.now() + 60_000;
  for (let readings = 0, seen = 0; readings < 40 || seen === 0; readings += 1) {
    const names = (await pair.host.links()).map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    assert.deepEqual(
      stay.filter((name) => !names.includes(name)),
      [],
    );
    seen += Number(names.length > stay.length + 1);
    assert(Date.now() < until, `${readings} readings, and ${seen} of them saw a change`);
    await new Promise(setImmediate);
  }
});

/** Makes and deletes bridges, again and again, until it is disposed of. */
function changing(place: Place): Disposable {
  const some = Array.from({ length: 20 }, (_, at) => at);
  const round = [
    ...some.map((at) => `link add c${at} type bridge\n`),
    ...some.map((at) => `link del c${at}\n`),
  ].join("");
  const child = spawn("ip", ["-n", place.name, "-b", "-"], {
    stdio: ["pipe", "ignore", "inherit"],
  });
  const rounds = Readable.from(
    (function* () {
      for (;;) yield round;
    })(),
  );
  // It is killed with commands left to read.
  rounds.pipe(child.stdin).on("error", () => undefined);
  return {
    [Symbol.dispose]: () => {
      rounds.destroy();
      child.kill("SIGKILL");
    },
  };
}

test("calls of many flows over one socket, each get their own answer", async () => {
  using pair = new Pair();
  const { a, b } = await pair.veth();
  await pair.host.addAddress({ index: a, address: "10.0.0.5/24" });
  const flows = Array.from({ length: 200 }, async (_, at) => {
    switch (at % 5) {
      case 0:
        return assert.equal((await pair.host.getLink({ index: a }))?.name, "a");
      case 1:
        return assert.equal((await pair.host.getLink({ name: "b" }))?.index, b);
      case 2:
        return assert.equal((await pair.host.links()).length, 3);
      case 3:
        return await assert.rejects(pair.host.createLink({ name: "a", data: { kind: "bridge" } }), {
          code: "EEXIST",
        });
      default:
        return await pair.host.addRoute({ destination: `10.${at}.0.0/16`, gateway: "10.0.0.1" });
    }
  });
  await Promise.all(flows);
  assert.equal((await pair.host.routes({ table: 254, family: 4 })).length, 41);
});

test("sendAsync, of 400 sockets at once, sends for all: so many pods may come at a time", async () => {
  using pair = new Pair();
  const sockets = Array.from({ length: 400 }, () => NetlinkSocket.open(pair.nodeNetns));
  const query = { type: messageType.getLink, flags: 0, body: emitLinkRef({ name: "lo" }) };
  try {
    await Promise.all(sockets.map((socket) => socket.sendAsync(emitMessage(query, 1))));
    assert.ok(sockets.every((socket) => socket.receive() !== undefined));
  } finally {
    for (const socket of sockets) socket.close();
  }
});

test("close, calls afterwards, fail with EBADF and no descriptor stays", async () => {
  const before = readdirSync("/proc/self/fd").length;
  {
    using pair = new Pair();
    const late = Rtnetlink.open(pair.nodeNetns);
    late.close();
    late.close();
    for (const call of [
      late.links(),
      late.getLink({ name: "lo" }),
      late.deleteLink({ index: 1 }),
      late.addRoute({ destination: "10.0.0.0/8", index: 1 }),
    ]) {
      await assert.rejects(call, { name: "NetlinkError", code: "EBADF" });
    }
    await assert.rejects(pair.host.changeLink(9999, { up: true }));
    await assert.rejects(
      pair.host
        .routes({ family: 4, index: 9999, table: 1 << 30 })
        .then(() => Promise.reject(new Error("none"))),
    );
  }
  assert.equal(readdirSync("/proc/self/fd").length, before);
});

test("close, while a pool thread sends, keeps the descriptor until that is done", async () => {
  using pair = new Pair();
  const socket = NetlinkSocket.open(pair.nodeNetns);
  const { fd } = socket;
  const body = emitLinkRef({ name: "lo" });
  const sent = socket.sendAsync(emitMessage({ type: messageType.getLink, flags: 0, body }, 1));
  socket.close();
  assert.equal(libc.socketName(fd).readUInt16LE(0), libc.AF_NETLINK);
  await sent;
  assert.throws(() => libc.socketName(fd), { code: "EBADF" });
});

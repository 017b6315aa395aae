import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { Netns } from "../../lib/base/netns.ts";
import { Connection } from "../../lib/netlink/connection.ts";
import type { EventListener, Events } from "../../lib/netlink/events.ts";
import { LinkDeletion } from "../../lib/netlink/link-deletion.ts";
import { type Message, messageType } from "../../lib/netlink/message.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Lab, runCommand } from "../helpers/lab.ts";

/** A node, a pod, and veth pairs `v0`.. (in the node) to `p0`.. (in the pod). */
class Veths {
  readonly lab = new Lab();
  readonly node = this.lab.node();
  readonly pod = this.lab.pod();
  readonly nodeNetns = Netns.open(this.node.path);
  readonly podNetns = Netns.open(this.pod.path);
  readonly host = Rtnetlink.open(this.nodeNetns);
  readonly inside = Rtnetlink.open(this.podNetns);

  async make(at: number): Promise<number> {
    await this.host.createLink({
      name: `v${at}`,
      up: true,
      data: { kind: "veth", peer: { name: `p${at}`, netnsFd: this.podNetns.fd } },
    });
    return (await this.host.getLink({ name: `v${at}` }))?.index ?? 0;
  }

  /** What is left on both sides, as ip sees it. */
  left(): string {
    return (
      runCommand(["ip", "-n", this.node.name, "-br", "link", "show", "type", "veth"]) +
      runCommand(["ip", "-n", this.pod.name, "-br", "link", "show", "type", "veth"])
    );
  }

  [Symbol.dispose](): void {
    for (const one of [this.host, this.inside, this.nodeNetns, this.podNetns]) one.close();
    this.lab[Symbol.dispose]();
  }
}

/** Calls of a connection, with the moments at which DELLINK came back. */
function watched(connection: Connection, log: string[]) {
  return {
    execute: (...call: Parameters<Connection["execute"]>) => connection.execute(...call),
    executeDetached: async (...call: Parameters<Connection["executeDetached"]>) => {
      await connection.executeDetached(...call);
      log.push("returned");
    },
  };
}

test("deleteLink, a veth, is gone from both namespaces when it resolves and can be made again at once", async () => {
  using veths = new Veths();
  for (let round = 0; round < 10; round++) {
    await veths.make(0);
    assert.equal(await veths.host.deleteLink({ name: "v0" }), true);
    assert.equal(await veths.host.getLink({ name: "v0" }), undefined);
    assert.equal(await veths.inside.getLink({ name: "p0" }), undefined);
  }
  await veths.make(0);
  assert.equal(await veths.inside.deleteLink({ name: "p0" }), true);
  assert.equal(veths.left(), "");
});

test("deleteLink, the kernel's call, comes back after the link was reported gone", async () => {
  using veths = new Veths();
  const connection = Connection.open(veths.nodeNetns);
  const log: string[] = [];
  const deletion = new LinkDeletion(watched(connection, log), veths.nodeNetns);
  let early = 0;
  for (let round = 0; round < 20; round++) {
    const index = await veths.make(round);
    log.length = 0;
    assert.equal(await deletion.delete(index), true);
    if (log.length === 0) early += 1;
    assert.equal(await veths.host.getLink({ index }), undefined);
  }
  connection.close();
  // None would be, if it waited for the call; on a busy machine the call now and then comes back first.
  assert(early >= 5, `only ${early} of 20 were answered before the call returned`);
});

test("deleteLink, no such link, is false by name, by index and beside others", async () => {
  using veths = new Veths();
  const index = await veths.make(0);
  assert.equal(await veths.host.deleteLink({ name: "nosuch" }), false);
  assert.equal(await veths.host.deleteLink({ index: 9999 }), false);
  assert.deepEqual(
    await Promise.all([veths.host.deleteLink({ index }), veths.host.deleteLink({ index: 9999 })]),
    [true, false],
  );
  assert.equal(veths.left(), "");
});

test("deleteLink, the same link from several flows, is deleted once and true for all", async () => {
  using veths = new Veths();
  await veths.make(0);
  assert.deepEqual(await Promise.all([1, 2, 3].map(() => veths.host.deleteLink({ name: "v0" }))), [
    true,
    true,
    true,
  ]);
});

test("deleteLink, a link that can't be deleted, rejects and takes no other with it", async () => {
  using veths = new Veths();
  const index = await veths.make(0);
  await assert.rejects(veths.host.deleteLink({ name: "lo" }), {
    name: "NetlinkError",
    code: "EOPNOTSUPP",
  });
  const [lo, veth] = await Promise.allSettled([
    veths.host.deleteLink({ name: "lo" }),
    veths.host.deleteLink({ index }),
  ]);
  assert.equal(lo.status, "rejected");
  assert.deepEqual(veth, { status: "fulfilled", value: true });
  assert.equal((await veths.host.getLink({ name: "lo" }))?.index, 1);
});

test("deleteLink, many in one turn, go in one call of the kernel and spare the others", async () => {
  using veths = new Veths();
  const connection = Connection.open(veths.nodeNetns);
  const log: string[] = [];
  const deletion = new LinkDeletion(watched(connection, log), veths.nodeNetns);
  const indices: number[] = [];
  for (let at = 0; at < 30; at++) indices.push(await veths.make(at));
  const doomed = indices.slice(0, 29);
  assert.deepEqual(
    new Set(await Promise.all(doomed.map((index) => deletion.delete(index)))),
    new Set([true]),
  );
  assert.deepEqual(
    (await veths.host.links()).map(({ name }) => name),
    ["lo", "v29"],
  );
  while (log.length === 0) await new Promise((done) => setTimeout(done, 5));
  assert.deepEqual(log, ["returned"]);
  connection.close();
});

test("deleteLink, reports lost, looks for itself", async () => {
  using veths = new Veths();
  const connection = Connection.open(veths.nodeNetns);
  let listener: EventListener | undefined;
  let closed = 0;
  const deaf = (_netns: unknown, _groups: unknown, given: EventListener): Events => {
    listener = given;
    return {
      close: () => {
        closed += 1;
      },
    } as unknown as Events;
  };
  const log: string[] = [];
  const deletion = new LinkDeletion(watched(connection, log), veths.nodeNetns, deaf);
  const index = await veths.make(0);
  const deleted = deletion.delete(index);
  while ((await veths.host.getLink({ index })) !== undefined) await new Promise(setImmediate);
  listener?.resynchronise();
  assert.equal(await deleted, true);
  assert.equal(closed, 1);
  connection.close();
});

test("deleteLink, a report of another family or link, does not count", async () => {
  using lab = new Lab();
  using netns = Netns.open(lab.node().path);
  const waiting = Promise.withResolvers<void>();
  let listener: EventListener | undefined;
  const open = (_netns: unknown, _groups: unknown, given: EventListener) => {
    listener = given;
    return { close: () => undefined } as unknown as Events;
  };
  const calls = { execute: async () => [], executeDetached: () => waiting.promise };
  const deleted = new LinkDeletion(calls, netns, open).delete(5);
  let settled = false;
  void deleted.then(() => {
    settled = true;
  });
  await new Promise(setImmediate);
  const report = (family: number, index: number, type: number = messageType.delLink): Message => {
    const body = Buffer.alloc(16);
    body.writeUInt8(family, 0);
    body.writeInt32LE(index, 4);
    return { type, flags: 0, sequence: 0, body };
  };
  listener?.event(report(7, 5)); // AF_BRIDGE: it left its bridge
  listener?.event(report(0, 6));
  listener?.event(report(0, 5, messageType.newLink));
  await new Promise(setImmediate);
  assert.equal(settled, false);
  listener?.event(report(0, 5));
  assert.equal(await deleted, true);
  waiting.reject(new Error("the call's own late failure"));
  await new Promise(setImmediate);
});

test("deleteLink, the namespace's descriptor closed before, waits for the kernel's call", async () => {
  using veths = new Veths();
  const netns = Netns.open(veths.node.path);
  using rtnl = Rtnetlink.open(netns);
  netns.close();
  await veths.make(0);
  assert.equal(await rtnl.deleteLink({ name: "v0" }), true);
  assert.equal(veths.left(), "");
});

test("close, right after and during a deletion, lets it end and leaves no descriptor", async () => {
  using veths = new Veths();
  await new Promise((done) => setTimeout(done, 50));
  const before = readdirSync("/proc/self/fd").length;
  for (let round = 0; round < 5; round++) {
    const index = await veths.make(0);
    const rtnl = Rtnetlink.open(veths.nodeNetns);
    const deleted = rtnl.deleteLink({ index });
    if (round % 2 === 0) await deleted;
    else await new Promise(setImmediate);
    rtnl.close();
    assert.equal(await deleted, true);
    assert.equal(veths.left(), "");
  }
  for (let waited = 0; waited < 40 && readdirSync("/proc/self/fd").length > before; waited++)
    await new Promise((done) => setTimeout(done, 25));
  assert.equal(readdirSync("/proc/self/fd").length, before);
});

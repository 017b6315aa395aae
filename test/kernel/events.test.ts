import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { Netns } from "../../lib/base/netns.ts";
import { parseAddress } from "../../lib/netlink/address.ts";
import { Events } from "../../lib/netlink/events.ts";
import { parseLink } from "../../lib/netlink/link.ts";
import { type Message, messageType } from "../../lib/netlink/message.ts";
import { parseRoutes } from "../../lib/netlink/route.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Lab } from "../helpers/lab.ts";

/** Waits for what a function finds, 10 s at most. */
async function until<T>(find: () => T | undefined): Promise<T> {
  for (let waited = 0; waited < 1000; waited++) {
    const found = find();
    if (found !== undefined && found !== false) return found;
    await new Promise((done) => setTimeout(done, 10));
  }
  throw new Error("it did not happen within 10 s");
}

test("Events, links, addresses and routes, reports what other processes change", async () => {
  using lab = new Lab();
  const node = lab.node();
  using netns = Netns.open(node.path);
  const messages: Message[] = [];
  using _events = Events.open(netns, ["link", "address", "route"], {
    event: (message) => messages.push(message),
    resynchronise: () => assert.fail("nothing was lost"),
  });
  node.run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far");
  node.run("ip", "link", "set", "near", "up");
  node.run("ip", "address", "add", "10.0.0.5/24", "dev", "near");
  node.run("ip", "route", "add", "10.1.0.0/16", "via", "10.0.0.1");
  node.run("ip", "link", "del", "near");
  const of = (type: number) => messages.filter((message) => message.type === type);
  await until(() => of(messageType.delLink).some(({ body }) => parseLink(body).name === "near"));
  assert(of(messageType.newLink).some(({ body }) => parseLink(body).name === "far"));
  assert(
    of(messageType.newAddress).some(({ body }) => parseAddress(body)?.address === "10.0.0.5/24"),
  );
  assert(
    of(messageType.newRoute).some(
      ({ body }) => parseRoutes(body)[0]?.destination === "10.1.0.0/16",
    ),
  );
});

test("Events, an overrun, says resynchronise and goes on reporting", async () => {
  using lab = new Lab();
  const node = lab.node();
  using netns = Netns.open(node.path);
  using rtnl = Rtnetlink.open(netns);
  await rtnl.createLink({ name: "near", data: { kind: "veth", peer: { name: "far" } } });
  let lost = 0;
  const names: string[] = [];
  using _events = Events.open(netns, ["link"], {
    event: (message) => names.push(parseLink(message.body).name),
    resynchronise: () => {
      lost += 1;
    },
  });
  for (let round = 1; round <= 3; round++) {
    // The event loop does not come round while another process changes more than the receive buffer holds.
    const changes = Array.from(
      { length: 400 },
      (_, at) => `link set near mtu ${1280 + ((at + round) % 200)}\n`,
    ).join("");
    spawnSync("ip", ["-n", node.name, "-b", "-"], { input: changes });
    await until(() => lost === round || undefined);
    names.length = 0;
    node.run("ip", "link", "set", "far", "mtu", String(1300 + round));
    await until(() => names.includes("far") || undefined);
    assert.equal(lost, round);
  }
});

test("close, from within an event and twice, reports nothing more", async () => {
  using lab = new Lab();
  const node = lab.node();
  using netns = Netns.open(node.path);
  let heard = 0;
  using events: Events = Events.open(netns, ["link"], {
    event: () => {
      heard += 1;
      events.close();
      events.close();
    },
    resynchronise: () => assert.fail("nothing was lost"),
  });
  node.run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far");
  await until(() => heard > 0 || undefined);
  node.run("ip", "link", "del", "near");
  await new Promise((done) => setTimeout(done, 50));
  assert.equal(heard, 1);
});

test("unref, an open subscription, does not keep the process alive", () => {
  const script = `
    import { Events } from ${JSON.stringify(join(process.cwd(), "lib/netlink/events.ts"))};
    Events.open(undefined, ["link"], { event() {}, resynchronise() {} }).unref();`;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    timeout: 20_000,
    encoding: "utf8",
  });
  assert.equal(child.status, 0, child.stderr);
});

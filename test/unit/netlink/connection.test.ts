import assert from "node:assert/strict";
import { constants } from "node:os";
import { test } from "node:test";
import { SystemError } from "../../../lib/base/system-error.ts";
import { Connection } from "../../../lib/netlink/connection.ts";
import { NetlinkError } from "../../../lib/netlink/error.ts";
import type { Message } from "../../../lib/netlink/message.ts";
import { RtnlPressure } from "../../../lib/netlink/pressure.ts";
import { acknowledge, answer, FakeKernel } from "../../helpers/fake-kernel.ts";

const quiet = () =>
  new RtnlPressure(
    () => 0,
    () => 0,
  );
function contended(): RtnlPressure {
  let now = 0;
  const pressure = new RtnlPressure(
    () => now,
    () => now,
  );
  const measured = pressure.measure();
  now = 20;
  measured();
  return pressure;
}
const request = (type: number) => ({ type, flags: 0, body: Buffer.from([type]) });
const EINTR_FLAG = 0x10;
const done = (asked: Message, flags = 0) =>
  answer(3, asked.sequence, { flags: 2 | flags, body: Buffer.alloc(4) });

test("execute, a quiet RTNL, sends on this thread and resolves to the replies", async () => {
  const kernel = new FakeKernel((asked) => [
    Buffer.concat([answer(16, asked.sequence, { body: Buffer.from("reply") }), acknowledge(asked)]),
  ]);
  const replies = await new Connection(kernel, quiet()).execute("get", request(18));
  assert.deepEqual(
    replies.map(({ body }) => body.toString("utf8")),
    ["reply"],
  );
  assert.deepEqual(
    kernel.sent.map(({ how, requests }) => [how, requests.map(({ flags }) => flags)]),
    [["here", [0x1 | 0x4]]],
  );
});

test("execute, a refusal, rejects with the operation and the errno", async () => {
  const kernel = new FakeKernel((asked) => [acknowledge(asked, 17)]);
  await assert.rejects(
    new Connection(kernel, quiet()).execute('create link "a"', request(16)),
    (error) =>
      error instanceof NetlinkError &&
      error.code === "EEXIST" &&
      error.message === 'create link "a": EEXIST',
  );
});

test("execute, contended RTNL, sends one turn's requests in one datagram of the pool, in order", async () => {
  const kernel = new FakeKernel((asked) => [acknowledge(asked, asked.type === 2 + 100 ? 22 : 0)]);
  const connection = new Connection(kernel, contended());
  const outcomes = await Promise.allSettled(
    [101, 102, 103].map((type) => connection.execute(`${type}`, request(type))),
  );
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual(
    kernel.sent.map(({ how, requests }) => [how, ...requests.map(({ type }) => type)]),
    [["pool", 101, 102, 103]],
  );
  assert.equal(kernel.leases, 0);
});

test("execute and dump, contended RTNL, keep the order in which they were asked", async () => {
  const kernel = new FakeKernel((asked) => [asked.type === 18 ? done(asked) : acknowledge(asked)]);
  const connection = new Connection(kernel, contended());
  await Promise.all([
    connection.execute("1", request(101)),
    connection.dump("2", request(18)),
    connection.execute("3", request(103)),
    connection.execute("4", request(104)),
  ]);
  assert.deepEqual(
    kernel.sent.map(({ requests }) => requests.map(({ type }) => type)),
    [[101], [18], [103, 104]],
  );
});

test("dump, interrupted by changes, is begun again and gives only the last reading", async () => {
  let reading = 0;
  const kernel = new FakeKernel((asked) => {
    reading += 1;
    const flags = reading < 3 ? EINTR_FLAG : 0;
    return [
      answer(16, asked.sequence, { flags: 2 | flags, body: Buffer.from([reading]) }),
      done(asked, flags),
    ];
  });
  for (const pressure of [quiet(), contended()]) {
    reading = 0;
    const found = await new Connection(kernel, pressure).dump("list", request(18));
    assert.deepEqual(
      found.map(({ body }) => body[0]),
      [3],
    );
  }
});

test("dump, interrupted for ever, ends with EINTR", async () => {
  const kernel = new FakeKernel((asked) => [done(asked, EINTR_FLAG)]);
  await assert.rejects(new Connection(kernel, quiet()).dump("list", request(18)), {
    code: "EINTR",
  });
  assert.equal(kernel.sent.length, 100);
});

test("execute, no answer or one that makes no sense, rejects with EIO and waits for nothing", async () => {
  for (const pressure of [quiet(), contended()]) {
    const silent = new Connection(new FakeKernel(() => []), pressure);
    await assert.rejects(
      silent.execute("get", request(18)),
      /get: the kernel's answer was lost \(EIO\)/,
    );
    await assert.rejects(silent.dump("list", request(18)), { code: "EIO" });
    const mad = new Connection(new FakeKernel(() => [Buffer.from([1, 2, 3])]), pressure);
    await assert.rejects(mad.execute("get", request(18)), { code: "EIO" });
  }
});

test("execute, a socket that fails, rejects with the socket's own code", async () => {
  for (const pressure of [quiet(), contended()]) {
    const full = new Connection(
      new FakeKernel(() => {
        throw new SystemError("recv", constants.errno.ENOBUFS);
      }),
      pressure,
    );
    await assert.rejects(full.execute("get", request(18)), { code: "ENOBUFS" });
  }
});

test("execute, answers that nobody asked for, are ignored", async () => {
  const kernel = new FakeKernel((asked) => [
    answer(16, 0, { body: Buffer.from("news") }),
    acknowledge({ ...asked, sequence: asked.sequence + 1000 }, 5),
    Buffer.concat([answer(16, asked.sequence, { body: Buffer.from([1]) }), acknowledge(asked)]),
  ]);
  const replies = await new Connection(kernel, quiet()).execute("get", request(18));
  assert.equal(replies.length, 1);
});

test("query, one reply, is answered by it alone, and a refusal rejects", async () => {
  for (const pressure of [quiet(), contended()]) {
    const found = new Connection(
      new FakeKernel((asked) => [answer(16, asked.sequence, { body: Buffer.from("it") })]),
      pressure,
    );
    assert.equal((await found.query("get", request(18))).body.toString(), "it");
    const refusing = new Connection(new FakeKernel((asked) => [acknowledge(asked, 19)]), pressure);
    await assert.rejects(refusing.query("get", request(18)), { code: "ENODEV" });
    const odd = new Connection(new FakeKernel((asked) => [acknowledge(asked)]), pressure);
    await assert.rejects(odd.query("get", request(18)), /get: the kernel's answer is empty/);
  }
});

/** The kernel has answered a dump before the pool says that it was sent: its thread had to wait for a processor. */
class LateKernel extends FakeKernel {
  override async sendAsync(bytes: Uint8Array): Promise<void> {
    this.send(bytes);
    const isDump = (Buffer.from(bytes).readUInt16LE(6) & 0x300) === 0x300;
    for (let turn = isDump ? 3 : 1; turn > 0; turn -= 1) await new Promise(setImmediate);
  }
}

test("dump, its answer read by a request beside it before it is known to be sent, ends and holds nobody up", async () => {
  const kernel = new LateKernel((asked) =>
    (asked.flags & 0x300) === 0x300
      ? [answer(16, asked.sequence, { flags: 2 }), done(asked)]
      : [acknowledge(asked)],
  );
  const connection = new Connection(kernel, contended());
  const dump = connection.dump("list", request(18));
  await new Promise(setImmediate);
  await connection.executeDetached("delete", request(17));
  assert.equal((await dump).length, 1);
  await connection.execute("set", request(16));
});

test("close, requests not sent yet and later ones, rejects with EBADF", async () => {
  const kernel = new FakeKernel((asked) => [acknowledge(asked)]);
  const connection = new Connection(kernel, contended());
  const waiting = connection.execute("set", request(16));
  connection.close();
  connection.close();
  await assert.rejects(waiting, { code: "EBADF" });
  await assert.rejects(
    connection.execute("set", request(16)),
    /set: the netlink connection was closed before \(EBADF\)/,
  );
  await assert.rejects(connection.dump("list", request(18)), { code: "EBADF" });
  await assert.rejects(connection.executeDetached("delete", request(17)), { code: "EBADF" });
  assert.deepEqual(kernel.sent, []);
});

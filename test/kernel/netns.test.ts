import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { errorCode } from "../../lib/base/errors.ts";
import * as libc from "../../lib/base/libc.ts";
import { Netns, NetnsError } from "../../lib/base/netns.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { Lab } from "../helpers/lab.ts";

const here = () => fs.readlinkSync("/proc/thread-self/ns/net");
const home = here();
const descriptors = () => fs.readdirSync("/proc/self/fd").length;
/** The network namespaces that the threads of this process are in. */
function threadNamespaces(): string[] {
  const found = new Set<string>();
  for (const task of fs.readdirSync("/proc/self/task"))
    found.add(fs.readlinkSync(`/proc/self/task/${task}/ns/net`));
  return [...found];
}

test("Netns.open, what is no network namespace, throws a NetnsError with path and code", () => {
  using lab = new Lab();
  const folder = lab.folder();
  spawnSync("mkfifo", [join(folder, "fifo")]);
  const cases: readonly (readonly [string, string, RegExp])[] = [
    [join(folder, "missing"), "ENOENT", /it does not exist/],
    [join(folder, "missing", "too"), "ENOENT", /it does not exist/],
    ["/etc/passwd/x", "ENOTDIR", /ENOTDIR/],
    [folder, "EINVAL", /it is not a namespace/],
    ["/etc/passwd", "EINVAL", /it is not a namespace/],
    ["/dev/null", "EINVAL", /it is not a namespace/],
    [join(folder, "fifo"), "EINVAL", /it is not a namespace/],
    ["/proc/self/ns/mnt", "EINVAL", /it is a namespace of another kind/],
  ];
  const before = descriptors();
  for (const [path, code, text] of cases) {
    assert.throws(
      () => Netns.open(path),
      (error) =>
        error instanceof NetnsError &&
        error.code === code &&
        error.path === path &&
        text.test(error.message),
      path,
    );
  }
  assert.equal(descriptors(), before);
});

test("run, returns and throws, is there inside and back afterwards", () => {
  using lab = new Lab();
  using netns = Netns.open(lab.pod().path);
  const inside = netns.run(here);
  assert.notEqual(inside, home);
  assert.equal(here(), home);
  assert.throws(
    () =>
      netns.run(() => {
        throw new Error("inside");
      }),
    /^Error: inside$/,
  );
  assert.equal(here(), home);
  const overflow = (): number => overflow() + 1;
  assert.throws(() => netns.run(overflow), RangeError);
  assert.equal(here(), home);
  assert.throws(() => netns.run(() => libc.socket("x" as unknown as number, 1, 0)), TypeError);
  assert.equal(here(), home);
  assert.equal(
    netns.run(() => netns.run(here)),
    inside,
  );
  assert.equal(here(), home);
});

test("run, asynchronous work, is refused", () => {
  using lab = new Lab();
  using netns = Netns.open(lab.pod().path);
  assert.throws(() => netns.run(async () => 1), /the work must be synchronous/);
  assert.equal(here(), home);
});

test("run, a sysctl written inside, changes that namespace only", () => {
  using lab = new Lab();
  using netns = Netns.open(lab.pod().path);
  const file = "/proc/sys/net/ipv4/ip_default_ttl";
  const before = fs.readFileSync(file, "utf8");
  netns.run(() => fs.writeFileSync(file, "77"));
  assert.equal(
    netns.run(() => fs.readFileSync(file, "utf8")),
    "77\n",
  );
  assert.equal(fs.readFileSync(file, "utf8"), before);
});

test("run, promises of the file system started inside, do not move the thread pool", async () => {
  using lab = new Lab();
  using netns = Netns.open(lab.pod().path);
  const reads: Promise<string>[] = [];
  netns.run(() => {
    for (let at = 0; at < 32; at++) reads.push(fs.promises.readlink("/proc/thread-self/ns/net"));
  });
  assert.deepEqual([...new Set(await Promise.all(reads))], [home]);
  assert.deepEqual(threadNamespaces(), [home]);
});

test("run, no way back, ends the process", () => {
  using lab = new Lab();
  const pod = lab.pod();
  const script = `
    import fs from "node:fs";
    import { Netns } from ${JSON.stringify(join(process.cwd(), "lib/base/netns.ts"))};
    const pod = Netns.open(${JSON.stringify(pod.path)});
    fs.closeSync(Netns.current().fd);
    pod.run(() => undefined);
    console.log("went on");`;
  const child = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
  });
  assert.equal(child.signal, "SIGABRT", child.stderr);
  assert.equal(child.stdout, "");
});

test("cookie, namespaces with reused names and inodes, are told apart", () => {
  using lab = new Lab();
  const seen = new Set<bigint>([Netns.current().cookie()]);
  for (let at = 0; at < 5; at++) {
    const pod = lab.pod();
    using first = Netns.open(pod.path);
    using second = Netns.open(pod.path);
    assert.equal(first.sameAs(second), true);
    assert.equal(first.sameAs(Netns.current()), false);
    assert.equal(seen.has(first.cookie()), false);
    seen.add(first.cookie());
    lab.remove(pod);
  }
  using again = Netns.open("/proc/self/ns/net");
  assert.equal(again.sameAs(Netns.current()), true);
});

test("close, twice and on the process' own, keeps what others hold", () => {
  using lab = new Lab();
  const netns = Netns.open(lab.pod().path);
  netns.close();
  netns.close();
  assert.throws(() => netns.fd, { code: "EBADF" });
  assert.throws(() => netns.run(here), { code: "EBADF" });
  Netns.current().close();
  assert.equal(Netns.current().run(here), home);
});

function unlessClosed(error: unknown): void {
  if (errorCode(error) !== "EBADF") throw error;
}

test("thousands of opens with throws inside, leave descriptors, threads and namespaces as they were", async () => {
  using lab = new Lab();
  const pods = [lab.pod(), lab.pod(), lab.pod()];
  await fs.promises.stat("/");
  const open = async () => {
    const calls: Promise<unknown>[] = [];
    for (let at = 0; at < 3000; at++) {
      using netns = Netns.open(pods[at % 3]?.path ?? "");
      using rtnl = Rtnetlink.open(netns);
      assert.throws(
        () =>
          netns.run(() => {
            throw new Error("inside");
          }),
        /inside/,
      );
      assert.throws(() => Netns.open("/etc/passwd"), NetnsError);
      // A call that is under way when its socket is closed.
      if (at % 100 === 0) calls.push(rtnl.getLink({ name: "lo" }).catch(unlessClosed));
    }
    await Promise.all(calls);
  };
  await open();
  const before = [descriptors(), fs.readdirSync("/proc/self/task").length, threadNamespaces()];
  await open();
  assert.deepEqual(
    [descriptors(), fs.readdirSync("/proc/self/task").length, threadNamespaces()],
    before,
  );
  assert.deepEqual(threadNamespaces(), [home]);
  // Nothing pins a namespace: the far end of a veth goes with it.
  const [pod, other] = pods;
  assert(pod && other);
  pod.run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", other.name);
  lab.remove(other);
  for (let waited = 0; waited < 100; waited++) {
    if (!pod.run("ip", "-o", "link").includes("near")) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail("the namespace outlived its name");
});

test("tryLock, a file that is locked elsewhere, says false at once", () => {
  using lab = new Lab();
  const path = join(lab.folder(), "lock");
  const first = fs.openSync(path, "a");
  const second = fs.openSync(path, "a");
  assert.equal(libc.tryLock(first), true);
  assert.equal(libc.tryLock(second), false);
  libc.unlock(first);
  assert.equal(libc.tryLock(second), true);
  fs.closeSync(first);
  fs.closeSync(second);
  assert.throws(() => libc.tryLock(second), { name: "SystemError", code: "EBADF", call: "flock" });
});

test("peerCredentials, a unix socket, names the process at its other end", async () => {
  using lab = new Lab();
  const path = join(lab.folder(), "socket");
  const server = net.createServer();
  const accepted = new Promise<net.Socket>((done) => server.once("connection", done));
  await new Promise<void>((done) => server.listen(path, done));
  const client = net.connect(path);
  const socket = await accepted;
  const { fd } = (socket as unknown as { _handle: { fd: number } })._handle;
  assert.deepEqual(libc.peerCredentials(fd), { pid: process.pid, uid: 0, gid: 0 });
  client.destroy();
  socket.destroy();
  server.close();
});

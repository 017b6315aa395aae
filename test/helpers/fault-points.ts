// Fault points of podnetd, loaded before it by `NODE_OPTIONS=--import=<this file>`: the shipped programs know nothing of them. Every call by which the
// daemon can change anything (files, netlink, ioctl, children, answers) leaves the process through a function of Node or of koffi. Each of
// these functions is replaced here by one that passes a fault point first. So points need no upkeep, and test/faults/coverage.test.ts shows by
// strace that no effect goes another way.
//
// PODNET_FAULTS is a folder. Each point adds its name to `steps` (strace sees that too); when `kill` holds the point's number, counted from
// the process' start, the process ends by SIGKILL there and then. `stop` and `error` do the same with SIGSTOP, and with an error instead of the call.
import childProcess from "node:child_process";
import fs from "node:fs";
import { ServerResponse } from "node:http";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { Socket } from "node:net";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

type Call = (...args: never[]) => unknown;
type Callable = (...args: unknown[]) => unknown;

const folder = process.env["PODNET_FAULTS"] ?? "";
const real = { ...fs };
const steps = folder === "" ? -1 : real.openSync(`${folder}/steps`, "a");
// What the daemon starts is no daemon.
delete process.env["PODNET_FAULTS"];
delete process.env["NODE_OPTIONS"];

/** Marks of points begin with it in the trace. */
const mark = "fault-point";
let passed = 0;

/** Passes a point: `kind` says what the following effect is. */
function point(kind: string, detail: unknown): void {
  passed += 1;
  real.writeSync(steps, `${mark} ${passed} ${kind} ${String(detail).slice(0, 200)}\n`);
  if (isAt("kill")) process.kill(process.pid, "SIGKILL");
  if (isAt("stop")) process.kill(process.pid, "SIGSTOP");
  if (isAt("error")) {
    real.unlinkSync(`${folder}/error`);
    throw failureOf(kind);
  }
}

/** What the kernel says when something is short: disk, buffers, processes. */
function failureOf(kind: string): Error {
  const code = kind.startsWith("send") ? "ENOBUFS" : kind.startsWith("exec") ? "EAGAIN" : "ENOSPC";
  return Object.assign(new Error(`${code}: ${kind} failed for a test`), { code });
}

function isAt(what: string): boolean {
  try {
    return Number(real.readFileSync(`${folder}/${what}`, "utf8")) === passed;
  } catch {
    return false;
  }
}

/** Puts a point before each call of a method, unless `when` says that these arguments change nothing. */
function guard(
  owner: object,
  name: string,
  { kind = name, when = () => true }: { kind?: string; when?: (args: unknown[]) => boolean } = {},
): void {
  const methods = owner as Record<string, Callable>;
  const original = methods[name];
  if (original === undefined) throw new Error(`fault points: no function ${name}`);
  methods[name] = function guarded(this: unknown, ...args: unknown[]) {
    if (when(args)) point(kind, String(args[0]).split("\r")[0]);
    return Reflect.apply(original, this, args);
  };
}

/** Opening changes something when it may make the file. */
function makes([path, flags]: unknown[]): boolean {
  const may =
    typeof flags === "number" ? (flags & fs.constants.O_CREAT) !== 0 : /[aw]/.test(String(flags));
  return (
    may && ((isTruncating(flags) && !/^\/(proc|sys)\//.test(String(path))) || !isThere([path]))
  );
}

function isTruncating(flags: unknown): boolean {
  if (typeof flags === "number") return (flags & fs.constants.O_TRUNC) !== 0;
  return /^w(?!x)/.test(String(flags));
}

function isThere([path]: unknown[]): boolean {
  return real.lstatSync(path as fs.PathLike, { throwIfNoEntry: false }) !== undefined;
}

/** Descriptors 0 to 2 are the log. */
function isNoLog([fd]: unknown[]): boolean {
  return Number(fd) > 2;
}

interface WriteOptions {
  readonly flag?: string;
  readonly mode?: number;
}

/** In one call of Node's there are two effects, with a moment between them; on an open file one. */
function writeFileSync(
  path: fs.PathOrFileDescriptor,
  data: string | Uint8Array,
  options: WriteOptions = {},
): void {
  if (typeof path === "number") {
    fs.writeSync(path, Buffer.from(data));
    return;
  }
  const fd = fs.openSync(path, options.flag ?? "w", options.mode);
  try {
    fs.writeSync(fd, Buffer.from(data));
  } finally {
    fs.closeSync(fd);
  }
}

function guardFiles(): void {
  const plain =
    "renameSync mkdirSync linkSync symlinkSync ftruncateSync truncateSync " +
    "chmodSync chownSync fchmodSync utimesSync futimesSync copyFileSync mkdtempSync";
  for (const name of ["unlinkSync", "rmSync", "rmdirSync"])
    guard(fs, name, { kind: "file", when: isThere });
  guard(fs, "writeSync", { kind: "file", when: isNoLog });
  for (const name of plain.split(" ")) guard(fs, name, { kind: "file" });
  guard(fs, "openSync", { kind: "file", when: makes });
  const later =
    "rename unlink rm rmdir mkdir link symlink truncate chmod utimes copyFile mkdtemp appendFile";
  for (const name of later.split(" ")) guard(fs.promises, name, { kind: "file-later" });
  guard(fs.promises, "open", { kind: "file-later", when: makes });
  const patched = fs as unknown as Record<string, unknown>;
  patched["writeFileSync"] = writeFileSync;
  patched["appendFileSync"] = (path: fs.PathLike, data: string, options: WriteOptions = {}) =>
    writeFileSync(path, data, { flag: "a", ...options });
  (fs.promises as unknown as Record<string, unknown>)["writeFile"] = async (
    ...args: Parameters<typeof writeFileSync>
  ) => writeFileSync(...args);
}

/** Whether a datagram of netlink messages asks for a change. */
function changes(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at + 16 <= bytes.length; ) {
    const type = view.getUint16(at + 4, true);
    if (!asksOnly(type)) return true;
    at += Math.max(16, (view.getUint32(at, true) + 3) & ~3);
  }
  return false;
}

/** linux/rtnetlink.h: every third of four is a question. linux/netfilter: 10 is nftables (get 1, 4, 7, 10, ...), 1 is conntrack. */
function asksOnly(type: number): boolean {
  if (type < 0x100) return type % 4 === 2;
  const [subsystem, message] = [type >> 8, type & 0xff];
  return subsystem === 10 ? [1, 4, 7, 10, 13, 16, 19, 21, 23].includes(message) : message === 1;
}

const NS_GET_NSTYPE = 0xb703;

interface Koffi {
  load(path: null): { func(definition: string): Callable & { async: Callable } };
}

async function guardNative(): Promise<void> {
  // As the daemon imports it: what require() would give is another copy.
  const found = createRequire(process.argv[1] ?? "").resolve("koffi");
  const path = pathToFileURL(join(dirname(found), "index.js")).href;
  const { default: koffi } = (await import(path)) as { default: Koffi };
  const load = koffi.load.bind(koffi);
  koffi.load = (path) => {
    const library = load(path);
    const func = library.func.bind(library);
    return {
      func(definition) {
        const original = func(definition);
        const when = effectOf(definition);
        if (when === undefined) return original;
        const kind = /\b(send|ioctl)/.exec(definition)?.[0] ?? "native";
        const guarded = (...args: unknown[]) => {
          if (when(args)) point(kind, args[0]);
          return original(...args);
        };
        const async = (...args: unknown[]) => {
          if (when(args)) point(`${kind}-later`, args[0]);
          return original.async(...args);
        };
        return Object.assign(guarded, { async });
      },
    };
  };
}

function effectOf(definition: string): ((args: unknown[]) => boolean) | undefined {
  if (/\bsend\(/.test(definition)) return ([, bytes]) => changes(bytes as Uint8Array);
  if (/\bioctl\(/.test(definition)) return ([, request]) => request !== NS_GET_NSTYPE;
  return undefined;
}

/** What changes something in a cluster. undici hands the head and the body over in turn, and they leave in one call. */
function isWriteRequest([data]: unknown[]): boolean {
  return typeof data === "string" && /^(PATCH|POST|PUT|DELETE) \//.test(data);
}

if (steps >= 0) {
  guardFiles();
  guard(Socket.prototype, "write", { kind: "request", when: isWriteRequest });
  await guardNative();
  guard(childProcess, "spawn", { kind: "exec-later" });
  guard(ServerResponse.prototype as unknown as Record<string, Call>, "end", { kind: "answer" });
  syncBuiltinESMExports();
}

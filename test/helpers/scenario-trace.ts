/** What a trace of strace (with -f and -y) says about fault points. */
export interface Coverage {
  readonly points: number;
  readonly effects: number;
  /** Effects that no point of their own comes before. */
  readonly faults: readonly string[];
}

/**
 * Reads the trace of a daemon with fault points. On the main thread at most one effect may follow a point; what the pool and children do
 * must have a point of its kind (`...-later`) that nothing else has used. `threads` are the daemon's, the main one first.
 */
export function uncovered(trace: string, threads: readonly string[]): Coverage {
  const reader = new TraceReader(threads, startedBy(trace, threads));
  for (const line of trace.split("\n")) reader.read(line);
  return reader;
}

class TraceReader implements Coverage {
  points = 0;
  effects = 0;
  readonly faults: string[] = [];
  /** Points that no effect has used yet: the latest one, those for the pool, those for children. */
  readonly #unused = { now: 0, pool: 0, child: 0 };
  readonly #threads: readonly string[];
  readonly #children: Set<string>;

  constructor(threads: readonly string[], children: Set<string>) {
    this.#threads = threads;
    this.#children = children;
  }

  read(line: string): void {
    const kind = /"fault-point \d+ (\S+)/.exec(line)?.[1];
    // Before the first point Node itself starts.
    if (kind !== undefined) this.#pass(kind);
    else if (this.points > 0 && isEffect(line)) this.#see(line);
  }

  #pass(kind: string): void {
    this.points += 1;
    this.#unused.now = 1;
    if (kind === "exec-later") this.#unused.child += 1;
    else if (kind.endsWith("-later")) this.#unused.pool += 1;
  }

  #see(line: string): void {
    const thread = /^\d+/.exec(line)?.[0] ?? "";
    const at = this.#threads.indexOf(thread);
    // What a child does itself is its own; its start is the daemon's.
    if (at < 0 && !(line.includes("execve(") && this.#children.delete(thread))) return;
    this.effects += 1;
    const place = at < 0 ? "child" : at === 0 ? "now" : "pool";
    if (this.#unused[place] > 0) this.#unused[place] -= 1;
    else this.faults.push(line);
  }
}

/** The processes that the daemon's threads forked. */
function startedBy(trace: string, threads: readonly string[]): Set<string> {
  const forks = trace.matchAll(/^(\d+)\s+(?:<\.\.\. )?(?:clone3?|v?fork)\b.*= (\d+)$/gm);
  const own = new Set(threads);
  return new Set(
    [...forks].flatMap(([, by = "", child = ""]) =>
      own.has(by) && !own.has(child) ? [child] : [],
    ),
  );
}

/** Calls that are effects with some arguments only. */
const effectIf: Readonly<Record<string, (line: string) => boolean>> = {
  ...sameFor("openat open creat", makes),
  ...sameFor("write pwrite64 writev", (line) => isToFile(line) || isRequest(line)),
  ...sameFor("sendto sendmsg", (line) => isNetlinkChange(line) || isRequest(line)),
  ...sameFor("fork vfork clone clone3", () => false),
  ioctl: isDeviceControl,
};

function sameFor<T>(names: string, value: T): Readonly<Record<string, T>> {
  return Object.fromEntries(names.split(" ").map((name) => [name, value]));
}

/** Calls that failed have changed nothing. */
function isEffect(line: string): boolean {
  if (/ = -1 E/.test(line) || / resumed>/.test(line)) return false;
  const call = /^\d+\s+(\w+)\(/.exec(line)?.[1];
  if (call === undefined) return false;
  return effectIf[call]?.(line) ?? true;
}

/** O_TRUNC alone means nothing to /proc and /sys. */
function makes(line: string): boolean {
  return /O_CREAT/.test(line) && !/"\/(proc|sys)\//.test(line) && !isOpenOfOld(line);
}

/** Locks and hints are made once: O_CREAT on what is there changes nothing, and strace does not tell. */
function isOpenOfOld(line: string): boolean {
  return /\/(lock|owner|last_reserved_ip\.\d+)", /.test(line) || /O_APPEND/.test(line);
}

function isToFile(line: string): boolean {
  const target = /\(\d+<([^>]*)>/.exec(line)?.[1] ?? "";
  return target.startsWith("/") && !target.startsWith("/dev/") && !target.endsWith("/steps");
}

/** To an API server, where it speaks without TLS. */
function isRequest(line: string): boolean {
  return /"(PATCH|POST|PUT|DELETE) \//.test(line);
}

/** Types come as names, and as numbers where strace can't ask a socket for its protocol: in another namespace. */
function isNetlinkChange(line: string): boolean {
  const types = [...line.matchAll(/nlmsg_type=([^,]+),/g)].map(([, type = ""]) => type);
  return types.some((type) => !/(RTM|MSG|CTNL)_(MSG_)?GET/.test(type) && !isQuestion(type));
}

/** linux/rtnetlink.h: every third of four is a question. */
function isQuestion(type: string): boolean {
  const number = Number(/^0x[0-9a-f]+/.exec(type)?.[0] ?? Number.NaN);
  return number < 0x100
    ? number % 4 === 2
    : [0xa01, 0xa04, 0xa07, 0xa0a, 0xa0d, 0xa10, 0xa13].includes(number);
}

/** Tap devices. Node's own ioctls are about descriptors. */
function isDeviceControl(line: string): boolean {
  return /TUNSET/.test(line);
}

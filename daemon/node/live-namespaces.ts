import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { setImmediate as turn } from "node:timers/promises";
import { errorCode } from "../../lib/base/errors.ts";
import { Netns } from "../../lib/base/netns.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";

/** PROC_PID_INIT_INO of linux/proc_ns.h: who is in this PID namespace sees every process of the machine. */
const allProcesses = "pid:[4026531836]";
/** What looking at something says that has just ended, or that is not for this process' eyes. */
const elusive: ReadonlySet<string> = new Set(["ENOENT", "ESRCH", "EINVAL", "EACCES", "EPERM"]);
/** Processes that are looked at before others get their turn. */
const atOnce = 100;

/** A network namespace that something keeps alive. */
export interface LiveNamespace {
  /** SO_NETNS_COOKIE, decimal. */
  readonly cookie: string;
  /** What keeps it: `process 12`, `mount /run/netns/x`. */
  readonly holder: string;
  /** Without prefix length. None where every link leads to other nodes' namespaces, as those that play a node in a test do. */
  readonly addresses: ReadonlySet<string>;
}

/** What lives on the node, as far as this process can see. */
export interface Sight {
  readonly namespaces: readonly LiveNamespace[];
  /** The cgroup paths of all processes, by process. */
  readonly cgroups: ReadonlyMap<string, string>;
  /** All processes and their mounts were seen; else why not. */
  readonly blind: string | undefined;
}

/** Looks at every process and every mounted network namespace that any process can see. Reads only. */
export async function lookAround(host: Netns): Promise<Sight> {
  const seen = new Seen();
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  for (const [count, pid] of pids.entries()) {
    if (count % atOnce === 0) await turn();
    seen.process(pid);
  }
  const namespaces: LiveNamespace[] = [];
  for (const [path, holder] of seen.holders.values()) {
    try {
      namespaces.push(await examine(host, path, holder));
    } catch (error) {
      if (!elusive.has(errorCode(error) ?? "")) throw error;
    }
  }
  return { namespaces, cgroups: seen.cgroups, blind: limitedView() ?? seen.unseen };
}

function limitedView(): string | undefined {
  if (readlinkSync("/proc/self/ns/pid") === allProcesses || isNodesFirst("1")) return undefined;
  return "podnetd does not see all processes of the node (hostPID: true)";
}

/**
 * A node can be a container itself (kind): its processes are not the machine's. Process 1 is the node's first one when the node's own
 * folder of network namespaces is in its mount namespace, which is not podnetd's: in a pod without hostPID process 1 is podnetd's
 * own container's, or the pod's pause, which has no such folder.
 */
function isNodesFirst(pid: string): boolean {
  try {
    if (readlinkSync(`/proc/${pid}/ns/mnt`) === readlinkSync("/proc/self/ns/mnt")) return false;
    const [own, theirs] = ["", `/proc/${pid}/root`].map((root) =>
      statSync(`${root}/run/netns`, { bigint: true }),
    );
    return own !== undefined && own.dev === theirs?.dev && own.ino === theirs.ino;
  } catch {
    return false;
  }
}

/** What one look gathers. A process that ends meanwhile is none; one that can't be looked into must be in a namespace that others tell of. */
class Seen {
  /** By the namespace's inode: a path to it, and what keeps it. */
  readonly holders = new Map<string, readonly [path: string, holder: string]>();
  readonly cgroups = new Map<string, string>();
  readonly #mountNamespaces = new Set<string>();
  /** The same namespaces as /proc/PID/net has them, which anybody may see. */
  readonly #networks = new Set<bigint>();
  readonly #closed = new Map<string, bigint>();

  process(pid: string): void {
    const network = this.#try(() => statSync(`/proc/${pid}/net/dev`, { bigint: true }).ino);
    if (network === undefined) return;
    this.#closed.set(pid, network);
    this.#try(() => {
      this.cgroups.set(pid, readFileSync(`/proc/${pid}/cgroup`, "utf8"));
      const inode = readlinkSync(`/proc/${pid}/ns/net`);
      this.#hold(inode, [`/proc/${pid}/ns/net`, `process ${pid}`]);
      this.#mounts(pid);
      this.#networks.add(network);
      this.#closed.delete(pid);
    });
  }

  /** A process that holds a namespace of which no other tells. */
  get unseen(): string | undefined {
    const found = [...this.#closed].find(
      ([pid, network]) => !this.#networks.has(network) && existsSync(`/proc/${pid}/net/dev`),
    );
    return found && `podnetd may not look into process ${found[0]} (capability SYS_PTRACE)`;
  }

  #mounts(pid: string): void {
    const namespace = readlinkSync(`/proc/${pid}/ns/mnt`);
    if (this.#mountNamespaces.has(namespace)) return;
    for (const [mounted, path] of netnsMounts(readFileSync(`/proc/${pid}/mountinfo`, "utf8"))) {
      this.#hold(mounted, [`/proc/${pid}/root${path}`, `mount ${path}`]);
    }
    this.#mountNamespaces.add(namespace);
  }

  #hold(inode: string, holder: readonly [string, string]): void {
    if (!this.holders.has(inode)) this.holders.set(inode, holder);
  }

  #try<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      if (elusive.has(errorCode(error) ?? "")) return undefined;
      throw error;
    }
  }
}

/** The network namespaces that are mounted, by inode as links of /proc show it (Documentation/filesystems/proc.rst, mountinfo). */
export function netnsMounts(mountinfo: string): (readonly [inode: string, path: string])[] {
  return mountinfo.split("\n").flatMap((line) => {
    const [, , , root = "", path = ""] = line.split(" ");
    return line.includes(" - nsfs ") && root.startsWith("net:[")
      ? [[root, path.replaceAll(/\\(\d{3})/g, (_, octal) => fromOctal(octal))] as const]
      : [];
  });
}

function fromOctal(digits: string): string {
  return String.fromCharCode(Number.parseInt(digits, 8));
}

async function examine(host: Netns, path: string, holder: string): Promise<LiveNamespace> {
  using netns = Netns.open(path);
  using rtnl = Rtnetlink.open(netns);
  const cookie = String(netns.cookie());
  const isOurs = await concerns(rtnl, host);
  const addresses = isOurs ? await rtnl.addresses() : [];
  return {
    cookie,
    holder,
    addresses: new Set(addresses.map(({ address }) => address.replace(/\/\d+$/, ""))),
  };
}

/** Whether a namespace may be a pod of the node: its links lead to the node, or nowhere else. */
async function concerns(rtnl: Rtnetlink, host: Netns): Promise<boolean> {
  const others = (await rtnl.links()).flatMap(({ linkNetnsId }) => linkNetnsId ?? []);
  if (others.length === 0) return true;
  const node = await rtnl.netnsId(host);
  return node !== undefined && others.includes(node);
}

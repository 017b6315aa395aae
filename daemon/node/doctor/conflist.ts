import { podAnnotationsCapability } from "../../../lib/api/names.ts";
import { errorText } from "../../../lib/base/errors.ts";
import { isJsonObject } from "../../../lib/base/json.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import { error, type Finding, ok, warn } from "./finding.ts";

/** A file of the configuration directory: what it says, or why it can't be used. In the order of their names. */
export interface ConfEntry {
  readonly file: string;
  readonly list?: Conflist;
  readonly fault?: unknown;
}

/** Plugins that call networks by themselves, as podnet does. */
const metaTypes = new Set(["multus", "multus-shim", "genie", "danm", "knitter"]);

/**
 * Who is first in the configuration directory: runtimes take the first file, containerd gives up at one that it can't read, CRI-O passes over it.
 * `socket`: where podnetd listens.
 */
export function conflistFindings(
  dir: string,
  entries: readonly ConfEntry[],
  socket: string,
): Finding[] {
  const place = entries.findIndex(({ list }) => list !== undefined && isPodnet(list));
  const faulty = entries.flatMap((entry, index) => faultOf(dir, entry, place < 0 || index < place));
  const own = entries[place];
  if (own?.list === undefined) {
    const text = `"${dir}" has no configuration of podnet: runtimes never call it`;
    return [
      error("conflist", text, "install podnet: see conf/samples/10-podnet.conflist"),
      ...faulty,
    ];
  }
  const before = entries.slice(0, place).flatMap((entry) => hijack(dir, entry, own.file));
  const first = before.length === 0 && faulty.every(({ level }) => level !== "error");
  return [
    ...(first ? [ok("conflist", `"${own.file}" comes first in "${dir}"`)] : []),
    ...before,
    ...faulty,
    ...ownFindings(own.file, own.list, socket),
  ];
}

function isPodnet({ plugins }: Conflist): boolean {
  return plugins.some(({ type }) => type === "podnet");
}

function hijack(dir: string, { file, list }: ConfEntry, own: string): Finding[] {
  if (list === undefined) return [];
  const meta = list.plugins.find(({ type }) => metaTypes.has(type));
  const what = meta === undefined ? `network "${list.name}"` : `another meta plugin, ${meta.type}`;
  const text = `"${dir}/${file}" (${what}) comes before "${own}": new pods go past podnet`;
  return [
    error("conflist", text, "rename or remove it, or give podnet's file a name that sorts first"),
  ];
}

function faultOf(dir: string, { file, fault }: ConfEntry, before: boolean): Finding[] {
  if (fault === undefined) return [];
  const text = `"${dir}/${file}" can't be used: ${errorText(fault)}`;
  const todo = "correct or remove it";
  return [
    before
      ? error("conflist", `${text}: containerd loads no network at all while it is there`, todo)
      : warn("conflist", text, todo),
  ];
}

/** podnet's own file, compared with what podnet needs of it. */
function ownFindings(file: string, { plugins }: Conflist, socket: string): Finding[] {
  const findings: Finding[] = [];
  const plugin = plugins.find(({ type }) => type === "podnet");
  const given = plugin?.["daemonSocket"] ?? "/run/podnet/podnetd.sock";
  if (given !== socket) {
    const text = `"${file}" names socket ${JSON.stringify(given)}, and podnetd listens on "${socket}"`;
    findings.push(error("conflist", text, "correct daemonSocket, or podnetd's socket"));
  }
  if (plugins.length > 1) {
    const others = plugins.map(({ type }) => type).filter((type) => type !== "podnet");
    const text = `"${file}" also has ${others.join(", ")}: they run for the default network only`;
    findings.push(warn("conflist", text, "put them into the PodNetwork that they belong to"));
  }
  const capabilities = isJsonObject(plugin?.["capabilities"]) ? plugin["capabilities"] : {};
  if (capabilities[podAnnotationsCapability] !== true) {
    const text = `"${file}" lacks the capability ${podAnnotationsCapability}: annotations come from the API alone`;
    findings.push(warn("conflist", text, "write podnet's file anew"));
  }
  if (capabilities["portMappings"] !== true) {
    const text = `"${file}" lacks the capability portMappings: hostPorts have no effect`;
    findings.push(warn("conflist", text, "write podnet's file anew"));
  }
  return findings;
}

import { createHash } from "node:crypto";
import { accessSync, constants, readFileSync, statfsSync, statSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { extname, join } from "node:path";
import { errorCode, errorText, fileFault } from "../../../lib/base/errors.ts";
import { readConflist } from "../../../lib/cni/conf-dir.ts";
import { type ConfEntry, conflistFindings } from "./conflist.ts";
import { error, type Finding, ok, warn } from "./finding.ts";

const extensions = [".conflist", ".conf", ".json"];

/** The order of the CNI configuration directory. */
export async function confDirFindings(dir: string, socket: string): Promise<Finding[]> {
  let names: string[];
  try {
    names = (await readdir(dir)).filter((name) => extensions.includes(extname(name))).sort();
  } catch (cause) {
    const todo = "give its path with --cni-conf-dir";
    return [error("conflist", `"${dir}" can't be read: ${fileFault(cause)}`, todo)];
  }
  const entries: ConfEntry[] = [];
  for (const file of names) {
    try {
      entries.push({ file, list: await readConflist(join(dir, file)) });
    } catch (fault) {
      entries.push({ file, fault });
    }
  }
  return conflistFindings(dir, entries, socket);
}

/** The daemon's socket as a file; whether anybody answers there is found out by asking. */
export function socketFindings(path: string): Finding[] {
  try {
    const stat = statSync(path);
    if (!stat.isSocket()) {
      return [error("socket", `"${path}" is no socket`, "remove it; podnetd makes it anew")];
    }
    const mode = (stat.mode & 0o777).toString(8).padStart(4, "0");
    if (stat.uid !== 0 || (stat.mode & 0o077) !== 0) {
      const text = `"${path}" has mode ${mode} and owner ${stat.uid}: others than root can attach networks`;
      return [error("socket", text, "restart podnetd, and look for who changed it")];
    }
    return [ok("socket", `"${path}" has mode ${mode} and owner root`)];
  } catch (cause) {
    if (errorCode(cause) !== "ENOENT") {
      return [error("socket", `"${path}": ${errorText(cause)}`, "run podnetctl as root")];
    }
    const todo = "start podnetd, or give its path with --socket";
    return [error("socket", `"${path}" is not there`, todo)];
  }
}

const mebibyte = 1024 * 1024;

/** Room for records: without it every ADD fails with code 11. */
export function diskFindings(dir: string): Finding[] {
  try {
    const { bsize, bavail, blocks, ffree, files } = statfsSync(dir);
    return [
      roomFinding(dir, { what: "MiB", left: (bavail * bsize) / mebibyte, share: bavail / blocks }),
      // Some file systems have no fixed number of them.
      ...(files === 0
        ? []
        : [roomFinding(dir, { what: "inodes", left: ffree, share: ffree / files })]),
    ];
  } catch (cause) {
    const todo = "make the folder, or give its path with --state-dir";
    return [error("disk", `"${dir}": ${errorText(cause)}`, todo)];
  }
}

/** What is left, in units of which a record needs one at most, and as a part of all. */
export function roomFinding(
  dir: string,
  { what, left, share }: { readonly what: string; readonly left: number; readonly share: number },
): Finding {
  const text = `"${dir}": ${Math.floor(left)} ${what} left (${(share * 100).toFixed(1)} %)`;
  const todo = "free some: without room every ADD fails with code 11";
  if (left < 16) return error("disk", text, todo);
  return left < 1_024 && share < 0.05 ? warn("disk", text, todo) : ok("disk", text);
}

/** The executable that runtimes start, compared with the one of this release. `own`: that one's path. */
export function stubFindings(binDirs: readonly string[], own: string | undefined): Finding[] {
  const found = binDirs.map((dir) => join(dir, "podnet")).find(isExecutable);
  if (found === undefined) {
    const where = binDirs.map((dir) => `"${dir}"`).join(", ");
    const todo = "install podnet there: cp dist/bin/podnet, and rename it into place";
    return [error("stub", `no executable "podnet" in ${where}: runtimes can't start it`, todo)];
  }
  if (own === undefined || !isExecutable(own)) return [ok("stub", `"${found}" is there`)];
  if (digest(found) === digest(own)) return [ok("stub", `"${found}" is this release's`)];
  const text = `"${found}" is another build than "${own}"`;
  return [warn("stub", text, "install this release's, by rename: runtimes may be starting it")];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function digest(path: string): string {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}

/** Versions of the daemon and of podnetctl. */
export function versionFindings(daemon: string, own: string): Finding[] {
  if (daemon === own) return [ok("version", `podnetd and podnetctl are ${own}`)];
  const text = `podnetd is ${daemon}, podnetctl is ${own}`;
  return [warn("version", text, "use the podnetctl that was installed with the daemon")];
}

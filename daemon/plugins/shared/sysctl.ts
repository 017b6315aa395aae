import { closeSync, openSync, readFileSync, readSync, writeFileSync, writeSync } from "node:fs";
import { errorCode, errorText } from "../../../lib/base/errors.ts";
import type { Netns } from "../../../lib/base/netns.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";

/** A kernel setting below /proc/sys, by its path with slashes (interface names may have dots): `net/ipv4/ip_forward`. */
export interface Sysctl {
  readonly path: string;
  readonly value: string;
  /** A setting that this kernel may lack or forbid without harm to the attachment, such as those of IPv6. */
  readonly optional?: boolean;
}

let root = "/proc/sys";
/** Longer values are not compared but written. */
const buffer = Buffer.alloc(4096);

/** Where the settings are, for the whole process: a container has its own /proc/sys read-only and the node's elsewhere. */
export function setSysctlDir(dir: string): void {
  root = dir;
}

/** A namespace to work in; undefined is the process' own, which is the node's. */
export type SysctlPlace = Netns | undefined;

/** The value as text without its line end. undefined: the setting does not exist or can't be read. */
export function readSysctl(place: SysctlPlace, path: string): string | undefined {
  return inside(place, () => readHere(path));
}

/** Writes settings, leaving alone those that have the value already. Throws a CniError (code 5) for the first that is not optional. */
export function writeSysctls(place: SysctlPlace, settings: readonly Sysctl[]): void {
  const failed = inside(place, () => settings.map(writeHere).find((error) => error !== undefined));
  if (failed !== undefined) throw failed;
}

function inside<T>(place: SysctlPlace, work: () => T): T {
  return place === undefined ? work() : place.run(work);
}

function readHere(path: string): string | undefined {
  try {
    return readFileSync(`${root}/${path}`, "utf8").trim();
  } catch {
    return undefined;
  }
}

function writeHere({ path, value, optional }: Sysctl): CniError | undefined {
  try {
    change(`${root}/${path}`, value);
  } catch (error) {
    // A setting that is read-only here may have the value all the same.
    if (optional === true || readHere(path) === value) return undefined;
    return new CniError(cniCode.ioFailure, `set ${path} to "${value}": ${errorText(error)}`, {
      cause: error,
    });
  }
  return undefined;
}

/** Opens the file once: with many pods, each of which has an `eth0`, the kernel takes long to find one by its path. */
function change(path: string, value: string): void {
  // Writing nothing at all changes nothing and says so to nobody: an empty value is a line without text.
  const text = value === "" ? "\n" : value;
  let file: number;
  try {
    file = openSync(path, "r+");
  } catch (error) {
    if (errorCode(error) !== "EACCES") throw error;
    // Some can only be written.
    writeFileSync(path, text);
    return;
  }
  try {
    if (read(file) !== value) writeSync(file, text, 0);
  } finally {
    closeSync(file);
  }
}

/** undefined: some can't be read before they are written. */
function read(file: number): string | undefined {
  try {
    return buffer.toString("utf8", 0, readSync(file, buffer, 0, buffer.length, 0)).trim();
  } catch {
    return undefined;
  }
}

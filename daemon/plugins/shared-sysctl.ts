import { readFileSync, writeFileSync } from "node:fs";
import { errorText } from "../../lib/base/errors.ts";
import type { Netns } from "../../lib/base/netns.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";

/** A kernel setting below /proc/sys, by its path with slashes (interface names may have dots): `net/ipv4/ip_forward`. */
export interface Sysctl {
  readonly path: string;
  readonly value: string;
  /** A setting that this kernel may lack or forbid without harm to the attachment, such as those of IPv6. */
  readonly optional?: boolean;
}

let root = "/proc/sys";

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
  if (readHere(path) === value) return undefined;
  try {
    // Writing nothing at all changes nothing and says so to nobody: an empty value is a line without text.
    writeFileSync(`${root}/${path}`, value === "" ? "\n" : value);
  } catch (error) {
    if (optional === true) return undefined;
    return new CniError(cniCode.ioFailure, `set ${path} to "${value}": ${errorText(error)}`, {
      cause: error,
    });
  }
  return undefined;
}

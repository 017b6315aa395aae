import { formatIp, type Ip, isIp, parseIp } from "../../lib/base/ip.ts";

/**
 * What the files of one directory say: which addresses are taken and by whom. An owner is a file's text without white space around
 * it: container id, CR LF, interface name; files of very old versions hold the container id alone. A file without text has no owner.
 */
export class AddressIndex {
  readonly #taken = { 4: new Set<bigint>(), 6: new Set<bigint>() };
  readonly #ownerOf = new Map<string, string>();
  readonly #filesOf = new Map<string, Set<string>>();

  /** Tells whether an address has a file. */
  has(ip: Ip): boolean {
    return this.#taken[ip.family].has(ip.value);
  }

  /** The names of the owner's files. */
  filesOf(owner: string): readonly string[] {
    return [...(this.#filesOf.get(owner) ?? [])];
  }

  /** Every file with its owner. */
  entries(): readonly (readonly [file: string, owner: string])[] {
    return [...this.#ownerOf];
  }

  add(ip: Ip, owner: string): void {
    const file = formatIp(ip);
    this.remove(ip);
    this.#taken[ip.family].add(ip.value);
    this.#ownerOf.set(file, owner);
    const files = this.#filesOf.get(owner);
    if (files === undefined) this.#filesOf.set(owner, new Set([file]));
    else files.add(file);
  }

  remove(ip: Ip): void {
    const file = formatIp(ip);
    this.#taken[ip.family].delete(ip.value);
    const owner = this.#ownerOf.get(file);
    if (owner === undefined) return;
    this.#ownerOf.delete(file);
    const files = this.#filesOf.get(owner);
    files?.delete(file);
    if (files?.size === 0) this.#filesOf.delete(owner);
  }
}

/** The address that a file stands for; undefined for every other file, such as `lock`. */
export function addressOfFile(name: string): Ip | undefined {
  if (!isIp(name)) return undefined;
  const ip = parseIp(name);
  return formatIp(ip) === name ? ip : undefined;
}

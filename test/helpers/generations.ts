import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/**
 * What one generation of podnet wrote: files of a node with an attachment of each kind, and the exchanges of stub and daemon. What differs
 * between two runs of the same build (hardware addresses, cookies, folders) stands as a mark, so that generations can be compared, and
 * filled with what is real on another node. A generation is never changed: another format is another generation.
 */
export interface Generation {
  /** By kind of attachment. */
  readonly nodes: Readonly<Record<string, Written>>;
  /** By verb. */
  readonly exchanges: Readonly<Record<string, Exchange>>;
}

export interface Written {
  /** Lines of the record's file. */
  readonly record: readonly unknown[];
  /** Files of addresses by path: lines. */
  readonly addresses: Readonly<Record<string, readonly string[]>>;
}

export interface Exchange {
  readonly request: Message;
  readonly answer: Message;
}

export interface Message {
  readonly head: string;
  readonly body: string;
}

const folder = "test/fixtures/generations";

/** Oldest first. */
export function generations(): readonly string[] {
  return readdirSync(folder)
    .filter((name) => /^\d+\.json$/.test(name))
    .map((name) => name.replace(".json", ""))
    .toSorted((left, right) => Number(left) - Number(right));
}

export function readGeneration(name: string): Generation {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as Generation;
}

export function writeGeneration(name: string, generation: Generation): void {
  mkdirSync(folder, { recursive: true });
  const text = `${JSON.stringify(generation, undefined, 2)}\n`;
  const path = join(folder, `${name}.json`);
  writeFileSync(path, text, { flag: "wx" });
  execFileSync("node_modules/.bin/biome", ["format", "--write", path], { stdio: "ignore" });
}

/** Texts that are another on each node, and the names that stand for them: folders, a namespace's path. */
export type Places = Readonly<Record<string, string>>;

const mark = "*";
/** Keys whose values the kernel, a clock or chance gives. */
const chance = new Set(
  "netnsCookie bootId created sum madeIndex podIndex masterIndex index ifb mac key msg".split(" "),
);
/** Hardware addresses, and names of interfaces that come from a container's id. */
const drawn = /^(([0-9a-f]{2}:){5}[0-9a-f]{2}|(veth|ifb|bwp|pn|pns)[0-9a-f]{8,12})$/;

/** The value with marks and names for what is another on each node. */
export function general(value: unknown, places: Places): unknown {
  if (typeof value === "string") return drawn.test(value) ? mark : generalText(value, places);
  if (Array.isArray(value)) return value.map((item) => general(item, places));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      chance.has(key) && typeof inner !== "object" ? mark : general(inner, places),
    ]),
  );
}

export function generalText(text: string, places: Places): string {
  let result = text;
  for (const [name, place] of Object.entries(places))
    result = result.replaceAll(place, `<${name}>`);
  return result;
}

/** The other way: a general value with what `real`, of the same build or another, has in the same places. Throws where it has nothing. */
export function particular(value: unknown, real: unknown, places: Places): unknown {
  if (value === mark) {
    if (real === undefined) throw new Error("this build writes nothing in the place of a mark");
    return real;
  }
  if (typeof value === "string") return particularText(value, places);
  if (typeof value !== "object" || value === null) return value;
  const inside = (real ?? {}) as Readonly<Record<string, unknown>>;
  if (Array.isArray(value))
    return value.map((item, at) => particular(item, inside[String(at)], places));
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, particular(inner, inside[key], places)]),
  );
}

export function particularText(text: string, places: Places): string {
  let result = text;
  for (const [name, place] of Object.entries(places))
    result = result.replaceAll(`<${name}>`, place);
  return result;
}

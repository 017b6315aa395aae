import { readFileSync, statSync } from "node:fs";
import { type NetworkRef, refName } from "../../lib/api/selection.ts";
import { errorText } from "../../lib/base/errors.ts";
import { type Manifest, readManifests } from "./manifests.ts";
import { longestYaml } from "./yaml-text.ts";

/** A manifest file as it was read. */
export interface ReadFile {
  /** Changes when the file does. */
  readonly stamp: string;
  readonly manifests: readonly Manifest[];
  /** Keys of objects that were in it before and that it, broken or emptied, does not tell of any more. */
  readonly lost: ReadonlySet<string>;
  /** Its text, if a part of it can't be read. */
  readonly brokenText: string;
}

/** The name by which an object is looked up. */
export function keyOf(ref: NetworkRef): string {
  return `${ref.kind} ${refName(ref)}`;
}

/** Reads a file, or says in its faults why it can't be. `before`: what was read of the same file last; given back if nothing has changed. */
export function readManifestFile(path: string, before: ReadFile | undefined): ReadFile {
  const stamp = stampOf(path);
  if (before?.stamp === stamp) return before;
  const { manifests, text } = read(path);
  const broken = manifests.some(({ ref }) => ref === undefined);
  const doubtful = broken || manifests.length === 0;
  return {
    stamp,
    manifests,
    lost: doubtful ? lostOf(manifests, before) : new Set(),
    brokenText: broken ? text : "",
  };
}

function lostOf(manifests: readonly Manifest[], before: ReadFile | undefined): Set<string> {
  const lost = new Set(before?.lost);
  for (const { ref } of before?.manifests ?? []) if (ref !== undefined) lost.add(keyOf(ref));
  for (const { ref } of manifests) if (ref !== undefined) lost.delete(keyOf(ref));
  return lost;
}

/**
 * Why an object that is nowhere else may be in this file all the same: it was there before the file was broken or emptied (an editor that is still
 * writing), or a part that can't be read has its name. undefined when it can't be there.
 */
export function doubtOf(ref: NetworkRef, path: string, file: ReadFile): string | undefined {
  const name = ref.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const named = new RegExp(`(?<!\\w)name["']?\\s*:\\s*["']?${name}(?![\\w.-])`);
  if (!file.lost.has(keyOf(ref)) && !named.test(file.brokenText)) return undefined;
  const fault = file.manifests.flatMap(({ faults }) => faults)[0];
  const what = fault === undefined ? "it is empty now" : `line ${fault.line}: ${fault.text}`;
  return `"${path}" may define it, but ${what}: correct or remove the file`;
}

/** Follows links: the files of a mounted ConfigMap are links, which stay the same when their target changes. */
function stampOf(path: string): string {
  try {
    const { ino, size, mtimeNs, ctimeNs } = statSync(path, { bigint: true });
    return `${ino} ${size} ${mtimeNs} ${ctimeNs}`;
  } catch (error) {
    return `unreadable: ${errorText(error)}`;
  }
}

function read(path: string): { readonly manifests: readonly Manifest[]; readonly text: string } {
  try {
    const stat = statSync(path);
    // A pipe would be waited for without end.
    if (!stat.isFile()) return unusable(path, "must be a regular file");
    // Not even read: four bytes are the most that a character has.
    if (stat.size > 4 * longestYaml) {
      return unusable(path, `must have at most ${longestYaml} characters`);
    }
    const text = readFileSync(path, "utf8");
    return { manifests: readManifests(path, text), text };
  } catch (error) {
    return unusable(path, errorText(error));
  }
}

function unusable(file: string, text: string): ReturnType<typeof read> {
  const faults = [{ file, line: 1, text }];
  const broken = { file, line: 1, ref: undefined, object: undefined, faults, warnings: [] };
  return { manifests: [broken], text: "" };
}

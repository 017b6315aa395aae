import type { Conflist } from "../../../lib/cni/conflist.ts";

/** A configuration file of the node as it is now. */
export interface ConfFile {
  /** Its name in the directory. */
  readonly file: string;
  /** What it says; undefined while it is not whole or wrong. */
  readonly list?: Conflist;
  /** Why it can't be used. */
  readonly fault?: string;
  /** What it said when it was whole the last time. */
  readonly before?: Conflist;
  /** Milliseconds since it was changed. */
  readonly age: number;
}

/** The node's own default network, or what is waited for. */
export type NodeChoice =
  | { readonly kind: "found"; readonly file: string; readonly list: Conflist }
  | { readonly kind: "waiting"; readonly reason: string };

/** Any file of the directory; no default network of the node's own. Everything else names a file or a network. */
export const anyConflist = "auto";
export const noConflist = "none";

/** Plugins that call other configurations of the directory: podnet below one of them, or the other way round, never ends. */
const metaTypes: ReadonlySet<string> = new Set([
  ...["podnet", "multus", "multus-shim", "multus-cni", "genie", "knitter", "danm", "fakeipam"],
]);

/** Milliseconds that a file may be half written; afterwards it is wrong, and the next one counts. */
const halfWritten = 5_000;

/** The type of a plugin that delegates to other networks, which this list has; undefined: none. */
export function metaTypeOf({ plugins }: Conflist): string | undefined {
  return plugins.map(({ type }) => type).find((type) => metaTypes.has(type));
}

/**
 * Which of the files (in the order of their names) is the node's default network. `wanted` is `auto`, a file's name or a network's name. A
 * file that is half written means what it said before; one that never was whole is waited for, but not for ever.
 */
export function chooseDefault(files: readonly ConfFile[], wanted: string): NodeChoice {
  const auto = wanted === anyConflist;
  for (const one of files) {
    const isNamed = one.file === wanted || (one.list ?? one.before)?.name === wanted;
    if (!auto && !isNamed) continue;
    const choice = choiceOf(one);
    // Named, or half written: whatever it becomes, no other file takes its place.
    if (choice.kind === "found" || !auto || choice.passing) return choice;
  }
  return waiting(auto ? noneLeft(files) : `none has the file or network name "${wanted}"`);
}

type FileChoice = NodeChoice & { readonly passing?: boolean };

function choiceOf({ file, list, before, fault, age }: ConfFile): FileChoice {
  const known = list ?? before;
  if (known === undefined) {
    const reason = `"${file}" can't be used: ${fault ?? "it is not whole"}`;
    return { ...waiting(reason), passing: age < halfWritten };
  }
  const meta = metaTypeOf(known);
  if (meta === undefined) return { kind: "found", file, list: known };
  return waiting(`"${file}" is of "${meta}", which delegates itself`);
}

function waiting(reason: string): NodeChoice {
  return { kind: "waiting", reason };
}

/** Why a directory has no default network, with what stands in it. */
function noneLeft(files: readonly ConfFile[]): string {
  const others = files.filter(({ list }) => list === undefined || metaTypeOf(list) !== "podnet");
  if (others.length === 0) return "no other network configuration is there yet";
  const named = others.map(({ file, list, fault }) => {
    const meta = list === undefined ? undefined : metaTypeOf(list);
    return `"${file}" ${meta === undefined ? (fault ?? "") : `is of "${meta}", which delegates itself`}`;
  });
  return `no usable network configuration: ${named.join("; ")}`;
}

import type { Row } from "./scenario-state.ts";

/** What the runtime does once the daemon is up again. */
export type Aftermath =
  /** The stub, which waited, repeats the call by itself. */
  | "the stub repeats"
  /** The runtime repeats it with the same ids. */
  | "same ids"
  /** As kubelet: a new sandbox and namespace of the same pod; the old one's DEL comes before, after, or never (then GC). */
  | "new sandbox, DEL before"
  | "new sandbox, DEL after"
  | "new sandbox, GC"
  | "DEL"
  | "DEL without namespace"
  | "nothing but GC"
  /** Nobody comes: what was begun to be given back is finished by the daemon alone. */
  | "nobody";

export const aftermaths: Readonly<Record<FaultVerb, readonly Aftermath[]>> = {
  ADD: [
    "the stub repeats",
    "same ids",
    "new sandbox, DEL before",
    "new sandbox, DEL after",
    "new sandbox, GC",
    "DEL",
    "DEL without namespace",
    "nothing but GC",
  ],
  DEL: [
    "the stub repeats",
    "same ids",
    "DEL without namespace",
    "nothing but GC",
    "new sandbox, GC",
    "nobody",
  ],
  GC: ["same ids", "DEL", "nothing but GC", "new sandbox, DEL after"],
  CHECK: ["the stub repeats", "same ids", "new sandbox, DEL before", "DEL", "nothing but GC"],
};

export type FaultVerb = "ADD" | "DEL" | "GC" | "CHECK";

/** One fault: the daemon is killed at a point of a verb, perhaps once more while it recovers. */
export interface Fault {
  readonly networks: readonly unknown[];
  readonly verb: FaultVerb;
  /** The verb's points are counted from 1. */
  readonly point: number;
  readonly aftermath: Aftermath;
  /** The point of the daemon's next life at which it is killed again. */
  readonly again?: number;
}

/** How the node must look: with nothing attached, and with one pod attached to these networks. */
export interface Expected {
  readonly clean: readonly Row[];
  readonly attached: readonly Row[];
  /** Points of each verb without a fault. */
  readonly points: Readonly<Record<FaultVerb, number>>;
  /** Points of the daemon's start after a kill. */
  readonly starting: number;
}

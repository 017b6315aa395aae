/** `error`: pods are, or will be, without a network that they asked for, or something is stuck. `warn`: worth a look. */
export type Level = "ok" | "warn" | "error";

/** One line of `podnetctl doctor`. */
export interface Finding {
  readonly level: Level;
  /** One word: what was looked at. */
  readonly check: string;
  readonly text: string;
  /** What to do about it. */
  readonly todo?: string;
}

export function ok(check: string, text: string): Finding {
  return { level: "ok", check, text };
}

export function warn(check: string, text: string, todo: string): Finding {
  return { level: "warn", check, text, todo };
}

export function error(check: string, text: string, todo: string): Finding {
  return { level: "error", check, text, todo };
}

/** So many findings of one check are shown: more say nothing new. */
const mostShown = 20;

/** The findings, or `fine` when there are none; a long list ends with how many more there are. */
export function orFine(findings: readonly Finding[], fine: Finding): Finding[] {
  const [first] = findings;
  if (first === undefined) return [fine];
  const shown = findings.slice(0, mostShown);
  const more = findings.length - shown.length;
  if (more === 0) return shown;
  return [...shown, { ...first, text: `and ${more} more of this kind` }];
}

/** `2 h`, `5 min`, `40 s`. */
export function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

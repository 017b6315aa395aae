/** The known word that was probably meant, for "did you mean"; undefined when none is near. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  if (word.length > 64) return undefined;
  const limit = Math.max(2, Math.floor(word.length / 3));
  let best: string | undefined;
  let least = limit + 1;
  for (const candidate of known) {
    const steps = distance(word.toLowerCase(), candidate.toLowerCase());
    if (steps < least) [best, least] = [candidate, steps];
  }
  return best;
}

/** `unknown key "a": did you mean "b"?` */
export function unknownKeyText(key: string, known: readonly string[]): string {
  const guess = nearest(key, known);
  const shown = key.length > 64 ? `${key.slice(0, 61)}...` : key;
  return `unknown key ${JSON.stringify(shown)}${guess === undefined ? "" : `: did you mean "${guess}"?`}`;
}

/** Levenshtein's distance: how many letters to add, remove or replace. */
function distance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const replace = (row[j - 1] ?? 0) + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(replace, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[right.length] ?? 0;
}

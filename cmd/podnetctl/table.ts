/** Lays rows out in columns for a terminal; the first row is the head. Control characters of outside text are escaped. */
export function formatTable(rows: readonly (readonly string[])[]): string {
  const clean = rows.map((row) => row.map(printable));
  const widths: number[] = [];
  for (const row of clean) {
    for (const [column, cell] of row.entries()) {
      widths[column] = Math.max(widths[column] ?? 0, cell.length);
    }
  }
  return clean
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Control characters of outside text, escaped for a terminal. */
export function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}

/** How long ago, in the largest unit that fits: `42s`, `7m`, `3h`, `12d`. `now` and `then` in milliseconds. */
export function formatAge(then: number, now: number): string {
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  if (Number.isNaN(seconds)) return "?";
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 2 * 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** The text of anything that was thrown, for one line of a message. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The code of a system or netlink error ("ENOENT"); undefined when the error has none. */
export function errorCode(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/** Why Node could not work with a file, for a message that names the file already: its own text ends with the call and the path. */
export function fileFault(error: unknown): string {
  const text = errorText(error);
  if (errorCode(error) === undefined) return text;
  const named = /^[A-Z][A-Z0-9]+: (?<reason>[^,]+), [a-z_0-9]+(?: '|$)/s.exec(text);
  return named?.groups?.["reason"] ?? text;
}

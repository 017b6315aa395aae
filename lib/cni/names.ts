/** What CNI 1.1.0 allows as a container id and as a network name: it ends up in paths. */
const identifier = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;

/** Whether a container id or a network name is one that the specification allows. */
export function isCniIdentifier(text: string): boolean {
  return identifier.test(text);
}

/** What `isCniIdentifier` asks for, in words. */
export const identifierRule =
  'must start with a letter or digit and contain only letters, digits, "_", "." and "-"';

/** Linux' own rules for an interface name (dev_valid_name in net/core/dev.c). */
export function isInterfaceName(text: string): boolean {
  if (text === "" || text === "." || text === "..") return false;
  return utf8Length(text) <= 15 && !/[/:\s\0]/.test(text);
}

/** What `isInterfaceName` asks for, in words. */
export const interfaceNameRule =
  'must be an interface name: at most 15 bytes, no "/", ":" or white space, not "." or ".."';

/** Bytes of the text as UTF-8. Written out because the stub's engine has neither Buffer nor TextEncoder. */
function utf8Length(text: string): number {
  let bytes = 0;
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    if (code < 0x80) bytes += 1;
    else if (code < 0x800) bytes += 2;
    else bytes += code < 0x10000 ? 3 : 4;
  }
  return bytes;
}

/** Whether a plugin's `type` can be the name of an executable in a directory of CNI_PATH, and nothing else. */
export function isPluginType(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused
  return text !== "" && text !== "." && text !== ".." && !/[/\\\u0000-\u001f]/.test(text);
}

import { readFileSync } from "node:fs";

/** Bytes from hexadecimal text, one piece a field; blanks between bytes are for the eye. */
export function hex(...pieces: string[]): Buffer {
  const text = pieces.join("").replaceAll(/\s/g, "");
  const bytes = Buffer.from(text, "hex");
  if (bytes.length * 2 !== text.length) throw new Error(`not hexadecimal: "${text}"`);
  return bytes;
}

/** The bytes of a file of hexadecimal text below test/fixtures. */
export function hexFixture(path: string): Buffer {
  return hex(readFileSync(`test/fixtures/${path}`, "utf8"));
}

/** Bytes as lines of four, so that a difference shows the field. */
export function dump(bytes: Uint8Array): string[] {
  return (
    Buffer.from(bytes)
      .toString("hex")
      .match(/.{1,8}/g) ?? []
  );
}

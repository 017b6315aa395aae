import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { digestOf, placeFile } from "./files.ts";

/** The stub in the runtime's folder of plugins. */
export class InstalledStub {
  readonly path: string;
  readonly #content: Buffer;
  readonly #digest: string;
  /** Of the file as it was when it was right. */
  #stamp: string | undefined;

  /** Throws the system's error when `source` can't be read. */
  constructor(path: string, source: string) {
    this.path = path;
    this.#content = readFileSync(source);
    this.#digest = createHash("sha256").update(this.#content).digest("hex");
  }

  /** Whether it has been in place since this daemon started. */
  get seen(): boolean {
    return this.#stamp !== undefined;
  }

  /** Whether it is what it should be. Reads the file only when it was changed. */
  isRight(): boolean {
    const stamp = stampOf(this.path);
    if (stamp === undefined) return false;
    if (stamp === this.#stamp) return true;
    if (digestOf(this.path) !== this.#digest) return false;
    this.#stamp = stamp;
    return true;
  }

  /** Puts it in place, also while the old one is being executed. */
  place(): void {
    placeFile({ path: this.path, content: this.#content, mode: 0o755 });
    this.#stamp = stampOf(this.path);
  }
}

/** Changes with the content, the mode and the file itself; undefined: not there, or not to be executed. */
function stampOf(path: string): string | undefined {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  if (found?.isFile() !== true || (found.mode & 0o111n) === 0n) return undefined;
  return [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join(":");
}

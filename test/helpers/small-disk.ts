import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type Lab, runCommand } from "./lab.ts";

type Kind = "tmpfs" | "ext4";

/**
 * A file system of its own that can be full, or read-only, while somebody works on it: `tmpfs` (made read-only and writable again by a
 * remount), or `ext4` on a loop device (which the kernel itself makes read-only after an error, in the middle of whatever goes on).
 */
export class SmallDisk implements Disposable {
  readonly path: string;
  readonly #kind: Kind;
  readonly #image: string;
  readonly #held: string[] = [];
  readonly #onExit = () => this[Symbol.dispose]();
  #device = "";

  constructor(lab: Lab, kind: Kind) {
    const folder = lab.folder();
    this.#kind = kind;
    this.path = join(folder, "disk");
    this.#image = join(folder, "image");
    mkdirSync(this.path);
    process.once("exit", this.#onExit);
    if (kind === "ext4") {
      writeFileSync(this.#image, "");
      truncateSync(this.#image, 16 << 20);
      runCommand(["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", this.#image]);
    }
    this.#mount();
  }

  /** The folder's files move onto the disk; it looks as before. Nobody may have files in it open. */
  hold(folder: string): void {
    const here = this.#placeOf(folder);
    cpSync(folder, here, { recursive: true, preserveTimestamps: true });
    runCommand(["mount", "--bind", here, folder]);
    this.#held.push(folder);
  }

  /** Leaves so many bytes free, as far as the file system counts so exactly. */
  fill(free = 0): void {
    const ballast = join(this.path, "ballast");
    // What dd says at the end of the space is no news.
    spawnSync("dd", ["if=/dev/zero", `of=${ballast}`, "bs=4096"], { stdio: "ignore" });
    if (free > 0) runCommand(["truncate", "-s", `-${free}`, ballast]);
  }

  empty(): void {
    rmSync(join(this.path, "ballast"), { force: true });
  }

  /** Read-only from now on. An ext4 file system does that by itself after an error, whatever is open. */
  makeReadOnly(): void {
    if (this.#kind === "tmpfs") this.#remount("ro");
    else writeFileSync(`/sys/fs/ext4/${basename(this.#device)}/trigger_fs_error`, "podnet test");
  }

  /** Writable again. For ext4 nobody may use it: it is unmounted, checked and mounted, as by a reboot. */
  repair(): void {
    if (this.#kind === "tmpfs") {
      this.#remount("rw");
      return;
    }
    const held = this.#held.splice(0);
    for (const folder of held) runCommand(["umount", folder]);
    runCommand(["umount", this.path]);
    // Status 1: errors were put right.
    spawnSync("e2fsck", ["-fy", this.#image], { stdio: "ignore" });
    this.#mount();
    for (const folder of held) {
      runCommand(["mount", "--bind", this.#placeOf(folder), folder]);
      this.#held.push(folder);
    }
  }

  #placeOf(folder: string): string {
    return join(this.path, folder.replaceAll("/", "-"));
  }

  #mount(): void {
    if (this.#kind === "tmpfs") {
      runCommand(["mount", "-t", "tmpfs", "-o", "size=256k", "podnet-test", this.path]);
      return;
    }
    runCommand(["mount", "-o", "loop,errors=remount-ro", this.#image, this.path]);
    this.#device = runCommand(["findmnt", "-no", "SOURCE", this.path]).trim();
  }

  #remount(how: "ro" | "rw"): void {
    runCommand(["mount", "-o", `remount,${how}`, this.path]);
  }

  [Symbol.dispose](): void {
    process.removeListener("exit", this.#onExit);
    for (const path of [...this.#held.splice(0), this.path])
      if (existsSync(path)) spawnSync("umount", ["-l", path], { stdio: "ignore" });
  }
}

/** Whether this machine has loop devices, without which there is no ext4 to break. */
export const hasLoopDevices = existsSync("/dev/loop-control");

import { type FSWatcher, statSync, watch } from "node:fs";

/** Tells of changes in folders: by the kernel's events where there are some, and by nothing else (whoever uses it also looks by itself). */
export class FolderWatch implements Disposable {
  readonly #folders: readonly string[];
  readonly #changed: (folder: string, file: string | undefined) => void;
  readonly #watchers = new Map<string, { readonly inode: number; readonly watcher: FSWatcher }>();

  constructor(
    folders: readonly string[],
    changed: (folder: string, file: string | undefined) => void,
  ) {
    this.#folders = folders;
    this.#changed = changed;
    this.renew();
  }

  /** Watches folders that have appeared, or were replaced, since the last time. Cheap; never throws. */
  renew(): void {
    for (const folder of this.#folders) {
      const inode = statSync(folder, { throwIfNoEntry: false })?.ino;
      const known = this.#watchers.get(folder);
      if (known?.inode === inode) continue;
      known?.watcher.close();
      this.#watchers.delete(folder);
      if (inode !== undefined) this.#open(folder, inode);
    }
  }

  #open(folder: string, inode: number): void {
    try {
      const changed = (_: string, file: string | null) => this.#changed(folder, file ?? undefined);
      const watcher = watch(folder, { persistent: false }, changed);
      watcher.on("error", () => watcher.close());
      this.#watchers.set(folder, { inode, watcher });
    } catch {
      // Out of watches: the slow look does.
    }
  }

  [Symbol.dispose](): void {
    for (const { watcher } of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }
}

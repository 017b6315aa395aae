import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, extname, join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { confExtensions } from "../../lib/cni/conf-dir.ts";
import { type FolderEvent, Inotify } from "./inotify.ts";
import { namespacePrefix } from "./lab.ts";

/** What a runtime found, or would have found at some moment, instead of podnet's configuration and executable. */
export interface Miss {
  readonly at: number;
  readonly what: string;
}

export interface Watched {
  readonly confDir: string;
  readonly confName: string;
  readonly stub: string;
}

/** What was wrong, how often it looked, and how many changes of the folders the kernel told of. */
export interface Watching {
  readonly misses: readonly Miss[];
  readonly looks: number;
  readonly events: number;
}

type Orders = Watched & { readonly end: string };

/** Milliseconds between looks: as often as a thread of its own can without hindering others. */
const every = 1;
const mostMisses = 1000;

/**
 * Watches a node's configuration folder and podnet's executable from a thread of its own. Between two moments in which a file is whole there may be no other, so two
 * things are looked at: what the kernel says of each change (inotify), of which none is missed however short it was, and what a runtime
 * that looks at this moment finds, which tells what a change brought. A file that is taken away, written to or cut in place is a miss
 * by its event alone; the only way to change it is to rename a whole one over it.
 */
export class ConfWatch {
  readonly #worker: Worker;
  readonly #end: string;

  private constructor(worker: Worker, end: string) {
    this.#worker = worker;
    this.#end = end;
  }

  /** Resolves when it watches: what is done from then on is seen. */
  static async start(watched: Watched): Promise<ConfWatch> {
    const end = mkdtempSync(join(tmpdir(), namespacePrefix));
    const orders: Orders = { ...watched, end };
    const watch = new ConfWatch(new Worker(new URL(import.meta.url), { workerData: orders }), end);
    await watch.#message();
    return watch;
  }

  /** Ends the watch, once everything that was done before has been judged. */
  async end(): Promise<Watching> {
    try {
      const result = this.#message();
      writeFileSync(join(this.#end, "end"), "");
      return (await result) as Watching;
    } finally {
      await this.#worker.terminate();
      rmSync(this.#end, { recursive: true, force: true });
    }
  }

  #message(): Promise<unknown> {
    return new Promise((done, failed) => {
      this.#worker.once("message", done);
      this.#worker.once("error", failed);
    });
  }
}

/** What a runtime that looks now finds wrong. */
function look({ confDir, confName, stub }: Watched): string | undefined {
  try {
    const [first] = readdirSync(confDir).filter(isConfiguration).sort();
    if (first !== confName) return `first file is ${first ?? "none"}`;
    const list = JSON.parse(readFileSync(join(confDir, confName), "utf8"));
    if (list.plugins[0].type !== "podnet") return `plugin is ${list.plugins[0].type}`;
    if (readFileSync(stub).length < 100_000) return "executable is not whole";
    return undefined;
  } catch (error) {
    return String(error);
  }
}

function isConfiguration(name: string): boolean {
  return confExtensions.includes(extname(name));
}

/** What a runtime that had looked right after this change would have found wrong, whatever was done since. */
function judge({ kind, folder, file }: FolderEvent, watched: Watched): string | undefined {
  if (folder === "") return "the kernel lost events";
  if (file === "") return `${kind} of the folder "${folder}" itself`;
  const { confDir, confName, stub } = watched;
  const isOurs =
    (folder === confDir && file === confName) ||
    (folder === dirname(stub) && file === basename(stub));
  if (isOurs) return kind === "MOVED_TO" ? undefined : `${kind} of "${file}"`;
  const comes = kind === "CREATE" || kind === "MOVED_TO";
  if (folder !== confDir || !comes || !isConfiguration(file) || file > confName) return undefined;
  return `"${file}" comes before "${confName}"`;
}

function watchFolders(orders: Orders): void {
  const misses: Miss[] = [];
  let looks = 0;
  let events = 0;
  const miss = (what: string | undefined): void => {
    if (what !== undefined && misses.length < mostMisses) misses.push({ at: Date.now(), what });
  };
  const inotify = new Inotify();
  for (const folder of new Set([orders.confDir, dirname(orders.stub), orders.end]))
    inotify.watch(folder);
  const timer = setInterval(() => {
    const found = inotify.read();
    looks += 1;
    miss(look(orders));
    for (const event of found) {
      if (event.folder === orders.end) return finish();
      events += 1;
      miss(judge(event, orders));
    }
  }, every);
  const finish = (): void => {
    clearInterval(timer);
    inotify[Symbol.dispose]();
    parentPort?.postMessage({ misses, looks, events } satisfies Watching);
  };
  parentPort?.postMessage("watching");
}

if (!isMainThread && parentPort !== null) watchFolders(workerData as Orders);

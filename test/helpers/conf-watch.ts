import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

/** What a runtime would have found in the folder at some moment instead of podnet's configuration and executable. */
export interface Miss {
  readonly at: number;
  readonly what: string;
}

interface Watched {
  readonly confDir: string;
  readonly confName: string;
  readonly stub: string;
}

/** Milliseconds between looks: as often as a thread of its own can without hindering others. */
const every = 1;

function look({ confDir, confName, stub }: Watched): string | undefined {
  try {
    const [first] = readdirSync(confDir)
      .filter((name) => name.endsWith(".conflist"))
      .sort();
    if (first !== confName) return `first file is ${first ?? "none"}`;
    const list = JSON.parse(readFileSync(join(confDir, confName), "utf8"));
    if (list.plugins[0].type !== "podnet") return `plugin is ${list.plugins[0].type}`;
    if (readFileSync(stub).length < 100_000) return "executable is not whole";
    return undefined;
  } catch (error) {
    return String(error);
  }
}

/** Looks at a node's configuration folder as a runtime does, all the time, from a thread of its own, until `misses` is asked for. */
export class ConfWatch {
  readonly #worker: Worker;

  constructor(watched: Watched) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: watched });
  }

  /** Ends the watch: what was wrong, and how often it looked. */
  async end(): Promise<{ misses: readonly Miss[]; looks: number }> {
    const answer = new Promise<{ misses: readonly Miss[]; looks: number }>((done, failed) => {
      this.#worker.once("message", done);
      this.#worker.once("error", failed);
    });
    this.#worker.postMessage("end");
    const result = await answer;
    await this.#worker.terminate();
    return result;
  }
}

if (!isMainThread && parentPort !== null) {
  const misses: Miss[] = [];
  let looks = 0;
  const timer = setInterval(() => {
    looks++;
    const what = look(workerData as Watched);
    if (what !== undefined && misses.length < 1000) misses.push({ at: Date.now(), what });
  }, every);
  parentPort.once("message", () => {
    clearInterval(timer);
    parentPort?.postMessage({ misses, looks });
  });
}

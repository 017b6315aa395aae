import { join } from "node:path";
import { errorText } from "../../../lib/base/errors.ts";
import type { Log } from "../../../lib/base/log.ts";
import type { Conflist } from "../../../lib/cni/conflist.ts";
import { conflistStep, ownConflist } from "./conflist.ts";
import { confFileNames } from "./default.ts";
import { Fight } from "./fight.ts";
import { copiesOf, placeFile, textOf } from "./files.ts";
import { InstalledStub } from "./stub.ts";
import { FolderWatch } from "./watch.ts";

/** What happened to the installation; reason is one word for programs. */
export interface InstallEvent {
  readonly type: "Normal" | "Warning";
  readonly reason: string;
  readonly message: string;
}

export interface InstallerParts {
  /** The executable that runtimes are to start. */
  readonly stub: string;
  readonly binDir: string;
  readonly confDir: string;
  readonly confName: string;
  readonly socket: string;
  readonly log: Log;
  /** The default network as it is configured; undefined: not known now. Never slow. */
  readonly known: () => Promise<Conflist | undefined>;
  /** Why the default network can't attach now; undefined: it can. Asks its plugins, for at most a second. */
  readonly unready: () => Promise<string | undefined>;
  readonly onEvent: (event: InstallEvent) => void;
}

/** Milliseconds between looks, and between looks while something is missing. */
const lookEvery = 10_000;
const askEvery = 1_000;
/** Milliseconds that the default network may take before people are told. */
const patience = 30_000;

/**
 * Keeps podnet's stub and its network configuration in place: puts them there (the configuration once the default network works), looks
 * again at every change and every ten seconds, and puts back what somebody took, replaced or renamed. It never removes anything: a daemon
 * that ends leaves a node whose pods wait for the next one.
 */
export class Installer implements AsyncDisposable {
  readonly confPath: string;
  readonly #parts: InstallerParts;
  readonly #stub: InstalledStub;
  readonly #watch: FolderWatch;
  readonly #fights = { conflist: new Fight(), stub: new Fight() };
  readonly #restored = { conflist: 0, stub: 0 };
  readonly #faults = new Map<"stub" | "conflist" | "order", string>();
  readonly #told = new Map<string, string>();
  readonly #started = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #again = false;
  #ended = false;
  /** The configuration that this daemon has seen in place. */
  #text: string | undefined;

  /** Throws when the stub can't be read. Nothing happens before `look`. */
  constructor(parts: InstallerParts) {
    this.#parts = parts;
    this.confPath = join(parts.confDir, parts.confName);
    this.#stub = new InstalledStub(join(parts.binDir, "podnet"), parts.stub);
    this.#faults.set("conflist", "podnet is not installed yet");
    this.#watch = new FolderWatch([parts.confDir, parts.binDir], (_, file) => {
      // No runtime reads these, and our own temporary ones are among them: where a disk is full, each attempt would be the reason of the next.
      if (file?.startsWith(".") !== true) this.#changed();
    });
  }

  get stubPath(): string {
    return this.#stub.path;
  }

  /** Why new pods don't come to podnet; undefined: all is in place. */
  get fault(): string | undefined {
    return this.#faults.size === 0 ? undefined : [...this.#faults.values()].join("; ");
  }

  /** How often something was put back since the start. */
  get restored(): Readonly<Record<"conflist" | "stub", number>> {
    return this.#restored;
  }

  /** Looks now, and does what can be done. Never rejects. */
  async look(): Promise<void> {
    this.#again = true;
    this.#looking ??= this.#lookUntilCalm().finally(() => {
      this.#looking = undefined;
    });
    await this.#looking;
  }

  /** From now on nothing is put back: podnet is being removed. Idempotent. */
  async release(): Promise<void> {
    await this[Symbol.asyncDispose]();
    this.gone("podnet is being removed from this node");
  }

  /** What is left to do until podnet is removed; undefined: nothing. */
  gone(fault: string | undefined): void {
    this.#faults.clear();
    if (fault !== undefined) this.#faults.set("conflist", fault);
  }

  /** From now on nothing is put back. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#watch[Symbol.dispose]();
    await this.#looking;
  }

  /** At once, whatever else is being waited for: until it is back, pods start without podnet. */
  #changed(): void {
    if (this.#ended) return;
    this.#attempt("conflist", () => this.#restoreConflist());
    void this.look();
  }

  async #lookUntilCalm(): Promise<void> {
    while (this.#again && !this.#ended) {
      this.#again = false;
      this.#watch.renew();
      this.#attempt("stub", () => this.#lookAtStub());
      await this.#lookAtConflist();
      this.#attempt("order", () => this.#lookAtOrder());
    }
    clearTimeout(this.#timer);
    if (this.#ended) return;
    const pause = this.#faults.size === 0 ? lookEvery : askEvery;
    this.#timer = setTimeout(() => void this.look(), pause).unref();
  }

  /** Runs one part; what it says, or throws, is what is wrong with it. */
  #attempt(part: "stub" | "conflist" | "order", work: () => string | undefined): void {
    let fault: string | undefined;
    try {
      fault = work();
    } catch (error) {
      fault = `install podnet: ${errorText(error)}`;
      this.tell("Warning", "InstallFailed", fault);
    }
    if (fault === undefined) this.#faults.delete(part);
    else this.#faults.set(part, fault);
  }

  #lookAtStub(): string | undefined {
    if (this.#stub.isRight()) return undefined;
    const { seen, path } = this.#stub;
    const fight = this.#fights.stub;
    const now = performance.now();
    if (seen && fight.pause(now) > 0) return `"${path}" was replaced or removed again`;
    this.#stub.place();
    if (!seen) {
      this.#parts.log.info({ path }, "stub installed");
      return undefined;
    }
    fight.struck(now);
    this.#restored.stub++;
    this.tell("Warning", "StubRestored", `"${path}" was replaced or removed, and is back`);
    return undefined;
  }

  async #lookAtConflist(): Promise<void> {
    const { known, unready, socket } = this.#parts;
    const defaultNetwork = await known().catch(() => undefined);
    const mayWait = this.#text === undefined && textOf(this.confPath) === undefined;
    const reason = mayWait ? await unready() : undefined;
    if (this.#ended) return;
    this.#attempt("conflist", () => {
      const wanted = ownConflist({ socket, defaultNetwork });
      const present = textOf(this.confPath);
      const step = conflistStep({
        present,
        wanted,
        socket,
        defaultKnown: defaultNetwork !== undefined,
        defaultReady: mayWait && reason === undefined,
        installed: this.#text !== undefined,
      });
      switch (step) {
        case "restore":
          return this.#restoreConflist();
        case "wait":
          return this.#wait(reason ?? "not asked yet");
        case "install":
        case "update":
          this.#place(wanted);
          this.tell("Normal", "PodnetInstalled", `"${this.confPath}" is in place (${step})`);
          return undefined;
        case "keep":
          this.#text = present;
          return undefined;
      }
    });
  }

  #wait(reason: string): string {
    const message = `the default network is not ready: ${reason}`;
    if (performance.now() - this.#started > patience)
      this.tell("Warning", "DefaultNetworkNotReady", `podnet is not installed: ${message}`);
    return message;
  }

  /** Puts the configuration back if this daemon has seen it in place and it is not what it was. */
  #restoreConflist(): string | undefined {
    const wanted = this.#text;
    if (wanted === undefined) return this.#faults.get("conflist");
    const present = textOf(this.confPath);
    if (present === wanted) return undefined;
    const { conflist: fight } = this.#fights;
    const now = performance.now();
    const what = `"${this.confPath}" was ${present === undefined ? this.#whereabouts(wanted) : "replaced"}`;
    if (fight.pause(now) > 0) return `${what} again`;
    this.#place(wanted);
    fight.struck(now);
    this.#restored.conflist++;
    this.tell("Warning", "ConflistRestored", `${what}, and is back`);
    return undefined;
  }

  #whereabouts(text: string): string {
    const [copy] = copiesOf(this.confPath, (other) => other === text);
    return copy === undefined ? "removed" : `renamed to "${copy}"`;
  }

  #place(text: string): void {
    placeFile({ path: this.confPath, content: text, mode: 0o600 });
    this.#text = text;
  }

  /** Runtimes take the first file. */
  #lookAtOrder(): string | undefined {
    const { confDir, confName } = this.#parts;
    if (this.#text === undefined) return undefined;
    const [first] = confFileNames(confDir);
    if (first === undefined || first >= confName) return undefined;
    const message = `"${first}" comes before "${confName}" in "${confDir}", so runtimes use it: remove it, or give it a later name`;
    this.tell("Warning", "ConflistNotFirst", message);
    return message;
  }

  /** A restoration is told each time, a state only when it changes. */
  tell(type: InstallEvent["type"], reason: string, message: string): void {
    if (!reason.endsWith("Restored")) {
      if (this.#told.get(reason) === message) return;
      this.#told.set(reason, message);
    }
    this.#parts.log[type === "Normal" ? "info" : "warn"]({ reason }, message);
    this.#parts.onEvent({ type, reason, message });
  }
}

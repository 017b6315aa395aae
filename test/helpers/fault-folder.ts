import { rmSync, truncateSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Daemon } from "./daemon.ts";
import type { Lab } from "./lab.ts";
import { linesOf } from "./scenario-state.ts";

/** What a daemon does at a point: die, stop (SIGSTOP), or have the call fail. */
export type PointFault = "kill" | "stop" | "error";

/** The folder by which a test and the fault points of its daemon (fault-points.ts) know of each other. */
export class FaultFolder {
  readonly #path: string;

  constructor(lab: Lab) {
    this.#path = lab.folder();
  }

  /** Variables of a daemon that is to pass fault points. */
  get env(): Readonly<Record<string, string>> {
    const hooks = `--import=${resolve("test/helpers/fault-points.ts")}`;
    return { NODE_OPTIONS: hooks, PODNET_FAULTS: this.#path };
  }

  /** The points that the daemon has passed in this life, in order. */
  get steps(): readonly string[] {
    return linesOf(join(this.#path, "steps"));
  }

  /** The daemon will do this at its point of that number, counted from its start. */
  arm(point: number, what: PointFault = "kill"): void {
    writeFileSync(join(this.#path, what), String(point));
  }

  disarm(): void {
    for (const what of ["kill", "stop", "error"]) rmSync(join(this.#path, what), { force: true });
  }

  /** Ends the daemon (kill -9) and starts it anew, perhaps to die at a point of this life. Resolves when it is ready (true), or dead. */
  async relive(daemon: Daemon, point?: number): Promise<boolean> {
    await daemon.kill();
    this.disarm();
    truncateSync(join(this.#path, "steps"));
    if (point === undefined) {
      await daemon.restart();
      return true;
    }
    this.arm(point);
    return await daemon.restart().then(
      () => true,
      () => false,
    );
  }
}

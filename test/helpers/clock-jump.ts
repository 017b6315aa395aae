// A clock that jumps, loaded before podnetd by `NODE_OPTIONS=--import=<this file>`: in that process alone, Date is ahead of or behind the machine's
// by the milliseconds that the file $PODNET_CLOCK holds. Timers and performance.now() go on as they do when somebody sets a machine's clock.
import { readFileSync } from "node:fs";

const file = process.env["PODNET_CLOCK"] ?? "";
// What the daemon starts is no daemon.
delete process.env["PODNET_CLOCK"];
delete process.env["NODE_OPTIONS"];
const Real = Date;

function offset(): number {
  try {
    return Number(readFileSync(file, "utf8")) || 0;
  } catch {
    return 0;
  }
}

class JumpingDate extends Real {
  constructor(...args: unknown[]) {
    if (args.length === 0) super(JumpingDate.now());
    else super(...(args as [number]));
  }

  static override now(): number {
    return Real.now() + offset();
  }
}

if (file !== "") globalThis.Date = JumpingDate as DateConstructor;

import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Lab } from "./lab.ts";

/** A delegate that a test holds and lets fail by files beside it. It passes prevResult on, or an empty result. */
const script = `#!/bin/sh
dir=\${0%/*}
config=$(cat)
call=$CNI_COMMAND\${CNI_CONTAINERID:+-$CNI_CONTAINERID}
: >"$dir/in-$call"
while [ -e "$dir/hold-$call" ]; do sleep 0.02; done
if [ -e "$dir/fail-$call" ]; then echo '{"code":11,"msg":"told to fail"}'; exit 1; fi
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
  ADD) echo '{"cniVersion":"1.1.0","interfaces":[],"ips":[]}' ;;
esac
`;

/** The delegate of type "steered". A call is `VERB-CONTAINERID`, `GC` or `STATUS`. */
export class Steered {
  readonly dir: string;

  constructor(lab: Lab) {
    this.dir = join(lab.folder(), "bin");
    mkdirSync(this.dir);
    writeFileSync(join(this.dir, "steered"), script);
    chmodSync(join(this.dir, "steered"), 0o755);
  }

  /** Calls of that kind wait from now on until `release`. */
  hold(call: string): void {
    rmSync(join(this.dir, `in-${call}`), { force: true });
    writeFileSync(join(this.dir, `hold-${call}`), "");
  }

  release(call: string): void {
    rmSync(join(this.dir, `hold-${call}`), { force: true });
  }

  fail(call: string, fails = true): void {
    if (fails) writeFileSync(join(this.dir, `fail-${call}`), "");
    else rmSync(join(this.dir, `fail-${call}`), { force: true });
  }

  /** Resolves when such a call has begun since `hold`. */
  async begun(call: string): Promise<void> {
    for (let turn = 0; turn < 400; turn += 1) {
      if (existsSync(join(this.dir, `in-${call}`))) return;
      await sleep(50);
    }
    throw new Error(`no ${call} of the steered delegate within 20 s`);
  }
}

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Lab } from "./lab.ts";

/**
 * A chained CNI executable, type `recorder`, that keeps the configuration that it gets of each call, and passes prevResult on. Its ADD or
 * DEL fails while it is told to, all of them or a network's.
 */
export class Recorder {
  readonly bin: string;

  constructor(lab: Lab) {
    this.bin = lab.folder();
    const script = `#!${process.execPath}
const { appendFileSync, readFileSync, writeFileSync, existsSync } = require("node:fs");
const verb = process.env.CNI_COMMAND;
const config = JSON.parse(readFileSync(0, "utf8"));
const { cniVersion, prevResult = {} } = config;
if (verb === "VERSION") {
  console.log(JSON.stringify({ cniVersion, supportedVersions: ["0.4.0", "1.0.0", "1.1.0"] }));
  process.exit(0);
}
writeFileSync("${this.bin}/" + verb + "-" + process.env.CNI_IFNAME, JSON.stringify(config));
appendFileSync("${this.bin}/calls", verb + " " + config.name + "\\n");
if (["", "-" + config.name].some((of) => existsSync("${this.bin}/fail-" + verb + of))) {
  console.log(JSON.stringify({ cniVersion, code: 11, msg: "told to fail" }));
  process.exit(1);
}
if (verb === "ADD") console.log(JSON.stringify({ ...prevResult, cniVersion }));
`;
    writeFileSync(join(this.bin, "recorder"), script, { mode: 0o755 });
  }

  // biome-ignore lint/suspicious/noExplicitAny: configurations are looked into
  got(verb: string, ifName: string): any {
    return JSON.parse(readFileSync(join(this.bin, `${verb}-${ifName}`), "utf8"));
  }

  wasCalled(verb: string, ifName: string): boolean {
    return existsSync(join(this.bin, `${verb}-${ifName}`));
  }

  /** Its calls since the last question, in order: `ADD blue`. */
  calls(): string[] {
    const path = join(this.bin, "calls");
    const lines = existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : [];
    rmSync(path, { force: true });
    return lines;
  }

  /** `verb`: `ADD`, or `ADD-NETWORK` for a network's only. */
  fail(verb: string, fails: boolean): void {
    const path = join(this.bin, `fail-${verb}`);
    if (fails) writeFileSync(path, "");
    else rmSync(path, { force: true });
  }
}

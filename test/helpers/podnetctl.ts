import { spawn } from "node:child_process";
import { resolve } from "node:path";
import type { Place } from "./lab.ts";

export interface CtlAnswer {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs podnetctl in a node's namespace; `wrap` puts a command before it. Never throws for what it does. */
export function podnetctl(
  node: Place,
  args: readonly string[],
  wrap: (command: readonly string[]) => readonly string[] = (command) => command,
): Promise<CtlAnswer> {
  const fromSource = process.env["PODNET_FROM_SOURCE"] === "1";
  const own = fromSource
    ? [process.execPath, resolve("cmd/podnetctl/main.ts")]
    : [resolve("dist/bin/podnetctl")];
  const [program = "", ...rest] = node.wrap(wrap([...own, ...args]));
  return new Promise((done, broken) => {
    const child = spawn(program, rest, { stdio: ["ignore", "pipe", "pipe"], timeout: 60_000 });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.on("error", broken);
    child.on("close", (status) => done({ status, stdout, stderr }));
  });
}

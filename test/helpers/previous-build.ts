import { spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { part } from "./parts.ts";

/** A podnet as it was built: the programs that run together on a node. */
export interface Build {
  readonly name: string;
  readonly daemon: string;
  readonly stub: string;
  readonly ctl: string;
}

/** What tests of upgrade and rollback take for the version before this one. With a release that is its tag; until then a commit of long before. */
export const previousCommit = "d1de711";

export const thisBuild: Build = buildIn("this build", resolve("dist"));

function buildIn(name: string, folder: string): Build {
  const at = (program: string) => join(folder, "bin", program);
  return { name, daemon: at("podnetd"), stub: at("podnet"), ctl: at("podnetctl") };
}

/** Built from the history once, and kept. undefined where the history does not go back to it: a shallow clone, or sources without git. */
export function previousBuild(commit = previousCommit): Build | undefined {
  const root = resolve(".");
  const git = ["-c", `safe.directory=${root}`, "-C", root];
  const found = spawnSync("git", [...git, "cat-file", "-e", `${commit}^{commit}`]);
  if (found.status !== 0) return undefined;
  return buildIn(commit, part("previous-build", commit));
}

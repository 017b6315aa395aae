import { spawnSync } from "node:child_process";
import { resolve } from "node:path";

/** Real parts that tests run against; each is fetched or built once into ~/.cache/podnet. */
export type PartName =
  | "reference-plugins"
  | "cnitool"
  | "containerd"
  | "podman"
  | "cri-proto"
  | "image"
  | "kubernetes"
  | "apiextensions"
  | "previous-build";

const found = new Map<string, string>();

/** Where the part is: a folder of executables, an executable or a file, as test/parts/NAME.sh says. Throws when it can't be had. */
export function part(name: PartName, ...args: string[]): string {
  const key = [name, ...args].join(" ");
  const known = found.get(key);
  if (known !== undefined) return known;
  const script = resolve("test/parts", `${name}.sh`);
  const done = spawnSync(script, args, { encoding: "utf8" });
  if (done.status !== 0)
    throw new Error(`test/parts/${name}.sh: exit ${done.status}: ${done.stderr.trim()}`);
  const path = done.stdout.trim();
  found.set(key, path);
  return path;
}

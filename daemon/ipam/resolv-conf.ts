import { readFileSync } from "node:fs";
import type { CniDns } from "../../lib/cni/types.ts";

/** The DNS settings of a resolver configuration file (resolv.conf(5)). Throws the system error when it can't be read. */
export function readResolvConf(path: string): CniDns {
  return parseResolvConf(readFileSync(path, "utf8"));
}

/** Comments and lines without a value are left out; of several `domain` lines the last counts, the others add up. */
export function parseResolvConf(text: string): CniDns {
  const lines = text.split("\n").map((line) => line.trim().split(/\s+/));
  const valuesOf = (key: string): string[][] =>
    lines.filter((line) => line[0] === key && line.length > 1).map((line) => line.slice(1));
  const nameservers = valuesOf("nameserver").flatMap((values) => values.slice(0, 1));
  const domain = valuesOf("domain").at(-1)?.[0];
  const search = valuesOf("search").flat();
  const options = valuesOf("options").flat();
  return {
    ...(nameservers.length > 0 && { nameservers }),
    ...(domain !== undefined && { domain }),
    ...(search.length > 0 && { search }),
    ...(options.length > 0 && { options }),
  };
}

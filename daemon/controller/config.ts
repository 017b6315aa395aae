import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { z } from "zod";
import { type NadConfinement, nadRuleKeys } from "../../lib/api/nad-rules-keys.ts";
import { DecodeError, decode, formatFault } from "../../lib/base/decode.ts";
import { errorText } from "../../lib/base/errors.ts";
import { isJsonObject } from "../../lib/base/json.ts";
import type { LogLevel } from "../../lib/base/log.ts";

/** Where a server listens; undefined: it does not. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Everything that the command line decides. */
export interface ControllerConfig {
  /** Path of a kubeconfig file; undefined: the controller is a pod. */
  readonly kubeconfig?: string;
  /** One of several replicas does the work. */
  readonly leaderElect: boolean;
  /** Namespace of the controller itself: of its lease, and of the webhook's service and secret. */
  readonly namespace: string;
  /** Seconds after which another replica takes over from one that gives no sign of life. */
  readonly leaseDuration: number;
  readonly metrics?: ListenAddress;
  readonly webhook?: ListenAddress;
  /** Name of the webhook's service, in `namespace`. */
  readonly webhookService: string;
  /** Makes the PodNetwork "default" where there is none. */
  readonly createDefault: boolean;
  /** Families of the pods' addresses on the default network; `auto`: those of the nodes' podCIDRs. */
  readonly ipFamilies: "auto" | readonly (4 | 6)[];
  /** What podnetd's configuration permits in NADs of tenants; undefined: it is not known. */
  readonly confinement?: NadConfinement;
  readonly logLevel: LogLevel;
}

const nodeConfigSchema = z.looseObject(nadRuleKeys, "must be an object of configuration keys");

/**
 * Reads what podnetd's configuration (YAML or JSON) permits in NADs of tenants; its other keys are podnetd's business. Throws an Error
 * of one line with every fault.
 */
export function readConfinement(path: string): NadConfinement {
  try {
    const value: unknown = parse(readFileSync(path, "utf8")) ?? {};
    // Without a value a key counts as absent, as for podnetd.
    const filled = isJsonObject(value)
      ? Object.fromEntries(Object.entries(value).filter(([, item]) => item !== null))
      : value;
    return decode(nodeConfigSchema, filled, "podnetd's configuration");
  } catch (error) {
    const reason =
      error instanceof DecodeError ? error.faults.map(formatFault).join("; ") : firstLine(error);
    throw new Error(`read --node-config "${path}": ${reason}`, { cause: error });
  }
}

/** A YAML error shows the place on lines of its own. */
function firstLine(error: unknown): string {
  return (errorText(error).split("\n")[0] ?? "").replace(/:$/, "");
}

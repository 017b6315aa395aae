import { z } from "zod";
import type { NadRules } from "./nad-rules.ts";
import { multusNamespace, namespaceFault } from "./names.ts";

/** An absolute path in a configuration file. */
export const absolute = z
  .string("must be a path")
  .refine((path) => path.startsWith("/") && !path.includes("\0"), "must be an absolute path");

/** The name of a namespace in a configuration file. */
export const namespace = z.string("must be a string").superRefine((value, context) => {
  const message = namespaceFault(value);
  if (message !== undefined) context.addIssue({ code: "custom", message });
});

const patterns = z.array(
  z.string("must be a string").min(1, "must not be empty"),
  "must be a list",
);

/** Types that tenants may use in their NADs: those of podnet itself that take no device of the node, and their addresses. */
const nadTypes = [
  ...["bridge", "macvlan", "ipvlan", "vlan", "ptp", "dummy", "tap", "loopback", "sriov"],
  ...["tuning", "portmap", "bandwidth", "sbr", "vrf"],
  ...["host-local", "static", "dhcp"],
];

/** Whose NADs are held against which rules. */
export interface NadConfinement extends NadRules {
  /** Namespaces whose NADs are the admin's. */
  readonly trustedNadNamespaces: readonly string[];
}

/** podnetd's keys on NADs of the API, with their defaults; patterns with "*". The controller reads them in the same file. */
export const nadRuleKeys = {
  nadTypes: patterns.default(nadTypes),
  nadDevices: patterns.default(["*"]),
  nadPaths: z.array(absolute, "must be a list of folders").default([]),
  nadSysctls: patterns.default(["net.*"]),
  trustedNadNamespaces: z
    .array(namespace, "must be a list of namespaces")
    .default([multusNamespace]),
};

/** What podnetd does where its configuration says nothing. */
export const defaultConfinement: NadConfinement = z.object(nadRuleKeys).parse({});

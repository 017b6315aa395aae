import { z } from "zod";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import {
  apiVersion,
  kinds,
  nadApiVersion,
  namespaceFault,
  objectNameFault,
  quote,
} from "./names.ts";
import { ipamModes } from "./objects.ts";
import { nestsDeeperThan } from "./same-json.ts";

const domain = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*";
/** K24b's pattern (spec A.1): a domain and a path. */
const domainAndPath = new RegExp(`^${domain}/[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+$`);
/** The SIG's own published manifests name a bare domain; without a dot it would be any word. */
const bareDomain = new RegExp(`^(?=.*\\.)${domain}$`);

function providerFault(value: string): string | undefined {
  if (value === "") return "must not be empty: leave it out for podnet's own";
  if (value.length > 253) return `must have at most 253 characters, not ${value.length}`;
  if (domainAndPath.test(value) || bareDomain.test(value)) return undefined;
  return `${quote(value)} must be a domain in lower case and a path, as in "acme.io/foo"`;
}

function checked(rule: (value: string) => string | undefined) {
  return z.string("must be a string").superRefine((value, context) => {
    const message = rule(value);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  });
}

const words = z.record(z.string(), z.string("must be a string"), "must be an object of strings");
const objectName = checked(objectNameFault);
const namespace = checked(namespaceFault);
/** API servers take 10,000 levels, and code that walks or writes the value has a stack. A network configuration has 256 levels at most. */
const deepest = 250;
const anyObject = z
  .custom<JsonObject>(isJsonObject, "must be an object")
  .refine(
    (value) => !nestsDeeperThan(value, deepest),
    `must not nest deeper than ${deepest} levels`,
  );

const metadata = {
  name: objectName,
  uid: z.string("must be a string").optional(),
  generation: z.int("must be a whole number").optional(),
  deletionTimestamp: z.string("must be a string").optional(),
  labels: words.nullish().transform((value) => value ?? {}),
  annotations: words.nullish().transform((value) => value ?? {}),
};

const filled = (value: string) => (value === "" ? "must not be empty" : undefined);
const parametersRef = z.looseObject(
  {
    group: z.string("must be a string"),
    kind: checked(filled),
    name: checked(filled),
    namespace: namespace.optional(),
  },
  "must be an object with group, kind and name",
);
const parametersRefs = z
  .array(parametersRef, "must be a list")
  .nullish()
  .transform((value) => value ?? []);
const ipam = z.enum(ipamModes, `must be one of ${ipamModes.join(", ")}`).optional();

const typeMeta = (version: string, kind: string) => ({
  apiVersion: z.literal(version, `must be ${version}`),
  kind: z.literal(kind, `must be ${kind}`),
});

export const podNetworkSchema = z.looseObject(
  {
    ...typeMeta(apiVersion, kinds.podNetwork),
    metadata: z.looseObject(metadata, "must be an object with a name"),
    spec: z.looseObject(
      {
        enabled: z.boolean("must be true or false").default(true),
        provider: checked(providerFault).optional(),
        parametersRefs,
        parameters: anyObject.nullish().transform((value) => value ?? undefined),
        ipam4: ipam,
        ipam6: ipam,
      },
      "must be an object",
    ),
  },
  "must be an object",
);

export const podNetworkAttachmentSchema = z.looseObject(
  {
    ...typeMeta(apiVersion, kinds.podNetworkAttachment),
    metadata: z.looseObject(
      { ...metadata, namespace: namespace.default("default") },
      "must be an object with a name",
    ),
    spec: z.looseObject({ podNetworkName: objectName, parametersRefs }, "must be an object"),
  },
  "must be an object",
);

export const nadSchema = z.looseObject(
  {
    ...typeMeta(nadApiVersion, kinds.nad),
    metadata: z.looseObject(
      { ...metadata, namespace: namespace.default("default") },
      "must be an object with a name",
    ),
    spec: z
      .looseObject({ config: z.string("must be a string of JSON").optional() }, "must be an object")
      .nullish()
      .transform((value) => value ?? {}),
  },
  "must be an object",
);

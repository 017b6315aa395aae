import { z } from "zod";
import { DecodeError, decodeQuoting } from "../../../lib/base/decode.ts";
import { type Cidr, type Ip, isCidr, isIp, parseCidr, parseIp } from "../../../lib/base/ip.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { CniDns, CniRoute } from "../../../lib/cni/types.ts";

/** What was decoded of a configuration object, by schema: each attachment of a network has the same object, which nobody changes. */
const decoded = new WeakMap<z.ZodType, WeakMap<object, unknown>>();

/**
 * Decodes the keys of a plugin configuration that a plugin knows. Unknown keys are ignored, as the reference does. The same schema and object give the same
 * value again: neither may be changed.
 * Throws a CniError (code 7) that names the network, the plugin, every field that is wrong, and its value.
 */
export function decodeConfig<T extends z.ZodType>(
  schema: T,
  value: unknown,
  where: { readonly network: string; readonly plugin: string },
): z.output<T> {
  const known = decoded.get(schema) ?? new WeakMap<object, unknown>();
  decoded.set(schema, known);
  const isObject = typeof value === "object" && value !== null;
  if (isObject && known.has(value)) return known.get(value) as z.output<T>;
  try {
    const what = `${where.plugin} configuration of network "${where.network}"`;
    const output = decodeQuoting(schema, value, what);
    if (isObject) known.set(value, output);
    return output;
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw invalidConfig(error);
  }
}

function invalidConfig(error: DecodeError): CniError {
  return new CniError(cniCode.invalidNetworkConfig, error.message, { cause: error });
}

/** A key that may be absent or null, which Go's decoder takes for absent. */
export function optional<T extends z.ZodType>(schema: T): z.ZodType<z.output<T> | undefined> {
  return schema.nullish().transform((value) => value ?? undefined);
}

/** An IP address as text. */
export const ipField: z.ZodType<Ip> = z
  .string()
  .refine(isIp, { error: (issue) => `"${issue.input}" is not an IP address`, abort: true })
  .transform(parseIp);

/** An IP address as text; empty text means absent, as in the reference. */
export const optionalIpField: z.ZodType<Ip | undefined> = optional(
  z.union([z.literal("").transform(() => undefined), ipField]),
);

/** An address or network in CIDR form; host bits are kept. */
export const cidrField: z.ZodType<Cidr> = z
  .string()
  .refine(isCidr, {
    error: (issue) => `"${issue.input}" is not an address with prefix length, such as 10.0.0.0/24`,
    abort: true,
  })
  .transform(parseCidr);

/** An IP address, with or without a prefix length that is dropped: how addresses are requested. */
export const requestedIpField: z.ZodType<Ip> = z
  .string()
  .refine((text) => isIp(text) || isCidr(text), {
    error: (issue) => `"${issue.input}" is not an IP address`,
    abort: true,
  })
  .transform((text): Ip => {
    const { family, value } = text.includes("/") ? parseCidr(text) : parseIp(text);
    return { family, value };
  });

const count = optional(z.int().min(0).max(0xffffffff));
const ipText = optional(
  z
    .string()
    .refine((text) => text === "" || isIp(text), {
      error: (issue) => `"${issue.input}" is not an IP address`,
    })
    .transform((text) => (text === "" ? undefined : text)),
);

/** One route of an IPAM configuration; the text of `dst` and `gw` is kept as it came. */
export const routeField: z.ZodType<CniRoute> = z
  .object({
    dst: z.string().refine(isCidr, {
      error: (issue) => `"${issue.input}" is not a destination with prefix length`,
    }),
    gw: ipText,
    mtu: count,
    advmss: count,
    priority: count,
    table: count,
    scope: optional(z.int().min(0).max(255)),
  })
  .transform(withoutAbsent);

const texts = optional(z.array(z.string()));

/** The `dns` object of a network or IPAM configuration. */
export const dnsField: z.ZodType<CniDns> = z
  .object({ nameservers: texts, domain: optional(z.string()), search: texts, options: texts })
  .transform(withoutAbsent);

/** The type of an object after its undefined keys were dropped. */
export type Present<T> = { [K in keyof T]: Exclude<T[K], undefined> };

/** Drops the keys whose value is undefined, so that they neither appear in a result nor overwrite anything. */
export function withoutAbsent<T extends object>(value: T): Present<T> {
  const entries = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(entries) as Present<T>;
}

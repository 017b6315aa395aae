import { z } from "zod";
import { isCidr, isIp } from "../base/ip.ts";
import { isJsonObject, type Json } from "../base/json.ts";

const text = z.string("must be a text");
const name = text.min(1, "must not be empty");
const count = z.int("must be a whole number").min(0, "must not be negative");
const address = text.refine(isIp, "must be an IP address");
const cidr = text.refine(isCidr, "must be an address with a prefix length, such as 10.1.0.5/24");
const texts = z.array(text, "must be a list of texts");

const dns = z.object({
  nameservers: texts.exactOptional(),
  domain: text.exactOptional(),
  search: texts.exactOptional(),
  options: texts.exactOptional(),
});

const link = z.object({
  name,
  mac: text.exactOptional(),
  mtu: count.exactOptional(),
  sandbox: text.exactOptional(),
  socketPath: text.exactOptional(),
  pciID: text.exactOptional(),
  podNetwork: text.exactOptional(),
});

const ip = z.object({
  address: cidr,
  gateway: address.exactOptional(),
  interface: count.exactOptional(),
  podNetwork: text.exactOptional(),
});

const route = z.object({
  dst: cidr,
  gw: address.exactOptional(),
  mtu: count.exactOptional(),
  advmss: count.exactOptional(),
  priority: count.exactOptional(),
  table: count.exactOptional(),
  scope: count.exactOptional(),
});

/** A result of version 0.3.0 or newer: the newer keys are simply absent in older ones. */
export const resultSchema = z
  .object({
    interfaces: z.array(link).default([]),
    ips: z.array(ip).default([]),
    routes: z.array(route).default([]),
    dns: dns.default({}),
  })
  .superRefine((result, context) => {
    for (const [index, entry] of result.ips.entries()) {
      if (entry.interface === undefined || entry.interface < result.interfaces.length) continue;
      const message = `${entry.interface} is no index into interfaces, which has ${result.interfaces.length}`;
      context.addIssue({ code: "custom", path: ["ips", index, "interface"], message });
    }
  });

const familyOf = (wanted: 4 | 6) => (value: string) => value.includes(":") === (wanted === 6);

function familySchema(family: 4 | 6) {
  const hint = `must be IPv${family}`;
  const oldRoute = z.object({ dst: cidr, gw: address.exactOptional() });
  return z.object({
    ip: cidr.refine(familyOf(family), hint),
    gateway: address.exactOptional(),
    routes: z.array(oldRoute).default([]),
  });
}

/** A result of version 0.1.0 or 0.2.0. */
export const oldResultSchema = z.object({
  ip4: familySchema(4).exactOptional(),
  ip6: familySchema(6).exactOptional(),
  dns: dns.default({}),
});

/**
 * Drops members that are null or an empty text: plugins in Go write absent addresses, lists and names so. At most three levels of a
 * result have typed members, the rest is left alone.
 */
export function withoutBlanks(value: unknown, levels = 4): unknown {
  if (levels === 0) return value;
  if (Array.isArray(value)) return value.map((item: unknown) => withoutBlanks(item, levels - 1));
  if (!isJsonObject(value)) return value;
  const kept = Object.entries(value).filter(([, member]) => !isBlank(member));
  return Object.fromEntries(kept.map(([key, member]) => [key, withoutBlanks(member, levels - 1)]));
}

function isBlank(value: Json | undefined): boolean {
  return value === null || value === undefined || value === "";
}

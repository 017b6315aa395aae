import { randomBytes } from "node:crypto";
import { z } from "zod";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import { formatMac } from "../../../lib/netlink/attributes.ts";
import type { NetworkCall, PluginCall } from "../plugin.ts";

/** Six bytes in hexadecimal: `02:00:00:aa:bb:cc`, `02-00-00-aa-bb-cc` or `0200.00aa.bbcc`. */
const forms = [
  /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i,
  /^[0-9a-f]{2}(-[0-9a-f]{2}){5}$/i,
  /^[0-9a-f]{4}(\.[0-9a-f]{4}){2}$/i,
];

/** The address in lower case with colons; undefined when the text is no Ethernet hardware address. */
export function canonicalMac(text: string): string | undefined {
  if (!forms.some((form) => form.test(text))) return undefined;
  const digits = text.toLowerCase().replaceAll(/[:.-]/g, "");
  return digits.match(/../g)?.join(":");
}

/** A hardware address by chance: of one interface, locally administered, as the kernel makes them (eth_random_addr). */
export function randomMac(): string {
  const bytes = randomBytes(6);
  bytes.writeUInt8((bytes.readUInt8(0) & 0xfe) | 0x02, 0);
  return formatMac(bytes);
}

/** A hardware address as text; empty text means absent, as in the reference. */
export const macField: z.ZodType<string | undefined> = z
  .string()
  .refine((text) => text === "" || canonicalMac(text) !== undefined, {
    error: (issue) => `"${issue.input}" is not a hardware address, such as 02:00:00:aa:bb:cc`,
  })
  .transform(canonicalMac);

/** The hardware address to give an interface: runtimeConfig `mac` wins over CNI_ARGS `MAC`, which wins over the key `mac`. */
export function requestedMac(call: PluginCall, key: string | undefined): string | undefined {
  const { mac } = call.runtimeConfig;
  if (typeof mac === "string" && mac !== "") return parseMac(call, mac, "runtimeConfig.mac");
  const argument = call.cniArgs.get("MAC") ?? "";
  if (argument !== "") return parseMac(call, argument, "CNI_ARGS MAC");
  return key;
}

function parseMac(call: NetworkCall, text: string, place: string): string {
  const mac = canonicalMac(text);
  if (mac !== undefined) return mac;
  throw new CniError(
    cniCode.invalidNetworkConfig,
    `network "${call.network}": ${place} "${text}": not a hardware address, such as 02:00:00:aa:bb:cc`,
  );
}

import { z } from "zod";
import { formatCidr, formatIp, IpError, parseCidr, parseIp } from "../base/ip.ts";
import { isJsonObject, type JsonObject } from "../base/json.ts";
import { ifNameFault, namespaceFault, objectNameFault, quote } from "./names.ts";

/** A string with a rule of its own: `rule` says what is wrong, undefined when nothing is. */
function text(rule: (value: string) => string | undefined) {
  return z.string("must be a string").superRefine((value, context) => {
    const message = rule(value);
    if (message !== undefined) context.addIssue({ code: "custom", message });
  });
}

/** A string that `read` turns into its canonical form; undefined: it is not one, which `message` says. */
function canonical(read: (value: string) => string | undefined, message: string) {
  return z.string("must be a string").transform((value, context) => {
    const result = value.length > 64 ? undefined : read(value);
    if (result !== undefined) return result;
    context.addIssue({ code: "custom", message: `${quote(value)} ${message}` });
    return z.NEVER;
  });
}

function readIp(value: string): string | undefined {
  try {
    return value.includes("/") ? undefined : formatIp(parseIp(value));
  } catch (error) {
    if (error instanceof IpError) return undefined;
    throw error;
  }
}

function readIpOrCidr(value: string): string | undefined {
  try {
    return value.includes("/") ? formatCidr(parseCidr(value)) : formatIp(parseIp(value));
  } catch (error) {
    if (error instanceof IpError) return undefined;
    throw error;
  }
}

/** Bytes in hexadecimal with ":" or "-" between them, or in groups of four with "." (as Go's net.ParseMAC reads them). */
function readHardwareAddress(value: string, length: number): string | undefined {
  const pairs = new RegExp(
    `^[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\\1[0-9a-f]{2}){${length - 2}}$`,
    "i",
  );
  const groups = new RegExp(`^[0-9a-f]{4}(?:\\.[0-9a-f]{4}){${length / 2 - 1}}$`, "i");
  if (!pairs.test(value) && !groups.test(value)) return undefined;
  return value.toLowerCase().replaceAll(/[:.-]/g, "").match(/../g)?.join(":");
}

/** The kernel gives no interface a group address or the all-zero one. */
function readMac(value: string): string | undefined {
  const mac = readHardwareAddress(value, 6);
  if (mac === undefined || mac === "00:00:00:00:00:00") return undefined;
  return (Number.parseInt(mac.slice(0, 2), 16) & 1) === 1 ? undefined : mac;
}

const ip = canonical(readIp, "must be an IP address without prefix length");
const port = z
  .int("must be an integer from 1 to 65535")
  .min(1, "must be 1 to 65535")
  .max(65535, "must be 1 to 65535");
const protocol = z
  .string("must be a string")
  .transform((value) => value.toLowerCase())
  .pipe(z.enum(["tcp", "udp", "sctp"], "must be TCP, UDP or SCTP"));

const portMapping = z.object(
  {
    hostPort: port,
    containerPort: port,
    protocol: protocol.default("tcp"),
    hostIP: z
      .union([z.literal("").transform(() => undefined), ip], "must be an IP address")
      .optional(),
  },
  "must be an object with hostPort and containerPort",
);

const amount = z.int("must be a whole number").min(1, "must be above 0");
const bandwidth = z
  .object(
    {
      ingressRate: amount.optional(),
      ingressBurst: amount.optional(),
      egressRate: amount.optional(),
      egressBurst: amount.optional(),
    },
    "must be an object",
  )
  .superRefine((value, context) => {
    const fault = (path: string[], message: string) =>
      context.addIssue({ code: "custom", path, message });
    if (Object.values(value).every((item) => item === undefined)) {
      fault([], "must have ingressRate or egressRate, in bits a second");
    }
    for (const way of ["ingress", "egress"] as const) {
      if (value[`${way}Burst`] !== undefined && value[`${way}Rate`] === undefined) {
        fault([`${way}Burst`], `needs ${way}Rate too`);
      }
    }
  });

/** The keys that ask a network for something (NPWG 1.3, section 4.1.2), the same in both dialects. */
const wishes = {
  ips: z
    .array(
      canonical(readIpOrCidr, "must be an IP address, with or without prefix length"),
      "must be a list of IP addresses",
    )
    .min(1, "must have at least one address")
    .optional(),
  mac: canonical(
    readMac,
    "must be the MAC address of one interface: six bytes, 02:00:00:00:00:05",
  ).optional(),
  "infiniband-guid": canonical(
    (value) => readHardwareAddress(value, 8),
    "must be a GUID: eight bytes, c2:11:22:33:44:55:66:77",
  ).optional(),
  portMappings: z
    .array(portMapping, "must be a list")
    .min(1, "must have at least one port")
    .optional(),
  bandwidth: bandwidth.optional(),
  "cni-args": z.custom<JsonObject>(isJsonObject, "must be an object").optional(),
  "default-route": z.array(ip, "must be a list of gateway addresses").optional(),
  "ipam-claim-reference": text(objectNameFault).optional(),
  deviceID: text((value) =>
    value === "" || value.length > 253 || /[\s\0]/.test(value)
      ? `${quote(value)} must be the id of a device`
      : undefined,
  ).optional(),
};

const flag = z.boolean("must be true or false").optional();
const objectName = text(objectNameFault).optional();
const ifName = text(ifNameFault).optional();
const notObject = "must be an object that names a network";

/** One entry of podnet.dev/networks, newest names and their aliases (spec A.3). */
export const podnetEntry = z.looseObject(
  {
    name: objectName,
    podNetworkName: objectName,
    podNetwork: objectName,
    attachmentName: objectName,
    podNetworkAttachmentName: objectName,
    interfaceName: ifName,
    isDefaultGW: flag,
    isDefaultGW4: flag,
    isDefaultGW6: flag,
    primary: flag,
    ...wishes,
  },
  notObject,
);

/** One entry of k8s.v1.cni.cncf.io/networks in its JSON form (spec B.2.2). `interfaceRequest`: an old spelling. */
export const npwgEntry = z.looseObject(
  {
    name: text(objectNameFault),
    namespace: text(namespaceFault).optional(),
    interface: ifName,
    interfaceRequest: ifName,
    ...wishes,
  },
  notObject,
);

export type PodnetEntry = z.output<typeof podnetEntry>;
export type NpwgEntry = z.output<typeof npwgEntry>;
export type Wishes = Pick<NpwgEntry, keyof typeof wishes>;

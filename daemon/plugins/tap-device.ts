import { closeSync, constants, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import * as libc from "../../lib/base/libc.ts";
import type { Netns } from "../../lib/base/netns.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { asCniError } from "./shared/errors.ts";

/** ioctls and flags of linux/if_tun.h, and struct ifreq: the name in 16 bytes, then the flags. */
const TUNSETIFF = 0x400454ca;
const TUNSETPERSIST = 0x400454cb;
const TUNSETOWNER = 0x400454cc;
const TUNSETGROUP = 0x400454ce;
const TUNSETIFINDEX = 0x400454da;
const flag = { tap: 0x2, multiQueue: 0x100, noPi: 0x1000, vnetHeader: 0x4000, exclusive: 0x8000 };
const IFREQ = 40;
const FLAGS_AT = 16;

const selinuxFs = "/sys/fs/selinux/enforce";
const ownLabel = "/proc/thread-self/attr/current";

export interface TapSpec {
  readonly name: string;
  readonly index: number;
  readonly multiQueue: boolean;
  readonly owner: number | undefined;
  readonly group: number | undefined;
  readonly selinuxContext: string | undefined;
}

/**
 * Makes a persistent tap device in a namespace. The kernel makes them for /dev/net/tun only, never by rtnetlink. It does not exist, or it is complete: before
 * the last step it ends with its descriptor. Throws a SystemError (EBUSY: the name is taken) or a CniError with code 7 for the SELinux context.
 */
export function makeTap(netns: Netns, spec: TapSpec): void {
  netns.run(() => {
    if (spec.selinuxContext === undefined) return makeHere(spec);
    return withLabel(spec.selinuxContext, () => makeHere(spec));
  });
}

function makeHere(spec: TapSpec): void {
  const fd = openSync("/dev/net/tun", constants.O_RDWR);
  try {
    const index = Buffer.alloc(4);
    index.writeUInt32LE(spec.index);
    libc.ioctl(fd, TUNSETIFINDEX, index);
    libc.ioctl(fd, TUNSETIFF, interfaceRequest(spec));
    if (spec.owner !== undefined) libc.ioctlValue(fd, TUNSETOWNER, spec.owner);
    if (spec.group !== undefined) libc.ioctlValue(fd, TUNSETGROUP, spec.group);
    libc.ioctlValue(fd, TUNSETPERSIST, 1);
  } finally {
    closeSync(fd);
  }
}

function interfaceRequest(spec: TapSpec): Buffer {
  // The reference makes the device by another way when it has both an owner and a group, and so with other flags.
  const isOwned = spec.owner !== undefined && spec.group !== undefined;
  const flags =
    flag.tap |
    flag.exclusive |
    (spec.multiQueue ? flag.multiQueue : 0) |
    (isOwned ? flag.vnetHeader : 0) |
    (isOwned && !spec.multiQueue ? 0 : flag.noPi);
  const request = Buffer.alloc(IFREQ);
  request.write(spec.name, "latin1");
  request.writeUInt16LE(flags, FLAGS_AT);
  return request;
}

/** Runs with the thread under another SELinux label: the device gets the label of who makes it. */
function withLabel(label: string, work: () => void): void {
  if (!existsSync(selinuxFs)) {
    throw new CniError(
      cniCode.invalidNetworkConfig,
      `selinuxContext "${label}": this node does not use SELinux`,
    );
  }
  const before = readFileSync(ownLabel, "utf8");
  setLabel(label);
  try {
    work();
  } finally {
    setLabel(before);
  }
}

function setLabel(label: string): void {
  try {
    writeFileSync(ownLabel, label);
  } catch (error) {
    throw asCniError(error, cniCode.invalidNetworkConfig, `selinuxContext "${label}"`);
  }
}

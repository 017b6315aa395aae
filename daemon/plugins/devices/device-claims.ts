import { readdirSync, rmdirSync } from "node:fs";
import { z } from "zod";
import { decode } from "../../../lib/base/decode.ts";
import { errorCode } from "../../../lib/base/errors.ts";
import {
  createFile,
  ensureDir,
  readPlainFile,
  removeFile,
  replaceFile,
} from "../../../lib/base/files.ts";
import { Netns } from "../../../lib/base/netns.ts";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";

const longestClaim = 65_536;

const claimSchema = z.object({
  /** PCI address, or what else names the device for as long as the node runs. */
  key: z.string(),
  /** The interface's name on the node. */
  device: z.string(),
  network: z.string(),
  containerId: z.string(),
  ifName: z.string(),
  /** Its DEL has begun: the device is on its way back. */
  returning: z.boolean(),
});

/** Which attachment has a device of the node. */
export type DeviceClaim = Readonly<z.output<typeof claimSchema>>;

/** Who claims: a container's interface on a network. */
export type Claimant = Pick<DeviceClaim, "network" | "containerId" | "ifName">;

/**
 * The devices of the node that attachments have borrowed, a file each, so that the answer to "who has it" is exact while several operations
 * run and survives the daemon. The folder is below /run: a reboot gives every device back, and takes the claims with it. What this process knows of claims of
 * attachments that it serves outlives their files: a file that somebody removed is written again as soon as it is looked for.
 */
export class DeviceClaims {
  readonly #dir: string;
  /** Taken or found held by this process, and not released. A file that says otherwise is right; a file that is missing was lost. */
  readonly #known = new Map<string, DeviceClaim>();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Claims a device. Safe to repeat for the same attachment. Throws code 105 naming the attachment that has it, or code 11 when that one is
   * giving it back just now.
   */
  take(key: string, device: string, by: Claimant): void {
    const claim: DeviceClaim = { key, device, ...pick(by), returning: false };
    const isNew = this.read(key) === undefined && this.#create(claim);
    if (isNew) this.#known.set(key, claim);
    else this.#requireOwn(key, by);
  }

  /** Marks the attachment's claim as on its way back. Nothing happens when the claim is another's or gone. */
  returning(key: string, by: Claimant): void {
    const claim = this.read(key);
    if (claim === undefined || !sameClaimant(claim, by)) return;
    const marked = { ...claim, returning: true };
    ensureDir(this.#dir, 0o700);
    replaceFile(this.#path(key), JSON.stringify(marked));
    this.#known.set(key, marked);
  }

  /** Ends the attachment's claim. Idempotent; another's claim stays. */
  release(key: string, by: Claimant): void {
    const claim = this.read(key);
    if (claim !== undefined && sameClaimant(claim, by)) {
      removeFile(this.#path(key));
      this.#known.delete(key);
    }
    removeFile(this.#temporary(key, by));
    try {
      rmdirSync(this.#dir);
    } catch {
      // Others have claims there, or it was never made.
    }
  }

  /** Whether the attachment, one that this process serves, has the device. From then on the claim outlives its file. */
  isHeldBy(key: string, by: Claimant): boolean {
    const claim = this.read(key);
    if (claim === undefined || !sameClaimant(claim, by)) return false;
    this.#known.set(key, claim);
    return true;
  }

  /** The claim on a device; undefined when nobody has it. */
  read(key: string): DeviceClaim | undefined {
    const claim = this.#readFile(key);
    const known = this.#known.get(key);
    if (known === undefined) return claim;
    if (claim === undefined) return this.#restore(known);
    // Another process ended it, and the device went to somebody else.
    if (!sameClaimant(claim, known)) this.#known.delete(key);
    return claim;
  }

  #readFile(key: string): DeviceClaim | undefined {
    let text: string;
    try {
      text = readPlainFile(this.#path(key), longestClaim);
    } catch (error) {
      if (errorCode(error) === "ENOENT") return undefined;
      throw error;
    }
    return decode(claimSchema, JSON.parse(text), `claim on device "${key}"`);
  }

  /** The claim on the device that had this name on the node. */
  findByName(device: string): DeviceClaim | undefined {
    return this.list().find((claim) => claim.device === device);
  }

  /** All claims. */
  list(): readonly DeviceClaim[] {
    const keys = this.#files().map((file) => decodeURIComponent(file.slice(0, -".json".length)));
    return [...new Set([...keys, ...this.#known.keys()])].flatMap((key) => this.read(key) ?? []);
  }

  /** Writes a lost claim again. Who can't be helped to the file (a full disk) gets the answer all the same, and the next one who asks tries again. */
  #restore(claim: DeviceClaim): DeviceClaim {
    try {
      this.#create(claim);
    } catch {
      // As above.
    }
    return claim;
  }

  /** Nobody ever reads half a claim. false: there is one. */
  #create(claim: DeviceClaim): boolean {
    ensureDir(this.#dir, 0o700);
    const path = this.#path(claim.key);
    return createFile(path, this.#temporary(claim.key, claim), JSON.stringify(claim));
  }

  #files(): readonly string[] {
    try {
      return readdirSync(this.#dir).filter((name) => name.endsWith(".json"));
    } catch (error) {
      if (errorCode(error) === "ENOENT") return [];
      throw error;
    }
  }

  #path(key: string): string {
    return `${this.#dir}/${encodeURIComponent(key)}.json`;
  }

  #temporary(key: string, by: Claimant): string {
    return `${this.#path(key)}.${by.containerId.slice(0, 12)}-${by.ifName}`;
  }

  #requireOwn(key: string, by: Claimant): void {
    const claim = this.read(key);
    if (claim === undefined || !sameClaimant(claim, by) || claim.returning)
      throw heldError(key, by, claim);
    this.#known.set(key, claim);
  }
}

/** Code 105 that names the attachment that has the device; code 11 when it is on its way back. */
export function heldError(device: string, by: Claimant, claim: DeviceClaim | undefined): CniError {
  const where = `network "${by.network}": device "${device}"`;
  if (claim === undefined || claim.returning) {
    return new CniError(
      cniCode.tryAgainLater,
      `${where}: it is on its way back from another pod: try again`,
    );
  }
  return new CniError(
    cniCode.noDeviceLeft,
    `${where}: interface "${claim.ifName}" of container "${claim.containerId}" on network "${claim.network}" has it`,
  );
}

let nodeClaims: DeviceClaims | undefined;

/** The claims on the devices of this process' node; namespaces that play the node have claims of their own. */
export function claimsOfNode(): DeviceClaims {
  nodeClaims ??= new DeviceClaims(`/run/podnet/devices/${Netns.current().cookie()}`);
  return nodeClaims;
}

function pick(by: Claimant): Claimant {
  return { network: by.network, containerId: by.containerId, ifName: by.ifName };
}

function sameClaimant(claim: DeviceClaim, by: Claimant): boolean {
  return (
    claim.containerId === by.containerId &&
    claim.ifName === by.ifName &&
    claim.network === by.network
  );
}

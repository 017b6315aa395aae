import { createHash } from "node:crypto";
import { CniError, cniCode } from "../../../lib/cni/errors.ts";
import type { ValidAttachment } from "../../../lib/cni/types.ts";
import { Nftables, NftablesError } from "../../../lib/netlink/nftables.ts";
import type { NftChange, NftElement, NftTable } from "../../../lib/netlink/nftables-codec.ts";
import type { Rtnetlink } from "../../../lib/netlink/rtnetlink.ts";

/**
 * Elements of nftables sets that belong to attachments. Each carries its owner in its comment, so that the kernel itself says whose it is: an
 * element is removed only with its owner's name on it, in a batch that is bound to the generation in which that name was read.
 */

/** Whose an element is. */
export interface NftOwner {
  /** What the comment begins with: hashes of the network and of the attachment. */
  readonly id: string;
  /** The whole comment, which a person can read. */
  readonly comment: string;
}

export interface OwnedElement extends Pick<NftElement, "key" | "data"> {
  readonly set: string;
}

/** A table and what must be in it before elements of attachments can be. Making it again replaces the rules of its chains. */
export interface NftFrame {
  readonly table: NftTable;
  readonly changes: readonly NftChange[];
}

/** How often an operation is tried again because somebody else changed the ruleset meanwhile. */
const attempts = 100;

const sockets = new WeakMap<Rtnetlink, Nftables>();

/**
 * The nftables socket beside `host`: opened at the first use, closed with `host`. It is kept because the kernel finishes all destruction that is under way
 * when such a socket closes, which takes longer than the rest of a DEL.
 */
export function nftablesOf(host: Rtnetlink): Nftables {
  let nftables = sockets.get(host);
  if (nftables === undefined) {
    nftables = Nftables.open(host.netns);
    sockets.set(host, nftables);
    host.closeWith(nftables);
  }
  return nftables;
}

/** Frames that this process has made on a node: a frame of an older version is brought up to date by the first use. */
const framed = new WeakMap<Rtnetlink, Set<string>>();

/** The owner's name of an attachment. */
export function nftOwner(call: {
  readonly network: string;
  readonly containerId: string;
  readonly ifName: string;
}): NftOwner {
  const attachment = attachmentHash({ containerID: call.containerId, ifname: call.ifName });
  const id = `${networkHash(call.network)}-${attachment}`;
  // A comment has room for 127 bytes: ids of runtimes are 64, interface names 15 at most.
  const text = `${id} ${call.containerId.slice(0, 64)} ${call.ifName} ${call.network}`;
  return { id, comment: text.replace(/[^\x20-\x7e]/g, "?").slice(0, 127) };
}

/** `interface "eth0" of container "abc" on network "blue"`, from an owner's comment. */
export function describeOwner(comment: string | undefined): string {
  const [, container, ifName, network] = /^\S+ (\S+) (\S+) (.*)$/.exec(comment ?? "") ?? [];
  if (container === undefined) return "an unknown owner";
  return `interface "${ifName}" of container "${container}" on network "${network}"`;
}

/** Tells by the comment whether an element belongs to the network and to none of the valid attachments. */
export function isGarbage(
  network: string,
  valid: readonly ValidAttachment[],
): (comment: string) => boolean {
  const ours = `${networkHash(network)}-`;
  const kept = new Set(valid.map(attachmentHash));
  return (comment) =>
    comment.startsWith(ours) && !kept.has(comment.slice(ours.length).split(" ", 1)[0] ?? "");
}

function networkHash(network: string): string {
  return hash(network);
}

function attachmentHash({ containerID, ifname }: ValidAttachment): string {
  return hash(`${containerID}\0${ifname}`);
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

export interface PutOptions {
  readonly frame: NftFrame;
  readonly owner: NftOwner;
  /** Called for an element that is another owner's already: throws, or returns to have it taken over. */
  readonly contested: (element: OwnedElement, comment: string | undefined) => void;
}

/**
 * Adds all elements or none. Elements that are there already and the owner's are replaced.
 * Rejects with a NftablesError, or with what `contested` throws.
 */
export function putElements(
  host: Rtnetlink,
  elements: readonly OwnedElement[],
  options: PutOptions,
): Promise<void> {
  const place = { nftables: nftablesOf(host), frames: framesOf(host) };
  return inTurn(host, () => put(place, elements, options));
}

async function put(
  { nftables, frames }: { readonly nftables: Nftables; readonly frames: Set<string> },
  elements: readonly OwnedElement[],
  options: PutOptions,
): Promise<void> {
  const { table, changes: frame } = options.frame;
  const additions = elements.map(({ set, ...element }): NftChange => {
    return { kind: "add-element", set, element: { ...element, comment: options.owner.comment } };
  });
  const frameKey = JSON.stringify(options.frame);
  if (frames.has(frameKey)) {
    const failure = await outcome(nftables.apply(table, additions));
    if (failure === undefined) return;
    if (failure.code !== "ENOENT" && failure.code !== "EEXIST") throw failure;
  }
  let generation: number | undefined;
  let removals: NftChange[] = [];
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const changes = [...frame, ...removals, ...additions];
    const failure = await outcome(nftables.apply(table, changes, generation));
    if (failure === undefined) {
      frames.add(frameKey);
      return;
    }
    if (failure.code !== "EEXIST" && failure.code !== "ERESTART") throw failure;
    generation = await nftables.generation();
    removals = await takeovers(nftables, elements, options);
  }
  throw tooOften(table);
}

/** undefined when it went well. Rejects with what is no NftablesError. */
async function outcome(work: Promise<void>): Promise<NftablesError | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    if (error instanceof NftablesError) return error;
    throw error;
  }
}

function tooOften(table: NftTable): CniError {
  return new CniError(
    cniCode.tryAgainLater,
    `change nftables table "${table.family} ${table.name}": another program changed nftables ${attempts} times meanwhile`,
  );
}

function framesOf(host: Rtnetlink): Set<string> {
  let frames = framed.get(host);
  if (frames === undefined) {
    frames = new Set();
    framed.set(host, frames);
  }
  return frames;
}

async function takeovers(
  nftables: Nftables,
  elements: readonly OwnedElement[],
  options: PutOptions,
): Promise<NftChange[]> {
  const changes: NftChange[] = [];
  for (const element of elements) {
    const { set, key } = element;
    const existing = await nftables.element(options.frame.table, set, key);
    if (existing === undefined) continue;
    if (!isOwned(existing, options.owner)) options.contested(element, existing.comment);
    changes.push({ kind: "delete-element", set, key });
  }
  return changes;
}

function isOwned(element: NftElement, owner: NftOwner): boolean {
  return element.comment?.startsWith(`${owner.id} `) === true;
}

/**
 * Removes those of the elements that are the owner's, all at once, and tells how many there were. Idempotent. Other owners' elements with
 * the same keys stay.
 */
export function removeElements(
  host: Rtnetlink,
  elements: readonly OwnedElement[],
  options: { readonly table: NftTable; readonly owner: NftOwner },
): Promise<number> {
  return removeFound(host, options.table, async (nftables) => {
    const found: OwnedElement[] = [];
    for (const { set, key } of elements) {
      const element = await nftables.element(options.table, set, key);
      if (element !== undefined && isOwned(element, options.owner)) found.push({ set, key });
    }
    return found;
  });
}

/** Removes every element of the sets whose comment says so. It reads the sets whole: for what no record tells of. Idempotent. */
export function sweepElements(
  host: Rtnetlink,
  table: NftTable,
  options: { readonly sets: readonly string[]; readonly isMine: (comment: string) => boolean },
): Promise<number> {
  return removeFound(host, table, async (nftables) => {
    const found: OwnedElement[] = [];
    for (const set of options.sets) {
      for (const { key, comment } of await nftables.elements(table, set)) {
        if (comment !== undefined && options.isMine(comment)) found.push({ set, key });
      }
    }
    return found;
  });
}

/** As sweepElements, for the owner's elements. */
export function sweepOwner(
  host: Rtnetlink,
  table: NftTable,
  options: { readonly sets: readonly string[]; readonly owner: NftOwner },
): Promise<number> {
  const start = `${options.owner.id} `;
  return sweepElements(host, table, {
    sets: options.sets,
    isMine: (comment) => comment.startsWith(start),
  });
}

/** Whether the owner has an element in one of the sets, which are read whole. */
export async function ownsElements(
  host: Rtnetlink,
  table: NftTable,
  options: { readonly sets: readonly string[]; readonly owner: NftOwner },
): Promise<boolean> {
  const nftables = nftablesOf(host);
  for (const set of options.sets) {
    const elements = await nftables.elements(table, set);
    if (elements.some((element) => isOwned(element, options.owner))) return true;
  }
  return false;
}

function removeFound(
  host: Rtnetlink,
  table: NftTable,
  find: (nftables: Nftables) => Promise<OwnedElement[]>,
): Promise<number> {
  const nftables = nftablesOf(host);
  return inTurn(host, () => removeInOneGeneration(nftables, table, () => find(nftables)));
}

const turns = new WeakMap<Rtnetlink, Promise<unknown>>();

/** One at a time: operations of this process that are bound to a generation would only make each other fail. */
function inTurn<T>(host: Rtnetlink, work: () => Promise<T>): Promise<T> {
  const turn = (turns.get(host) ?? Promise.resolve()).then(work);
  turns.set(
    host,
    turn.catch(() => undefined),
  );
  return turn;
}

async function removeInOneGeneration(
  nftables: Nftables,
  table: NftTable,
  find: () => Promise<OwnedElement[]>,
): Promise<number> {
  for (let attempt = 0; attempt < attempts; attempt += 1) {
    const generation = await nftables.generation();
    const found = await find();
    const removals = found.map(({ set, key }): NftChange => ({ kind: "delete-element", set, key }));
    const failure = await outcome(nftables.apply(table, removals, generation));
    if (failure === undefined) return found.length;
    if (failure.code !== "ERESTART") throw failure;
  }
  throw tooOften(table);
}

import type { Netns } from "../base/netns.ts";
import { NetlinkError } from "./error.ts";
import { type Message, messageFlag, parseAcknowledgement, type Request } from "./message.ts";
import { type Exchange, isVerdict, Netfilter } from "./netfilter.ts";
import {
  emitBatchBegin,
  emitBatchEnd,
  emitChange,
  type NftChange,
  type NftElement,
  type NftTable,
} from "./nftables-codec.ts";
import {
  emitGetElements,
  emitGetGeneration,
  emitGetRules,
  type NftRule,
  parseElements,
  parseGeneration,
  parseRule,
} from "./nftables-read.ts";

const EIO = 5;

/** The kernel refused a batch or a question. ERESTART: the ruleset changed after the generation that the batch was bound to. */
export class NftablesError extends NetlinkError {
  /** What was refused; undefined when it was the batch as a whole, or a question. */
  readonly change: NftChange | undefined;

  constructor(
    operation: string,
    answer: { readonly errno: number; readonly text: string | undefined },
    change?: NftChange,
  ) {
    super(operation, answer.errno, { kernelText: answer.text });
    this.change = change;
  }
}

/**
 * nftables of one network namespace, over one socket. A batch is a transaction: all of its changes are made or none. Calls may come at any
 * time, they wait for each other (see Netfilter). Other programs' tables are never read or touched.
 */
export class Nftables {
  /** The socket itself, for other questions to netfilter. */
  readonly netfilter: Netfilter;

  private constructor(netfilter: Netfilter) {
    this.netfilter = netfilter;
  }

  /** Opens a socket in the namespace, or in the process' own. Throws a SystemError. The caller closes it. */
  static open(netns?: Netns): Nftables {
    return new Nftables(Netfilter.open(netns));
  }

  /**
   * Makes all changes of one table or none. Bound to a `generation`, it fails with ERESTART when anybody changed any table since that number was read.
   * Rejects with a NftablesError that names the first change that failed. Not idempotent: see NftChange.
   */
  async apply(table: NftTable, changes: readonly NftChange[], generation?: number): Promise<void> {
    if (changes.length === 0) return;
    const operation = `change nftables table "${table.family} ${table.name}"`;
    const requests = changes.map((change) => emitChange(table, change));
    const last = requests.at(-1);
    // Only errors and the acknowledgement of the last change are of interest.
    if (last !== undefined)
      requests.splice(-1, 1, { ...last, flags: last.flags | messageFlag.ack });
    const batch = [emitBatchBegin(generation), ...requests, emitBatchEnd()];
    requireSuccess(operation, changes, await this.netfilter.exchange(operation, batch));
  }

  /** The number of the ruleset's generation; each change of anybody raises it. Rejects with a NetlinkError. */
  async generation(): Promise<number> {
    const [message] = await this.netfilter.ask("read nftables generation", emitGetGeneration());
    return message === undefined ? 0 : parseGeneration(message.body);
  }

  /** One element by its key. undefined: the element, the set or the table is not there. Rejects with a NetlinkError. */
  async element(table: NftTable, set: string, key: Uint8Array): Promise<NftElement | undefined> {
    const messages = await this.#askMissing(
      emitGetElements(table, set, key),
      `read element of nftables set "${set}"`,
    );
    return messages.flatMap((message) => parseElements(message.body))[0];
  }

  /** All elements of a set; none when the set or the table is not there. Rejects with a NetlinkError. */
  async elements(table: NftTable, set: string): Promise<NftElement[]> {
    const messages = await this.#askMissing(
      emitGetElements(table, set),
      `list nftables set "${set}"`,
    );
    return messages.flatMap((message) => parseElements(message.body));
  }

  /** The rules of a chain in order; none when the chain or the table is not there. Rejects with a NetlinkError. */
  async rules(table: NftTable, chain: string): Promise<NftRule[]> {
    const messages = await this.#askMissing(
      emitGetRules(table, chain),
      `list nftables chain "${chain}"`,
    );
    return messages
      .map((message) => parseRule(message.body))
      .filter((rule) => rule.chain === chain);
  }

  /** Idempotent. Calls that still wait fail. */
  close(): void {
    this.netfilter.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #askMissing(question: Request, operation: string): Promise<Message[]> {
    try {
      return await this.netfilter.ask(operation, question);
    } catch (error) {
      if (error instanceof NetlinkError && error.code === "ENOENT") return [];
      throw error;
    }
  }
}

function requireSuccess(
  operation: string,
  changes: readonly NftChange[],
  { first, answers }: Exchange,
): void {
  const verdicts = answers.filter(isVerdict).map((message) => ({
    change: changes[message.sequence - first - 1],
    answer: parseAcknowledgement(message),
  }));
  const failed = verdicts.find(({ answer }) => answer.errno !== 0);
  if (failed !== undefined) {
    const { change, answer } = failed;
    const what = change === undefined ? operation : `${operation}, ${describeChange(change)}`;
    throw new NftablesError(what, answer, change);
  }
  if (verdicts.length === 0)
    throw new NftablesError(operation, { errno: EIO, text: "the kernel did not answer" });
}

/** `add element of set "masq4"`, for one line of an error. */
function describeChange(change: NftChange): string {
  const [verb, noun] = change.kind.split("-");
  if ("element" in change || "key" in change) return `${verb} element of set "${change.set}"`;
  if ("set" in change)
    return `${verb} set "${typeof change.set === "string" ? change.set : change.set.name}"`;
  if ("chain" in change)
    return `${verb} ${noun === "rule" ? "rule of chain" : "chain"} "${typeof change.chain === "string" ? change.chain : change.chain.name}"`;
  return `${verb} table`;
}

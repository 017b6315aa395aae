import type { Netns } from "../base/netns.ts";
import { NetlinkError } from "./error.ts";
import {
  emitMessage,
  type Message,
  messageFlag,
  messageType,
  parseAcknowledgement,
  parseMessages,
  type Request,
} from "./message.ts";
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
import { NetlinkSocket } from "./socket.ts";

const NETLINK_NETFILTER = 12;
const EIO = 5;
const EBADF = 9;

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
 * time, they wait for each other. Other programs' tables are never read or touched.
 */
export class Nftables {
  readonly #socket: NetlinkSocket;
  #sequence = 1;
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  /** Opens a socket in the namespace, or in the process' own. Throws a SystemError. The caller closes it. */
  static open(netns?: Netns): Nftables {
    return new Nftables(NetlinkSocket.open(netns, [], NETLINK_NETFILTER));
  }

  /**
   * Makes all changes of one table or none. Bound to a `generation`, it fails with ERESTART when anybody changed any table since that number was read.
   * Rejects with a NftablesError that names the first change that failed. Not idempotent: see NftChange.
   */
  apply(table: NftTable, changes: readonly NftChange[], generation?: number): Promise<void> {
    if (changes.length === 0) return Promise.resolve();
    return this.#next(() => this.#batch(table, changes, generation));
  }

  /** The number of the ruleset's generation; each change of anybody raises it. Rejects with a NftablesError. */
  async generation(): Promise<number> {
    const [message] = await this.#ask(emitGetGeneration(), "read nftables generation");
    return message === undefined ? 0 : parseGeneration(message.body);
  }

  /** One element by its key. undefined: the element, the set or the table is not there. Rejects with a NftablesError. */
  async element(table: NftTable, set: string, key: Uint8Array): Promise<NftElement | undefined> {
    const messages = await this.#askMissing(
      emitGetElements(table, set, key),
      `read element of nftables set "${set}"`,
    );
    return messages.flatMap((message) => parseElements(message.body))[0];
  }

  /** All elements of a set; none when the set or the table is not there. Rejects with a NftablesError. */
  async elements(table: NftTable, set: string): Promise<NftElement[]> {
    const messages = await this.#askMissing(
      emitGetElements(table, set),
      `list nftables set "${set}"`,
    );
    return messages.flatMap((message) => parseElements(message.body));
  }

  /** The rules of a chain in order; none when the chain or the table is not there. Rejects with a NftablesError. */
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
    this.#socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #next<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    this.#tail = result.catch(() => undefined);
    return result;
  }

  async #askMissing(question: Request, operation: string): Promise<Message[]> {
    try {
      return await this.#ask(question, operation);
    } catch (error) {
      if (error instanceof NftablesError && error.code === "ENOENT") return [];
      throw error;
    }
  }

  #ask(question: Request, operation: string): Promise<Message[]> {
    return this.#next(() => this.#repeatInterrupted(question, operation));
  }

  /** A dump that a change interrupted may miss elements or have them twice, so it is asked again. */
  async #repeatInterrupted(question: Request, operation: string): Promise<Message[]> {
    for (;;) {
      const sequence = this.#sequence++;
      // The acknowledgement ends the answer to a question that is no dump.
      const flags =
        question.flags | ((question.flags & messageFlag.dump) === 0 ? messageFlag.ack : 0);
      this.#open(operation).send(emitMessage({ ...question, flags }, sequence));
      const answers = this.#drain().filter((message) => message.sequence === sequence);
      const acknowledgements = answers.filter(isAcknowledgement);
      const failed = acknowledgements.map(parseAcknowledgement).find(({ errno }) => errno !== 0);
      if (failed !== undefined) throw new NftablesError(operation, failed);
      if (!answers.some((message) => (message.flags & messageFlag.dumpInterrupted) !== 0)) {
        return answers.filter((message) => !isAcknowledgement(message));
      }
      // Gives whoever changes the ruleset in this process a turn.
      await Promise.resolve();
    }
  }

  async #batch(table: NftTable, changes: readonly NftChange[], generation?: number): Promise<void> {
    const operation = `change nftables table "${table.family} ${table.name}"`;
    const first = this.#sequence;
    this.#sequence += changes.length + 2;
    const last = first + changes.length;
    const bytes = [
      emitMessage(emitBatchBegin(generation), first),
      ...changes.map((change, index) => {
        const request = emitChange(table, change);
        // Only errors and the acknowledgement of the last change are of interest.
        const flags = first + 1 + index === last ? request.flags | messageFlag.ack : request.flags;
        return emitMessage({ ...request, flags }, first + 1 + index);
      }),
      emitMessage(emitBatchEnd(), last + 1),
    ];
    // On libuv's pool: a commit waits while another program's is under way.
    await this.#open(operation).sendAsync(Buffer.concat(bytes));
    requireSuccess(operation, { first, last, changes }, this.#drain());
  }

  #open(operation: string): NetlinkSocket {
    if (!this.#socket.closed) return this.#socket;
    throw new NftablesError(operation, { errno: EBADF, text: "the socket was closed before" });
  }

  /** The kernel answers within the send, and continues a dump within each receive: what is not there now never comes. */
  #drain(): Message[] {
    const messages: Message[] = [];
    for (;;) {
      const datagram = this.#socket.receive();
      if (datagram === undefined) return messages;
      messages.push(...parseMessages(datagram));
    }
  }
}

interface SentBatch {
  readonly first: number;
  readonly last: number;
  readonly changes: readonly NftChange[];
}

function requireSuccess(
  operation: string,
  { first, last, changes }: SentBatch,
  answers: readonly Message[],
): void {
  const verdicts = answers
    .filter(
      (message) =>
        isAcknowledgement(message) && message.sequence >= first && message.sequence <= last + 1,
    )
    .map((message) => ({
      change: changes[message.sequence - first - 1],
      acknowledgement: parseAcknowledgement(message),
    }));
  const failed = verdicts.find(({ acknowledgement }) => acknowledgement.errno !== 0);
  if (failed !== undefined) {
    const what =
      failed.change === undefined ? operation : `${operation}, ${describeChange(failed.change)}`;
    throw new NftablesError(what, failed.acknowledgement, failed.change);
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

function isAcknowledgement(message: Message): boolean {
  return message.type === messageType.error || message.type === messageType.done;
}

import type { Netns } from "../base/netns.ts";
import { Connection } from "./connection.ts";
import { messageFlag } from "./message.ts";
import {
  emitIngress,
  emitIngressFilterDump,
  emitQdiscDump,
  emitRedirect,
  emitTokenBucket,
  parseQdisc,
  parseRedirect,
  type Qdisc,
  type TokenBucket,
} from "./qdisc.ts";

const RTM_NEWQDISC = 36;
const RTM_GETQDISC = 38;
const RTM_NEWTFILTER = 44;
const RTM_GETTFILTER = 46;
const CREATE = messageFlag.create | messageFlag.exclusive;

/** Queueing disciplines and filters of one network namespace's links, over one socket. Failures are NetlinkErrors. */
export class TrafficControl {
  readonly #connection: Connection;

  private constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Opens a socket in the namespace, or in the process' own. Throws a SystemError. The caller closes it. */
  static open(netns?: Netns): TrafficControl {
    return new TrafficControl(Connection.open(netns));
  }

  /** Fails with EEXIST when the link has a qdisc of somebody's at its root. */
  async addTokenBucket(index: number, bucket: TokenBucket): Promise<void> {
    await this.#connection.execute(`add token bucket to link ${index}`, {
      type: RTM_NEWQDISC,
      flags: CREATE,
      body: emitTokenBucket(index, bucket),
    });
  }

  /** Sends all that arrives on a link to another one. Fails with EEXIST when the link has filters of arriving packets already. */
  async addRedirect(index: number, to: number): Promise<void> {
    const operation = `redirect what arrives on link ${index} to link ${to}`;
    await this.#connection.execute(operation, {
      type: RTM_NEWQDISC,
      flags: CREATE,
      body: emitIngress(index),
    });
    await this.#connection.execute(operation, {
      type: RTM_NEWTFILTER,
      flags: CREATE,
      body: emitRedirect(index, to),
    });
  }

  async qdiscs(index: number): Promise<Qdisc[]> {
    const replies = await this.#connection.dump(`list qdiscs of link ${index}`, {
      type: RTM_GETQDISC,
      body: emitQdiscDump(index),
    });
    return replies.map(({ body }) => parseQdisc(body)).filter((qdisc) => qdisc.index === index);
  }

  /** The links that filters of a link send arriving packets to. */
  async redirects(index: number): Promise<number[]> {
    const replies = await this.#connection.dump(`list filters of link ${index}`, {
      type: RTM_GETTFILTER,
      body: emitIngressFilterDump(index),
    });
    return replies.flatMap(({ body }) => parseRedirect(body) ?? []);
  }

  /** Idempotent. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

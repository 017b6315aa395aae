import { errorCode } from "../base/errors.ts";
import type { IpFamily } from "../base/ip.ts";
import type { Netns } from "../base/netns.ts";
import { emitAddress, emitAddressDump, parseAddress } from "./address.ts";
import { Connection } from "./connection.ts";
import type { NetlinkError } from "./error.ts";
import * as linkCodec from "./link.ts";
import type { VfChange } from "./link-vf.ts";
import { messageFlag, messageType, type Request } from "./message.ts";
import type {
  Address,
  AddressSpec,
  BridgePort,
  Link,
  LinkChange,
  LinkRef,
  LinkSpec,
  Route,
  RouteSpec,
} from "./model.ts";
import {
  emitRoute,
  emitRouteDump,
  emitRouteMatch,
  emitRouteQuery,
  parseRoutes,
  type RouteFilter,
} from "./route.ts";

const CREATE = messageFlag.create | messageFlag.exclusive;
const routeModes = {
  exclusive: CREATE,
  replace: messageFlag.create | messageFlag.replace,
  append: messageFlag.create | messageFlag.append,
  prepend: messageFlag.create,
} as const;

/**
 * rtnetlink of one network namespace, over one socket. Calls from several flows may interleave; they reach the kernel in the order in
 * which they were made. Failures are NetlinkErrors (code EBADF after `close`).
 */
export class Rtnetlink {
  readonly #connection: Connection;
  /** The namespace that `open` was given; undefined: the process' own. For other kinds of sockets in the same place. */
  readonly netns: Netns | undefined;

  private constructor(connection: Connection, netns: Netns | undefined) {
    this.#connection = connection;
    this.netns = netns;
  }

  /** Opens a socket in the namespace, else in the process' own. It keeps the namespace alive until `close`. Throws a SystemError. */
  static open(netns?: Netns): Rtnetlink {
    return new Rtnetlink(Connection.open(netns), netns);
  }

  async #change(operation: string, request: Request): Promise<void> {
    await this.#connection.execute(operation, request);
  }

  /** undefined: there is no such link. VF data only when asked for. */
  async getLink(ref: LinkRef, options: { vfs?: boolean } = {}): Promise<Link | undefined> {
    const body = linkCodec.emitLinkRef(ref, options);
    const request = { type: messageType.getLink, flags: 0, body };
    const replies = await orNone(
      this.#connection.execute(`get link ${nameOf(ref)}`, request),
      "ENODEV",
    );
    const reply = replies?.[0];
    return reply === undefined ? undefined : linkCodec.parseLink(reply.body);
  }

  async links(): Promise<Link[]> {
    const replies = await this.#connection.dump("list links", {
      type: messageType.getLink,
      body: linkCodec.emitLinkDump(),
    });
    return replies.map((reply) => linkCodec.parseLink(reply.body));
  }

  /** Fails with EEXIST when the name is taken. */
  createLink(spec: LinkSpec): Promise<void> {
    return this.#change(`create ${spec.data.kind} link "${spec.name}"`, {
      type: messageType.newLink,
      flags: CREATE,
      body: linkCodec.emitLinkSpec(spec),
    });
  }

  changeLink(index: number, change: LinkChange): Promise<void> {
    const operation = `set ${Object.keys(change).join(", ")} of link ${index}`;
    return this.#change(operation, {
      type: messageType.newLink,
      flags: 0,
      body: linkCodec.emitLinkChange(index, change),
    });
  }

  /** false: there was none. */
  async deleteLink(ref: LinkRef): Promise<boolean> {
    const request = { type: messageType.delLink, flags: 0, body: linkCodec.emitLinkRef(ref) };
    return (
      (await orNone(
        this.#change(`delete link ${nameOf(ref)}`, request).then(() => true),
        "ENODEV",
      )) ?? false
    );
  }

  /** Of one link, or of all. */
  async addresses(index = 0): Promise<Address[]> {
    const request = { type: messageType.getAddress, body: emitAddressDump(index) };
    const replies = await orNone(
      this.#connection.dump(`list addresses of link ${index}`, request),
      "ENODEV",
    );
    return (replies ?? []).flatMap((reply) => parseAddress(reply.body) ?? []);
  }

  /** Fails with EEXIST when the link has the address. */
  addAddress(spec: AddressSpec): Promise<void> {
    const operation = `add address ${spec.address} to link ${spec.index}`;
    return this.#change(operation, {
      type: messageType.newAddress,
      flags: CREATE,
      body: emitAddress(spec),
    });
  }

  /** Fails with EADDRNOTAVAIL when the link has it not. */
  deleteAddress(spec: AddressSpec): Promise<void> {
    const operation = `delete address ${spec.address} from link ${spec.index}`;
    return this.#change(operation, {
      type: messageType.delAddress,
      flags: 0,
      body: emitAddress(spec),
    });
  }

  /** Of every table, the kernel's own included, unless filtered. A route with several next hops is several values. */
  async routes(filter: RouteFilter = {}): Promise<Route[]> {
    const families: readonly IpFamily[] = filter.family === undefined ? [4, 6] : [filter.family];
    const found = await Promise.all(families.map((family) => this.#routesOf(family, filter)));
    return found.flat();
  }

  async #routesOf(family: IpFamily, filter: RouteFilter): Promise<Route[]> {
    const request = { type: messageType.getRoute, body: emitRouteDump(family, filter) };
    // A table or link that is not there has no routes.
    const replies = await orNone(
      this.#connection.dump(`list IPv${family} routes`, request),
      "ENOENT",
      "ENODEV",
    );
    return (replies ?? [])
      .flatMap((reply) => parseRoutes(reply.body))
      .filter(
        (route) =>
          route.family === family && (filter.index === undefined || route.index === filter.index),
      );
  }

  /** `exclusive` fails with EEXIST when there is a route to the destination with this priority; `append` adds a further next hop, `prepend` one before those. */
  addRoute(spec: RouteSpec, mode: keyof typeof routeModes = "exclusive"): Promise<void> {
    const operation = `add route ${spec.destination}${spec.gateway === undefined ? "" : ` via ${spec.gateway}`}`;
    return this.#change(operation, {
      type: messageType.newRoute,
      flags: routeModes[mode],
      body: emitRoute(spec),
    });
  }

  /** false: there was none. What the spec leaves out matches any. */
  async deleteRoute(spec: RouteSpec): Promise<boolean> {
    const request = { type: messageType.delRoute, flags: 0, body: emitRouteMatch(spec) };
    const done = this.#change(`delete route ${spec.destination}`, request).then(() => true);
    return (await orNone(done, "ESRCH", "ENODEV")) ?? false;
  }

  /** The route that a packet to this address would take; undefined when there is none. */
  async routeTo(destination: string): Promise<Route | undefined> {
    const request = { type: messageType.getRoute, flags: 0, body: emitRouteQuery(destination) };
    const replies = await orNone(
      this.#connection.execute(`find the route to ${destination}`, request),
      "ENETUNREACH",
      "EHOSTUNREACH",
    );
    const reply = replies?.[0];
    return reply === undefined ? undefined : parseRoutes(reply.body)[0];
  }

  /** Fails with EINVAL or EOPNOTSUPP when the link is no bridge port. */
  setBridgePort(index: number, port: BridgePort): Promise<void> {
    const operation = `set ${Object.keys(port).join(", ")} of bridge port ${index}`;
    return this.#change(operation, {
      type: messageType.setLink,
      flags: 0,
      body: linkCodec.emitPortChange(index, port),
    });
  }

  /** Changes a virtual function of the device `index`. */
  setVf(index: number, vf: number, change: VfChange): Promise<void> {
    const operation = `set ${Object.keys(change).join(", ")} of VF ${vf} of link ${index}`;
    return this.#change(operation, {
      type: messageType.setLink,
      flags: 0,
      body: linkCodec.emitVf(index, vf, change),
    });
  }

  /** Fails with EEXIST when any link has the name. */
  addAltName(index: number, name: string): Promise<void> {
    const operation = `add alternative name "${name}" to link ${index}`;
    const flags = CREATE | messageFlag.append;
    return this.#change(operation, {
      type: messageType.newLinkProperty,
      flags,
      body: linkCodec.emitAltName(index, name),
    });
  }

  deleteAltName(index: number, name: string): Promise<void> {
    const operation = `delete alternative name "${name}" of link ${index}`;
    return this.#change(operation, {
      type: messageType.delLinkProperty,
      flags: 0,
      body: linkCodec.emitAltName(index, name),
    });
  }

  /** Idempotent. What is under way ends first, what is not sent yet fails. */
  close(): void {
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function nameOf(ref: LinkRef): string {
  return "name" in ref ? `"${ref.name}"` : String(ref.index);
}

/** undefined where the kernel says that the thing is not there. */
async function orNone<T>(
  work: Promise<T>,
  ...codes: NetlinkError["code"][]
): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    const code = errorCode(error);
    if (code !== undefined && codes.includes(code)) return undefined;
    throw error;
  }
}

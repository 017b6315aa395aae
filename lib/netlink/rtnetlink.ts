import type { IpFamily } from "../base/ip.ts";
import type { Netns } from "../base/netns.ts";
import { emitAddress, emitAddressDump, parseAddress } from "./address.ts";
import { Connection } from "./connection.ts";
import { orNone } from "./error.ts";
import { CREATE, LinkCalls } from "./link-calls.ts";
import { messageFlag, messageType } from "./message.ts";
import type { Address, AddressSpec, Neighbour, Route, RouteSpec, Rule, RuleSpec } from "./model.ts";
import { emitNeighbour, emitNeighbourDump, parseNeighbour } from "./neighbour.ts";
import { emitNetnsIdQuery, parseNetnsId } from "./netns-id.ts";
import {
  emitRoute,
  emitRouteDump,
  emitRouteMatch,
  emitRouteQuery,
  parseRoutes,
  type RouteFilter,
} from "./route.ts";
import { emitRule, emitRuleDump, parseRule } from "./rule.ts";

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
export class Rtnetlink extends LinkCalls {
  readonly #companions: { close(): void }[] = [];

  /** Opens a socket in the namespace, else in the process' own. It keeps the namespace alive until `close`. Throws a SystemError. */
  static open(netns?: Netns): Rtnetlink {
    return new Rtnetlink(Connection.open(netns), netns);
  }

  /** Of one link, or of all. */
  async addresses(index = 0): Promise<Address[]> {
    const request = { type: messageType.getAddress, body: emitAddressDump(index) };
    const replies = await orNone(
      this.connection.dump(`list addresses of link ${index}`, request),
      "ENODEV",
    );
    return (replies ?? []).flatMap((reply) => parseAddress(reply.body) ?? []);
  }

  /** Fails with EEXIST when the link has the address. */
  async addAddress(spec: AddressSpec): Promise<void> {
    const operation = `add address ${spec.address} to link ${spec.index}`;
    await this.change(operation, {
      type: messageType.newAddress,
      flags: CREATE,
      body: emitAddress(spec),
    });
  }

  /** Fails with EADDRNOTAVAIL when the link has it not. */
  async deleteAddress(spec: AddressSpec): Promise<void> {
    const operation = `delete address ${spec.address} from link ${spec.index}`;
    await this.change(operation, {
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
      this.connection.dump(`list IPv${family} routes`, request),
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
  async addRoute(spec: RouteSpec, mode: keyof typeof routeModes = "exclusive"): Promise<void> {
    const operation = `add route ${spec.destination}${spec.gateway === undefined ? "" : ` via ${spec.gateway}`}`;
    await this.change(operation, {
      type: messageType.newRoute,
      flags: routeModes[mode],
      body: emitRoute(spec),
    });
  }

  /** false: there was none. What the spec leaves out matches any. */
  async deleteRoute(spec: RouteSpec): Promise<boolean> {
    const request = { type: messageType.delRoute, flags: 0, body: emitRouteMatch(spec) };
    const done = this.change(`delete route ${spec.destination}`, request).then(() => true);
    return (await orNone(done, "ESRCH", "ENODEV")) ?? false;
  }

  /** The route that a packet to this address would take; undefined when there is none. */
  async routeTo(destination: string): Promise<Route | undefined> {
    const request = { type: messageType.getRoute, flags: 0, body: emitRouteQuery(destination) };
    const reply = await orNone(
      this.connection.query(`find the route to ${destination}`, request),
      "ENETUNREACH",
      "EHOSTUNREACH",
    );
    return reply === undefined ? undefined : parseRoutes(reply.body)[0];
  }

  /** Without a family both, IPv4 first; in the order in which the kernel tries them. */
  async rules(family?: IpFamily): Promise<Rule[]> {
    const families: readonly IpFamily[] = family === undefined ? [4, 6] : [family];
    const found = await Promise.all(families.map((one) => this.#rulesOf(one)));
    return found.flat();
  }

  async #rulesOf(family: IpFamily): Promise<Rule[]> {
    const request = { type: messageType.getRule, body: emitRuleDump(family) };
    // Without IPv6 there are no IPv6 rules.
    const replies = await orNone(
      this.connection.dump(`list IPv${family} rules`, request),
      "EAFNOSUPPORT",
      "EOPNOTSUPP",
    );
    return (replies ?? [])
      .flatMap((reply) => parseRule(reply.body) ?? [])
      .filter((rule) => rule.family === family);
  }

  /** Fails with EEXIST when there is the same rule. */
  async addRule(spec: RuleSpec): Promise<void> {
    await this.change(`add rule ${ruleText(spec)}`, {
      type: messageType.newRule,
      flags: CREATE,
      body: emitRule(spec),
    });
  }

  /** Deletes the first rule that matches; false: there was none. */
  async deleteRule(spec: RuleSpec): Promise<boolean> {
    const request = { type: messageType.delRule, flags: 0, body: emitRule(spec) };
    return (
      (await orNone(
        this.change(`delete rule ${ruleText(spec)}`, request).then(() => true),
        "ENOENT",
      )) ?? false
    );
  }

  /** IPv4 and IPv6, of one link or of all. */
  async neighbours(index = 0): Promise<Neighbour[]> {
    const request = { type: messageType.getNeighbour, body: emitNeighbourDump(index) };
    const replies = await orNone(
      this.connection.dump(`list neighbours of link ${index}`, request),
      "ENODEV",
    );
    return (replies ?? [])
      .flatMap((reply) => parseNeighbour(reply.body) ?? [])
      .filter((neighbour) => index === 0 || neighbour.index === index);
  }

  /** Adds a neighbour or replaces the one with its address. */
  async setNeighbour(neighbour: Neighbour): Promise<void> {
    const flags = messageFlag.create | messageFlag.replace;
    const operation = `set neighbour ${neighbour.address} of link ${neighbour.index}`;
    await this.change(operation, {
      type: messageType.newNeighbour,
      flags,
      body: emitNeighbour(neighbour),
    });
  }

  /** The number that links here have another namespace by (`Link.linkNetnsId`); undefined: no link has to do with it. */
  async netnsId(other: Netns): Promise<number | undefined> {
    const request = {
      type: messageType.getNetnsId,
      flags: 0,
      body: emitNetnsIdQuery(other.fd),
    };
    return parseNetnsId((await this.connection.query("get namespace id", request)).body);
  }

  /** Keeps something open for as long as this is: sockets of other kinds in the same namespace. It is closed by `close`. */
  closeWith(companion: { close(): void }): void {
    this.#companions.push(companion);
  }

  /** Idempotent. What is under way ends first, what is not sent yet fails. */
  close(): void {
    for (const companion of this.#companions.splice(0)) companion.close();
    this.connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function ruleText(spec: RuleSpec): string {
  const parts = [
    `IPv${spec.family}`,
    spec.source && `from ${spec.source}`,
    spec.destination && `to ${spec.destination}`,
  ];
  return [...parts, `table ${spec.table}`].filter((part) => part).join(" ");
}

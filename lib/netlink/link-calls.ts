import type { Netns } from "../base/netns.ts";
import {
  type BridgeVlanOptions,
  emitBridgeVlan,
  emitBridgeVlanDump,
  parseBridgeVlans,
} from "./bridge-vlan.ts";
import type { Connection } from "./connection.ts";
import { orNone } from "./error.ts";
import * as linkCodec from "./link.ts";
import { LinkDeletion } from "./link-deletion.ts";
import type { VfChange } from "./link-vf.ts";
import { messageFlag, messageType, type Request } from "./message.ts";
import type { BridgePort, BridgeVlan, Link, LinkChange, LinkRef, LinkSpec } from "./model.ts";

export const CREATE = messageFlag.create | messageFlag.exclusive;

/** The half of Rtnetlink that is about links, bridge ports and virtual functions. */
export abstract class LinkCalls {
  protected readonly connection: Connection;
  /** The namespace that `open` was given; undefined: the process' own. For other kinds of sockets in the same place. */
  readonly netns: Netns | undefined;
  readonly #deletion: LinkDeletion;

  protected constructor(connection: Connection, netns: Netns | undefined) {
    this.connection = connection;
    this.netns = netns;
    this.#deletion = new LinkDeletion(connection, netns);
  }

  protected async change(operation: string, request: Request): Promise<void> {
    await this.connection.execute(operation, request);
  }

  /** undefined: there is no such link. VF data only when asked for. */
  async getLink(ref: LinkRef, options: { vfs?: boolean } = {}): Promise<Link | undefined> {
    const body = linkCodec.emitLinkQuery(ref, options);
    const request = { type: messageType.getLink, flags: 0, body };
    const reply = await orNone(this.connection.query(`get link ${nameOf(ref)}`, request), "ENODEV");
    return reply === undefined ? undefined : linkCodec.parseLink(reply.body);
  }

  async links(): Promise<Link[]> {
    const replies = await this.connection.dump("list links", {
      type: messageType.getLink,
      body: linkCodec.emitLinkDump(),
    });
    return replies.map((reply) => linkCodec.parseLink(reply.body));
  }

  /** Fails with EEXIST when the name is taken. An alias is a second message, and can't be given to a link in another namespace. */
  async createLink(spec: LinkSpec): Promise<void> {
    const operation = `create ${spec.data.kind} link "${spec.name}"`;
    if (spec.alias !== undefined && spec.netnsFd !== undefined) {
      throw new TypeError(`${operation}: an alias can only be set in the link's own namespace`);
    }
    await this.change(operation, {
      type: messageType.newLink,
      flags: CREATE,
      body: linkCodec.emitLinkSpec(spec),
    });
    // The kernel ignores IFLA_IFALIAS of a link that it creates.
    if (spec.alias !== undefined) await this.changeLink(0, { name: spec.name, alias: spec.alias });
  }

  /** Index 0 stands for the link that has the name in `change`. */
  async changeLink(index: number, change: LinkChange): Promise<void> {
    const operation = `set ${Object.keys(change).join(", ")} of link ${index}`;
    const body = linkCodec.emitLinkChange(index, change);
    const request = { type: messageType.newLink, flags: 0, body };
    // The kernel sleeps for some 20 ms in a move, whoever else there is: it goes beside the others, and says nothing about contention.
    if (change.netnsFd !== undefined) await this.connection.executeDetached(operation, request);
    else await this.change(operation, request);
  }

  /**
   * false: there was none. Resolves when the kernel reports the link gone, from both namespaces for a veth; the kernel's own call goes on
   * for some 20 ms after that, even when this object is closed meanwhile. Links deleted in one turn (`Promise.all`) go together.
   */
  async deleteLink(ref: LinkRef): Promise<boolean> {
    const index = "index" in ref ? ref.index : (await this.getLink(ref))?.index;
    return index === undefined ? false : this.#deletion.delete(index);
  }

  /** Fails with EINVAL or EOPNOTSUPP when the link is no bridge port. */
  async setBridgePort(index: number, port: BridgePort): Promise<void> {
    const operation = `set ${Object.keys(port).join(", ")} of bridge port ${index}`;
    await this.change(operation, {
      type: messageType.setLink,
      flags: 0,
      body: linkCodec.emitPortChange(index, port),
    });
  }

  /** The VLANs of a bridge port, or of a bridge itself. */
  async bridgeVlans(index: number): Promise<BridgeVlan[]> {
    const request = { type: messageType.getLink, body: emitBridgeVlanDump() };
    const replies = await this.connection.dump(`list VLANs of bridge port ${index}`, request);
    return replies
      .map((reply) => parseBridgeVlans(reply.body))
      .flatMap((found) => (found.index === index ? found.vlans : []));
  }

  /** Idempotent: flags of a VLAN that is there are changed. `self` for the VLANs of the bridge device. */
  async addBridgeVlan(
    index: number,
    vlan: BridgeVlan,
    options: BridgeVlanOptions = {},
  ): Promise<void> {
    const body = emitBridgeVlan(index, vlan, options);
    await this.change(`add VLAN ${vlan.id} to bridge port ${index}`, {
      type: messageType.setLink,
      flags: 0,
      body,
    });
  }

  async deleteBridgeVlan(
    index: number,
    vlan: BridgeVlan,
    options: BridgeVlanOptions = {},
  ): Promise<void> {
    const body = emitBridgeVlan(index, vlan, options);
    await this.change(`delete VLAN ${vlan.id} from bridge port ${index}`, {
      type: messageType.delLink,
      flags: 0,
      body,
    });
  }

  /** Changes a virtual function of the device `index`. */
  async setVf(index: number, vf: number, change: VfChange): Promise<void> {
    const operation = `set ${Object.keys(change).join(", ")} of VF ${vf} of link ${index}`;
    await this.change(operation, {
      type: messageType.setLink,
      flags: 0,
      body: linkCodec.emitVf(index, vf, change),
    });
  }

  /** Fails with EEXIST when any link has the name. */
  async addAltName(index: number, name: string): Promise<void> {
    const operation = `add alternative name "${name}" to link ${index}`;
    const flags = CREATE | messageFlag.append;
    await this.change(operation, {
      type: messageType.newLinkProperty,
      flags,
      body: linkCodec.emitAltName(index, name),
    });
  }

  async deleteAltName(index: number, name: string): Promise<void> {
    const operation = `delete alternative name "${name}" of link ${index}`;
    await this.change(operation, {
      type: messageType.delLinkProperty,
      flags: 0,
      body: linkCodec.emitAltName(index, name),
    });
  }
}

function nameOf(ref: LinkRef): string {
  return "name" in ref ? `"${ref.name}"` : String(ref.index);
}

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Daemon, type DaemonOptions, podNetwork } from "./daemon.ts";
import { Lab, type Place } from "./lab.ts";
import { mustRunPlugin, type PluginAnswer, type PluginRun, runPlugin } from "./plugin-call.ts";
import { LeakCheck } from "./state.ts";

/** One sandbox of a fixture, as a runtime calls it. */
export interface Sandbox {
  readonly id: string;
  readonly place: Place;
}

type CallOptions = Omit<Parameters<Daemon["call"]>[0], "verb">;

/**
 * A node with podnetd and bridge networks whose addresses lie in a folder of the test: `blue` and `red` (IPv4), `dual` (both families),
 * `gated` (brings a default route), `default` only where `withDefault` says so. `await using node = await NodeFixture.start()`.
 */
export class NodeFixture {
  readonly lab: Lab;
  readonly place: Place;
  readonly daemon: Daemon;
  /** host-local's data folder of all networks. */
  readonly addresses: string;

  private constructor(parts: Pick<NodeFixture, "lab" | "place" | "daemon" | "addresses">) {
    this.lab = parts.lab;
    this.place = parts.place;
    this.daemon = parts.daemon;
    this.addresses = parts.addresses;
  }

  static async start(
    options: Partial<DaemonOptions> & { readonly withDefault?: boolean } = {},
  ): Promise<NodeFixture> {
    const lab = new Lab();
    try {
      const place = lab.node();
      const addresses = lab.folder();
      const networks = {
        ...bridgeNetworks(addresses),
        ...(options.withDefault === true
          ? {
              default: bridgeNetwork("default", {
                dataDir: addresses,
                subnets: ["10.1.0.0/16"],
                extra: {
                  isDefaultGateway: true,
                },
              }),
            }
          : {}),
        ...options.networks,
      };
      const daemon = await Daemon.start({ lab, node: place, ...options, networks });
      return new NodeFixture({ lab, place, daemon, addresses });
    } catch (error) {
      lab[Symbol.dispose]();
      throw error;
    }
  }

  sandbox(id: string): Sandbox {
    return { id, place: this.lab.pod() };
  }

  run(verb: string, sandbox: Sandbox, options: CallOptions = {}): Promise<PluginAnswer> {
    return runPlugin(this.#call(verb, sandbox, options));
  }

  async must(
    verb: string,
    sandbox: Sandbox,
    options: CallOptions = {},
  ): Promise<PluginAnswer["json"]> {
    return await mustRunPlugin(this.#call(verb, sandbox, options));
  }

  /** The addresses that host-local holds for a network, in order. */
  held(network: string): string[] {
    const folder = join(this.addresses, network);
    if (!existsSync(folder)) return [];
    return readdirSync(folder)
      .filter(
        (name) => name !== "lock" && !name.startsWith("last_reserved_ip") && !name.startsWith("."),
      )
      .toSorted();
  }

  /** Files of records that the daemon keeps. */
  records(): string[] {
    return readdirSync(join(this.daemon.stateDir, "records")).toSorted();
  }

  /** Remembers the kernel's state of the node and of these sandboxes. Bridges stay: attach once before. */
  watch(...sandboxes: readonly Sandbox[]): LeakCheck {
    return new LeakCheck([this.place, ...sandboxes.map(({ place }) => place)]);
  }

  #call(verb: string, sandbox: Sandbox, options: CallOptions): PluginRun {
    return this.daemon.call({
      verb,
      containerId: sandbox.id,
      netns: sandbox.place.path,
      ifName: "eth0",
      ...options,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]();
    this.lab[Symbol.dispose]();
  }
}

/** A bridge network with host-local addresses below `dataDir`; further keys are the plugin configuration's. */
export function bridgeNetwork(
  name: string,
  at: { readonly dataDir: string; readonly subnets: readonly string[]; readonly extra?: object },
): object {
  const ranges = at.subnets.map((subnet) => [{ subnet }]);
  const ipam = { type: "host-local", dataDir: at.dataDir, ranges };
  return podNetwork(name, { type: "bridge", bridge: `br-${name}`, ipam, ...at.extra });
}

function bridgeNetworks(dataDir: string): Record<string, object> {
  return {
    blue: bridgeNetwork("blue", { dataDir, subnets: ["10.10.0.0/16"] }),
    red: bridgeNetwork("red", { dataDir, subnets: ["10.20.0.0/16"] }),
    dual: bridgeNetwork("dual", { dataDir, subnets: ["10.30.0.0/16", "fd30::/64"] }),
    gated: bridgeNetwork("gated", {
      dataDir,
      subnets: ["10.40.0.0/16", "fd40::/64"],
      extra: { isDefaultGateway: true },
    }),
  };
}

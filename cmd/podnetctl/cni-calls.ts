import type { CniVerb } from "../../lib/cni/types.ts";
import type { Client } from "./client.ts";

/** The attachment that a person names on the command line. */
export interface AttachmentOptions {
  readonly id: string;
  readonly ifname: string;
  readonly networks?: string;
  readonly args?: string;
  readonly cniPath: string;
}

interface CniCall {
  readonly verb: CniVerb;
  readonly netns?: string | undefined;
  readonly options?: AttachmentOptions;
  readonly config?: Record<string, unknown>;
}

const configuration = { cniVersion: "1.1.0", name: "podnet", type: "podnet" };

function environment({ verb, netns, options }: CniCall): Record<string, string> {
  const args = [
    ...(options?.args === undefined ? [] : [options.args]),
    ...(options?.networks === undefined ? [] : [`PODNET_NETWORKS=${options.networks}`]),
  ];
  return {
    CNI_COMMAND: verb,
    CNI_PATH: options?.cniPath ?? "/opt/cni/bin",
    ...(options === undefined ? {} : { CNI_CONTAINERID: options.id, CNI_IFNAME: options.ifname }),
    ...(netns === undefined ? {} : { CNI_NETNS: netns }),
    ...(args.length === 0 ? {} : { CNI_ARGS: args.join(";") }),
  };
}

/** Sends one CNI call as the runtime's `podnet` executable would, and returns what it would print. */
export async function callCni(client: Client, call: CniCall): Promise<string> {
  const line = JSON.stringify({ protocol: 1, env: environment(call) });
  const config = JSON.stringify({ ...configuration, ...call.config });
  return await client.send({ method: "POST", path: "/cni", body: `${line}\n${config}` });
}

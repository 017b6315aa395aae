import { annotations } from "../../lib/api/names.ts";
import { vetNetwork } from "../../lib/api/vet-network.ts";
import { errorText } from "../../lib/base/errors.ts";
import type { Conflist } from "../../lib/cni/conflist.ts";
import type { NodeContext } from "./context.ts";
import { requireConflistExecutables } from "./executables.ts";

/** A network as people know it, with its configuration. */
export interface VettedNetwork {
  readonly network: string;
  readonly conflist: Conflist;
  readonly resourceName?: string;
}

/** Why an ADD of this network would fail, as far as its configuration alone tells: keys, address ranges, executables that are missing. */
export async function configurationFaults(
  { plugins, config }: Pick<NodeContext, "plugins" | "config">,
  { network, conflist, resourceName }: VettedNetwork,
): Promise<string[]> {
  const given = resourceName === undefined ? {} : { [annotations.npwgResourceName]: resourceName };
  const { faults } = vetNetwork(
    {
      metadata: { name: network, labels: {}, annotations: given },
      spec: { enabled: true, provider: "", parametersRefs: [] },
    },
    { plugins: conflist.plugins, at: (index) => `plugins[${index}]` },
  );
  const texts = faults.map(({ path, message }) => `${path}: ${message}`);
  try {
    await requireConflistExecutables(plugins, conflist, config.cniBinDir);
  } catch (error) {
    texts.push(errorText(error));
  }
  return texts;
}

import { annotations } from "../../lib/api/names.ts";
import { vetNetwork } from "../../lib/api/vet-network.ts";
import { errorText } from "../../lib/base/errors.ts";
import { decodeConflist } from "../../lib/cni/conflist.ts";
import type { NodeContext } from "./context.ts";
import { requireConflistExecutables } from "./executables.ts";
import type { PlannedAttachment } from "./plan.ts";

/** Why an ADD of this attachment would fail, as far as its configuration alone tells: keys, address ranges, executables that are missing. */
export async function configurationFaults(
  { plugins, config }: NodeContext,
  { network, conflist, resourceName }: PlannedAttachment,
): Promise<string[]> {
  const list = decodeConflist(conflist);
  const given = resourceName === undefined ? {} : { [annotations.npwgResourceName]: resourceName };
  const { faults } = vetNetwork(
    {
      metadata: { name: network, labels: {}, annotations: given },
      spec: { enabled: true, provider: "", parametersRefs: [] },
    },
    { plugins: list.plugins, at: (index) => `plugins[${index}]` },
  );
  const texts = faults.map(({ path, message }) => `${path}: ${message}`);
  try {
    await requireConflistExecutables(plugins, list, config.cniBinDir);
  } catch (error) {
    texts.push(errorText(error));
  }
  return texts;
}

import { podText } from "./pods.ts";
import type { SandboxRecord } from "./record.ts";

/** One attachment as `podnetctl ls` shows it. */
export interface AttachmentRow {
  readonly containerId: string;
  readonly pod: string | undefined;
  /** Kubernetes namespace of the pod. */
  readonly namespace: string | undefined;
  readonly network: string;
  readonly interface: string;
  readonly ips: readonly string[];
  readonly mac: string | undefined;
  readonly default: boolean;
  /** `attached`; `adding` while an ADD is under way or was interrupted; `deleting` while a DEL is not finished. */
  readonly state: SandboxRecord["phase"];
  readonly netns: string | undefined;
  /** RFC 3339. */
  readonly created: string;
  /** The device that it has: its resource and the id that the kubelet or a claim gave. */
  readonly device: { readonly resource: string; readonly id: string } | undefined;
  /** PCI address of the device behind the interface, where a plugin's result tells it. */
  readonly pciID: string | undefined;
  /** Why the latest attempt to give it back did not finish. */
  readonly fault: string | undefined;
}

/** The rows of all records, oldest first. `pending`: only what a DEL has not finished. */
export function attachmentRows(
  records: readonly SandboxRecord[],
  pending: boolean,
): AttachmentRow[] {
  return records
    .filter((record) => !pending || record.phase !== "attached")
    .toSorted((a, b) => a.created.localeCompare(b.created))
    .flatMap(rowsOf);
}

function rowsOf(record: SandboxRecord): AttachmentRow[] {
  return record.attachments.map((attachment) => {
    const { result } = attachment;
    const place = result?.interfaces.findLastIndex(({ sandbox }) => sandbox !== undefined) ?? -1;
    return {
      containerId: record.containerId,
      pod: podText(record.pod),
      namespace: record.pod.namespace,
      network: attachment.network,
      interface: attachment.ifName,
      ips: result?.ips.map(({ address }) => address) ?? [],
      mac: result?.interfaces[place]?.mac,
      default: attachment.default,
      state: record.phase,
      netns: record.netns,
      created: record.created,
      device: attachment.device,
      pciID: result?.interfaces[place]?.pciID,
      fault: record.fault,
    };
  });
}

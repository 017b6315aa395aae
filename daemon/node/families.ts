import type { IpamMode } from "../../lib/api/objects.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import type { CniResult } from "../../lib/cni/types.ts";

/** What a PodNetwork says of the addresses of each family (`spec.ipam4`, `spec.ipam6`); undefined: nothing. */
export interface FamilyRules {
  readonly ipam4?: IpamMode;
  readonly ipam6?: IpamMode;
}

/**
 * Throws code 7 when a network's result is not what its PodNetwork promises: `external` and `kubernetes` mean at least one address of the
 * family, `none` means that there is none.
 */
export function requireFamilies(
  network: string,
  { ipam4, ipam6 }: FamilyRules,
  result: CniResult,
): void {
  const count = (v6: boolean): number =>
    result.ips.filter(({ address }) => address.includes(":") === v6).length;
  requireFamily({ network, field: "ipam4", family: "IPv4" }, ipam4, count(false));
  requireFamily({ network, field: "ipam6", family: "IPv6" }, ipam6, count(true));
}

function requireFamily(
  of: { readonly network: string; readonly field: string; readonly family: string },
  mode: IpamMode | undefined,
  count: number,
): void {
  const text =
    (mode === "external" || mode === "kubernetes") && count === 0
      ? `its ipam plugin gave no ${of.family} address, though spec.${of.field} is "${mode}"`
      : mode === "none" && count > 0
        ? `its ipam plugin gave ${count} ${of.family} addresses, though spec.${of.field} is "none"`
        : undefined;
  if (text === undefined) return;
  throw new CniError(cniCode.invalidNetworkConfig, `attach network "${of.network}": ${text}`);
}

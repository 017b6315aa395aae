import type { LinkChange } from "./model.ts";

/** IFF_* of linux/if.h: the flags of a link that somebody can set. */
export const iff = {
  up: 0x1,
  noArp: 0x80,
  promisc: 0x100,
  allmulti: 0x200,
  multicast: 0x1000,
  dynamic: 0x8000,
} as const;

/** The flags that a change is about: `mask` which, `flags` those of them that are set. */
export function flagChange(change: LinkChange): { readonly flags: number; readonly mask: number } {
  const { up, arp, promisc, allmulti, multicast, dynamic } = change;
  const bits: readonly (readonly [number, boolean | undefined])[] = [
    [iff.up, up],
    [iff.noArp, arp === undefined ? undefined : !arp],
    [iff.promisc, promisc],
    [iff.allmulti, allmulti],
    [iff.multicast, multicast],
    [iff.dynamic, dynamic],
  ];
  return {
    flags: bits.reduce((sum, [bit, on]) => (on === true ? sum | bit : sum), 0),
    mask: bits.reduce((sum, [bit, on]) => (on === undefined ? sum : sum | bit), 0),
  };
}

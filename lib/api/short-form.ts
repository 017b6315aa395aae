import { quote } from "./names.ts";

/** One item of the short form, its parts not yet checked. */
export interface ShortName {
  readonly namespace?: string;
  readonly name: string;
  readonly ifName?: string;
}

/** An item, or what is wrong with its shape. */
export type ShortItem = ShortName | { readonly problem: string };

/** Splits `[namespace/]name[@interface], ...`, at most `limit` items of it. White space around parts does not count. */
export function parseShortForm(
  text: string,
  withNamespaces: boolean,
  limit: number,
): readonly ShortItem[] {
  return text.split(",", limit).map((item) => parseItem(item.trim(), withNamespaces));
}

function parseItem(item: string, withNamespaces: boolean): ShortItem {
  if (item === "") return { problem: "must not be empty: there is a comma too many" };
  const [target = "", ifName, ...moreNames] = item.split("@").map((part) => part.trim());
  if (moreNames.length > 0) return { problem: `${quote(item)} has more than one "@"` };
  const tail = ifName === undefined ? {} : { ifName };
  if (!withNamespaces) return { name: target, ...tail };
  const [first = "", second, ...moreParts] = target.split("/").map((part) => part.trim());
  if (moreParts.length > 0) return { problem: `${quote(item)} has more than one "/"` };
  if (second === undefined) return { name: first, ...tail };
  return { namespace: first, name: second, ...tail };
}

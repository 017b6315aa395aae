import type { Fault } from "../base/decode.ts";
import { quote } from "./names.ts";
import { refName, type Selection } from "./selection.ts";

/** The rules between entries of podnet.dev/networks (spec A.3.1, 2 to 4). The faults name the later entry and the earlier one. */
export function checkPodnetList(selections: readonly Selection[]): Fault[] {
  return [
    ...repeated(selections, {
      field: (item) => (item.ref.kind === "podNetwork" ? "name" : "attachmentName"),
      value: (item) => `${item.ref.kind} ${refName(item.ref)}`,
      message: (item, first) =>
        `${quote(item.ref.name)} is listed already, in entry ${first.index}: each network once`,
    }),
    ...repeatedIfNames(selections, "interfaceName"),
    ...repeatedOwners(selections, "v4", "IPv4"),
    ...repeatedOwners(selections, "v6", "IPv6"),
  ];
}

/** The rules between entries of the standard's list (spec B.2.2); the same network may be there more than once. */
export function checkNpwgList(selections: readonly Selection[]): Fault[] {
  return [
    ...repeatedIfNames(selections, "interface"),
    ...repeated(
      selections.filter((item) => item.defaultRoute !== undefined),
      {
        field: () => "default-route",
        value: () => "default-route",
        message: (_, first) => `entry ${first.index} has it already: one entry of the list may`,
      },
    ),
  ];
}

function repeatedIfNames(selections: readonly Selection[], field: string): Fault[] {
  return repeated(selections, {
    field: () => field,
    value: (item) => item.ifName,
    message: (item, first) => `${quote(item.ifName ?? "")} is taken by entry ${first.index}`,
  });
}

function repeatedOwners(
  selections: readonly Selection[],
  family: "v4" | "v6",
  title: string,
): Fault[] {
  return repeated(selections, {
    field: () => (family === "v4" ? "isDefaultGW4" : "isDefaultGW6"),
    value: (item) => (item.defaultRoute?.[family] === true ? family : undefined),
    message: (_, first) => `entry ${first.index} has the ${title} default route already`,
  });
}

interface Rule {
  /** The field that the fault names. */
  readonly field: (item: Selection) => string;
  /** What must not occur twice; undefined does not count. */
  readonly value: (item: Selection) => string | undefined;
  readonly message: (item: Selection, first: Selection) => string;
}

function repeated(selections: readonly Selection[], rule: Rule): Fault[] {
  const seen = new Map<string, Selection>();
  const faults: Fault[] = [];
  for (const item of selections) {
    const value = rule.value(item);
    if (value === undefined) continue;
    const first = seen.get(value);
    if (first === undefined) seen.set(value, item);
    else
      faults.push({
        path: `[${item.index}].${rule.field(item)}`,
        message: rule.message(item, first),
      });
  }
  return faults;
}

import type { Place } from "../helpers/lab.ts";
import type { Field, Verb } from "./field.ts";
import { median } from "./numbers.ts";

/** Medians in milliseconds of attaching a pod to the first bridges of a node, and of detaching it, with nothing but the netlink messages that it takes. */
export function bareTimes(field: Field, node: Place, count: number): Record<Verb, number> {
  const pod = field.lab.pod();
  const bridges = Array.from({ length: count }, (_, index) => `br${index}`);
  for (const bridge of bridges)
    node.run("sh", "-c", `ip link add ${bridge} type bridge 2>/dev/null; ip link set ${bridge} up`);
  const lines = node
    .run(field.bare, pod.path, "20", ...bridges)
    .trim()
    .split("\n");
  const column = (at: number) => median(lines.map((line) => Number(line.split(" ")[at]) / 1e6));
  return { ADD: column(0), DEL: column(1) };
}

import { z } from "zod";
import { optional } from "./config.ts";

/** `mtu` of a configuration: 0 means the kernel's choice, as in the reference. */
export const mtuField: z.ZodType<number | undefined> = optional(
  z.int().min(0).max(0x7fffffff),
).transform((mtu) => (mtu === 0 ? undefined : mtu));

/** As mtuField, for a link whose driver bounds its MTU and says no more than EINVAL. */
export function mtuWithin(lowest: number, highest: number): z.ZodType<number | undefined> {
  return mtuField.refine((mtu) => mtu === undefined || (mtu >= lowest && mtu <= highest), {
    error: `must be 0, or ${lowest} to ${highest}`,
  });
}

/** A mode by its name; absent and empty text mean `fallback`. Gives the name. */
export function modeField<M extends string>(
  modes: Readonly<Record<M, number>>,
  fallback: M,
): z.ZodType<M> {
  const names = Object.keys(modes) as M[];
  return optional(
    z.string().refine((name) => name === "" || Object.hasOwn(modes, name), {
      error: (issue) => `"${issue.input}" is not a mode: must be ${names.join(", ")}`,
    }),
  ).transform((name) => (name === undefined || name === "" ? fallback : (name as M)));
}

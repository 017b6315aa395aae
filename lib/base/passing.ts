import { errorCode } from "./errors.ts";

/** Of system errors, those that pass: full or read-only disks, exhausted descriptors and buffers, what is busy, a dump that changed under its reader each time. */
const passing = new Set([
  "ENOSPC",
  "EDQUOT",
  "EMFILE",
  "ENFILE",
  "ENOMEM",
  "ENOBUFS",
  "EAGAIN",
  "EBUSY",
  "EINTR",
  "EROFS",
]);

/** Whether the same call may succeed later although nobody changes what was asked for. */
export function isPassing(error: unknown): boolean {
  const code = errorCode(error);
  return code !== undefined && passing.has(code);
}

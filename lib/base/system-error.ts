import { constants } from "node:os";

/** A libc call that failed. `code` is the errno's name (`EEXIST`), `errno` its positive number. */
export class SystemError extends Error {
  override readonly name = "SystemError";
  readonly code: string;
  readonly errno: number;
  readonly call: string;

  constructor(call: string, errno: number) {
    const code = errnoName(errno);
    super(`${call}: ${code}`);
    this.code = code;
    this.errno = errno;
    this.call = call;
  }
}

const errnoNames = new Map<number, string>([
  [85, "ERESTART"],
  [524, "ENOTSUPP"],
]);
for (const [name, number] of Object.entries(constants.errno)) {
  // Where two names share a number, the kernel's own one wins.
  if (name !== "EWOULDBLOCK" && name !== "ENOTSUP") errnoNames.set(number, name);
}

/** The name of a positive errno: `EEXIST` for 17. Numbers without a name give `E` and the number. */
export function errnoName(errno: number): string {
  return errnoNames.get(errno) ?? `E${errno}`;
}

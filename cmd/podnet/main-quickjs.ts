import { run } from "./core.ts";
import type { Connection, Host } from "./host.ts";

/** What host.c provides: a Host, except that a connection is a file descriptor. Every call blocks. */
declare const podnetHost: Omit<Host, "connect"> & {
  connect(path: string, until: number): number;
  send(descriptor: number, data: Uint8Array, until: number): undefined;
  receive(descriptor: number, until: number): Uint8Array;
  close(descriptor: number): void;
  exit(code: number): void;
};

class NativeConnection implements Connection {
  readonly #descriptor: number;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  send(data: Uint8Array, until: number): undefined {
    podnetHost.send(this.#descriptor, data, until);
  }

  receive(until: number): Uint8Array {
    return podnetHost.receive(this.#descriptor, until);
  }

  close(): void {
    podnetHost.close(this.#descriptor);
  }
}

const host: Host = {
  args: podnetHost.args,
  env: podnetHost.env,
  now: podnetHost.now,
  sleep: podnetHost.sleep,
  readStdin: podnetHost.readStdin,
  write: podnetHost.write,
  encode: podnetHost.encode,
  decode: podnetHost.decode,
  connect: (path, until) => new NativeConnection(podnetHost.connect(path, until)),
};

// A rejection ends the process through the hook in host.c.
void run(host).then(podnetHost.exit);

import { connect, createServer, type Server, type Socket } from "node:net";

/*
 * Go's gRPC client of Kubernetes 1.20 calls a server on a unix socket by its path: its `:authority` has slashes, which RFC 9113 does not
 * allow and Node's HTTP/2 refuses. This passes such a client on to a server of Node's, with the name "localhost" instead.
 */

/** What a client says first ("PRI * HTTP/2.0..."), and the head of a frame, in bytes. */
const preface = 24;
const headLength = 9;
const headerFrame = 1;
const authority = 1;
const localhost = Buffer.concat([Buffer.from([9]), Buffer.from("localhost")]);

/** Listens on one unix socket and passes connections on to another. */
export async function openAuthorityProxy(from: string, to: string): Promise<Server> {
  const server = createServer((client) => {
    const upstream = connect(to);
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) socket.on("error", end).on("close", end);
    upstream.pipe(client);
    rewrite(client, upstream);
  });
  await new Promise<void>((done, failed) => {
    server.once("error", failed);
    server.listen(from, done);
  });
  return server;
}

function rewrite(client: Socket, upstream: Socket): void {
  let waiting: Buffer = Buffer.alloc(0);
  let started = false;
  client.on("data", (chunk: Buffer) => {
    waiting = Buffer.concat([waiting, chunk]);
    for (;;) {
      const length = started ? frameLength(waiting) : preface;
      if (waiting.length < length) return;
      const part = waiting.subarray(0, length);
      upstream.write(started ? withLocalhost(part) : part);
      waiting = waiting.subarray(length);
      started = true;
    }
  });
}

function frameLength(start: Buffer): number {
  return start.length < headLength ? headLength : headLength + start.readUIntBE(0, 3);
}

/** A frame: length (3 bytes), type, flags, stream (4 bytes), payload. Go's client neither pads headers nor splits them. */
function withLocalhost(frame: Buffer): Buffer {
  if (frame[3] !== headerFrame) return frame;
  const block = rewriteBlock(frame.subarray(9));
  const head = Buffer.from(frame.subarray(0, 9));
  head.writeUIntBE(block.length, 0, 3);
  return Buffer.concat([head, block]);
}

/** A header block (RFC 7541): values are copied as they are, but for the one whose name is `:authority` of the static table. */
function rewriteBlock(block: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < block.length; ) {
    const { value, end, name } = fieldAt(block, at);
    parts.push(block.subarray(at, value));
    parts.push(name === authority ? localhost : block.subarray(value, end));
    at = end;
  }
  return Buffer.concat(parts);
}

/** Where a field's value starts and ends; one that is a number alone has none. */
function fieldAt(block: Buffer, at: number): { value: number; end: number; name: number } {
  const first = block[at] ?? 0;
  if (first >= 0x80 || (first & 0xe0) === 0x20) {
    const { end } = integer(block, at, first >= 0x80 ? 7 : 5);
    return { value: end, end, name: 0 };
  }
  const name = integer(block, at, (first & 0xc0) === 0x40 ? 6 : 4);
  const value = name.value === 0 ? stringEnd(block, name.end) : name.end;
  return { value, end: stringEnd(block, value), name: name.value };
}

function integer(block: Buffer, at: number, bits: number): { value: number; end: number } {
  const most = (1 << bits) - 1;
  let value = (block[at] ?? 0) & most;
  let end = at + 1;
  if (value < most) return { value, end };
  for (let shift = 0; ; shift += 7) {
    const byte = block[end++] ?? 0;
    value += (byte & 0x7f) << shift;
    if (byte < 0x80) return { value, end };
  }
}

function stringEnd(block: Buffer, at: number): number {
  const { value, end } = integer(block, at, 7);
  return end + value;
}

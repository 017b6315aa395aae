/** Bytes of one line: objects are at most 1.5 MiB in etcd, somewhat more as JSON. */
const longestLine = 16 * 1024 * 1024;

/** The lines of a stream, without empty ones. A line that is cut off at the end is left out. Throws when one has more than 16 MiB. */
export async function* splitLines(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const pending: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of stream) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      pending.push(chunk.subarray(from, at));
      const line = Buffer.concat(pending.splice(0)).toString("utf8").trim();
      length = 0;
      from = at + 1;
      if (line !== "") yield line;
    }
    const rest = chunk.subarray(from);
    length += rest.length;
    if (length > longestLine) throw new Error(`line of more than ${longestLine} bytes`);
    if (rest.length > 0) pending.push(rest);
  }
}

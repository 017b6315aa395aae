import { errorCode } from "../../lib/base/errors.ts";

/**
 * Whoever reads the output may have seen enough before its end (`podnetctl ls | head`). The command goes on to its own end, which may be
 * work on the node, and says nothing.
 */
export function tolerateBrokenPipe(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error) => {
      if (errorCode(error) !== "EPIPE") throw error;
    });
  }
}

import { run } from "./core.ts";
import { nodeHost } from "./node-host.ts";

// Not exitCode: that would wait for open handles, a stdin that nobody closes, say.
void run(nodeHost).then((code) => process.exit(code));

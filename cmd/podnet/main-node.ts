import { run } from "./core.ts";
import { nodeHost } from "./node-host.ts";

// exitCode would wait for open handles: a stdin that nobody closes, say.
process.exit(await run(nodeHost));

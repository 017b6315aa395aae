import { run } from "./program.ts";

// Not only the status: a request that could not be ended must not keep a stopped controller alive.
process.exit(await run(process.argv));

import { run } from "./program.ts";

// Not only the status: an operation that could not be ended must not keep a stopped daemon alive.
process.exit(await run(process.argv));

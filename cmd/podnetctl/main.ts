import { tolerateBrokenPipe } from "./broken-pipe.ts";
import { run } from "./program.ts";

tolerateBrokenPipe();
process.exitCode = await run(process.argv);

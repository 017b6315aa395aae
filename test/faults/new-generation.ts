// Writes the next generation of test/fixtures/generations: node test/faults/new-generation.ts [COMMIT], of this build or of one from the history.
import { captureGeneration } from "../helpers/generation-capture.ts";
import { generations, writeGeneration } from "../helpers/generations.ts";
import { previousBuild, thisBuild } from "../helpers/previous-build.ts";

const [commit] = process.argv.slice(2);
const build = commit === undefined ? thisBuild : previousBuild(commit);
if (build === undefined) throw new Error(`the history has no commit ${commit}`);
const name = String(Number(generations().at(-1) ?? 0) + 1);
writeGeneration(name, await captureGeneration(build));
process.stdout.write(`generation ${name}: ${build.name}\n`);

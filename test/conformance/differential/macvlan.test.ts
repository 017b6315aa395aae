import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { macvlanCases } from "./type-cases.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("macvlan: ", macvlanCases, {
  keys: "master mode mtu mac linkInContainer bcqueuelen runtimeConfig.mac CNI_ARGS.MAC".split(" "),
});

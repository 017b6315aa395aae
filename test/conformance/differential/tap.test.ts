import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { tapCases } from "./type-cases.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("tap: ", tapCases, {
  keys: "multiQueue mtu mac owner group selinuxContext bridge runtimeConfig.mac CNI_ARGS.MAC".split(
    " ",
  ),
  // No machine here runs SELinux.
  badOnly: ["selinuxContext"],
});

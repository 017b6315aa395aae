import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { hostDeviceCases } from "./type-cases.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("host-device: ", hostDeviceCases, {
  keys: "device pciBusID runtimeConfig".split(" "),
  // Good values need a device on a bus: tried with virtual functions in the VM, and kernelpath too.
  badOnly: ["pciBusID", "runtimeConfig"],
});

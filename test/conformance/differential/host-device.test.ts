import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { hostDeviceCases } from "./type-cases.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("host-device: ", hostDeviceCases, {
  keys: "device kernelpath pciBusID runtimeConfig".split(" "),
  // Only devices on a bus have them: tried with virtual functions in the VM.
  badOnly: ["kernelpath", "pciBusID", "runtimeConfig"],
});

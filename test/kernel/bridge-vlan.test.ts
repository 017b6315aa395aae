import { after } from "node:test";
import { vlanCases } from "../conformance/differential/bridge-cases.ts";
import { compareWithReference } from "../conformance/differential/compare.ts";
import { endPodnetSide } from "../conformance/differential/world.ts";

after(endPodnetSide);

// Each case asks needsDriver("vlan"): kernels without VLANs have no filtering bridges, so these comparisons run in the virtual machine.
compareWithReference("bridge VLAN: ", vlanCases, {
  keys: ["vlan", "preserveDefaultVlan", "vlanTrunk"],
});

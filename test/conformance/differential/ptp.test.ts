import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { ptpCases } from "./type-cases.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("ptp: ", ptpCases, {
  keys: "ipMasq ipMasqBackend mtu dns".split(" "),
  // podnet masquerades by nftables whichever backend is named, and the reference's effect is the same with both.
  badOnly: ["ipMasqBackend"],
});

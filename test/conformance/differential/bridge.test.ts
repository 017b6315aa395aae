import { after } from "node:test";
import { bridgeCases } from "./bridge-cases.ts";
import { compareWithReference } from "./compare.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

compareWithReference("bridge: ", bridgeCases, {
  keys: [
    ..."bridge isGateway isDefaultGateway forceAddress ipMasq ipMasqBackend mtu hairpinMode promiscMode enabledad".split(
      " ",
    ),
    ..."disableContainerInterface portIsolation macspoofchk args.cni.mac runtimeConfig.mac CNI_ARGS.MAC dns".split(
      " ",
    ),
  ],
  // podnet masquerades by nftables whichever backend is named, and the reference's effect is the same with both.
  badOnly: ["ipMasqBackend"],
});

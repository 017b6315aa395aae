import { after } from "node:test";
import { compareWithReference } from "./compare.ts";
import { endPodnetSide } from "./world.ts";

after(endPodnetSide);

const works = { type: "loopback", outcome: "works", keys: [] } as const;

compareWithReference(
  "loopback: ",
  [
    { ...works, name: "a fresh pod", config: {} },
    {
      ...works,
      name: "an interface of another name is asked for",
      config: {},
      steps: [{ verb: "ADD", id: "c1", ifName: "lo" }],
    },
    {
      name: "lo has an address that is not a loopback address",
      type: "loopback",
      outcome: "fails",
      prepare: "ip -n $POD address add 10.1.0.1/24 dev lo",
      config: {},
      keys: [],
    },
  ],
  { keys: [] },
);

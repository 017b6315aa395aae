import assert from "node:assert/strict";
import { test } from "node:test";
import { netnsMounts } from "../../../daemon/node/live-namespaces.ts";

test("netnsMounts, lines of mountinfo, gives the mounted network namespaces with their paths", () => {
  const text = [
    "24 30 0:22 / /proc rw,nosuid shared:14 - proc proc rw",
    "811 25 0:4 net:[4026532281] /run/netns/cni-1 rw shared:401 - nsfs nsfs rw",
    "812 25 0:4 net:[4026532299] /run/netns/with\\040space rw - nsfs nsfs rw",
    "813 25 0:4 mnt:[4026532300] /run/mnt/x rw - nsfs nsfs rw",
    "",
  ].join("\n");
  assert.deepEqual(netnsMounts(text), [
    ["net:[4026532281]", "/run/netns/cni-1"],
    ["net:[4026532299]", "/run/netns/with space"],
  ]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { bringsDefaultRoute } from "../../../daemon/node/brought-routes.ts";
import { decodeConflist } from "../../../lib/cni/conflist.ts";

const families = (plugin: object) => {
  const list = { cniVersion: "1.0.0", name: "x", plugins: [{ type: "bridge", ...plugin }] };
  const conflist = decodeConflist(JSON.stringify(list));
  return ([4, 6] as const).filter((family) => bringsDefaultRoute(conflist, family));
};

const ranges = [[{ subnet: "10.1.0.0/16" }], [{ subnet: "fd01::/64" }]];

const cases: readonly (readonly [string, object, readonly number[]])[] = [
  ["nothing", {}, []],
  ["addresses alone", { ipam: { type: "host-local", ranges } }, []],
  ["a gateway without addresses", { isDefaultGateway: true }, []],
  ["a gateway of both", { isDefaultGateway: true, ipam: { type: "host-local", ranges } }, [4, 6]],
  ["the old form", { isDefaultGateway: true, ipam: { subnet: "fd01::/64" } }, [6]],
  ["static", { isDefaultGateway: true, ipam: { addresses: [{ address: "10.1.0.2/16" }] } }, [4]],
  ["a route", { ipam: { routes: [{ dst: "10.0.0.0/8" }, { dst: "0.0.0.0/0" }] } }, [4]],
  ["a route of IPv6", { ipam: { routes: [{ dst: "::/0" }] } }, [6]],
  ["what is no list", { ipam: { routes: "0.0.0.0/0", ranges: 7 } }, []],
];

for (const [what, plugin, expected] of cases) {
  test(`default routes that a configuration brings: ${what}`, () => {
    assert.deepEqual(families(plugin), expected);
  });
}

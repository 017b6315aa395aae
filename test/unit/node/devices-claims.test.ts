import assert from "node:assert/strict";
import { test } from "node:test";
import { type ClaimQuestion, claimedDevices } from "../../../daemon/node/devices/claims.ts";
import type { PreparedClaim } from "../../../daemon/node/devices/pod-resources.ts";
import { cniCode } from "../../../lib/cni/errors.ts";
import { json, ScriptedApi } from "../kube/scripted-api.ts";

const text = (string: string) => ({ string });
const attributes = (resource: string, id: string) => ({
  "k8s.cni.cncf.io/resourceName": text(resource),
  "k8s.cni.cncf.io/deviceID": text(id),
});
const slice = (generation: number, devices: readonly object[], more: object = {}) => ({
  spec: { driver: "nic.acme.io", pool: { name: "node-a", generation }, devices, ...more },
});
const result = (device: string, driver = "nic.acme.io") => ({
  driver,
  pool: "node-a",
  device,
  request: "r",
});
const claim = (uid: string, results: readonly object[]) => ({
  status: { reservedFor: [{ resource: "pods", uid }], allocation: { devices: { results } } },
});

/** Objects by path; what is not there is 404. */
type Objects = Record<string, unknown>;
const served = (version: string): Objects => ({
  "/apis/resource.k8s.io": { versions: [{ version: "v1alpha3" }, { version }] },
});

async function ask(objects: Objects, more: Partial<ClaimQuestion>) {
  await using api = await ScriptedApi.start((_, { pathname, searchParams }, response) => {
    const selector = searchParams.get("fieldSelector");
    const object = objects[selector === null ? pathname : `${pathname}?${selector}`];
    if (object instanceof Error) json(response, 503, { message: object.message });
    else json(response, object === undefined ? 404 : 200, object ?? {});
  });
  const client = api.client();
  try {
    const ids = await claimedDevices({
      client,
      nodeName: "node-a",
      pod: { namespace: "app", name: "web", uid: "u1" },
      prepared: [],
      wanted: new Set(["acme.io/vf"]),
      signal: new AbortController().signal,
      ...more,
    });
    return { ids: [...(ids.get("acme.io/vf") ?? [])], requests: api.requests };
  } finally {
    await client.close();
  }
}

const prepared = (more: Partial<PreparedClaim> = {}): PreparedClaim => ({
  namespace: "app",
  name: "nic",
  devices: [],
  cdi: [],
  ...more,
});
const here = "spec.nodeName=node-a,spec.driver=nic.acme.io";

test("claims: devices that the kubelet names are known by the attributes that their driver publishes", async () => {
  const devices = ["vf-1", "vf-2", "gpu-0"].map((device) => ({
    driver: "nic.acme.io",
    pool: "node-a",
    device,
  }));
  const { ids, requests } = await ask(
    {
      ...served("v1"),
      [`/apis/resource.k8s.io/v1/resourceslices?${here}`]: {
        items: [
          slice(2, [{ name: "vf-1", attributes: attributes("acme.io/vf", "0000:03:10.1") }]),
          slice(1, [{ name: "vf-1", attributes: attributes("acme.io/vf", "stale") }]),
          slice(2, [
            {
              name: "vf-2",
              attributes: {
                "k8s.cni.cncf.io/resourceName": text("acme.io/vf"),
                "resource.kubernetes.io/pciBusID": text("0000:03:10.2"),
              },
            },
            { name: "gpu-0", attributes: attributes("acme.io/gpu", "0000:04:00.0") },
          ]),
        ],
      },
    },
    { prepared: [prepared({ devices })] },
  );
  assert.deepEqual(ids, ["0000:03:10.1", "0000:03:10.2"]);
  assert.deepEqual(
    requests.map((one) => one.split("?")[0]),
    ["GET /apis/resource.k8s.io", "GET /apis/resource.k8s.io/v1/resourceslices"],
  );
});

test("claims: of an older kubelet the claim itself names the devices; version v1beta1 has attributes deeper", async () => {
  const { ids } = await ask(
    {
      ...served("v1beta1"),
      "/apis/resource.k8s.io/v1beta1/namespaces/app/resourceclaims/nic": claim("other", [
        result("vf-1"),
      ]),
      [`/apis/resource.k8s.io/v1beta1/resourceslices?${here}`]: { items: [] },
      "/apis/resource.k8s.io/v1beta1/resourceslices?spec.driver=nic.acme.io": {
        items: [slice(1, [{ name: "vf-1", basic: { attributes: attributes("acme.io/vf", "x") } }])],
      },
    },
    { prepared: [prepared()] },
  );
  assert.deepEqual(ids, ["x"]);
});

test("claims: of a kubelet that tells of none the pod's own claims count, where they are reserved for it", async () => {
  const slices = {
    items: [
      slice(1, [
        { name: "vf-1", attributes: attributes("acme.io/vf", "1") },
        { name: "vf-2", attributes: attributes("acme.io/vf", "2") },
        { name: "vf-3", attributes: attributes("acme.io/vf", "3") },
        { name: "vf-4", attributes: attributes("acme.io/vf", "4") },
      ]),
    ],
  };
  const path = (name: string) => `/apis/resource.k8s.io/v1/namespaces/app/resourceclaims/${name}`;
  const { ids } = await ask(
    {
      ...served("v1"),
      "/api/v1/namespaces/app/pods/web": {
        spec: { resourceClaims: [{ name: "a", resourceClaimName: "shared" }, { name: "b" }] },
        status: {
          resourceClaimStatuses: [
            { name: "b", resourceClaimName: "made" },
            { name: "c", resourceClaimName: "others" },
          ],
          extendedResourceClaimStatus: { resourceClaimName: "extended" },
        },
      },
      [path("shared")]: claim("u1", [result("vf-1")]),
      [path("made")]: claim("u1", [result("vf-2"), result("gone", "away.acme.io")]),
      [path("others")]: claim("u2", [result("vf-3")]),
      [path("extended")]: claim("u1", [result("vf-4")]),
      [`/apis/resource.k8s.io/v1/resourceslices?${here}`]: slices,
      "/apis/resource.k8s.io/v1/resourceslices?spec.nodeName=node-a,spec.driver=away.acme.io": {},
      "/apis/resource.k8s.io/v1/resourceslices?spec.driver=away.acme.io": { items: [null, 3] },
    },
    {},
  );
  assert.deepEqual(ids.toSorted(), ["1", "2", "4"]);
});

test("claims: without the API, and beside it, a CDI name whose kind is the resource gives the id", async () => {
  const claims = [
    prepared({ cdi: ["acme.io/vf=0000:03:10.1", "acme.io/vf=", "acme.io/gpu=1", "nonsense"] }),
  ];
  assert.deepEqual((await ask({}, { prepared: claims, client: undefined })).ids, ["0000:03:10.1"]);
  assert.deepEqual((await ask({}, { prepared: claims })).ids, ["0000:03:10.1"]);
});

test("claims: an API server that can't be asked is code 11; objects of any shape have no devices", async () => {
  await assert.rejects(ask({ "/apis/resource.k8s.io": new Error("overloaded") }, {}), {
    code: cniCode.tryAgainLater,
    message: /^read the claims of pod "app\/web": .*overloaded/,
  });
  const odd: Objects = {
    ...served("v1"),
    "/api/v1/namespaces/app/pods/web": { spec: 3, status: { resourceClaimStatuses: [1, {}] } },
    "/apis/resource.k8s.io/v1/namespaces/app/resourceclaims/nic": { status: [] },
  };
  assert.deepEqual((await ask(odd, {})).ids, []);
  assert.deepEqual((await ask(odd, { prepared: [prepared()] })).ids, []);
});

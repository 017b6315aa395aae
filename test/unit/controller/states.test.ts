import assert from "node:assert/strict";
import { test } from "node:test";
import { decideAttachment } from "../../../daemon/controller/attachment-state.ts";
import {
  keepPodNetwork,
  keepPodNetworkAttachment,
} from "../../../daemon/controller/kept-objects.ts";
import { decideNetwork } from "../../../daemon/controller/network-state.ts";
import { vetParams } from "../../../daemon/controller/params.ts";
import type { JsonObject } from "../../../lib/base/json.ts";

const nobody = { pods: 0, attachments: 0 };
const network = (spec: JsonObject, more: JsonObject = {}, name = "blue") =>
  keepPodNetwork({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: {
      name,
      uid: "u",
      resourceVersion: "7",
      generation: 2,
      ...(more["metadata"] as object),
    },
    spec,
    ...(more["status"] === undefined ? {} : { status: more["status"] }),
  });

function said(kept: ReturnType<typeof network>, users = nobody): string[] {
  const own = ["podnet.dev/cni", "podnet.dev/conflist"];
  const { object } = kept;
  const isOwn = object !== undefined && own.includes(object.spec.provider);
  const verdict = isOwn ? vetParams(object, [], () => undefined) : undefined;
  return decideNetwork(kept, verdict, users).conditions.map(
    ({ type, status, reason }) => `${type} ${status} ${reason}`,
  );
}

const params = (status: string) => ({
  status: { conditions: [{ type: "ParamsReady", status, reason: "Because", message: "so" }] },
});

test("a network is ready, and not for each of the reasons", () => {
  const bridge = { parameters: { type: "bridge" } };
  assert.deepEqual(said(network(bridge)), [
    "Ready True Ready",
    "ParamsReady True ParametersValid",
    "InUse False NotInUse",
  ]);
  assert.equal(
    said(network({ ...bridge, enabled: false }))[0],
    "Ready False AdministrativelyDisabled",
  );
  const deleted = { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } };
  assert.equal(said(network(bridge, deleted))[0], "Ready False Deleting");
  assert.deepEqual(said(network({ parameters: { type: 5 } })).slice(0, 2), [
    "Ready False ParamsNotReady",
    "ParamsReady False ParametersInvalid",
  ]);
  assert.deepEqual(said(network({ ...bridge, enabled: "yes" })), [
    "Ready False Invalid",
    "InUse False NotInUse",
  ]);
  assert.equal(said(network({}))[1], "ParamsReady False ParametersMissing");
  assert.equal(said(network({ enabled: true }, {}, "default"))[0], "Ready True Ready");
  assert.equal(said(network(bridge), { pods: 1, attachments: 0 })[2], "InUse True InUse");
});

test("a foreign provider's parameters are its own business", () => {
  const refs = { provider: "acme.io/x", parametersRefs: [{ group: "g", kind: "K", name: "n" }] };
  assert.deepEqual(said(network(refs)), ["Ready False ParamsNotReady", "InUse False NotInUse"]);
  assert.equal(said(network(refs, params("True")))[0], "Ready True Ready");
  assert.equal(said(network(refs, params("Unknown")))[0], "Ready False ParamsNotReady");
  assert.equal(said(network({ provider: "acme.io/x" }))[0], "Ready True Ready");
  assert.equal(
    said(network({ provider: "acme.io/x" }, params("False")))[0],
    "Ready False ParamsNotReady",
  );
});

test("an attachment follows its network, and says which one and why", () => {
  const kept = keepPodNetworkAttachment({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "fast" },
    spec: { podNetworkName: "blue" },
  });
  const input = {
    kept,
    network: undefined,
    networkReady: undefined,
    verdict: undefined,
    users: nobody,
  };
  assert.match(decideAttachment(input).ready.message, /PodNetwork "blue" not found/);
  const blue = network({ parameters: { type: "bridge" }, enabled: false });
  const of = decideNetwork(blue, undefined, nobody).ready;
  const off = decideAttachment({ ...input, network: blue, networkReady: of }).ready;
  assert.equal(off.reason, "PodNetworkNotReady");
  assert.match(off.message, /AdministrativelyDisabled/);
  const on = { ...of, status: "True", reason: "Ready" } as const;
  assert.equal(
    decideAttachment({ ...input, network: blue, networkReady: on }).ready.status,
    "True",
  );
});

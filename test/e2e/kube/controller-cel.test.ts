import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { parse } from "yaml";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";
import { CurrentApi } from "../../helpers/current-api.ts";
import { DirectApi } from "../../helpers/direct-api.ts";
import { KubeProxy } from "../../helpers/kube-proxy.ts";

/** The controller with podnet's objects on a current API server for custom resources: status subresource, and rules in CEL. */

const stack = new AsyncDisposableStack();
let at: ControlledApi;
let current: DirectApi;
let controller: ControllerProcess;

const paths = "^/apis/(podnet\\.dev|k8s\\.cni\\.cncf\\.io)/";
const blue = "podnetworks blue";

before(async () => {
  at = stack.use(await ControlledApi.start());
  current = stack.use(await DirectApi.start(at.server, "https://127.0.0.1:7443"));
  const isReady = async () => {
    const answer = await current.raw("GET", "/readyz").catch(() => undefined);
    return answer?.status === 200;
  };
  const server = stack.use(await CurrentApi.start(at.lab, at.server, isReady));
  for (const name of ["podnetworks", "podnetworkattachments", "network-attachment-definitions"]) {
    const crd = parse(readFileSync(`conf/crds/${name}.yaml`, "utf8"));
    await current.create(crd);
    const made = `customresourcedefinitions ${crd.metadata.name}`;
    await at.eventually(
      async () =>
        (await current.get(made)).status?.conditions?.some(
          (one: { type: string; status: string }) =>
            one.type === "Established" && one.status === "True",
        ) === true,
      () => made,
    );
  }
  const proxy = stack.use(await KubeProxy.start(at.server));
  await proxy.set({ route: { server: server.server, paths } });
  controller = stack.use(new ControllerProcess(at.server, ["--no-leader-elect"], proxy));
  await controller.said('"ready"');
});
after(() => stack.disposeAsync());

async function until(name: string, wanted: string, type = "Ready"): Promise<void> {
  let seen = "";
  await at.eventually(
    async () => {
      const { status } = (await current.find(name)) ?? {};
      const one = status?.conditions?.find((item: { type: string }) => item.type === type);
      seen = `${one?.status} ${one?.reason}`;
      return seen === wanted;
    },
    () => `${name}: ${type} "${wanted}", it is "${seen}"\n${controller.log.slice(-2000)}`,
  );
}

test("conditions, finalizers, holder and the default network are written as on the old server", async () => {
  await until("podnetworks default", "True Ready");
  await current.create({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: { name: "blue" },
    spec: { parameters: { type: "bridge", bridge: "br-blue" } },
  });
  await until(blue, "True Ready");
  await current.create({
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetworkAttachment",
    metadata: { namespace: "app", name: "fast" },
    spec: { podNetworkName: "blue" },
  });
  const fast = "podnetworkattachments app/fast";
  await until(fast, "True Ready");
  await current.patch(`${fast}/status`, { status: { holder: { name: "gone", uid: "x" } } });
  await at.eventually(
    async () => (await current.get(fast)).status.holder === undefined,
    () => "a holder that is gone is removed",
  );
  await current.patch(blue, { spec: { enabled: false } });
  await until(blue, "False AdministrativelyDisabled");
  await until(fast, "False PodNetworkNotReady");
  await at.pod("user", [{ name: "blue" }], "Running");
  await until(blue, "True InUse", "InUse");
  await current.delete(blue);
  await until(blue, "False Deleting");
  await at.api.delete("pods app/user");
  await current.delete(fast);
  await at.eventually(
    async () => (await current.find(blue)) === undefined,
    () => "gone",
  );
});

test("E-9: rules in CEL hold beside the controller's own writes", async () => {
  const provider = { spec: { provider: "acme.io/x" } };
  const answer = await current.raw(
    "PATCH",
    "/apis/podnet.dev/v1alpha1/podnetworks/default",
    provider,
  );
  assert.equal(answer.status, 422, JSON.stringify(answer.body));
  await current.patch("podnetworks default", { metadata: { labels: { a: "b" } } });
});

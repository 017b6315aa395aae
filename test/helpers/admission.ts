import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";
import type { ControlledApi } from "./controller.ts";
import type { WholeCluster } from "./whole-cluster.ts";

/** Where the API server of a test finds the webhooks: the address of their service, on the node's own loopback. */
export const webhookAddress = "10.96.0.50";
/** As `--webhook` takes it. */
export const webhookFlag = `${webhookAddress}:443`;

const files = [
  "conf/kustomize/controller/service.yaml",
  "conf/kustomize/webhook/rbac.yaml",
  "conf/kustomize/webhook/validating.yaml",
  "conf/kustomize/webhook/mutating.yaml",
  "conf/kustomize/webhook/legacy/default-network.yaml",
];

/**
 * Applies podnet's own manifests of the webhooks, and stands in for a service proxy: the service has a fixed address, which the node has
 * too. The API server then calls the webhooks by their service's name over TLS, as in any cluster.
 */
export function installWebhooks({ server }: ControlledApi): void {
  server.node.run("ip", "address", "add", `${webhookAddress}/32`, "dev", "lo");
  const objects = files.flatMap((file) =>
    parseAllDocuments(readFileSync(file, "utf8")).map((document) => document.toJS() as object),
  );
  server.apply(...objects.map(withAddress));
}

/** Waits until the API server trusts the webhooks: what must be refused is refused. */
export async function webhooksServed(at: ControlledApi): Promise<void> {
  const probe = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace: "app", name: "probe", annotations: { "podnet.dev/networks": "x" } },
    spec: { containers: [{ name: "c", image: "none" }] },
  };
  await at.eventually(
    async () =>
      (await at.api.raw("POST", "/api/v1/namespaces/app/pods?dryRun=All", probe)).status === 422,
    () => "the API server calls the webhook",
  );
}

function withAddress(object: object): object {
  if (!("kind" in object) || object.kind !== "Service" || !("spec" in object)) return object;
  return { ...object, spec: { ...(object.spec as object), clusterIP: webhookAddress } };
}

/**
 * Stands in for a service proxy of a whole cluster: requests to the webhooks' service reach the node, and there the controller's port.
 */
export function routeWebhooks({ api, node }: WholeCluster): void {
  const { clusterIP } = api.get("service", "-n", "podnet-system", "podnet-controller").spec;
  const { address } = api
    .get("nodes")
    .items[0].status.addresses.find(({ type }: { type: string }) => type === "InternalIP");
  api.node.run("ip", "route", "replace", `${clusterIP}/32`, "via", address);
  const rules = `add table ip test_proxy
add chain ip test_proxy to { type nat hook prerouting priority dstnat; }
add rule ip test_proxy to ip daddr ${clusterIP} tcp dport 443 dnat to ${address}:9479`;
  for (const rule of rules.split("\n")) node.run("nft", rule);
}

import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";
import type { ControlledApi } from "./controller.ts";

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

function withAddress(object: object): object {
  if (!("kind" in object) || object.kind !== "Service" || !("spec" in object)) return object;
  return { ...object, spec: { ...(object.spec as object), clusterIP: webhookAddress } };
}

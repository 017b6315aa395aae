import { isJsonObject, type JsonObject } from "../../../lib/base/json.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import { isNotFound } from "../../../lib/kube/error.ts";
import { decodeTlsData, encodeTlsData, type TlsState } from "./tls-state.ts";

/** The Secret that all replicas share, in the controller's namespace. */
export const secretName = "podnet-webhook-tls";

const registration = "/apis/admissionregistration.k8s.io/v1";
/** Webhook configurations of podnet; one that is not there is not missed. */
const configurations = [
  "validatingwebhookconfigurations/podnet",
  "validatingwebhookconfigurations/podnet-default-network",
  "mutatingwebhookconfigurations/podnet",
] as const;

/** Milliseconds that one request may take. */
const timeout = 5_000;

/** The Secret as it was read; `version` undefined: there is none. */
export interface StoredTls {
  readonly state: TlsState;
  readonly version: string | undefined;
}

/** Reads the Secret. Rejects with a KubeError when nobody can tell. */
export async function readSecret(client: KubeClient, namespace: string): Promise<StoredTls> {
  const path = `${secretsPath(namespace)}/${secretName}`;
  const secret = await readObject(client, path);
  if (secret === undefined) return { state: decodeTlsData({}), version: undefined };
  const { data } = secret;
  return {
    state: decodeTlsData(isJsonObject(data) ? data : {}),
    version: versionOf(secret),
  };
}

/**
 * Writes it if it still is as `stored` says; other keys that it may have are kept. Rejects with a KubeError of status 409 when somebody
 * else was first.
 */
export async function writeSecret(
  client: KubeClient,
  namespace: string,
  { stored, state }: { readonly stored: StoredTls; readonly state: TlsState },
): Promise<void> {
  const data = encodeTlsData(state);
  const { version } = stored;
  if (version !== undefined) {
    await client.request({
      method: "PATCH",
      path: `${secretsPath(namespace)}/${secretName}`,
      body: { metadata: { resourceVersion: version }, data },
      contentType: "application/merge-patch+json",
      timeout,
    });
    return;
  }
  const present = Object.entries(data).filter(([, value]) => value !== null);
  const body = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: secretName, namespace },
    type: "Opaque",
    data: Object.fromEntries(present),
  };
  await client.request({ method: "POST", path: secretsPath(namespace), body, timeout });
}

/** A webhook configuration as it was read. */
export interface Configuration {
  readonly path: string;
  readonly object: JsonObject;
}

/** Those of the configurations that exist. Rejects with a KubeError when nobody can tell. */
export async function readConfigurations(client: KubeClient): Promise<readonly Configuration[]> {
  const paths = configurations.map((name) => `${registration}/${name}`);
  const found = await Promise.all(
    paths.map(async (path) => ({ path, object: await readObject(client, path) })),
  );
  return found.filter((one): one is Configuration => one.object !== undefined);
}

/** Whether every webhook of the configuration trusts exactly this bundle (PEM). */
export function hasBundle({ object }: Configuration, bundle: string): boolean {
  const text = Buffer.from(bundle).toString("base64");
  return webhooksOf(object).every((webhook) => clientConfigOf(webhook)["caBundle"] === text);
}

/**
 * Makes every webhook of the configuration trust the bundle; everything else stays. Rejects with a KubeError of status 409 when the
 * configuration has changed since it was read.
 */
export async function writeBundle(
  client: KubeClient,
  { path, object }: Configuration,
  bundle: string,
): Promise<void> {
  const caBundle = Buffer.from(bundle).toString("base64");
  const webhooks = webhooksOf(object).map((webhook) => ({
    ...webhook,
    clientConfig: { ...clientConfigOf(webhook), caBundle },
  }));
  await client.request({ method: "PUT", path, body: { ...object, webhooks }, timeout });
}

function webhooksOf({ webhooks }: JsonObject): readonly JsonObject[] {
  return Array.isArray(webhooks) ? (webhooks as readonly unknown[]).filter(isJsonObject) : [];
}

function clientConfigOf({ clientConfig }: JsonObject): JsonObject {
  return isJsonObject(clientConfig) ? clientConfig : {};
}

function secretsPath(namespace: string): string {
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
}

async function readObject(client: KubeClient, path: string): Promise<JsonObject | undefined> {
  try {
    const object = await client.request({ path, timeout });
    return isJsonObject(object) ? object : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    throw error;
  }
}

function versionOf({ metadata }: JsonObject): string | undefined {
  const version = isJsonObject(metadata) ? metadata["resourceVersion"] : undefined;
  return typeof version === "string" ? version : undefined;
}

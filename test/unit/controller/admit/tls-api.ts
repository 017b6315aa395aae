import { json, ScriptedApi } from "../../kube/scripted-api.ts";

// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
type Loose = any;

/** A small API server with Secrets and webhook configurations: writes are bound to the version that they name, as on a real one. */
export class TlsApi implements AsyncDisposable {
  readonly api: ScriptedApi;
  readonly objects = new Map<string, Loose>();
  readonly writes: string[] = [];
  /** Called before a write is looked at. */
  beforeWrite: () => Promise<void> = async () => undefined;
  /** Called before a read is answered, with the user agent. */
  beforeRead: (agent: string, path: string) => Promise<void> = async () => undefined;
  down = false;
  /** Milliseconds that this server's clock is ahead of the machine's. */
  ahead = 0;
  #version = 0;

  private constructor(api: ScriptedApi) {
    this.api = api;
    api.handler = (request, url, response) => {
      const parts: string[] = [];
      request.setEncoding("utf8").on("data", (text) => parts.push(text));
      request.on("end", () => {
        const body = parts.length === 0 ? undefined : JSON.parse(parts.join(""));
        this.beforeRead(request.headers["user-agent"] ?? "", url.pathname)
          .then(() => this.#answer(request.method ?? "GET", url.pathname, body))
          .then(({ status, object }) => {
            response.setHeader("date", new Date(Date.now() + this.ahead).toUTCString());
            json(response, status, object);
          })
          .catch(() => response.destroy());
      });
    };
  }

  static async start(): Promise<TlsApi> {
    return new TlsApi(await ScriptedApi.start(() => undefined));
  }

  put(path: string, object: Loose): void {
    const metadata = { ...object.metadata, resourceVersion: String(++this.#version) };
    this.objects.set(path, { ...object, metadata });
  }

  /** The two configurations that everybody has. */
  configure(): void {
    for (const kind of ["validating", "mutating"]) {
      const clientConfig = { service: { name: "podnet-controller", namespace: "podnet-system" } };
      const webhooks = [
        { name: "a", clientConfig, timeoutSeconds: 3 },
        { name: "b", clientConfig },
      ];
      this.put(`${configurations}/${kind}webhookconfigurations/podnet`, {
        kind,
        metadata: { name: "podnet" },
        webhooks,
      });
    }
  }

  /** The bundles that the configurations have, each different one once. */
  bundles(): string[] {
    const found = [...this.objects]
      .filter(([path]) => path.startsWith(configurations))
      .flatMap(([, { webhooks }]) => webhooks)
      .map(({ clientConfig }: Loose) => Buffer.from(clientConfig.caBundle ?? "", "base64"));
    return [...new Set(found.map((bundle) => bundle.toString()))];
  }

  get secret(): Loose {
    return this.objects.get(secretPath);
  }

  /** A key of the Secret as text. */
  text(key: string): string | undefined {
    const value = this.secret?.data[key];
    return value === undefined ? undefined : Buffer.from(value, "base64").toString();
  }

  async #answer(
    method: string,
    path: string,
    body: Loose,
  ): Promise<{ status: number; object: Loose }> {
    if (this.down) return { status: 503, object: {} };
    if (method !== "GET") await this.beforeWrite();
    if (method === "POST") return this.#create(path, body);
    const object = this.objects.get(path);
    if (object === undefined) return { status: 404, object: { reason: "NotFound" } };
    if (method === "GET") return { status: 200, object };
    if (body.metadata.resourceVersion !== object.metadata.resourceVersion)
      return { status: 409, object: { reason: "Conflict" } };
    this.writes.push(path.split("/").slice(-2).join("/"));
    this.put(path, method === "PUT" ? body : { ...object, data: merged(object.data, body.data) });
    return { status: 200, object: this.objects.get(path) };
  }

  #create(folder: string, body: Loose): { status: number; object: Loose } {
    const path = `${folder}/${body.metadata.name}`;
    if (this.objects.has(path)) return { status: 409, object: { reason: "AlreadyExists" } };
    this.writes.push(path.split("/").slice(-2).join("/"));
    this.put(path, body);
    return { status: 201, object: this.objects.get(path) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api[Symbol.asyncDispose]();
  }
}

const configurations = "/apis/admissionregistration.k8s.io/v1";
export const secretPath = "/api/v1/namespaces/podnet-system/secrets/podnet-webhook-tls";

/** As a merge patch: null takes a key away. */
function merged(data: Loose, patch: Loose): Loose {
  return Object.fromEntries(
    Object.entries({ ...data, ...patch }).filter(([, value]) => value !== null),
  );
}

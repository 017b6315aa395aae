import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { type ApiServer, tokens } from "./apiserver.ts";
import { RunningProgram } from "./process.ts";

// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
type Loose = any;

export interface DirectAnswer {
  readonly status: number;
  readonly body: Loose;
}

const relay = `const net = require("node:net");
const [path, host, port] = process.argv.slice(1);
net.createServer((from) => {
  const to = net.connect(Number(port), host);
  from.pipe(to).pipe(from);
  from.on("error", () => to.destroy());
  to.on("error", () => from.destroy());
}).listen(path, () => console.log("listening"));`;

const bases: Readonly<Record<string, string>> = {
  podnetworks: "/apis/podnet.dev/v1alpha1",
  podnetworkattachments: "/apis/podnet.dev/v1alpha1",
  "network-attachment-definitions": "/apis/k8s.cni.cncf.io/v1",
  customresourcedefinitions: "/apis/apiextensions.k8s.io/v1",
  leases: "/apis/coordination.k8s.io/v1",
};

/** Requests to a test's API server as the administrator, in milliseconds where kubectl takes a tenth of a second. */
export class DirectApi implements AsyncDisposable {
  readonly #agent: Agent;
  readonly #relay: RunningProgram;

  private constructor(api: ApiServer, path: string, server: string) {
    const { hostname, port } = new URL(server);
    const command = [process.execPath, "-e", relay, path, hostname, port];
    this.#relay = new RunningProgram("relay", api.node, command);
    this.#agent = new Agent({ connect: { socketPath: path, rejectUnauthorized: false } });
  }

  /** `server`: another one in the same namespace that knows the same users. */
  static async start(api: ApiServer, server = api.server): Promise<DirectApi> {
    const path = join(api.folder, `relay-${new URL(server).port}.sock`);
    const self = new DirectApi(api, path, server);
    while (!self.#relay.output.includes("listening")) {
      self.#relay.mustRun();
      await sleep(10);
    }
    return self;
  }

  /** PATCH is a merge patch. */
  async raw(method: string, path: string, body?: object): Promise<DirectAnswer> {
    const type = method === "PATCH" ? "application/merge-patch+json" : "application/json";
    const answer = await request(`https://127.0.0.1${path}`, {
      method: method as "GET",
      dispatcher: this.#agent,
      headers: {
        authorization: `Bearer ${tokens.admin}`,
        "content-type": type,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    return { status: answer.statusCode, body: text.startsWith("{") ? JSON.parse(text) : text };
  }

  /** `at`: `pods app/web`, `podnetworks blue`, `podnetworks blue/status`, `pods app/`. */
  async get(at: string): Promise<Loose> {
    return this.#must(await this.raw("GET", pathOf(at)), `get ${at}`);
  }

  /** undefined: there is none. */
  async find(at: string): Promise<Loose> {
    const answer = await this.raw("GET", pathOf(at));
    return answer.status === 404 ? undefined : this.#must(answer, `find ${at}`);
  }

  async create(object: Loose): Promise<Loose> {
    const { kind, metadata } = object;
    const plurals: Readonly<Record<string, string>> = {
      NetworkAttachmentDefinition: "network-attachment-definitions",
      CustomResourceDefinition: "customresourcedefinitions",
    };
    const plural = plurals[kind] ?? `${kind.toLowerCase()}s`;
    const path = pathOf(`${plural} ${metadata.namespace ? `${metadata.namespace}/` : ""}`);
    return this.#must(await this.raw("POST", path, object), `create ${kind} ${metadata.name}`);
  }

  async patch(at: string, body: object): Promise<Loose> {
    const answer = await this.raw("PATCH", pathOf(at), body);
    return this.#must(answer, `patch ${at}`);
  }

  /** Without waiting for anything: pods go at once. Succeeds when there is none. */
  async delete(at: string): Promise<void> {
    const isPod = at.startsWith("pods ");
    const path = `${pathOf(at)}${isPod ? "?gracePeriodSeconds=0" : ""}`;
    const answer = await this.raw("DELETE", path);
    if (answer.status !== 404) this.#must(answer, `delete ${at}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
    await this.#relay.stop(2);
  }

  #must({ status, body }: DirectAnswer, what: string): Loose {
    if (status < 300) return body;
    throw new Error(`${what}: ${status}: ${body?.message ?? JSON.stringify(body)}`);
  }
}

function pathOf(at: string): string {
  const [plural = "", rest = ""] = at.split(" ");
  const base = bases[plural] ?? "/api/v1";
  const clustered = ["podnetworks", "namespaces", "nodes", "customresourcedefinitions"];
  if (clustered.includes(plural)) return `${base}/${plural}${rest === "" ? "" : `/${rest}`}`;
  const [namespace = "", ...name] = rest.split("/");
  const tail = name.filter((part) => part !== "").join("/");
  return `${base}/namespaces/${namespace}/${plural}${tail === "" ? "" : `/${tail}`}`;
}

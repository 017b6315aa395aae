import type { ServerResponse } from "node:http";
import { json, line, ScriptedApi } from "../kube/scripted-api.ts";

/**
 * A small API server for scheduling gates, with the rules of a real one from 1.27 on: gates are set at creation only and never beside a
 * nodeName, later they can only go; conditions are merged by type; a patch that names a version is refused when that is not the
 * object's any more.
 */
export class GateApi implements AsyncDisposable {
  readonly api: ScriptedApi;
  // biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
  readonly objects = new Map<string, any>();
  readonly writes: string[] = [];
  /** Called before a write is looked at. */
  beforeWrite: () => void = () => undefined;
  readonly #watches = new Map<string, Set<ServerResponse>>();
  #version = 100;

  private constructor(api: ScriptedApi) {
    this.api = api;
    api.handler = (request, url, response) => {
      const [, kind = ""] =
        /\/(\w+)$/.exec(url.pathname.replace(/\/(\w[\w.-]*)\/status$/, "/$1")) ?? [];
      if (request.method === "PATCH") {
        let body = "";
        request.setEncoding("utf8").on("data", (text) => (body += text));
        request.on("end", () => this.#patch(url.pathname, JSON.parse(body), response));
      } else if (url.searchParams.has("watch")) this.#watch(kind, response);
      else {
        const items = [...this.objects]
          .filter(([path]) => path.startsWith(`${kind}/`))
          .map(([, object]) => object);
        json(response, 200, { metadata: { resourceVersion: String(this.#version) }, items });
      }
    };
  }

  static async start(): Promise<GateApi> {
    return new GateApi(await ScriptedApi.start(() => undefined));
  }

  /** `kind`: the plural. Creates, or replaces an object. Throws what a server would refuse. */
  // biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
  put(kind: string, object: any): void {
    const { namespace = "", name } = object.metadata;
    const path = `${kind}/${namespace}/${name}`;
    const before = this.objects.get(path);
    const gates = (one: typeof object) =>
      (one?.spec?.schedulingGates ?? []).map((gate: { name: string }) => gate.name);
    if (before === undefined && gates(object).length > 0 && object.spec.nodeName)
      throw new Error(
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
      );
    if (before !== undefined && gates(object).some((gate: string) => !gates(before).includes(gate)))
      throw new Error("spec.schedulingGates: Forbidden: only deletion is allowed");
    const uid = before?.metadata.uid ?? `uid-${++this.#version}`;
    const made = {
      ...object,
      metadata: { uid, ...object.metadata, resourceVersion: String(++this.#version) },
    };
    this.objects.set(path, made);
    const type = before === undefined ? "ADDED" : "MODIFIED";
    for (const response of this.#watches.get(kind) ?? []) line(response, type, made);
  }

  pod(name: string) {
    return this.objects.get(`pods/app/${name}`);
  }

  #watch(kind: string, response: ServerResponse): void {
    response.writeHead(200, { "content-type": "application/json" });
    response.flushHeaders();
    const all = this.#watches.get(kind) ?? new Set();
    this.#watches.set(kind, all.add(response));
  }

  // biome-ignore lint/suspicious/noExplicitAny: a patch
  #patch(path: string, patch: any, response: ServerResponse): void {
    this.beforeWrite();
    const found = /namespaces\/([^/]+)\/pods\/([^/]+)(\/status)?$/.exec(path) ?? [];
    const [, namespace = "", name = "", status = ""] = found;
    const pod = this.objects.get(`pods/${namespace}/${name}`);
    const { uid, resourceVersion } = patch.metadata;
    if (pod?.metadata.uid !== uid || pod?.metadata.resourceVersion !== resourceVersion) {
      json(response, 409, { reason: "Conflict", message: "the object has been modified" });
      return;
    }
    const made = structuredClone(pod);
    try {
      if (status === "") mergeGates(made, patch);
      else mergeConditions(made, patch);
      this.put("pods", made);
    } catch (error) {
      json(response, 422, { reason: "Invalid", message: String(error) });
      return;
    }
    this.writes.push(`${name}${status}`);
    json(response, 200, this.pod(name));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.api[Symbol.asyncDispose]();
  }
}

/** A strategic merge: by name, and out with what says so. Throws for what is not there any more: whoever sends that has decided by an old object. */
// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
function mergeGates(pod: any, patch: any): void {
  for (const { name, $patch } of patch.spec.schedulingGates) {
    const has: { name: string }[] = pod.spec.schedulingGates ?? [];
    const others = has.filter((gate) => gate.name !== name);
    if ($patch === "delete" && others.length === has.length)
      throw new Error(`spec.schedulingGates: ${name} is not there`);
    pod.spec.schedulingGates = $patch === "delete" ? others : [...others, { name }];
  }
}

// biome-ignore lint/suspicious/noExplicitAny: objects have the shape that the API gives them
function mergeConditions(pod: any, patch: any): void {
  pod.status ??= {};
  for (const one of patch.status.conditions) {
    const conditions: { type: string }[] = pod.status.conditions ?? [];
    const old = conditions.find(({ type }) => type === one.type);
    pod.status.conditions = [...conditions.filter((other) => other !== old), { ...old, ...one }];
  }
}

import { z } from "zod";
import { decode } from "../../lib/base/decode.ts";
import type { KubeClient } from "../../lib/kube/client.ts";
import { KubeError } from "../../lib/kube/error.ts";

/** The metadata that uninstalling reads, and whatever else an object has. */
export const apiObject = z.looseObject({
  metadata: z.looseObject({
    name: z.string(),
    namespace: z.string().optional(),
    resourceVersion: z.string().optional(),
    generation: z.number().optional(),
    finalizers: z.array(z.string()).optional(),
  }),
});
export type ApiObject = z.infer<typeof apiObject>;

const page = z.looseObject({
  metadata: z.looseObject({ continue: z.string().optional() }),
  items: z
    .array(apiObject)
    .nullish()
    .transform((items) => items ?? []),
});

const strategic = "application/strategic-merge-patch+json";
const merge = "application/merge-patch+json";

/** What uninstalling asks of an API server: what is not there, also a whole kind, is not there already. Rejects with KubeErrors. */
export class UninstallApi {
  readonly #client: KubeClient;

  constructor(client: KubeClient) {
    this.#client = client;
  }

  /** All objects of a path, page by page; none where the server does not know the kind. */
  async list(path: string, query: Readonly<Record<string, string>> = {}): Promise<ApiObject[]> {
    const found: ApiObject[] = [];
    for (let next = ""; ; ) {
      const more = next === "" ? {} : { continue: next };
      const answer = await this.#orNothing(() =>
        this.#client.request({ path, query: { limit: "500", ...query, ...more } }),
      );
      if (answer === undefined) return found;
      const { items, metadata } = decode(page, answer, path);
      found.push(...items);
      next = metadata.continue ?? "";
      if (next === "") return found;
    }
  }

  /** undefined: there is none. */
  async get(path: string): Promise<ApiObject | undefined> {
    const answer = await this.#orNothing(() => this.#client.request({ path }));
    return answer === undefined ? undefined : decode(apiObject, answer, path);
  }

  /** Whether there was something to delete. */
  async remove(path: string): Promise<boolean> {
    return (
      (await this.#orNothing(() => this.#client.request({ method: "DELETE", path }))) !== undefined
    );
  }

  /** Whether there was something to change. `kind`: lists are merged by key (strategic), or replaced. */
  async patch(path: string, body: object, kind: "strategic" | "merge"): Promise<boolean> {
    const contentType = kind === "strategic" ? strategic : merge;
    const answer = await this.#orNothing(() =>
      this.#client.request({ method: "PATCH", path, body, contentType }),
    );
    return answer !== undefined;
  }

  async #orNothing(ask: () => Promise<unknown>): Promise<unknown> {
    try {
      return (await ask()) ?? {};
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined;
      throw error;
    }
  }
}

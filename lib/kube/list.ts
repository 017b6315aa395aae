import { isJsonObject, type JsonObject } from "../base/json.ts";
import type { KubeClient } from "./client.ts";
import { KubeError } from "./error.ts";
import { acceptOf, listPath, type Resource } from "./resource.ts";

/** Objects in one page of a list. */
const pageSize = "500";
/** Milliseconds for one page. */
const pageTimeout = 60_000;

export interface Page {
  readonly items: readonly JsonObject[];
  /** The resource version of the whole list; a watch can continue from the last page's. */
  readonly version: string;
}

/** All objects of a resource, page by page, as they were at one moment. Rejects with a KubeError. */
export async function* listPages(
  client: KubeClient,
  resource: Resource,
  options: { readonly query?: Readonly<Record<string, string>>; readonly signal: AbortSignal },
): AsyncGenerator<Page> {
  let next = "";
  do {
    const answer = await client.request({
      path: listPath(resource),
      accept: acceptOf(resource, true),
      query: { ...options.query, limit: pageSize, ...(next === "" ? {} : { continue: next }) },
      timeout: pageTimeout,
      signal: options.signal,
    });
    const { page, token } = decodePage(resource, answer);
    yield page;
    next = token;
  } while (next !== "");
}

function decodePage(resource: Resource, answer: unknown): { page: Page; token: string } {
  const { items = [], metadata } = isJsonObject(answer) ? answer : {};
  if (!isJsonObject(metadata) || !Array.isArray(items ?? [])) {
    throw new KubeError(`list ${resource.plural}: the answer is no list`);
  }
  const { continue: token, resourceVersion } = metadata;
  return {
    page: {
      items: ((items ?? []) as readonly unknown[]).filter(isJsonObject),
      version: typeof resourceVersion === "string" ? resourceVersion : "",
    },
    token: typeof token === "string" ? token : "",
  };
}

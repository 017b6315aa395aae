import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { openLog } from "../../../lib/base/log.ts";
import { KubeError } from "../../../lib/kube/error.ts";
import { Reflector } from "../../../lib/kube/reflector.ts";
import { resources } from "../../../lib/kube/resource.ts";
import { json, line, namespace, ScriptedApi, until } from "./scripted-api.ts";

const log = openLog("silent");

/** A reflector of namespaces that keeps the label `v`; the watch that is open is `watch()`. */
async function setUp(lists: (url: URL, response: ServerResponse) => void) {
  const watches: { readonly url: URL; readonly response: ServerResponse }[] = [];
  const api = await ScriptedApi.start((_, url, response) => {
    if (url.searchParams.get("watch") !== "true") {
      lists(url, response);
      return;
    }
    response.writeHead(200).flushHeaders();
    watches.push({ url, response });
  });
  const client = api.client();
  const reflector = new Reflector({
    client,
    resource: resources.namespaces,
    log,
    keep: (object) => (object["metadata"] as { labels: { v?: string } }).labels.v ?? "",
  });
  reflector.start();
  const stop = async (): Promise<void> => {
    await reflector.stop();
    await client.close();
    await api[Symbol.asyncDispose]();
  };
  return { api, reflector, watches, [Symbol.asyncDispose]: stop };
}

function list(resourceVersion: string, items: readonly object[], next = ""): object {
  return { metadata: { resourceVersion, continue: next }, items };
}

const key = (name: string) => ({ namespace: "", name });

test("a list comes in pages, as metadata alone, and the watch starts at its version", async () => {
  await using at = await setUp((url, response) => {
    const second = url.searchParams.get("continue") === "more";
    const page = second
      ? list("7", [namespace("b", "2", { v: "2" })])
      : list("7", [namespace("a", "1", { v: "1" })], "more");
    json(response, 200, page);
  });
  await at.reflector.ready();
  assert.deepEqual([at.reflector.get(key("a")), at.reflector.get(key("b"))], ["1", "2"]);
  await until(() => at.watches.length === 1, "a watch");
  const asked = at.watches[0]?.url.searchParams;
  assert.equal(asked?.get("resourceVersion"), "7");
  assert.equal(asked?.get("allowWatchBookmarks"), "true");
});

test("events change the copy, and a watch that ends is resumed from the last version, a bookmark's too", async () => {
  await using at = await setUp((_, response) =>
    json(response, 200, list("7", [namespace("a", "1")])),
  );
  await until(() => at.watches.length === 1, "a watch");
  const [first] = at.watches;
  assert.ok(first);
  line(first.response, "ADDED", namespace("b", "8", { v: "8" }));
  line(first.response, "MODIFIED", namespace("b", "9", { v: "9" }));
  line(first.response, "DELETED", namespace("a", "10"));
  line(first.response, "BOOKMARK", { metadata: { resourceVersion: "20" } });
  await until(() => at.reflector.get(key("b")) === "9", "b");
  assert.equal(at.reflector.get(key("a")), undefined);
  first.response.end();
  await until(() => at.watches.length === 2, "a second watch");
  assert.equal(at.watches[1]?.url.searchParams.get("resourceVersion"), "20");
  assert.equal(at.api.requests.filter((one) => !one.includes("watch=")).length, 1, "one list");
});

test("an expired version is listed again, and what went meanwhile is forgotten", async () => {
  let lists = 0;
  await using at = await setUp((_, response) => {
    lists++;
    json(
      response,
      200,
      lists === 1 ? list("7", [namespace("a", "1")]) : list("30", [namespace("c", "29")]),
    );
  });
  await until(() => at.watches.length === 1, "a watch");
  const status = { kind: "Status", code: 410, reason: "Expired", message: "too old" };
  line(at.watches[0]?.response as ServerResponse, "ERROR", status);
  await until(() => at.watches.length === 2, "a second watch");
  assert.equal(at.watches[1]?.url.searchParams.get("resourceVersion"), "30");
  assert.equal(at.reflector.get(key("a")), undefined);
  assert.equal(at.reflector.get(key("c")), "");
});

test("while the server is away what is known stays known, and it is said why", async () => {
  let away = false;
  await using at = await setUp((_, response) => {
    if (away) json(response, 503, { message: "etcd is away" });
    else json(response, 200, list("7", [namespace("a", "1", { v: "1" })]));
  });
  await until(() => at.watches.length === 1, "a watch");
  away = true;
  const status = { kind: "Status", code: 410, reason: "Gone", message: "too old" };
  line(at.watches[0]?.response as ServerResponse, "ERROR", status);
  await until(() => at.reflector.fault?.includes("etcd is away") === true, "the fault");
  assert.equal(at.reflector.current, false);
  assert.equal(at.reflector.get(key("a")), "1");
  away = false;
  await until(() => at.watches.length === 2, "a second watch");
  assert.equal(at.reflector.current, true);
});

test("a kind that the server does not have is an empty list", async () => {
  await using at = await setUp((_, response) => json(response, 404, { message: "no such kind" }));
  await at.reflector.ready();
  assert.equal(at.reflector.synced, true);
  assert.match(at.reflector.fault ?? "", /does not have Namespace/);
});

test("lines that are no events end the watch, not the reflector", async () => {
  await using at = await setUp((_, response) => json(response, 200, list("7", [])));
  await until(() => at.watches.length === 1, "a watch");
  at.watches[0]?.response.write("{not json\n");
  await until(() => at.watches.length === 2, "a second watch");
  line(at.watches[1]?.response as ServerResponse, "ADDED", { metadata: { name: 5 } });
  line(at.watches[1]?.response as ServerResponse, "ADDED", null);
  line(at.watches[1]?.response as ServerResponse, "ADDED", namespace("d", "8", { v: "d" }));
  await until(() => at.reflector.get(key("d")) === "d", "d");
});

test("a refused request says what was asked, and the status", async () => {
  await using api = await ScriptedApi.start((_, __, response) => {
    response.setHeader("retry-after", "3");
    json(response, 429, { message: "slow down", reason: "TooManyRequests" });
  });
  const client = api.client();
  const error = await client.request({ path: "/api/v1/x" }).catch((reason: unknown) => reason);
  assert.ok(error instanceof KubeError);
  assert.equal(error.message, "GET /api/v1/x: slow down (429)");
  assert.deepEqual([error.status, error.reason, error.retryAfter], [429, "TooManyRequests", 3000]);
  await client.close();
});

test("an object that can't be kept, and a listener that fails, hide nothing else: in a list, in a watch, in an answer", async () => {
  const told: string[] = [];
  const watches: ServerResponse[] = [];
  await using api = await ScriptedApi.start((_, url, response) => {
    if (url.searchParams.get("watch") !== "true") {
      const items = ["a", "bad", "b"].map((name) => namespace(name, "1"));
      return json(response, 200, list("7", items));
    }
    response.writeHead(200).flushHeaders();
    watches.push(response);
  });
  const client = api.client();
  const reflector = new Reflector({
    client,
    resource: resources.namespaces,
    log,
    keep: (object) => {
      const { name } = object["metadata"] as { name: string };
      if (name.startsWith("bad")) throw new RangeError("stack");
      return name;
    },
    onChange: ({ name }) => {
      told.push(name);
      if (name === "a" || name === "c") throw new Error("listener");
    },
  });
  reflector.start();
  await reflector.ready();
  await until(() => watches.length === 1, "a watch");
  const [watch] = watches;
  assert.ok(watch);
  for (const name of ["bad2", "c", "d"]) line(watch, "ADDED", namespace(name, "8"));
  await until(() => told.includes("d"), "the last event");
  reflector.learn(namespace("bad3", "9"), () => true);
  assert.deepEqual(
    reflector.entries().map(({ value }) => value),
    ["a", "b", "c", "d"],
  );
  assert.equal(watches.length, 1, "the watch goes on");
  await reflector.stop();
  await client.close();
});

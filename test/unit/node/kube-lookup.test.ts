import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { mock, test } from "node:test";
import { Lookup } from "../../../daemon/node/kube/lookup.ts";
import { openLog } from "../../../lib/base/log.ts";
import { resources } from "../../../lib/kube/resource.ts";
import { json, line, namespace, ScriptedApi, until } from "../kube/scripted-api.ts";

const key = { namespace: "", name: "a" };

/** A lookup of namespaces that keeps the label `v`; `get` answers questions, `watches` are open. */
async function setUp(get: (response: ServerResponse, count: number) => void, askAgain?: number) {
  const watches: ServerResponse[] = [];
  let count = 0;
  const api = await ScriptedApi.start((_, url, response) => {
    if (url.searchParams.get("watch") === "true") {
      response.writeHead(200).flushHeaders();
      watches.push(response);
    } else if (url.pathname.endsWith("/a")) {
      count += 1;
      get(response, count);
    } else {
      json(response, 200, { metadata: { resourceVersion: "1" }, items: [] });
    }
  });
  const client = api.client();
  const lookup = new Lookup({
    client,
    resource: resources.namespaces,
    log: openLog("silent"),
    keep: (object) => (object["metadata"] as { labels: { v?: string } }).labels.v ?? "",
    ...(askAgain === undefined ? {} : { askAgain }),
  });
  await until(() => watches.length === 1, "a watch");
  const stop = async (): Promise<void> => {
    await lookup[Symbol.asyncDispose]();
    await client.close();
    await api[Symbol.asyncDispose]();
  };
  return { api, lookup, watches, [Symbol.asyncDispose]: stop };
}

test("a question that is not answered does not keep from what the watch brings meanwhile", async () => {
  let asked = 0;
  await using at = await setUp(() => {
    asked += 1;
  });
  const finding = at.lookup.find(key);
  await until(() => asked === 1, "a question");
  for (const watch of at.watches) line(watch, "ADDED", namespace("a", "2", { v: "watched" }));
  assert.equal(await finding, "watched");
});

test("what the watch brings and is not wanted does not count", async () => {
  const held: ServerResponse[] = [];
  await using at = await setUp((response) => held.push(response));
  const finding = at.lookup.findNew(key, (value) => value === "new");
  await until(() => held.length === 1, "a question");
  for (const watch of at.watches) line(watch, "ADDED", namespace("a", "2", { v: "old" }));
  await until(() => at.lookup.reflector.get(key) === "old", "the watch's object");
  for (const response of held) json(response, 200, namespace("a", "3", { v: "new" }));
  assert.equal(await finding, "new");
});

test("a question whose connection died without a word is put again", async () => {
  await using at = await setUp((response, count) => {
    if (count === 2) json(response, 200, namespace("a", "2", { v: "second" }));
  }, 10);
  assert.equal(await at.lookup.find(key), "second");
});

test("a question that is answered is put once, whatever the answer", async () => {
  await using at = await setUp(
    (response) => json(response, 404, { kind: "Status", code: 404 }),
    10,
  );
  assert.equal(await at.lookup.find(key), undefined);
  await new Promise((done) => setTimeout(done, 30));
  assert.equal(at.api.requests.filter((one) => one.endsWith("/a")).length, 1);
});

test("there being none counts for two seconds, and not for the time by which the clock was put back", async () => {
  let asked = 0;
  await using at = await setUp((response) => {
    asked += 1;
    json(response, 404, { kind: "Status", reason: "NotFound", code: 404 });
  });
  const now = Date.now();
  mock.timers.enable({ apis: ["Date"], now });
  try {
    for (let turn = 0; turn < 3; turn += 1) assert.equal(await at.lookup.find(key), undefined);
    assert.equal(asked, 1);
    mock.timers.setTime(now - 86_400_000);
    assert.equal(await at.lookup.find(key), undefined);
    assert.equal(asked, 2);
  } finally {
    mock.timers.reset();
  }
});

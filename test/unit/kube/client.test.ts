import assert from "node:assert/strict";
import { test } from "node:test";
import { line, namespace, ScriptedApi } from "./scripted-api.ts";

test("a watch that is silent for too long ends as one that the server ends", async () => {
  await using api = await ScriptedApi.start((_, __, response) => {
    response.writeHead(200).flushHeaders();
    line(response, "ADDED", namespace("a", "1"));
  });
  const client = api.client();
  const seen: string[] = [];
  for await (const { type } of client.watch({ path: "/x", timeout: 50 })) seen.push(type);
  assert.deepEqual(seen, ["ADDED"]);
  await client.close();
});

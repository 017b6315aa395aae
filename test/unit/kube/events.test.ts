import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { openLog } from "../../../lib/base/log.ts";
import { ObjectEvents } from "../../../lib/kube/events.ts";
import { json, ScriptedApi, until } from "./scripted-api.ts";

const log = openLog("silent");
const pod = { namespace: "app", name: "web-0", uid: "u1" };
const warning = (message: string, uid = pod.uid) =>
  ({ ...pod, uid, type: "Warning", reason: "AttachFailed", message }) as const;

async function setUp(status: () => number = () => 201) {
  const bodies: string[] = [];
  const api = await ScriptedApi.start((request, _, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      bodies.push(body);
      json(response, status(), { message: "no" });
    });
  });
  const client = api.client();
  const events = new ObjectEvents(client, { component: "podnetd", host: "node-a" }, log);
  const stop = async (): Promise<void> => {
    await events.stop();
    await client.close();
    await api[Symbol.asyncDispose]();
  };
  return { api, events, bodies, [Symbol.asyncDispose]: stop };
}

test("an event names the pod, the node and the reason", async () => {
  await using at = await setUp();
  at.events.emit(warning("attach failed"));
  await until(() => at.bodies.length === 1, "an event");
  assert.deepEqual(at.api.requests, ["POST /api/v1/namespaces/app/events"]);
  const event = JSON.parse(at.bodies[0] ?? "");
  assert.deepEqual(event.involvedObject, { apiVersion: "v1", kind: "Pod", ...pod });
  assert.deepEqual(event.source, { component: "podnetd", host: "node-a" });
  assert.deepEqual(
    [event.reason, event.message, event.count],
    ["AttachFailed", "attach failed", 1],
  );
});

test("a repetition is counted, and written at most each half minute", async () => {
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  try {
    await using at = await setUp();
    for (let i = 0; i < 3; i++) at.events.emit(warning("again"));
    await until(() => at.bodies.length === 1, "one event");
    // Two turns of the queue.
    await new Promise((done) => setTimeout(done, 250));
    assert.equal(at.bodies.length, 1);
    mock.timers.tick(31_000);
    at.events.emit(warning("again"));
    await until(() => at.bodies.length === 2, "a count");
    assert.match(at.api.requests[1] ?? "", /^PATCH \/api\/v1\/namespaces\/app\/events\/web-0\./);
    assert.equal(JSON.parse(at.bodies[1] ?? "").count, 4);
  } finally {
    mock.timers.reset();
  }
});

test("one pod's events are bounded, and leave those of others alone", async () => {
  await using at = await setUp();
  for (let i = 0; i < 30; i++) at.events.emit(warning(`fault ${i}`));
  assert.equal(at.events.dropped, 20);
  at.events.emit(warning("other", "u2"));
  assert.equal(at.events.dropped, 20);
});

test("a refused event is dropped, and one that met a busy server is tried once more", async () => {
  let status = 403;
  await using at = await setUp(() => status);
  at.events.emit(warning("refused"));
  await until(() => at.events.dropped === 1, "a dropped event");
  status = 503;
  at.events.emit(warning("busy"));
  await until(() => at.bodies.length === 2, "an attempt");
  status = 201;
  await until(() => at.bodies.length === 3, "a second attempt");
  assert.equal(at.events.dropped, 1);
});

test("an event that is repeated while it waits is created with its count", async () => {
  await using at = await setUp();
  at.events.emit(warning("first"));
  at.events.emit(warning("second"));
  at.events.emit(warning("second"));
  await until(() => at.bodies.length === 2, "two events");
  assert.deepEqual(
    at.bodies.map((body) => [JSON.parse(body).message, JSON.parse(body).count]),
    [
      ["first", 1],
      ["second", 2],
    ],
  );
  assert.ok(at.api.requests.every((one) => one.startsWith("POST ")));
});

test("a clock that is put back by a day keeps no event from being written", async () => {
  const now = Date.now();
  mock.timers.enable({ apis: ["Date"], now });
  try {
    await using at = await setUp();
    for (let number = 0; number < 9; number++) at.events.emit(warning(`before ${number}`));
    await until(() => at.bodies.length === 9, "nine events");
    mock.timers.setTime(now - 86_400_000);
    at.events.emit(warning("before 0"));
    at.events.emit(warning("after"));
    await until(() => at.bodies.length === 11, "a count and an event");
    assert.equal(at.events.dropped, 0);
  } finally {
    mock.timers.reset();
  }
});

test("an event that the server has forgotten is created anew, with its count", async () => {
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  try {
    let status = 201;
    await using at = await setUp(() => status);
    at.events.emit(warning("again"));
    await until(() => at.bodies.length === 1, "an event");
    mock.timers.tick(31_000);
    status = 404;
    await new Promise((done) => setTimeout(done, 250));
    at.events.emit(warning("again"));
    await until(() => at.bodies.length === 3, "a count and an event");
    assert.deepEqual(
      at.api.requests.map((one) => one.split(" ")[0]),
      ["POST", "PATCH", "POST"],
    );
    assert.equal(JSON.parse(at.bodies[2] ?? "").count, 2);
  } finally {
    mock.timers.reset();
  }
});

import assert from "node:assert/strict";
import { renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Credentials } from "../../../lib/kube/credentials.ts";
import { KubeError } from "../../../lib/kube/error.ts";
import { json, ScriptedApi } from "./scripted-api.ts";

test("a token file is read again when it changes; empty, or gone for a moment, the token before counts", async () => {
  await using api = await ScriptedApi.start((_, __, response) => json(response, 200, {}));
  const file = join(api.folder, "token");
  const renew = (text: string) => {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  };
  renew("one\n");
  const client = api.client({ tokenFile: "token" });
  for (const text of ["", "two\n", undefined, "three"]) {
    await client.request({ path: "/x" });
    if (text === undefined) rmSync(file);
    else renew(text);
  }
  await client.request({ path: "/x" });
  const expected = ["one", "one", "two", "two", "three"].map((token) => `Bearer ${token}`);
  assert.deepEqual(api.authorizations, expected);
  await client.close();
});

test("a kubeconfig is read again when it changes; half written, the one before counts", async () => {
  await using api = await ScriptedApi.start((_, __, response) => json(response, 200, {}));
  const client = api.client({ token: "one" });
  await client.request({ path: "/x" });
  writeFileSync(join(api.folder, "kubeconfig"), '{"current-context": "x", "clus');
  await client.request({ path: "/x" });
  api.kubeconfig({ token: "two" });
  await client.request({ path: "/x" });
  assert.deepEqual(api.authorizations, ["Bearer one", "Bearer one", "Bearer two"]);
  await client.close();
});

test("credentials that never were usable are told of by their file", async () => {
  for (const path of ["/nowhere/kubeconfig", undefined]) {
    const error = await new Credentials(path).current().catch((reason: unknown) => reason);
    assert.ok(error instanceof KubeError);
    assert.match(error.message, path === undefined ? /in-cluster/ : /kubeconfig "\/nowhere/);
  }
});

test("a server that can't be reached is an error without a status", async () => {
  const api = await ScriptedApi.start(() => undefined);
  const client = api.client();
  await api[Symbol.asyncDispose]();
  // The credentials are remembered no more than the folder: both are gone now.
  const error = await client.request({ path: "/x" }).catch((reason: unknown) => reason);
  assert.ok(error instanceof KubeError);
  assert.equal(error.status, undefined);
  await client.close();
});

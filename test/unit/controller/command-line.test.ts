import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { readCommandLine } from "../../../cmd/podnet-controller/command-line.ts";
import { readConfinement } from "../../../daemon/controller/config.ts";
import { decodeConfig } from "../../../daemon/node/config.ts";
import { json, ScriptedApi } from "../kube/scripted-api.ts";

const main = "cmd/podnet-controller/main.ts";
const folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
after(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

const read = (...flags: string[]) => readCommandLine(["node", "podnet-controller", ...flags]);

/** Runs it to its end. */
function run(flags: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const options = { encoding: "utf8", env: { ...process.env, ...env }, timeout: 60_000 } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [main, ...flags], options);
  return { status, stdout, stderr };
}

/** What is said of wrong flags, with the exit status that commander leaves to the program. */
function refusal(...flags: string[]): string {
  const said: string[] = [];
  const write = process.stderr.write;
  process.stderr.write = (text: string | Uint8Array) => said.push(String(text)) > 0;
  try {
    read(...flags);
    return "taken";
  } catch (error) {
    return said.join("") || String(error);
  } finally {
    process.stderr.write = write;
  }
}

test("each flag that is wrong is refused in one line that names it, its value and the rule", () => {
  for (const [flags, rule] of [
    [["--namespace", ""], "must not be empty"],
    [["--namespace", "A_b"], "must be lower-case"],
    [["--webhook-service", ""], "must not be empty"],
    [["--webhook-service", "a/b"], "must be lower-case"],
    [["--kubeconfig", ""], "must be a path"],
    [["--node-config", " "], "must be a path"],
    [["--lease-duration", "0"], "must be 1 to 600 seconds"],
    [["--lease-duration", "0x10"], "must be 1 to 600 seconds"],
    [["--lease-duration", ""], "must be 1 to 600 seconds"],
    [["--metrics", "9478"], "must be ADDRESS:PORT"],
    [["--metrics", "127.0.0.1:65536"], "must be ADDRESS:PORT"],
    [["--webhook", "a b:1"], "must be ADDRESS:PORT"],
    [["--webhook", "[x]:1"], "must be ADDRESS:PORT"],
    [["--ip-families", "ipv4,ipv4"], "must have each family once"],
    [["--ip-families", "ipv5"], "must be auto, none"],
    [["--log-level", "loud"], "Allowed choices are"],
  ] as const) {
    const [line = "", ...rest] = refusal(...flags)
      .trimEnd()
      .split("\n");
    const [flag, value] = flags;
    assert.ok(line.startsWith("podnet-controller: "), line);
    for (const part of [flag, `'${value}'`, rule])
      assert.ok(line.includes(part), `${part}: ${line}`);
    assert.deepEqual(rest, ["(podnet-controller --help shows what there is)"]);
  }
  for (const flags of [["--nonsense"], ["word"], ["--namespace"]])
    assert.match(refusal(...flags), /^podnet-controller: .+\n\(podnet-controller --help/);
});

test("flags that are right say what they say", () => {
  const config = read("--metrics", ":1", "--webhook", "[::1]:65535", "--ip-families", "ipv6, ipv4");
  assert.deepEqual(config.metrics, { host: "::", port: 1 });
  assert.deepEqual(config.webhook, { host: "::1", port: 65_535 });
  assert.deepEqual(config.ipFamilies, [6, 4]);
  assert.equal(config.confinement, undefined);
  const off = read("--metrics", "off", "--no-leader-elect", "--no-create-default");
  assert.deepEqual([off.metrics, off.webhook, off.leaderElect], [undefined, undefined, false]);
});

test("the nodes' configuration is read as podnetd reads it; what is wrong is one line with each key", () => {
  const text = readFileSync("conf/kustomize/node/podnetd.yaml", "utf8");
  for (const more of ["", "nadTypes: [a, b-*]\nnadPaths:\ntrustedNadNamespaces: [infra]\n"]) {
    const whole = text + more;
    const ours = readConfinement(file("podnetd.yaml", whole));
    const theirs = decodeConfig({}, { name: "x", text: whole });
    for (const key of ["nadTypes", "nadDevices", "nadPaths", "nadSysctls", "trustedNadNamespaces"])
      assert.deepEqual(Reflect.get(ours, key), Reflect.get(theirs, key), key);
  }
  assert.deepEqual(readConfinement(file("empty.yaml", "")).nadDevices, ["*"]);
  for (const [content, expected] of [
    ["nadTypes: x\nnadPaths: [a]", /nadTypes: must be a list; nadPaths\[0\]: must be an absolute/],
    ["- x", /must be an object of configuration keys/],
    ["a: [", /line 1/],
  ] as const) {
    assert.throws(
      () => read("--node-config", file("wrong.yaml", content)),
      ({ message }: Error) => {
        assert.match(message, /^read --node-config "[^"]+wrong\.yaml": [^\n]+$/);
        assert.match(message, expected);
        return true;
      },
    );
  }
  assert.throws(
    () => read("--node-config", "/nowhere/x"),
    /read --node-config "\/nowhere\/x": ENOENT/,
  );
});

test("the program: version, help, and one line with its exit status for each way not to start", () => {
  const version = run(["--version"]);
  assert.deepEqual([version.status, version.stderr], [0, ""]);
  assert.match(version.stdout, /^\d+\.\d+\.\d+\n$/);
  assert.equal(run(["--help"]).status, 0);
  assert.equal(run(["--namespace", ""]).status, 2);
  const environment = run([], { POD_NAMESPACE: "A" });
  assert.equal(environment.status, 2);
  assert.match(environment.stderr, /^podnet-controller: POD_NAMESPACE: "A" must be [^\n]+\n$/);
  const away = run(["--kubeconfig", "/nowhere/kubeconfig", "--metrics", "off"]);
  assert.equal(away.status, 1);
  assert.match(
    away.stderr,
    /^podnet-controller: read kubeconfig "\/nowhere\/kubeconfig": [^\n]+\n$/,
  );
});

test('"ready" is said when the API was read, not before, and SIGTERM ends it at any time', async () => {
  let lists = 0;
  let isThere = false;
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  await using api = await ScriptedApi.start((_, url, response) => {
    if (!isThere) {
      if (++lists === 8) resolve();
      return json(response, 503, { message: "not yet" });
    }
    if (!url.searchParams.has("watch")) {
      return json(response, 200, { metadata: { resourceVersion: "1" }, items: [] });
    }
    response.writeHead(200, { "content-type": "application/json" });
    response.flushHeaders();
  });
  const flags = ["--kubeconfig", api.kubeconfig(), "--metrics", "off", "--no-leader-elect"];
  const start = () =>
    spawn(process.execPath, [main, ...flags, "--no-create-default"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
  const early = start();
  let said = "";
  early.stderr.setEncoding("utf8").on("data", (text) => (said += text));
  await asked;
  assert.doesNotMatch(said, /"ready"/);
  early.kill("SIGTERM");
  assert.deepEqual(await once(early, "close"), [0, null], said);
  assert.doesNotMatch(said, /"ready"/);
  isThere = true;
  const late = start();
  const closed = once(late, "close");
  said = "";
  for await (const text of late.stderr.setEncoding("utf8")) {
    said += text;
    // A second signal would end it at once.
    if (said.includes('"ready"') && !late.killed) late.kill("SIGTERM");
  }
  assert.match(said, /"ready"/);
  assert.deepEqual(await closed, [0, null]);
});

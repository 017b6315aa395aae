// The stub as a CNI plugin, in every package that is shipped, against a socket server of a few lines.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type CniVersion, cniVersions } from "../../lib/cni/types.ts";
import {
  answerWith,
  buildStub,
  runStub,
  type StubBuild,
  type StubRun,
  WireServer,
} from "../helpers/stub.ts";

const folder = mkdtempSync(join(tmpdir(), "podnet-stub-"));
after(() => rmSync(folder, { recursive: true }));
let sockets = 0;
const newSocket = () => join(folder, `${++sockets}.sock`);

const env = {
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/x",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
};
const config = (keys: object) => JSON.stringify({ cniVersion: "1.1.0", name: "net", ...keys });
const versions = (from: CniVersion) => cniVersions.slice(cniVersions.indexOf(from));

for (const build of ["x64", "pkg", "arm64", "asan"] as const satisfies readonly StubBuild[]) {
  describe(`the stub, ${build}`, { concurrency: 3 }, () => {
    const command = buildStub(build);
    const call = (verb: string, stdin: StubRun["stdin"], more: StubRun["env"] = {}) =>
      runStub({
        command,
        env: { CNI_COMMAND: verb, ...env, ...more },
        ...(stdin === undefined ? {} : { stdin }),
      });

    test("VERSION answers without a daemon, with the version that came in", async () => {
      for (const cniVersion of cniVersions) {
        const run = { command, env: { CNI_COMMAND: "VERSION" } };
        const answer = await runStub({ ...run, stdin: JSON.stringify({ cniVersion }) });
        assert.equal(answer.code, 0, answer.stderr);
        assert.deepEqual(answer.json(), { cniVersion, supportedVersions: cniVersions });
        assert.equal(answer.stderr, "");
      }
    });

    test("VERSION answers without stdin, and on a stdin that never ends", async () => {
      for (const stdin of ["closed", "open", "", "garbage"] as const) {
        const answer = await call("VERSION", stdin);
        assert.equal(answer.code, 0, answer.stderr);
        assert.equal(answer.json().cniVersion, "1.1.0");
        assert.ok(answer.ms < 15_000, `${stdin}: ${answer.ms} ms`);
      }
    });

    test("without a command it says what it is", async () => {
      const answer = await runStub({ command });
      assert.equal(answer.code, 0);
      assert.match(answer.stderr, /^podnet \d.*\nCNI versions: 0\.1\.0/);
      assert.equal(answer.stdout.length, 0);
      const version = await runStub({ command, args: ["--version"] });
      assert.equal(version.stdout.toString(), answer.stderr);
    });

    test("each verb in each version goes to the daemon with all variables and stdin as it came", async () => {
      await using server = await WireServer.listen(newSocket(), answerWith(200, '{"a": 1}'));
      const trace = {
        CNI_ARGS: "A=ö;B=",
        CNI_NETNS_OVERRIDE: "1",
        TRACEPARENT: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        TRACESTATE: "k=v",
      };
      const table = {
        ADD: "0.1.0",
        DEL: "0.1.0",
        CHECK: "0.4.0",
        STATUS: "1.1.0",
        GC: "1.1.0",
      } as const;
      for (const [verb, since] of Object.entries(table)) {
        for (const cniVersion of versions(since)) {
          const stdin = ` ${config({ cniVersion, daemonSocket: server.path })}\n`;
          const answer = await call(verb, stdin, { ...trace, OTHER: "x" });
          assert.equal(answer.code, 0, answer.stdout.toString() + answer.stderr);
          assert.equal(answer.stdout.toString(), '{"a": 1}');
          const request = server.requests.at(-1);
          assert.match(request?.head ?? "", /^POST \/cni HTTP\/1\.1\r\n/);
          assert.match(request?.head ?? "", /\r\nConnection: close(\r\n|$)/);
          assert.deepEqual(request?.line, {
            protocol: 1,
            env: { CNI_COMMAND: verb, ...env, ...trace },
          });
          assert.equal(request?.stdin.toString(), stdin);
        }
      }
    });

    test("a version that is too old for the verb, or unknown, is code 1", async () => {
      for (const [verb, cniVersion] of [
        ["CHECK", "0.3.1"],
        ["STATUS", "1.0.0"],
        ["GC", "1.0.0"],
        ["ADD", "1.2.0"],
      ] as const) {
        const answer = await call(verb, config({ cniVersion }));
        assert.equal(answer.code, 1);
        assert.equal(answer.json().code, 1);
        assert.match(answer.json().msg, new RegExp(`cniVersion "${cniVersion}"`));
      }
    });

    test("wrong environments and configurations have their code, and name the culprit", async () => {
      const table: readonly (readonly [
        verb: string,
        stdin: StubRun["stdin"],
        variables: StubRun["env"],
        code: number,
        says: RegExp,
      ])[] = [
        ["ADD", config({}), { CNI_NETNS: undefined, CNI_IFNAME: "" }, 4, /CNI_NETNS, CNI_IFNAME$/],
        ["GC", config({}), { CNI_PATH: undefined }, 4, /CNI_PATH$/],
        ["NOPE", config({}), {}, 4, /CNI_COMMAND "NOPE"/],
        ["ADD", config({}), { CNI_CONTAINERID: "ä" }, 4, /CNI_CONTAINERID "ä"/],
        ["DEL", config({}), { CNI_IFNAME: "a".repeat(16) }, 4, /CNI_IFNAME "a{16}"/],
        ["ADD", "closed", {}, 5, /stdin: EBADF|it is empty/],
        ["ADD", "", {}, 6, /empty/],
        ["ADD", "{", {}, 6, /not JSON/],
        ["ADD", `{"name":"x","a":${"[".repeat(100_000)}`, {}, 6, /not JSON/],
        ["ADD", "[]", {}, 6, /must be a JSON object/],
        ["ADD", config({ name: undefined }), {}, 7, /name: missing/],
        ["ADD", config({ daemonSocket: 1 }), {}, 7, /daemonSocket 1/],
        ["ADD", config({ daemonWait: "1" }), {}, 7, /daemonWait "1"/],
        ["ADD", config({ daemonTimeout: 3, daemonWait: 4 }), {}, 7, /daemonTimeout 3/],
        ["ADD", config({}), { PODNET_DELEGATE: "1" }, 7, /delegate to itself/],
      ];
      for (const [verb, stdin, variables, code, says] of table) {
        const answer = await call(verb, stdin, variables);
        assert.equal(answer.code, 1, String(says));
        // Node opens /dev/null for a missing descriptor, so its stdin is empty rather than bad.
        const expected = stdin === "closed" && build === "pkg" ? 6 : code;
        assert.equal(answer.json().code, expected, answer.stdout.toString());
        assert.match(answer.json().msg, says);
        assert.doesNotMatch(answer.stderr, /Sanitizer|runtime error/);
      }
    });

    test("the daemon's error goes out as it came; another one is wrapped", async () => {
      const body =
        '{"cniVersion":"1.1.0", "code":106,"msg":"bad \\ud83d\\ude00 entry","details":"x"}\n';
      await using server = await WireServer.listen(newSocket(), answerWith(400, body));
      const answer = await call("ADD", config({ daemonSocket: server.path }));
      assert.equal(answer.code, 1);
      assert.equal(answer.stdout.toString(), body);
      await using other = await WireServer.listen(newSocket(), answerWith(502, "<html>"));
      const wrapped = await call("ADD", config({ daemonSocket: other.path }));
      assert.equal(wrapped.json().code, 11);
      assert.equal(wrapped.json().details, "<html>");
    });

    test("a configuration and an answer of 1 MB pass byte for byte", async () => {
      const result = Buffer.concat([Buffer.from('{"a":"'), odd(1_000_000), Buffer.from('"}')]);
      await using server = await WireServer.listen(newSocket(), answerWith(200, result));
      const prefix = config({ daemonSocket: server.path }).slice(0, -1);
      const stdin = Buffer.concat([
        Buffer.from(`${prefix},"x":"`),
        odd(1_000_000),
        Buffer.from('"}'),
      ]);
      const answer = await call("ADD", stdin);
      assert.equal(answer.code, 0, answer.stdout.toString().slice(0, 500) + answer.stderr);
      assert.ok(server.requests[0]?.stdin.equals(stdin), "stdin changed on the way");
      assert.ok(answer.stdout.equals(result), "the answer changed on the way");
    });

    test("ADD, DEL and CHECK wait for a daemon that comes late", async () => {
      for (const verb of ["ADD", "DEL", "CHECK"]) {
        const path = newSocket();
        const { promise: waiting, resolve } = Promise.withResolvers<void>();
        const late = runStub({
          command,
          env: { CNI_COMMAND: verb, ...env },
          stdin: config({ daemonSocket: path }),
          onStderr: () => resolve(),
        });
        await waiting;
        await sleep(100);
        await using server = await WireServer.listen(path, answerWith(200, "{}"));
        const answer = await late;
        assert.equal(answer.code, 0, answer.stdout.toString());
        assert.equal(server.requests.length, 1);
        assert.match(answer.stderr, /waiting up to 30 s/);
      }
    });

    test("a daemon that restarts in mid-request is asked again", async () => {
      const path = newSocket();
      const { promise: asked, resolve } = Promise.withResolvers<void>();
      const first = await WireServer.listen(path, (socket) => {
        socket.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal");
        resolve();
      });
      const pending = call("ADD", config({ daemonSocket: path }));
      await asked;
      await first.stop();
      await sleep(300);
      await using second = await WireServer.listen(path, answerWith(200, '{"b":2}'));
      const answer = await pending;
      assert.equal(answer.code, 0, answer.stdout.toString());
      assert.equal(answer.stdout.toString(), '{"b":2}');
      assert.equal(second.requests.length, 1);
    });

    test("the wait ends with code 11 that names socket and time", async () => {
      const path = newSocket();
      const answer = await call("ADD", config({ daemonSocket: path, daemonWait: 0.5 }));
      assert.equal(answer.json().code, 11);
      assert.match(
        answer.json().msg,
        /^ask podnetd at ".*\.sock": no such socket, waited [\d.]+ s: check/,
      );
      assert.ok(answer.ms < 15_000 && answer.ms >= 500, `${answer.ms} ms`);
    });

    test("STATUS and GC do not wait", async () => {
      for (const [verb, code] of [
        ["STATUS", 50],
        ["GC", 11],
      ] as const) {
        const answer = await call(verb, config({ daemonSocket: newSocket() }));
        assert.equal(answer.json().code, code);
        assert.ok(answer.ms < 10_000, `${answer.ms} ms`);
      }
    });

    test("STATUS gives a silent daemon a second, the others the call's whole time", async () => {
      await using server = await WireServer.listen(newSocket(), () => undefined);
      const status = await call("STATUS", config({ daemonSocket: server.path }));
      assert.equal(status.json().code, 50);
      assert.ok(status.ms < 10_000, `${status.ms} ms`);
      const keys = { daemonSocket: server.path, daemonTimeout: 1.5, daemonWait: 1 };
      const add = await call("ADD", config(keys));
      assert.equal(add.json().code, 11);
      assert.match(add.json().msg, /no answer within [\d.]+ s/);
      assert.ok(add.ms > 1400 && add.ms < 15_000, `${add.ms} ms`);
    });
  });
}

/** Bytes that are JSON string content for nobody: emoji, escapes, lone surrogates as escapes and as bytes, other non-UTF-8, at the end too. */
function odd(length: number): Buffer {
  const unit = Buffer.concat([
    Buffer.from('\u{1f600}ä\u2028\\"\\\\\\u0000\\ud800x\\udc00\\ud83d\\ude00'),
    Buffer.from([0xed, 0xa0, 0x80, 0xff, 0x80, 0xc0, 0xaf, 0xf5, 0xe2, 0x82, 0x7a, 0x80]),
  ]);
  return Buffer.concat(Array.from({ length: Math.ceil(length / unit.length) }, () => unit));
}

describe("the static stub", () => {
  const [program = ""] = buildStub("x64");

  test("it runs in an empty folder as root, with nothing around it", async () => {
    const root = mkdtempSync(join(folder, "chroot-"));
    copyFileSync(program, join(root, "podnet"));
    chmodSync(join(root, "podnet"), 0o755);
    const command = ["chroot", root, "/podnet"];
    const answer = await runStub({
      command,
      env: { CNI_COMMAND: "VERSION", PATH: process.env["PATH"] },
    });
    assert.equal(answer.code, 0, answer.stderr);
    assert.deepEqual(answer.json(), { cniVersion: "1.1.0", supportedVersions: cniVersions });
  });

  test("neither architecture's file asks for a loader or a library", () => {
    for (const build of ["x64", "arm64"] as const) {
      const file = buildStub(build).at(-1) ?? "";
      const headers = execFileSync("readelf", ["--program-headers", "--dynamic", file]).toString();
      assert.doesNotMatch(headers, /INTERP|NEEDED/);
      assert.ok(statSync(file).size < 2_000_000, `${statSync(file).size} bytes`);
    }
  });

  test("its memory stays below 3 MB", async () => {
    const path = newSocket();
    const { promise, resolve } = Promise.withResolvers<string>();
    await using server = await WireServer.listen(path, (socket, request) => {
      const pid = request.line.env["CNI_ARGS"] ?? "";
      resolve(readFileSync(`/proc/${pid}/status`, "utf8"));
      answerWith(200, "{}")(socket, request);
    });
    // The shell becomes the stub, so that its process id is known beforehand.
    const command = ["/bin/sh", "-c", 'CNI_ARGS=$$ exec "$0"', program];
    const variables = { CNI_COMMAND: "ADD", ...env };
    await runStub({ command, env: variables, stdin: config({ daemonSocket: server.path }) });
    const peak = Number(/VmHWM:\s+(\d+) kB/.exec(await promise)?.[1]);
    assert.ok(peak > 0 && peak < 3072, `${peak} KiB`);
  });

  test("without stdout it fails, though the socket may have taken that descriptor's number", async () => {
    await using server = await WireServer.listen(newSocket(), answerWith(200, "{}"));
    const command = ["/bin/sh", "-c", 'exec "$0" >&- 2>&-', program];
    const variables = { CNI_COMMAND: "ADD", ...env };
    const stdin = config({ daemonSocket: server.path });
    const answer = await runStub({ command, env: variables, stdin });
    assert.equal(answer.code, 1);
    assert.equal(server.requests.length, 1, "the error was sent to the daemon");
  });
});

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { podNetwork } from "../helpers/daemon.ts";
import { reportFigures } from "../helpers/faults-report.ts";
import { Lab } from "../helpers/lab.ts";
import { NodeFixture } from "../helpers/node-fixture.ts";

// What people and executables can do to the daemon on purpose. Annotations and the socket: test/kernel/daemon/bad-input.test.ts; networks of
// other namespaces: test/unit/node/access.test.ts; tenants' NADs: test/unit/api/nad-rules.test.ts.

const secret = "hunter2-do-not-log";
let node: NodeFixture;
let tools: Lab;
let folder = "";

/** Says what the file "say" beside it says, and notes how it was started. */
const mouth = `#!/bin/sh
dir=\${0%/*}
cat >"$dir/stdin"
tr '\\0' '\\n' </proc/$$/cmdline >"$dir/argv"
env >"$dir/env"
[ "$CNI_COMMAND" = VERSION ] && { echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'; exit; }
[ "$CNI_COMMAND" = ADD ] && { . "$dir/say"; }
exit 0
`;

before(async () => {
  tools = new Lab();
  folder = join(tools.folder(), "bin");
  mkdirSync(folder);
  writeFileSync(join(folder, "mouth"), mouth, { mode: 0o755 });
  node = await NodeFixture.start({
    binDirs: [folder],
    networks: {
      mouth: podNetwork("mouth", { type: "mouth", password: secret, token: { value: secret } }),
    },
    logLevel: "trace",
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

const print = (text: string) => `cat <<'END'\n${text}\nEND\n`;
const deep = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
const result = (more: object) =>
  print(JSON.stringify({ cniVersion: "1.1.0", interfaces: [], ips: [], ...more }));

const outputs: Readonly<Record<string, string>> = {
  nothing: ":",
  "no JSON": print("hello"),
  null: print("null"),
  "a list": print("[null]"),
  "10,000 levels": print(deep),
  "10,000 levels within a result": print(`{"cniVersion":"1.1.0","interfaces":${deep}}`),
  "two documents": print('{"cniVersion":"1.1.0"}{"cniVersion":"1.1.0"}'),
  "100 MB": "perl -e 'print chr(120) x 1_000_000 for 1..100'",
  "an endless stream": "yes 2>/dev/null",
  "100 MB of errors": "perl -e 'print STDERR chr(120) x 1_000_000 for 1..100'; exit 1",
  "bytes that are no text": "printf '\\\\377\\\\376\\\\000\\\\200'",
  "a version of its own": result({ cniVersion: "9.9.9" }),
  "an address that is none": result({ ips: [{ address: "10.0.0.300/99" }] }),
  "an interface that is not there": result({ ips: [{ address: "10.9.9.9/24", interface: 7 }] }),
  "a negative interface": result({ ips: [{ address: "10.9.9.9/24", interface: -1 }] }),
  "a route that is none": result({ routes: [{ dst: "../../etc" }] }),
  "words for numbers": result({ ips: [{ address: "10.9.9.9/24", interface: "0" }] }),
  "an error of three lines": `${print('{"cniVersion":"1.1.0","code":"x","msg":"a\\\\nb\\\\nc"}')}exit 1`,
  "an error with terminal codes": `${print('{"cniVersion":"1.1.0","code":7,"msg":"\\\\u001b[2Jgone\\\\u0007"}')}exit 1`,
  "an error without a word": "exit 3",
  "its own death": "kill -9 $$",
};

for (const [what, say] of Object.entries(outputs)) {
  test(`an executable that answers with ${what} fails its ADD in one line, and nothing stays`, async () => {
    const pod = node.sandbox("pod");
    const leaks = node.watch(pod);
    writeFileSync(join(folder, "say"), say);
    const { status, json, stdout } = await node.run("ADD", pod, { networks: ["mouth"] });
    assert.equal(status, 1, stdout.slice(0, 300));
    assert.ok(json.code > 0);
    const printable = (text: string) => [...text].every((one) => one >= " " && one !== "\u007f");
    assert.ok(printable(json.msg), JSON.stringify(json.msg));
    assert.match(json.msg, /mouth/);
    assert.ok(json.msg.length < 10_000);
    writeFileSync(join(folder, "say"), ":");
    await node.must("DEL", pod);
    leaks.assertClean();
    node.lab.remove(pod.place);
    reportFigures({ "hostile answers tried": 1 });
  });
}

test("what an executable is started with comes from checked input alone", async () => {
  const pod = node.sandbox("pod");
  writeFileSync(join(folder, "say"), result({}));
  const args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;PODNET_NETWORKS=mouth";
  await node.must("ADD", pod, { networks: ["mouth"], args });
  assert.equal(readFileSync(join(folder, "argv"), "utf8"), `/bin/sh\n${join(folder, "mouth")}\n`);
  const env = readFileSync(join(folder, "env"), "utf8").split("\n");
  const cni = env.filter((line) => line.startsWith("CNI_")).toSorted();
  assert.deepEqual(
    cni.map((line) => line.split("=")[0]),
    "CNI_ARGS CNI_COMMAND CNI_CONTAINERID CNI_IFNAME CNI_NETNS CNI_PATH".split(" "),
  );
  assert.ok(cni.includes("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"), cni[0]);
  await node.must("DEL", pod);
  for (const type of ["../bin/mouth", "/bin/sh", "mouth\0x", "a b", "-x", "..", "$(id)"]) {
    node.daemon.writeNetwork("odd", podNetwork("odd", { type }));
    const { status, json } = await node.run("ADD", pod, { networks: ["odd"] });
    assert.equal(status, 1, type);
    assert.ok(json.code > 0, type);
  }
  assert.deepEqual(node.records(), []);
});

test("secrets of a network's configuration stay out of logs and answers", async () => {
  const pod = node.sandbox("pod");
  for (const say of [result({}), "exit 1", print("{")]) {
    writeFileSync(join(folder, "say"), say);
    const { stdout } = await node.run("ADD", pod, { networks: ["mouth"] });
    assert.ok(!stdout.includes(secret));
    await node.must("DEL", pod);
  }
  assert.ok(readFileSync(join(folder, "stdin"), "utf8").includes(secret), "the executable gets it");
  assert.ok(!node.daemon.log.includes(secret));
});

test("what the daemon writes is root's alone, whatever the umask", async () => {
  const pod = node.sandbox("pod");
  writeFileSync(join(folder, "say"), result({}));
  await node.must("ADD", pod, { networks: ["blue", "mouth"] });
  const mode = (path: string) => statSync(path).mode & 0o777;
  assert.equal(mode(node.daemon.socket), 0o600);
  const records = join(node.daemon.stateDir, "records");
  assert.equal(mode(records), 0o700);
  for (const name of readdirSync(records)) assert.equal(mode(join(records, name)), 0o600, name);
  const held = join(node.addresses, "blue");
  for (const name of readdirSync(held)) assert.equal(mode(join(held, name)) & 0o077, 0, name);
  await node.must("DEL", pod);
});

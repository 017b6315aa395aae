import assert from "node:assert/strict";
import { test } from "node:test";
import { watchFindings } from "../../../daemon/node/doctor/cluster.ts";
import { conflistFindings } from "../../../daemon/node/doctor/conflist.ts";
import { credentialFindings, credentialLives } from "../../../daemon/node/doctor/credentials.ts";
import { roomFinding, versionFindings } from "../../../daemon/node/doctor/files.ts";
import { neededFeatures } from "../../../daemon/node/doctor/kernel.ts";
import { oldestPending, pendingFindings } from "../../../daemon/node/doctor/pending.ts";
import { comparePods, type PodState } from "../../../daemon/node/doctor/pods.ts";
import type { SandboxRecord } from "../../../daemon/node/record.ts";
import { decodeConflist } from "../../../lib/cni/conflist.ts";

const socket = "/run/podnet/podnetd.sock";

const list = (name: string, ...types: string[]) =>
  decodeConflist(
    JSON.stringify({ cniVersion: "1.0.0", name, plugins: types.map((type) => ({ type })) }),
  );

const podnet = decodeConflist(
  JSON.stringify({
    cniVersion: "1.0.0",
    name: "podnet",
    plugins: [
      {
        type: "podnet",
        capabilities: { "io.kubernetes.cri.pod-annotations": true, portMappings: true },
      },
    ],
  }),
);

const levels = (findings: readonly { level: string; text: string }[]) =>
  findings.map(({ level }) => level);

test("conflists: podnet first is fine, whatever comes after it; a wrong file after it is a warning", () => {
  const entries = [
    { file: "00-podnet.conflist", list: podnet },
    { file: "10-flannel.conflist", list: list("cbr0", "flannel") },
    { file: "20-broken.conf", fault: new Error("not JSON") },
  ];
  const findings = conflistFindings("/etc/cni/net.d", entries, socket);
  assert.deepEqual(levels(findings), ["ok", "warn"]);
});

test("conflists: each file before podnet's is an error, and says what it is", () => {
  const entries = [
    { file: "00-multus.conf", list: list("multus-cni-network", "multus-shim") },
    { file: "05-flannel.conflist", list: list("cbr0", "flannel", "portmap") },
    { file: "06-broken.conf", fault: new Error("not JSON") },
    { file: "10-podnet.conflist", list: podnet },
  ];
  const findings = conflistFindings("/etc/cni/net.d", entries, socket);
  assert.deepEqual(levels(findings), ["error", "error", "error"]);
  assert.match(findings[0]?.text ?? "", /another meta plugin, multus-shim/);
  assert.match(findings[1]?.text ?? "", /network "cbr0"/);
  assert.match(findings[2]?.text ?? "", /containerd loads no network/);
});

test("conflists: no file of podnet, a foreign socket, capabilities and plugins beside it", () => {
  assert.deepEqual(levels(conflistFindings("/d", [], socket)), ["error"]);
  const changed = list("podnet", "podnet", "bandwidth");
  const findings = conflistFindings("/d", [{ file: "a.conflist", list: changed }], "/other.sock");
  assert.deepEqual(levels(findings), ["ok", "error", "warn", "warn", "warn"]);
});

test("credentials: their lives, without a word of the secrets", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const token = (exp: number) => {
    const claims = Buffer.from(JSON.stringify({ exp, sub: "s3cret" })).toString("base64url");
    return `Bearer h.${claims}.s3cret`;
  };
  const at = (seconds: number) => ({
    server: "https://api",
    headers: { authorization: token(now / 1000 + seconds) },
    tls: {},
    fingerprint: "",
  });
  for (const [seconds, level] of [
    [-1, "error"],
    [200, "warn"],
    [3_000, "ok"],
  ] as const) {
    const findings = credentialFindings(credentialLives(at(seconds)), now);
    assert.deepEqual(levels(findings), [level], `${seconds}`);
    assert.doesNotMatch(JSON.stringify(findings), /s3cret/);
  }
  const opaque = credentialLives({ ...at(0), headers: { authorization: "Bearer opaque" } });
  assert.deepEqual(opaque, [{ kind: "token", ends: undefined }]);
  assert.deepEqual(levels(credentialFindings([], now)), ["warn"]);
});

test("watches: never answered, silent, between two watches, current", () => {
  const state = (current: boolean, age: number | undefined) => ({
    kind: "Pod",
    current,
    age,
    objects: 1,
  });
  assert.deepEqual(levels(watchFindings([state(true, 3)])), ["ok"]);
  assert.deepEqual(
    levels(watchFindings([state(false, undefined), state(true, 600), state(false, 3)])),
    ["error", "error", "warn"],
  );
});

test("room: little is an error, a small share of not much a warning", () => {
  const room = (left: number, share: number) =>
    roomFinding("/d", { what: "MiB", left, share }).level;
  assert.deepEqual(
    [room(5, 0.5), room(500, 0.01), room(500, 0.5), room(9_000, 0.01)],
    ["error", "warn", "ok", "ok"],
  );
});

test("versions that differ are a warning", () => {
  assert.deepEqual(levels(versionFindings("1.0.0", "1.0.0")), ["ok"]);
  assert.deepEqual(levels(versionFindings("1.0.0", "1.1.0")), ["warn"]);
});

const record = (given: Partial<SandboxRecord>): SandboxRecord => ({
  version: 1,
  containerId: "c1",
  ifName: "eth0",
  bootId: "b",
  cniNetwork: "podnet",
  cniArgs: "",
  cniPath: [],
  pod: { namespace: "a", name: "web", uid: "u1" },
  created: "2026-01-01T00:00:00Z",
  phase: "attached",
  attachments: [],
  ...given,
});

const attached = (...networks: string[]): Partial<SandboxRecord> => ({
  attachments: networks.map((network) => ({
    network,
    ifName: "eth0",
    default: false,
    conflist: "",
    capabilityArgs: {},
    states: {},
  })),
});

test("pending DELs: young ones are a warning, old ones an error, with their reason", () => {
  const now = Date.parse("2026-01-01T01:00:00Z");
  const pending = (minutes: number) =>
    record({
      phase: "deleting",
      deleting: new Date(now - minutes * 60_000).toISOString(),
      fault: "device is busy",
    });
  const findings = pendingFindings([pending(1), pending(30), record({})], now);
  assert.deepEqual(levels(findings), ["warn", "error"]);
  assert.match(findings[1]?.text ?? "", /pod "a\/web" \(c1\).* 30 min: device is busy/);
  assert.equal(oldestPending([pending(1), pending(30), record({})], now), 1_800);
  assert.equal(oldestPending([record({})], now), 0);
});

test("pods: one that lacks what it asked for is found; static, finished and plain ones are not taken for it", () => {
  const pod = (given: Partial<PodState>): PodState => ({
    namespace: "a",
    name: "web",
    uid: "u1",
    annotations: { "podnet.dev/networks": '[{"name":"default"},{"name":"blue"}]' },
    lives: true,
    ...given,
  });
  const has = record(attached("default", "blue"));
  assert.deepEqual(levels(comparePods([pod({})], [has])), ["ok"]);
  assert.deepEqual(levels(comparePods([pod({})], [])), ["error"]);
  assert.deepEqual(levels(comparePods([pod({})], [record(attached("default"))])), ["warn"]);
  assert.deepEqual(levels(comparePods([pod({ uid: "u2" })], [has])), ["error"]);
  assert.deepEqual(levels(comparePods([pod({ uid: "u2", staticUid: "u1" })], [has])), ["ok"]);
  assert.deepEqual(levels(comparePods([pod({ lives: false })], [])), ["ok"]);
  assert.deepEqual(levels(comparePods([pod({ annotations: {} })], [])), ["ok"]);
  const npwg = pod({ annotations: { "k8s.v1.cni.cncf.io/networks": "net-a,b/net-b" } });
  assert.deepEqual(
    levels(comparePods([npwg], [record(attached("default", "a/net-a", "b/net-b"))])),
    ["ok"],
  );
  const foreign = (...names: string[]) =>
    names.map((ifname) => ({
      containerID: "c",
      ifname,
      network: "n",
      pod: { name: "web", namespace: "a", uid: "u1" },
    }));
  const ofMultus = foreign("eth0", "net1", "net2", "eth0");
  assert.deepEqual(levels(comparePods([npwg], [], ofMultus)), ["ok"]);
  assert.deepEqual(levels(comparePods([npwg], [], foreign("eth0"))), ["error"]);
  assert.match(comparePods([npwg], [])[0]?.text ?? "", /asked for a\/net-a, b\/net-b/);
});

test("kernel features follow from the networks' types, each named with the first network that needs it", () => {
  const needed = neededFeatures([
    list("a", "bridge", "portmap"),
    list("b", "macvlan"),
    list("c", "bridge", "bandwidth"),
    list("d", "tap"),
    list("e", "flannel"),
  ]);
  assert.deepEqual(Object.fromEntries(needed), {
    bridge: "a",
    veth: "a",
    macvlan: "b",
    ifb: "c",
    tun: "d",
  });
});

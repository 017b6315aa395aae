import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  ConfigError,
  decodeConfig,
  flagName,
  formatConfigFault,
  loadConfig,
} from "../../../daemon/node/config.ts";

function faultsOf(text: string, flags: Parameters<typeof decodeConfig>[0] = {}): string[] {
  try {
    decodeConfig(flags, { name: "file", text });
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.faults.map(formatConfigFault);
  }
  return assert.fail("accepted");
}

test("config: without flags and file every key has its default", () => {
  assert.deepEqual(decodeConfig({}), {
    networksDir: "/etc/podnet/networks.d",
    socket: "/run/podnet/podnetd.sock",
    stateDir: "/var/lib/podnet",
    cniBinDir: ["/opt/cni/bin"],
    cniConfDir: "/etc/cni/net.d",
    logLevel: "info",
    operationTimeout: 120,
    undoTimeout: 60,
    podResourcesSocket: "/var/lib/kubelet/pod-resources/kubelet.sock",
    deviceInfoDir: "/run/k8s.cni.cncf.io/devinfo",
    cgroupDir: "/sys/fs/cgroup",
    sysctlDir: "/proc/sys",
    cniCacheDir: "/var/lib/cni",
    multusCacheDir: "/var/lib/cni/multus",
    conflistName: "00-podnet.conflist",
    install: false,
    namespaceIsolation: false,
    globalNamespaces: [],
    nadTypes: [
      ...["bridge", "macvlan", "ipvlan", "vlan", "ptp", "dummy", "tap", "loopback", "sriov"],
      ...["tuning", "portmap", "bandwidth", "sbr", "vrf", "host-local", "static", "dhcp"],
    ],
    nadDevices: ["*"],
    nadPaths: [],
    nadSysctls: ["net.*"],
    trustedNadNamespaces: ["kube-system"],
    selectionPolicy: "fail",
    resultScope: "auto",
    requireDefaultPodNetwork: false,
  });
});

test("config: a flag beats the file, the file beats the default", () => {
  const text = "logLevel: warn\nresultScope: all\nstateDir: /a\n";
  const config = decodeConfig({ logLevel: "debug", stateDir: undefined }, { name: "file", text });
  assert.equal(config.logLevel, "debug");
  assert.equal(config.resultScope, "all");
  assert.equal(config.stateDir, "/a");
});

test("config: JSON is read too, null is absent, comments alone are an empty file", () => {
  const json = { name: "file", text: '{"logLevel":"warn","metrics":null}' };
  assert.equal(decodeConfig({}, json).logLevel, "warn");
  assert.equal(decodeConfig({}, { name: "file", text: "# nothing\n" }).logLevel, "info");
});

test("config: directories come as a list or with colons", () => {
  for (const text of ["cniBinDir: /a:/b", "cniBinDir: [/a, /b]"]) {
    assert.deepEqual(decodeConfig({}, { name: "file", text }).cniBinDir, ["/a", "/b"]);
  }
  assert.deepEqual(decodeConfig({ cniBinDir: "/a:/b" }).cniBinDir, ["/a", "/b"]);
});

const addresses: readonly [string, object | undefined][] = [
  ["127.0.0.1:9100", { host: "127.0.0.1", port: 9100 }],
  ["[::1]:9100", { host: "::1", port: 9100 }],
  [":9100", { host: "::", port: 9100 }],
  ["off", undefined],
];
for (const [metrics, expected] of addresses) {
  test(`config: metrics "${metrics}" is understood`, () => {
    assert.deepEqual(decodeConfig({ metrics }).metrics, expected);
  });
}
for (const metrics of ["9100", "a:b", "127.0.0.1:65536", "::1:9100", "on", "x y:1"]) {
  test(`config: metrics "${metrics}" is refused by its flag`, () => {
    assert.throws(() => decodeConfig({ metrics }), /--metrics: ".*" must be ADDRESS:PORT/);
  });
}

test("config: every fault comes at once, by field and line, flags by their name", () => {
  const text = [
    "# a comment",
    "resultScop: all",
    "selectionPolicy: maybe",
    "stateDir: relative",
    "globalNamespaces:",
    "  - ok",
    "  - NotOk",
    "operationTimeout: 0",
    "namespaceIsolation: 'yes'",
  ].join("\n");
  assert.deepEqual(faultsOf(text, { logLevel: "loud" }), [
    "--log-level: must be one of trace, debug, info, warn, error, silent",
    'line 2: unknown key "resultScop": did you mean "resultScope"?',
    "line 3: selectionPolicy: must be one of fail, ignore",
    "line 4: stateDir: must be an absolute path",
    'line 7: globalNamespaces[1]: "NotOk" must be lower-case letters, digits and "-", with a letter or digit at both ends',
    "line 8: operationTimeout: must be 1 to 3600 seconds",
    "line 9: namespaceIsolation: must be true or false",
  ]);
});

const broken: readonly [string, string, RegExp][] = [
  ["not YAML", "a: [", /^line 1: /],
  ["a list", "- a", /^line 1: must be keys and values/],
  ["a key twice", "logLevel: info\nlogLevel: warn", /^line 2: key "logLevel" occurs twice/],
  ["an unknown alias", "logLevel: *x", /^line 1: /],
  ["two documents", "logLevel: info\n---\nlogLevel: warn", /one YAML document/],
  ["10,000 levels", "[".repeat(10_000), /nested deeper/],
  ["11 MB", "#".repeat(11_000_000), /at most 262144 characters/],
  ["a nested key twice", "metrics:\n  a: 1\n  a: 2", /^line 3: key "a" occurs twice/],
  [
    "a socket path that is too long",
    `socket: /${"a".repeat(107)}`,
    /^line 1: socket: must have at most 107 bytes/,
  ],
];
for (const [title, text, expected] of broken) {
  test(`config: ${title} is refused`, () => {
    assert.match(faultsOf(text)[0] ?? "", expected);
  });
}

test("config: a file that is not there is an error that names it", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "podnet-config-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const path = join(dir, "podnetd.yaml");
  assert.throws(() => loadConfig({}, path), /read configuration ".*podnetd\.yaml": ENOENT/);
  writeFileSync(path, "logLevel: warn");
  assert.equal(loadConfig({}, path).logLevel, "warn");
});

test("config: a flag is its key with dashes", () => {
  assert.equal(flagName("cniBinDir"), "--cni-bin-dir");
});

import assert from "node:assert/strict";
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Finding } from "../../../daemon/node/doctor/finding.ts";
import { Netns } from "../../../lib/base/netns.ts";
import { podNetwork } from "../../helpers/daemon.ts";
import { Lab } from "../../helpers/lab.ts";
import { needsDriver } from "../../helpers/needs.ts";
import { NodeFixture } from "../../helpers/node-fixture.ts";
import { stubPath } from "../../helpers/plugin-call.ts";
import { podnetctl } from "../../helpers/podnetctl.ts";
import { LeakCheck } from "../../helpers/state.ts";

// Each finding of `podnetctl doctor`, provoked on a node that was healthy before and is healthy again afterwards.
let node: NodeFixture;
let tools: Lab;
let bin = "";
let multus = "";

const stubborn = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
  ADD) echo '{"cniVersion":"1.0.0","interfaces":[],"ips":[]}' ;;
  DEL) if [ -e "\${0%/*}/stuck" ]; then echo '{"code":11,"msg":"device is busy"}'; exit 1; fi ;;
esac
`;

before(async () => {
  tools = new Lab();
  bin = tools.folder();
  multus = tools.folder();
  writeFileSync(join(bin, "stubborn"), stubborn, { mode: 0o755 });
  copyFileSync(stubPath, join(bin, "podnet"));
  node = await NodeFixture.start({
    binDirs: [bin],
    config: { multusCacheDir: multus, cniCacheDir: multus },
    networks: { stubborn: podNetwork("stubborn", { type: "stubborn" }) },
  });
  writeConflist("10-podnet.conflist", {
    plugins: [
      {
        type: "podnet",
        daemonSocket: node.daemon.socket,
        capabilities: { "io.kubernetes.cri.pod-annotations": true, portMappings: true },
      },
    ],
  });
});
after(async () => {
  await node[Symbol.asyncDispose]();
  tools[Symbol.dispose]();
});

function writeConflist(file: string, list: object): void {
  const text = JSON.stringify({ cniVersion: "1.0.0", name: "podnet", ...list });
  writeFileSync(join(node.daemon.confDir, file), text);
}

const offline = () => [
  ...["--state-dir", node.daemon.stateDir, "--networks-dir", node.daemon.networksDir],
  ...["--cni-conf-dir", node.daemon.confDir, "--cni-bin-dir", bin],
];

interface Report {
  readonly status: number | null;
  readonly findings: readonly Finding[];
}

async function doctor(...args: readonly string[]): Promise<Report> {
  const words = ["--socket", node.daemon.socket, "doctor", "-o", "json", ...args];
  const { status, stdout, stderr } = await podnetctl(node.place, words);
  assert.notEqual(stdout, "", stderr);
  return { status, findings: JSON.parse(stdout) };
}

/** Exactly one finding of the check is not fine, and it says this. */
function assertFound({ findings, status }: Report, check: string, expected: RegExp): Finding {
  const found = findings.filter((one) => one.level !== "ok");
  assert.deepEqual(
    found.map((one) => one.check),
    [check],
    JSON.stringify(found, null, 1),
  );
  const [first] = found;
  assert.match(first?.text ?? "", expected);
  assert.ok(first?.todo, "it says what to do");
  assert.equal(status, first?.level === "error" ? 1 : 0);
  assert.ok(first);
  return first;
}

test("a healthy node: every line is ok, exit status 0, and nothing was changed", async () => {
  const pod = node.sandbox("healthy");
  await node.must("ADD", pod, { networks: ["blue", "dual"] });
  const leaks = new LeakCheck([node.place, pod.place]);
  const records = () =>
    readdirSync(join(node.daemon.stateDir, "records")).map((name) => {
      const { mtimeMs, size } = statSync(join(node.daemon.stateDir, "records", name));
      return [name, mtimeMs, size];
    });
  const before = records();
  const { status, findings } = await doctor();
  assert.deepEqual(
    findings.filter(({ level }) => level !== "ok"),
    [],
  );
  assert.equal(status, 0);
  assert.deepEqual(
    [...new Set(findings.map(({ check }) => check))],
    [
      "socket",
      "version",
      "stub",
      "conflist",
      "disk",
      "records",
      "pending",
      "interfaces",
      "leaks",
      "networks",
      "kernel",
    ],
  );
  leaks.assertClean();
  assert.deepEqual(records(), before);
  const text = await podnetctl(node.place, ["--socket", node.daemon.socket, "doctor"]);
  assert.match(text.stdout, /^ok {4}socket {6}"\/.* has mode 0600 and owner root$/m);
  await node.must("DEL", pod);
});

test("configurations: another one first, another meta plugin, a broken file, none of podnet's, a changed socket", async () => {
  const { confDir } = node.daemon;
  writeConflist("00-flannel.conflist", { name: "cbr0", plugins: [{ type: "flannel" }] });
  assertFound(await doctor(), "conflist", /00-flannel\.conflist" \(network "cbr0"\) comes before/);
  rmSync(join(confDir, "00-flannel.conflist"));
  writeFileSync(
    join(confDir, "00-multus.conf"),
    '{"cniVersion":"0.3.1","name":"m","type":"multus-shim"}',
  );
  assertFound(await doctor(), "conflist", /00-multus\.conf" \(another meta plugin, multus-shim\)/);
  writeFileSync(join(confDir, "00-multus.conf"), '{"cniVersion":');
  assertFound(
    await doctor(),
    "conflist",
    /00-multus\.conf" can't be used: .*containerd loads no network/,
  );
  rmSync(join(confDir, "00-multus.conf"));
  const own = join(confDir, "10-podnet.conflist");
  const whole = process.getBuiltinModule("node:fs").readFileSync(own, "utf8");
  writeFileSync(own, whole.replace(node.daemon.socket, "/run/other.sock"));
  assertFound(await doctor(), "conflist", /names socket "\/run\/other\.sock"/);
  rmSync(own);
  assertFound(await doctor(), "conflist", /has no configuration of podnet/);
  writeFileSync(own, whole);
});

test("the stub: missing, and another build", async () => {
  rmSync(join(bin, "podnet"));
  assertFound(await doctor(), "stub", /no executable "podnet"/);
  copyFileSync(stubPath, join(bin, "podnet"));
  if (process.env["PODNET_FROM_SOURCE"] !== "1") {
    writeFileSync(join(bin, "podnet"), "#!/bin/sh\n", { mode: 0o755 });
    assertFound(await doctor(), "stub", /is another build than/);
    copyFileSync(stubPath, join(bin, "podnet"));
  }
});

test("the socket: one that others may open", async () => {
  chmodSync(node.daemon.socket, 0o666);
  assertFound(await doctor(), "socket", /has mode 0666 and owner 0/);
  chmodSync(node.daemon.socket, 0o600);
});

test("an interface that somebody deleted, and an address that somebody removed", async () => {
  const pod = node.sandbox("robbed");
  const result = await node.must("ADD", pod, { networks: ["blue", "red"] });
  const address = result.ips.at(-1).address;
  pod.place.run("ip", "address", "del", address, "dev", "net1");
  assertFound(
    await doctor(),
    "interfaces",
    /"net1" of network "red" .* has lost its address 10\.20\./,
  );
  pod.place.run("ip", "link", "del", "net1");
  assertFound(await doctor(), "interfaces", /"net1" of network "red" .* is gone/);
  await node.must("DEL", pod);
});

test("leaks: a namespace that went without a DEL, an address, a link, a device", async () => {
  const pod = node.sandbox("lost");
  await node.must("ADD", pod, { networks: ["blue"] });
  node.lab.remove(pod.place);
  const gone = assertFound(await doctor(), "leaks", /namespace of container "lost" is gone/);
  assert.equal(gone.todo, "podnetctl gc frees it");
  const freed = await podnetctl(node.place, ["--socket", node.daemon.socket, "gc"]);
  assert.match(freed.stdout, /^freed lost blue eth0/);

  writeFileSync(join(node.addresses, "blue", "10.10.0.99"), "nobody\r\neth0");
  assertFound(
    await doctor(),
    "leaks",
    /address 10\.10\.0\.99 of network "blue" .* "nobody", interface "eth0"/,
  );
  await podnetctl(node.place, ["--socket", node.daemon.socket, "gc"]);

  const other = node.lab.pod();
  node.place.run(
    "ip",
    "link",
    "add",
    "veth0123456789a",
    "type",
    "veth",
    "peer",
    "name",
    "eth0",
    "netns",
    other.name,
  );
  assertFound(await doctor(), "leaks", /interface "veth0123456789a"/);
  node.place.run("ip", "link", "del", "veth0123456789a");

  using netns = disposing(Netns.open(node.place.path));
  const folder = `/run/podnet/devices/${netns.cookie()}`;
  mkdirSync(folder, { recursive: true });
  const claim = { device: "eth7", network: "blue", containerId: "past", ifName: "net1" };
  const text = JSON.stringify({ ...claim, key: "0000:01:00.1", returning: false });
  writeFileSync(join(folder, `${encodeURIComponent("0000:01:00.1")}.json`), text);
  try {
    assertFound(await doctor(), "leaks", /device "eth7" is claimed for container "past"/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

function disposing(netns: Netns): Netns & Disposable {
  return Object.assign(netns, { [Symbol.dispose]: () => netns.close() });
}

test("a DEL that can't be finished is told with its reason", async () => {
  const pod = node.sandbox("busy");
  await node.must("ADD", pod, { networks: ["stubborn"] });
  writeFileSync(join(bin, "stuck"), "");
  await node.run("DEL", pod);
  assertFound(await doctor(), "pending", /container "busy" is not detached .*device is busy/);
  rmSync(join(bin, "stuck"));
  await node.must("DEL", pod);
});

test("a network whose manifest is wrong, and one whose driver the kernel lacks", async () => {
  node.daemon.writeNetwork("wrong", podNetwork("wrong", { type: 7 }));
  assertFound(await doctor(), "networks", /"wrong" can't be used: .*spec\.parameters\.type/);
  rmSync(join(node.daemon.networksDir, "wrong.yaml"));
  node.daemon.writeNetwork(
    "tagged",
    podNetwork("tagged", { type: "vlan", master: "up0", vlanId: 7 }),
  );
  const report = await doctor();
  if (needsDriver("vlan") === false) assert.equal(report.status, 0);
  else assertFound(report, "kernel", /no vlan driver, which network "tagged" needs/);
  rmSync(join(node.daemon.networksDir, "tagged.yaml"));
});

test("a network that would fail here by its configuration is one warning, with and without the daemon", async () => {
  node.daemon.writeNetwork("absent", podNetwork("absent", { type: "not-here", mtu: 9000 }));
  const told = /^PodNetwork "absent": find plugin "not-here": no executable in /;
  assert.equal(assertFound(await doctor(), "networks", told).level, "warn");
  const { stdout } = await podnetctl(node.place, ["--socket", node.daemon.socket, "doctor"]);
  assert.match(stdout, /^warn {2}networks {4}PodNetwork "absent": .*: correct it: pods that ask/m);
  await node.daemon.stop();
  const { findings } = await doctor(...offline());
  assert.ok(findings.some(({ level, text }) => level === "warn" && told.test(text)));
  await node.daemon.restart();
  rmSync(join(node.daemon.networksDir, "absent.yaml"));
});

test("records and files of Multus that can't be read", async () => {
  await node.daemon.stop();
  writeFileSync(join(node.daemon.stateDir, "records", "x@eth0.json"), "nonsense\n");
  assert.match(
    JSON.stringify((await doctor(...offline())).findings),
    /x@eth0\.json\\" can't be read/,
    "also while the daemon is down",
  );
  await node.daemon.restart();
  assertFound(await doctor(), "records", /x@eth0\.json\.unreadable" can't be read/);
  rmSync(join(node.daemon.stateDir, "records", "x@eth0.json.unreadable"));
  writeFileSync(join(multus, "old"), '[{"Name":"a');
  assert.match(JSON.stringify((await doctor()).findings), /1 sandbox of a previous Multus/);
  await node.must("DEL", { ...node.sandbox("old"), id: "old" });
  const torn = assertFound(await doctor(), "multus", /Multus' file of container "old" was damaged/);
  assert.equal(torn.level, "warn");
  rmSync(join(node.daemon.stateDir, "multus-unreadable"), { recursive: true });
});

test("a full disk: no room, and no inodes", async () => {
  const full = (options: string) =>
    podnetctl(
      node.place,
      ["--socket", node.daemon.socket, "doctor", "-o", "json", "--state-dir", node.daemon.stateDir],
      (command) => [
        ...["unshare", "--mount", "sh", "-c"],
        `mount -t tmpfs -o ${options} none "$0" && exec "$@"`,
        node.daemon.stateDir,
        ...command,
      ],
    );
  const room = await full("size=1m");
  assertFound({ status: room.status, findings: JSON.parse(room.stdout) }, "disk", /: 1 MiB left/);
  const inodes = await full("nr_inodes=8");
  assertFound(
    { status: inodes.status, findings: JSON.parse(inodes.stdout) },
    "disk",
    / inodes left/,
  );
});

test("a daemon that is down: said as such, and what can be found without it is found", async () => {
  const pod = node.sandbox("orphan");
  await node.must("ADD", pod, { networks: ["blue"] });
  await node.daemon.stop();
  node.lab.remove(pod.place);
  const { status, findings } = await doctor(...offline());
  assert.equal(status, 1);
  const found = findings.filter(({ level }) => level !== "ok");
  assert.deepEqual(
    found.map(({ check }) => check),
    ["socket", "daemon", "leaks"],
  );
  assert.match(found[2]?.text ?? "", /namespace of container "orphan" is gone/);
  assert.ok(findings.some(({ check }) => check === "kernel"));
  await node.daemon.restart();
  await podnetctl(node.place, ["--socket", node.daemon.socket, "gc"]);
  assert.equal((await doctor()).status, 0);
});

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { parse, stringify } from "yaml";
import { Containerd } from "../helpers/containerd.ts";
import { agentContainer, daemonSet, hostFolders } from "../helpers/daemonset.ts";
import { Lab, type Place } from "../helpers/lab.ts";
import { MountedNode } from "../helpers/mounts.ts";
import { part } from "../helpers/parts.ts";
import { mustRunPlugin, type PluginRun, runPlugin } from "../helpers/plugin-call.ts";

const { image } = daemonSet().spec.template.spec.containers[0];
const socket = "/run/podnet/podnetd.sock";

let stack: AsyncDisposableStack;
let lab: Lab;
let node: MountedNode;
let containerd: Containerd;
let folder: string;
/** A machine on the wire of the network "mac". */
let neighbour: Place;

/** What the DaemonSet's ConfigMap has, for a node without a cluster, in a mount namespace that is not the machine's. */
function writeConfig(): void {
  const shipped = parse(readFileSync("conf/kustomize/node/podnetd.yaml", "utf8"));
  const { kubeconfig: _, ...config } = shipped;
  const holder = node
    .wrap([])
    .find((word) => word.startsWith("--mount="))
    ?.slice(8);
  const own = { networksDir: "/etc/podnet/networks.d", delegateMountNamespace: holder };
  mkdirSync(join(folder, "networks.d"));
  writeFileSync(join(folder, "podnetd.yaml"), stringify({ ...config, ...own }));
  const network = (name: string, parameters: object) =>
    writeFileSync(
      join(folder, "networks.d", `${name}.yaml`),
      stringify({
        apiVersion: "podnet.dev/v1alpha1",
        kind: "PodNetwork",
        metadata: { name },
        spec: { parameters },
      }),
    );
  const ipam = (subnet: string) => ({ type: "host-local", ranges: [[{ subnet }]] });
  network("inside", {
    plugins: [
      {
        type: "bridge",
        bridge: "br-in",
        isGateway: true,
        ipMasq: true,
        ipam: ipam("10.31.0.0/24"),
      },
      { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
      { type: "bandwidth", ingressRate: 8_000_000, ingressBurst: 800_000 },
      { type: "portmap", capabilities: { portMappings: true } },
    ],
  });
  // The reference's executables, under a name that podnet does not have in process.
  network("outside", {
    type: "their-bridge",
    bridge: "br-out",
    isGateway: true,
    ipam: ipam("10.32.0.0/24"),
  });
  const twin = { type: "static", addresses: [{ address: "fd33::250/64" }] };
  network("twin", { type: "macvlan", master: "uplink", ipam: twin });
  network("mac", { type: "macvlan", master: "uplink", ipam: ipam("10.33.0.0/24") });
}

before(async () => {
  const done = spawnSync("conf/build/image.sh", [], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stderr);
  stack = new AsyncDisposableStack();
  lab = stack.use(new Lab());
  node = stack.use(MountedNode.make(lab));
  folder = lab.folder();
  neighbour = lab.node();
  const peer = ["type", "veth", "peer", "name", "uplink", "netns", neighbour.name];
  node.run("ip", "link", "add", "uplink", ...peer);
  node.run("ip", "link", "set", "uplink", "up");
  neighbour.run("ip", "address", "add", "10.33.0.250/24", "dev", "uplink");
  neighbour.run("ip", "address", "add", "fd33::250/64", "dev", "uplink", "nodad");
  neighbour.run("ip", "link", "set", "uplink", "up");
  for (const path of hostFolders()) node.run("mkdir", "-p", path);
  for (const path of ["/run/podnet", "/run/k8s.cni.cncf.io"])
    node.run("mount", "-t", "tmpfs", "tmpfs", path);
  writeConfig();
  containerd = stack.use(await Containerd.start(lab, node));
  const reference = part("reference-plugins");
  node.run("cp", join(reference, "bridge"), "/opt/cni/bin/their-bridge");
  node.run("cp", join(reference, "host-local"), "/opt/cni/bin/host-local");
  const theirs = {
    cniVersion: "1.0.0",
    name: "theirs",
    plugins: [
      {
        type: "their-bridge",
        bridge: "br-theirs",
        ipam: { type: "host-local", ranges: [[{ subnet: "10.34.0.0/24" }]] },
      },
    ],
  };
  containerd.write("/etc/cni/net.d/10-theirs.conflist", JSON.stringify(theirs));
  const archive = ["import", "--no-unpack", "dist/podnet-image.tar"];
  containerd.ctr("--namespace", "k8s.io", "images", ...archive);
});

after(async () => {
  await stack?.disposeAsync();
});

interface Agent extends AsyncDisposable {
  readonly log: () => string;
}

/** Runs one container in a pod on the node's network, and waits until its log has the text. */
async function runContainer(name: string, config: object, text: string): Promise<Agent> {
  const logs = lab.folder();
  const sandbox = {
    metadata: { name, uid: `uid-${name}`, namespace: "podnet-system", attempt: 0 },
    log_directory: logs,
    linux: {
      cgroup_parent: `/${node.name}`,
      security_context: { namespace_options: { network: "NODE", pid: "NODE" } },
    },
  };
  const { pod_sandbox_id } = await containerd.cri("RunPodSandbox", { config: sandbox });
  const { container_id } = await containerd.cri("CreateContainer", {
    pod_sandbox_id,
    config: { log_path: "log", ...config },
    sandbox_config: sandbox,
  });
  await containerd.cri("StartContainer", { container_id });
  const file = join(logs, "log");
  const log = () => (existsSync(file) ? readFileSync(file, "utf8") : "");
  const remove = async () => {
    await containerd.cri("StopContainer", { container_id, timeout: 20 });
    await containerd.cri("StopPodSandbox", { pod_sandbox_id });
    await containerd.cri("RemovePodSandbox", { pod_sandbox_id });
  };
  for (const until = Date.now() + 30_000; !log().includes(text); await sleep(50)) {
    if (Date.now() < until) continue;
    await remove();
    throw new Error(`"${name}" did not say ${text}:\n${log()}`);
  }
  return { log, [Symbol.asyncDispose]: remove };
}

/** Runs the DaemonSet's container as kubelet would, and waits until it serves. */
async function startAgent(without: readonly string[] = []): Promise<Agent> {
  const config = agentContainer({ image, config: folder, without });
  return await runContainer(["podnetd", ...without].join("-"), config, '"msg":"ready"');
}

async function installed(agent: Agent): Promise<void> {
  for (const until = Date.now() + 10_000; ; await sleep(50)) {
    if (node.run("ls", "/etc/cni/net.d").includes("00-podnet.conflist")) return;
    assert(Date.now() < until, `not installed:\n${agent.log()}`);
  }
}

const networks = ["inside", "outside", "mac"];

function call(verb: string, pod: Place, more: object = {}): PluginRun {
  return {
    program: "/opt/cni/bin/podnet",
    node,
    verb,
    containerId: `c-${pod.name}`,
    netns: pod.path,
    ifName: "eth0",
    path: "/opt/cni/bin",
    config: {
      cniVersion: "1.1.0",
      name: "podnet",
      type: "podnet",
      daemonSocket: socket,
      networks,
      ...more,
    },
  };
}

test("image: the DaemonSet's container installs itself and attaches in-process and executable networks", async () => {
  await using agent = await startAgent();
  await installed(agent);
  const pod = lab.pod();
  const runtimeConfig = {
    portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
  };
  const result = await mustRunPlugin(call("ADD", pod, { runtimeConfig })).catch((error) => {
    throw new Error(`${error}\n${agent.log()}`);
  });
  assert.deepEqual(
    result.ips.map(({ address }: { address: string }) => address.split(".")[1]),
    ["31", "32", "33"],
  );
  const sysctl = (place: Place, name: string) => place.run("cat", `/proc/sys/${name}`).trim();
  assert.equal(sysctl(pod, "net/ipv4/conf/eth0/arp_filter"), "1");
  assert.equal(sysctl(node, "net/ipv4/ip_forward"), "1");
  assert.match(node.run("nft", "list", "ruleset"), /8080/);
  pod.run("ping", "-c1", "-W2", "10.31.0.1");
  pod.run("ping", "-c1", "-W2", "10.32.0.1");
  // An executable's files are the node's, and so are those of address management in process.
  assert.match(node.run("ls", "/var/lib/cni/networks/outside"), /10\.32\.0\./);
  assert.match(node.run("ls", "/var/lib/cni/networks/inside"), /10\.31\.0\./);
  await mustRunPlugin(call("CHECK", pod, { prevResult: result }));
  await mustRunPlugin(call("DEL", pod));
  assert.doesNotMatch(node.run("ls", "/var/lib/cni/networks/outside"), /10\.32/);
  assert.doesNotMatch(agent.log(), /own cgroup|EROFS|EACCES|EPERM/);
});

/** What is said to a pod that asks for an address that the neighbour has. */
async function duplicateFault(pod: Place): Promise<string> {
  const run = call("ADD", pod, { networks: ["twin"] });
  return (await runPlugin({ ...run, containerId: `twin-${pod.name}`, ifName: "twin" })).stdout;
}

test("image: with all capabilities everything works", async () => {
  assert.equal(await lossWithout("NONE"), undefined);
});

/** What does not work without the capability; undefined: everything does. */
async function lossWithout(capability: string): Promise<string | undefined> {
  const pod = lab.pod();
  try {
    await using _ = await startAgent([capability]);
    await mustRunPlugin(call("ADD", pod));
    await mustRunPlugin(call("DEL", pod));
    const [{ address: mac }] = JSON.parse(neighbour.run("ip", "-j", "link", "show", "uplink"));
    const fault = await duplicateFault(pod);
    return fault.includes(mac) ? undefined : fault;
  } catch (error) {
    return String(error);
  }
}

for (const capability of daemonSet().spec.template.spec.containers[0].securityContext.capabilities
  .add) {
  test(`image: without ${capability} something does not work`, async (context) => {
    const loss = await lossWithout(capability);
    assert.notEqual(loss, undefined);
    context.diagnostic(String(loss).slice(0, 300));
  });
}

for (const program of ["podnetctl", "podnet-controller"]) {
  test(`image: ${program} starts as nobody, without capabilities, with nothing that it can write`, async () => {
    const config = {
      metadata: { name: program, attempt: 0 },
      image: { image },
      command: [program, "--help"],
      linux: {
        security_context: {
          capabilities: { drop_capabilities: ["ALL"] },
          namespace_options: { network: "NODE", pid: "CONTAINER" },
          run_as_user: { value: 65_532 },
          run_as_group: { value: 65_532 },
          readonly_rootfs: true,
          no_new_privs: true,
          seccomp: { profile_type: "RuntimeDefault" },
        },
      },
    };
    await using container = await runContainer(program, config, "Usage:");
    assert.match(container.log(), new RegExp(`Usage: ${program}`));
  });
}

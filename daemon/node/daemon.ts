import { createHash } from "node:crypto";
import type { Server } from "node:http";
import { readBootId } from "../../lib/base/boot-id.ts";
import { errorText } from "../../lib/base/errors.ts";
import { ensurePrivateDir } from "../../lib/base/files.ts";
import type { Log } from "../../lib/base/log.ts";
import { Netns } from "../../lib/base/netns.ts";
import { podnetVersion } from "../../lib/base/version.ts";
import { DelegateCgroups } from "../../lib/cni/delegate-cgroup.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import { setSysctlDir } from "../plugins/shared/sysctl.ts";
import { CallsUnderway } from "./calls-underway.ts";
import { Collections } from "./collections.ts";
import type { DaemonConfig } from "./config.ts";
import type { NodeContext } from "./context.ts";
import type { Dispatch } from "./dispatch.ts";
import { oldestPending } from "./doctor/pending.ts";
import { History } from "./explain-history.ts";
import { EndedError } from "./failure.ts";
import { Gate, gateSizes } from "./gate.ts";
import { withNodeDefault } from "./install/default.ts";
import type { InstallEvent } from "./install/install.ts";
import { registerInstallMetrics } from "./install/metrics.ts";
import { openInstaller } from "./install/open.ts";
import { keepRemoving } from "./install/remove.ts";
import type { KubeNode } from "./kube/node.ts";
import type { Publisher } from "./kube/publish.ts";
import { LeakWatch } from "./leak-watch.ts";
import { restoreDevices } from "./lent-devices.ts";
import { KeyedLocks } from "./locks.ts";
import { Metrics } from "./metrics.ts";
import { multusContainers } from "./multus/cache-inherit.ts";
import { DirectoryNetworks } from "./networks.ts";
import { Notices } from "./notices.ts";
import { registerOperatorMetrics } from "./operator-metrics.ts";
import { takeOver } from "./owner.ts";
import { PendingDetaches } from "./pending.ts";
import { findPlugins } from "./plugin-finder.ts";
import { publicEndpoints, route } from "./routes.ts";
import { createHttpServer, listen, listenOnSocket, stopServer } from "./server.ts";
import { keepSocket } from "./socket-keeper.ts";
import { Store } from "./store.ts";
import { Underway } from "./underway.ts";

/**
 * Milliseconds of stopping, together below the 30 s that supervisors give: that operations under way have to finish, that those which did
 * not have to undo what they did, and that answers have to reach their callers.
 */
const finishWithin = 10_000;
const undoWithin = 8_000;
const flushWithin = 500;
/** Milliseconds that a daemon of a DaemonSet waits for the one that it replaces: as long as that may take to stop, and some more. */
const handover = 60_000;

/** A daemon that serves. */
export interface RunningDaemon {
  /**
   * Stops in order: no new calls, those under way finish or are undone, then sockets and files are closed. Safe to call twice. What does
   * not even end then is left to its record and the next start, and keeps everything open: the process must end.
   */
  stop(): Promise<void>;
}

/** Starts everything in order and resolves when calls are answered. Rejects, with nothing left open, when it can't. */
export async function startDaemon(config: DaemonConfig, log: Log): Promise<RunningDaemon> {
  await using stack = new AsyncDisposableStack();
  const cluster = await openCluster(config, log);
  if (cluster !== undefined) stack.use(cluster);
  const node = await openNode(config, log, { stack, kube: cluster?.kube });
  const stopping = new AbortController();
  const observer = cluster?.publisher(node);
  if (observer !== undefined) stack.use(observer);
  const to = {
    ...dispatchOf(node, stopping.signal),
    ...(observer === undefined ? {} : { observer }),
    ...withInstaller(node, cluster, stack),
  };
  if (to.installer !== undefined) registerInstallMetrics(to.metrics.registry, to.installer);
  if (observer !== undefined) cluster?.measure(to.metrics.registry, observer);
  await restoreDevices(node);
  const pending = new PendingDetaches(node, to.metrics);
  pending.start();
  stack.defer(() => pending.stop());
  stack.use(watchLeaks(node, to));
  const underway = new Underway();
  const { servers, keeper } = await serveAll(to, underway);
  // Whatever the log level: people and supervisors wait for this line.
  const ready = { socket: config.socket, records: node.store.size, pid: process.pid };
  log.child({}, { level: "info" }).info(ready, "ready");
  startInstaller(to, stack);
  const parts = stack.move();
  let stopped: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    keeper[Symbol.dispose]();
    if (await drain(servers, { underway, stopping })) await parts.disposeAsync();
    else log.warn({ operations: underway.size }, "operations did not end, left to their records");
  };
  return {
    stop: () => {
      stopped ??= stop();
      return stopped;
    },
  };
}

/** What every operation works with; opened on the stack, the state directory first. */
async function openNode(
  config: DaemonConfig,
  log: Log,
  { stack, kube }: { readonly stack: AsyncDisposableStack; readonly kube: KubeNode | undefined },
): Promise<NodeContext> {
  ensurePrivateDir(config.stateDir);
  // The daemon that this one replaces may still be finishing its last calls.
  stack.use(await takeOver(config.stateDir, config.install === false ? 0 : handover));
  const cgroups = await openCgroups(config, log);
  stack.defer(() => cgroups.close());
  const hostNetns = Netns.current();
  const host = stack.use(Rtnetlink.open());
  const source = kube?.networks ?? stack.use(new DirectoryNetworks(config, log));
  setSysctlDir(config.sysctlDir);
  return {
    config,
    log,
    store: new Store(config.stateDir, log),
    locks: new KeyedLocks(),
    collections: new Collections(),
    notices: new Notices(),
    networks: withNodeDefault(source, config),
    ...(kube === undefined ? {} : { kube }),
    plugins: findPlugins({
      helper: config.delegateHelper,
      mntns: config.delegateMountNamespace,
      cgroups,
      log,
    }),
    host,
    hostNetns,
    bootId: readBootId(),
  };
}

/** Among the first to be closed: what is closed after it may be looked at by it. */
function withInstaller(
  node: NodeContext,
  cluster: Cluster | undefined,
  stack: AsyncDisposableStack,
): Pick<Dispatch, "installer"> {
  const installer = openInstaller(node, (event) => cluster?.nodeEvent(event));
  return installer === undefined ? {} : { installer: stack.use(installer) };
}

function startInstaller(to: Dispatch, stack: AsyncDisposableStack): void {
  if (to.node.config.install === "remove") stack.use(keepRemoving(to));
  else void to.installer?.look();
}

interface Cluster extends AsyncDisposable {
  readonly kube: KubeNode;
  readonly publisher: (node: NodeContext) => Publisher;
  readonly nodeEvent: (event: InstallEvent) => void;
  readonly measure: (registry: Metrics["registry"], publisher: Publisher) => void;
}

/** The API client is loaded only where there is a cluster: it is a third of the daemon's memory. */
async function openCluster(config: DaemonConfig, log: Log): Promise<Cluster | undefined> {
  const { kubeconfig, cniConfDir } = config;
  if (kubeconfig === undefined) return undefined;
  const nodeName = config.nodeName ?? process.env["NODE_NAME"];
  if (!nodeName) {
    throw new Error(
      "start with a cluster: this node's name is not known: set nodeName, or NODE_NAME from spec.nodeName",
    );
  }
  const [nodes, publishing, metrics, lives, { ObjectEvents }] = await Promise.all([
    import("./kube/node.ts"),
    import("./kube/publish.ts"),
    import("./kube/metrics.ts"),
    import("./doctor/credentials.ts"),
    import("../../lib/kube/events.ts"),
  ]);
  const kube = new nodes.KubeNode({ kubeconfig, nodeName, cniConfDir, log });
  const events = new ObjectEvents(kube.client, { component: "podnetd", host: nodeName }, log);
  // As the kubelet writes its own: with the node's name for its uid.
  const self = { apiVersion: "v1", kind: "Node", namespace: "", name: nodeName, uid: nodeName };
  return {
    kube,
    nodeEvent: (event) => events.emit({ ...self, ...event }),
    [Symbol.asyncDispose]: async () => {
      await events.stop();
      await kube[Symbol.asyncDispose]();
    },
    publisher: (node) => new publishing.Publisher({ ...node, kube, nodeName }),
    measure: (registry, publisher) =>
      metrics.registerKubeMetrics(registry, {
        kube,
        publisher,
        lives: async () => lives.credentialLives(await kube.client.connection()),
      }),
  };
}

/** Cgroups are named after the state directory, so that a restarted daemon finds what it left and no other daemon's. */
async function openCgroups(config: DaemonConfig, log: Log): Promise<DelegateCgroups> {
  const name = createHash("sha256").update(config.stateDir).digest("hex").slice(0, 12);
  return await DelegateCgroups.open({ root: config.cgroupDir, name, log });
}

function dispatchOf(node: NodeContext, stopping: AbortSignal): Dispatch {
  const sizes = gateSizes(process.constrainedMemory());
  const gates = { add: new Gate(sizes), del: new Gate(sizes) };
  const { store } = node;
  const calls = new CallsUnderway();
  const metrics = new Metrics({
    attachments: () => store.all().reduce((sum, record) => sum + record.attachments.length, 0),
    sandboxes: () => store.size,
    pending: () => store.all().filter(({ phase }) => phase === "deleting").length,
    waiting: () => ({ add: calls.waiting("add"), del: calls.waiting("del") }),
    running: () => ({ add: gates.add.running, del: gates.del.running }),
    unreadable: () => store.unreadable.length,
  });
  return { node, metrics, gates, stopping, calls, history: new History() };
}

function watchLeaks(node: NodeContext, { metrics, calls }: Dispatch): LeakWatch {
  const leaks = new LeakWatch(node);
  leaks.start();
  registerOperatorMetrics(metrics.registry, {
    version: podnetVersion,
    calls,
    leaks,
    oldestPending: () => oldestPending(node.store.all()),
    foreignSandboxes: async () => (await multusContainers(node.config)).length,
  });
  return leaks;
}

interface Serving {
  readonly servers: readonly Server[];
  readonly keeper: Disposable;
}

async function serveAll(to: Dispatch, underway: Underway): Promise<Serving> {
  const { config, log } = to.node;
  const onFault = (error: unknown): void => log.warn({ fault: errorText(error) }, "bad request");
  const open = (): Server =>
    createHttpServer((request) => underway.run(() => route(to, request)), onFault);
  const socket = open();
  await listenOnSocket(socket, config.socket);
  const servers = [socket];
  if (config.metrics !== undefined) {
    const metrics = createHttpServer((request) => route(to, request, publicEndpoints), onFault);
    try {
      await listen(metrics, config.metrics);
    } catch (error) {
      socket.close();
      throw error;
    }
    servers.push(metrics);
  }
  return {
    servers,
    keeper: keepSocket({
      path: config.socket,
      open,
      servers,
      log,
      lost: () => restoreDevices(to.node),
    }),
  };
}

/** Stops serving; false when something still goes on although it was told to end. */
async function drain(
  servers: readonly Server[],
  { underway, stopping }: { readonly underway: Underway; readonly stopping: AbortController },
): Promise<boolean> {
  const late = new AbortController();
  const closed = Promise.all(servers.map((server) => stopServer(server, late.signal)));
  let ended = await underway.ended(finishWithin);
  if (!ended) {
    stopping.abort(new EndedError("podnetd stops"));
    ended = await underway.ended(undoWithin);
  }
  const timer = setTimeout(() => late.abort(), flushWithin);
  await closed;
  clearTimeout(timer);
  return ended && (await underway.ended(flushWithin));
}

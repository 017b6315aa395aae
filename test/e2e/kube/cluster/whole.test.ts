import { after, before } from "node:test";
import { WholeCluster } from "../../../helpers/whole-cluster.ts";
import { PodnetInstallation } from "../../../helpers/whole-cluster-podnet.ts";
import { churnTests } from "./churn.ts";
import { applyNetworks, type Whole } from "./networks.ts";
import { rebootTests } from "./reboot.ts";
import { selectionTests } from "./selection.ts";
import { installTests, startElder, uninstallTests } from "./uninstall.ts";

// One cluster for all: it takes its half minute to start.
const stack = new AsyncDisposableStack();
let shared: Whole;

before(async () => {
  const cluster = stack.use(await WholeCluster.start());
  shared = { cluster, podnet: new PodnetInstallation(cluster) };
  await startElder(shared);
  await shared.podnet.install();
  applyNetworks(shared);
});
after(() => stack.disposeAsync());

const whole = () => shared;

installTests(whole);
selectionTests(whole);
churnTests(whole);
rebootTests(whole);
uninstallTests(whole);

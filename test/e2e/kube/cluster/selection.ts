import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { KubeObject } from "../../../helpers/whole-cluster-object.ts";
import { podTemplate, type SeenInterface } from "../../../helpers/whole-cluster-pods.ts";
import { nothingLeft } from "./leftovers.ts";
import { npwg, own, type Whole } from "./networks.ts";

interface Kind {
  readonly name: string;
  readonly namespace?: string;
  readonly annotations: Readonly<Record<string, string>>;
  /** Interface to the start of its address. */
  readonly expected: Readonly<Record<string, string>>;
  /** Names in the status, in order. */
  readonly networks: readonly string[];
}

const main = "10.244.";

/** Each way of a pod to say what it wants, or to get it without saying. */
const kinds: readonly Kind[] = [
  { name: "plain", annotations: {}, expected: { eth0: main }, networks: ["default"] },
  {
    name: "own-json",
    annotations: { [own]: '[{"name":"default"},{"name":"blue","interfaceName":"data0"}]' },
    expected: { eth0: main, data0: "10.10." },
    networks: ["default", "blue"],
  },
  {
    name: "without-default",
    annotations: { [own]: '[{"name":"blue"},{"name":"red"}]' },
    expected: { eth0: "10.10.", net1: "10.20." },
    networks: ["blue", "red"],
  },
  {
    name: "attachment",
    annotations: { [own]: '[{"name":"default"},{"attachmentName":"fast"}]' },
    expected: { eth0: main, net1: "10.21." },
    networks: ["default", "red"],
  },
  {
    name: "npwg-short",
    annotations: { [npwg]: "n, n@x0" },
    expected: { eth0: main, net1: "10.50.", x0: "10.50." },
    networks: ["default", "default/n", "default/n"],
  },
  {
    name: "npwg-json",
    annotations: { [npwg]: '[{"name":"n","namespace":"default","interface":"n0"}]' },
    expected: { eth0: main, n0: "10.50." },
    networks: ["default", "default/n"],
  },
  {
    name: "other-default",
    annotations: { "v1.multus-cni.io/default-network": "other", [npwg]: "n" },
    expected: { eth0: "10.60.", net1: "10.50." },
    networks: ["kube-system/other", "default/n"],
  },
  {
    name: "namespace-default",
    namespace: "tenant",
    annotations: {},
    expected: { eth0: "10.10." },
    networks: ["blue"],
  },
];

interface Made {
  readonly path: string;
  readonly kind: Kind;
  readonly pod: KubeObject;
}

function deployment({ name, annotations }: Kind): object {
  const labels = { app: name };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, labels },
    spec: {
      replicas: 2,
      selector: { matchLabels: labels },
      template: podTemplate({ annotations, labels }),
    },
  };
}

async function podsOf({ cluster }: Whole, kind: Kind): Promise<Made[]> {
  const { name, namespace = "default" } = kind;
  const pods = await cluster.eventually(
    `the pods of Deployment "${name}" running`,
    async () => {
      const list = await cluster.pods.list(namespace, `app=${name}`);
      const ready = list.filter(({ status }) => status.phase === "Running");
      return ready.length === 2 ? ready : undefined;
    },
    { about: () => `${cluster.api.kubectl("get", "events", "-A").stdout}\n${cluster.logs()}` },
  );
  return pods.map((pod) => ({ path: `${namespace}/${pod.metadata.name}`, kind, pod }));
}

function assertExpected(
  found: readonly SeenInterface[] | undefined,
  { name, expected }: Kind,
): void {
  const text = JSON.stringify(found);
  assert.deepEqual(
    found?.map((one) => one.name),
    Object.keys(expected).toSorted(),
    `${name}: ${text}`,
  );
  for (const one of found ?? []) {
    const start = expected[one.name] ?? "-";
    assert.ok(one.ips.length === 1 && one.ips[0]?.startsWith(start), `${name}: ${text}`);
  }
}

async function statusIsTrue({ cluster }: Whole, { path, kind }: Made): Promise<void> {
  const kernel = cluster.pods.interfaces(path);
  const rows: KubeObject[] = await cluster.pods.status(path, "k8s.v1.cni.cncf.io/network-status");
  assert.deepEqual(
    rows.map((row) => row.name),
    kind.networks,
    path,
  );
  assert.deepEqual(
    rows.map((row) => row.interface).toSorted(),
    kernel.map(({ name }) => name),
  );
  for (const row of rows) {
    assert.deepEqual(row.ips, kernel.find(({ name }) => name === row.interface)?.ips, path);
    const mac = cluster.exec(path, "cat", `/sys/class/net/${row.interface}/address`).trim();
    assert.equal(row.mac, mac, path);
  }
  const brief: KubeObject[] = await cluster.pods.status(path);
  assert.deepEqual(
    brief.map((row) => [row.interfaceName, [row.ip]]),
    rows.map((row) => [row.interface, row.ips]),
    path,
  );
}

export function selectionTests(whole: () => Whole): void {
  describe("each way to select networks, as Deployments of two pods", () => {
    const made: Made[] = [];

    test("their pods run with the interfaces that were asked for, from their first process on", async () => {
      const { cluster } = whole();
      for (const kind of kinds) {
        const path = `/apis/apps/v1/namespaces/${kind.namespace ?? "default"}/deployments`;
        await cluster.request("POST", path, deployment(kind));
      }
      for (const kind of kinds) made.push(...(await podsOf(whole(), kind)));
      for (const { path, kind, pod } of made) {
        const seen = await cluster.eventually(`record of ${path}`, () => cluster.pods.seen(pod));
        assertExpected(seen, kind);
        assertExpected(cluster.pods.interfaces(path), kind);
        const eth0 = seen.find(({ name }) => name === "eth0");
        assert.equal(pod.status.podIP, eth0?.ips[0], path);
      }
    });

    test("the two of a Deployment reach each other over each of their networks", () => {
      const { cluster } = whole();
      for (const kind of kinds) {
        const [one, two] = made.filter((pod) => pod.kind === kind);
        assert.ok(one && two);
        for (const { name, ips } of cluster.pods.seen(two.pod) ?? []) {
          const ping = ["ping", "-c", "1", "-W", "5", "-I", name, ips[0] ?? ""];
          assert.match(cluster.exec(one.path, ...ping), / 0% packet loss/, `${kind.name} ${name}`);
        }
      }
    });

    test("status and events say what the pods' kernel state is", async () => {
      const { cluster } = whole();
      for (const one of made) await statusIsTrue(whole(), one);
      const events = cluster.api
        .get("events", "-A")
        .items.filter((event: KubeObject) => event.reason === "AttachedNetwork");
      for (const { pod, path } of made) {
        const mine = events.filter(
          (event: KubeObject) => event.involvedObject.uid === pod.metadata.uid,
        );
        assert.equal(mine.length, 1, path);
        for (const { name, ips } of cluster.pods.seen(pod) ?? [])
          assert.ok(mine[0].message.includes(`${name} [${ips[0]}/`), mine[0].message);
      }
    });

    test("a pod that asks for a network that is not there waits, and says for what", async () => {
      const { cluster } = whole();
      await cluster.pods.create({ name: "asks", annotations: { [own]: '[{"name":"nowhere"}]' } });
      const expected = /^NetworkNotFound: .*PodNetwork "nowhere" not found/m;
      await cluster.eventually("its event", () =>
        expected.test(cluster.pods.events("default/asks").join("\n")) ? true : undefined,
      );
      const pod = await cluster.get("/api/v1/namespaces/default/pods/asks");
      assert.equal(pod.status.phase, "Pending");
      await cluster.pods.end("default/asks");
    });

    test("a selection that can't be read is refused where the pod is created", async () => {
      const { cluster, podnet } = whole();
      const wish = { name: "broken", annotations: { [own]: "[{}" } };
      const refusal = await cluster.eventually(
        "a refusal",
        async () => {
          const fault = await cluster.pods.create(wish).then(
            () => undefined,
            (error: unknown) => String(error),
          );
          // The webhook is not there from the first moment.
          if (fault === undefined) await cluster.pods.delete("default/broken");
          return fault;
        },
        { seconds: 180, about: () => podnet.about() },
      );
      assert.match(refusal, /422.*podnet\.dev\/networks: not JSON/);
    });

    test("when they are deleted nothing of theirs is left", async () => {
      const { cluster, podnet } = whole();
      // Each level by itself: the garbage collector takes its time.
      for (const { name, namespace = "default" } of kinds) {
        const all = ["-n", namespace, "-l", `app=${name}`, "--wait=false"];
        cluster.api.must("delete", "deployment,replicaset,pod", ...all);
      }
      await nothingLeft(cluster);
      assert.equal(podnet.podnetctl("ls", "-o", "json").trim(), "[]");
    });
  });
}

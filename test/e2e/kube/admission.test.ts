import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { installWebhooks, webhookFlag, webhooksServed } from "../../helpers/admission.ts";
import { ControlledApi, ControllerProcess } from "../../helpers/controller.ts";

/** The acceptance examples of admission on a real API server, which calls the webhooks over TLS by their service's name. */

const stack = new AsyncDisposableStack();
let at: ControlledApi;
let controller: ControllerProcess;
const own = "podnet.dev/networks";
const npwg = "k8s.v1.cni.cncf.io/networks";

const start = () =>
  new ControllerProcess(at.server, ["--lease-duration", "3", "--webhook", webhookFlag]);

before(async () => {
  at = stack.use(await ControlledApi.start());
  installWebhooks(at);
  await at.api.create({
    apiVersion: "v1",
    kind: "Namespace",
    metadata: { name: "tenant", annotations: { "podnet.dev/default-network": "blue" } },
  });
  controller = stack.use(start());
  await controller.said('"leading"');
  await at.until("podnetworks default", "True Ready");
  await webhooksServed(at);
});
after(async () => {
  await stack.disposeAsync();
  if (process.exitCode) process.stderr.write(controller.log.slice(-6000));
});

const spec = { containers: [{ name: "c", image: "none" }] };
let count = 0;

/** Creates a pod; gives its status code and the message, or the pod as it was stored. */
async function create(
  annotations: object | undefined,
  more: { namespace?: string; spec?: object; name?: string } = {},
) {
  const { namespace = "app", name = `p${++count}` } = more;
  const body = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, annotations },
    spec: { ...spec, ...more.spec },
  };
  const answer = await at.api.raw("POST", `/api/v1/namespaces/${namespace}/pods`, body);
  return { status: answer.status, message: answer.body.message ?? "", pod: answer.body, name };
}

test("E-2: default can't be deleted, alone or with all others; other networks can", async () => {
  await at.network("gone");
  const one = await at.api.raw("DELETE", "/apis/podnet.dev/v1alpha1/podnetworks/default");
  assert.equal(one.status, 403);
  assert.match(one.body.message, /PodNetwork "default" can't be deleted/);
  const all = await at.api.raw("DELETE", "/apis/podnet.dev/v1alpha1/podnetworks");
  assert.equal(all.status, 403);
  assert.equal((await at.api.get("podnetworks default")).metadata.deletionTimestamp, undefined);
  await at.api.delete("podnetworks gone");
  await at.untilGone("podnetworks gone");
});

test("E-3: a pod without annotations stores the default network, one on the host's network nothing; a namespace's own default comes first", async () => {
  assert.deepEqual((await create(undefined)).pod.metadata.annotations, {
    [own]: '[{"name":"default"}]',
  });
  assert.deepEqual((await create({ a: "b" })).pod.metadata.annotations, {
    a: "b",
    [own]: '[{"name":"default"}]',
  });
  assert.equal(
    (await create(undefined, { spec: { hostNetwork: true } })).pod.metadata.annotations,
    undefined,
  );
  assert.deepEqual((await create({ [npwg]: "n" })).pod.metadata.annotations, { [npwg]: "n" });
  await at.network("blue");
  await at.eventually(
    async () =>
      (await create(undefined, { namespace: "tenant" })).pod.metadata.annotations?.[own] ===
      '[{"name":"blue"}]',
    () => "the namespace's default",
  );
  for (const namespace of ["kube-system", "podnet-system"])
    assert.equal((await create(undefined, { namespace })).pod.metadata.annotations, undefined);
});

test("E-5, E-17: static faults are refused with 422, the entry's index and the field", async () => {
  const wrong: readonly [object, RegExp, object?][] = [
    [{ [own]: '[{"name":"x","attachmentName":"y"}]' }, /\[0\]: has both/],
    [{ [own]: '[{"interfaceName":"net1"}]' }, /\[0\]: has neither/],
    [{ [own]: '[{"name":"x"},{"name":"x"}]' }, /\[1\]\.name: "x"/],
    [
      { [own]: '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW4":true}]' },
      /\[1\]\.isDefaultGW4/,
    ],
    [
      { [own]: '[{"name":"x","interfaceName":"n1"},{"name":"y","interfaceName":"n1"}]' },
      /\[1\]\.interfaceName/,
    ],
    [{ [own]: '[{"name":"x","interfaceName":"abcdefghijklmnop"}]' }, /\[0\]\.interfaceName/],
    [{ [own]: '[{"name":"x","interfaceName":"a/b"}]' }, /\[0\]\.interfaceName/],
    [{ [own]: '[{"name":"x"}]' }, /hostNetwork/, { hostNetwork: true }],
    [{ [own]: '"x"' }, /must be a list/],
    [{ [npwg]: '[{"name":"n","ips":[]}]' }, /\[0\]\.ips/],
    [{ [npwg]: '[{"name":"n","ips":["10.0.0.300"]}]' }, /\[0\]\.ips\[0\]/],
    [{ [npwg]: '[{"name":"n","mac":"zz"}]' }, /\[0\]\.mac/],
    [
      { [npwg]: '[{"name":"n","portMappings":[{"hostPort":0,"containerPort":80}]}]' },
      /\[0\]\.portMappings\[0\]\.hostPort/,
    ],
    [{ [npwg]: '[{"name":"n","bandwidth":{"ingressBurst":1}}]' }, /\[0\]\.bandwidth\.ingressBurst/],
    [
      { [npwg]: '[{"name":"n","default-route":[]},{"name":"m","default-route":[]}]' },
      /\[1\]\.default-route/,
    ],
    [
      { [npwg]: '[{"name":"n","ips":["10.0.0.3"],"ipam-claim-reference":"c"}]' },
      /\[0\]\.ipam-claim-reference/,
    ],
    [{ [npwg]: "a/b/c" }, /\[0\]: .*more than one "\/"/],
    [{ [npwg]: "a@b@c" }, /\[0\]: .*more than one "@"/],
  ];
  for (const [annotations, message, more] of wrong) {
    const answer = await create(annotations, { spec: more ?? {} });
    assert.equal(answer.status, 422, JSON.stringify(annotations));
    assert.match(answer.message, message);
    assert.match(
      answer.message,
      new RegExp(Object.keys(annotations)[0]?.replaceAll(".", "\\.") ?? ""),
    );
  }
  const split = '[{"name":"x","isDefaultGW4":true},{"name":"y","isDefaultGW6":true}]';
  assert.equal((await create({ [own]: split })).status, 201);
  const all = await create({ [own]: '[{"name":"X"},{"interfaceName":"a/b"}]', [npwg]: "a@b@c" });
  for (const part of [
    `${own}[0].name`,
    `${own}[1].interfaceName`,
    `${own}[1]: has neither`,
    `${npwg}[0]`,
  ])
    assert.ok(all.message.includes(part), `${part}: ${all.message}`);
});

test("kubectl shows what is wrong, and warnings", () => {
  const pod = (annotations: object) =>
    JSON.stringify({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { namespace: "app", name: "shown", annotations },
      spec,
    });
  const refused = at.server.kubectlInput(pod({ [own]: "x" }), "apply", "-f", "-");
  assert.match(refused.stderr, /The Pod "shown" is invalid: podnet\.dev\/networks: not JSON/);
  const odd = at.server.kubectlInput(
    pod({ [own]: '[{"name":"default"}]', [npwg]: "n" }),
    "apply",
    "-f",
    "-",
  );
  assert.match(odd.stderr, /Warning: annotation k8s\.v1\.cni\.cncf\.io\/networks is ignored/);
  assert.equal(odd.status, 0);
});

test("a pod's selection can't be changed once it exists; everything else can, and podnetd's status goes past", async () => {
  const { name } = await create({ [own]: '[{"name":"blue"}]', other: "1" });
  const patch = (annotations: object, sub = "") =>
    at.api.raw("PATCH", `/api/v1/namespaces/app/pods/${name}${sub}`, { metadata: { annotations } });
  for (const change of [{ [own]: '[{"name":"red"}]' }, { [own]: null }, { [npwg]: "n" }]) {
    const answer = await patch(change);
    assert.equal(answer.status, 422);
    assert.match(answer.body.message, /can't be changed once the pod exists/);
  }
  assert.equal((await patch({ other: "2" })).status, 200);
  assert.equal((await patch({ "podnet.dev/network-status": "[]" }, "/status")).status, 200);
});

test("E-9, E-10: specs are immutable on a server without CEL, enabled and metadata are not; providers follow the pattern", async () => {
  await at.network("fixed", { provider: "acme.io/foo" });
  await at.network("plain");
  const path = "/apis/podnet.dev/v1alpha1/podnetworks";
  const refs = [{ group: "g", kind: "K", name: "n" }];
  const changes: readonly [string, object, RegExp][] = [
    ["fixed", { provider: "acme.io/bar" }, /spec\.provider: is immutable/],
    ["plain", { provider: "acme.io/foo" }, /spec\.provider: is immutable/],
    ["plain", { parameters: { mtu: 1400 } }, /spec\.parameters: is immutable/],
    ["fixed", { parametersRefs: refs }, /spec\.parametersRefs: is immutable/],
    [
      "fixed",
      { provider: null, ipam4: "none" },
      /spec\.provider: is immutable.*spec\.ipam4: is immutable/,
    ],
  ];
  for (const [name, change, message] of changes) {
    const answer = await at.api.raw("PATCH", `${path}/${name}`, { spec: change });
    assert.equal(answer.status, 422, JSON.stringify(change));
    assert.match(answer.body.message, message);
  }
  const free = { spec: { enabled: false }, metadata: { labels: { a: "b" } } };
  assert.equal((await at.api.raw("PATCH", `${path}/fixed`, free)).status, 200);
  assert.equal((await at.api.get("podnetworks fixed")).spec.enabled, false);
  for (const provider of [
    "acme",
    "ACME.io/x",
    "http://acme.io/x",
    "",
    `acme.io/${"x".repeat(246)}`,
  ])
    await assert.rejects(at.network("wrong", { provider }), /422.*spec\.provider/s);
  await at.attachment("app/fast", "plain");
  const fast = "/apis/podnet.dev/v1alpha1/namespaces/app/podnetworkattachments/fast";
  const moved = await at.api.raw("PATCH", fast, { spec: { podNetworkName: "fixed" } });
  assert.equal(moved.status, 422);
  assert.match(moved.body.message, /spec: is immutable/);
});

test("what a schema can't say about a PodNetwork is refused too, every fault at once", async () => {
  const object = {
    apiVersion: "podnet.dev/v1alpha1",
    kind: "PodNetwork",
    metadata: {
      name: "faulty",
      annotations: { "podnet.dev/access": "atach", "podnet.dev/allowed-namespaces": "a,,b" },
    },
    spec: { parameters: { plugins: [{}, { type: "" }] } },
  };
  const { status, body } = await at.api.raw(
    "POST",
    "/apis/podnet.dev/v1alpha1/podnetworks",
    object,
  );
  assert.equal(status, 422);
  for (const part of [
    "plugins[0].type",
    "plugins[1].type",
    "podnet.dev/access",
    "podnet.dev/allowed-namespaces",
  ])
    assert.ok(body.message.includes(part), `${part}: ${body.message}`);
});

test("a network that asks for the right to attach: service accounts with it get pods, others are refused, behind attachments too", async () => {
  await at.network("vault");
  await at.api.patch("podnetworks vault", {
    metadata: { annotations: { "podnet.dev/access": "attach" } },
  });
  await at.attachment("app/behind", "vault");
  const rbac = { apiVersion: "rbac.authorization.k8s.io/v1" };
  at.server.apply(
    {
      ...rbac,
      kind: "ClusterRole",
      metadata: { name: "vault" },
      rules: [
        {
          apiGroups: ["podnet.dev"],
          resources: ["podnetworks"],
          resourceNames: ["vault"],
          verbs: ["attach"],
        },
      ],
    },
    {
      ...rbac,
      kind: "ClusterRoleBinding",
      metadata: { name: "vault" },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "vault" },
      subjects: [{ kind: "ServiceAccount", namespace: "app", name: "web" }],
    },
  );
  const lists = ['[{"name":"vault"}]', '[{"attachmentName":"behind"}]'];
  for (const list of lists) {
    let refused = { status: 0, message: "" };
    await at.eventually(
      async () => {
        refused = await create({ [own]: list });
        return refused.status === 403;
      },
      () => `refused: ${refused.status}`,
    );
    assert.match(
      refused.message,
      /PodNetwork "vault": service account "app\/default" may not attach/,
    );
    assert.equal(
      (await create({ [own]: list }, { spec: { serviceAccountName: "web" } })).status,
      201,
    );
  }
  const other = await create(
    { [own]: lists[0] },
    { namespace: "team-b", spec: { serviceAccountName: "web" } },
  );
  assert.equal(other.status, 403, "another namespace's account of that name");
});

test("a network that is granted to other namespaces is refused at once", async () => {
  await at.network("theirs");
  await at.api.patch("podnetworks theirs", {
    metadata: { annotations: { "podnet.dev/allowed-namespaces": "team-b" } },
  });
  const list = { [own]: '[{"name":"theirs"}]' };
  await at.eventually(
    async () => (await create(list)).status === 403,
    () => "refused",
  );
  assert.equal((await create(list, { namespace: "team-b" })).status, 201);
});

test("this server has no scheduling gates: pods that list networks get none, and E-13's list is let in", async () => {
  await controller.said('"schedulingGates":false');
  const { status, pod } = await create({ [own]: '[{"name":"plain"},{"attachmentName":"fast"}]' });
  assert.equal(status, 201);
  assert.equal(pod.spec.schedulingGates, undefined);
});

test("1,000 pods are admitted, and the controller's memory stays flat", async () => {
  const rss = () => {
    const text = at.server.node.run("sh", "-c", `grep VmRSS /proc/${controller.pid}/status`);
    return Number(/(\d+) kB/.exec(text)?.[1]) / 1024;
  };
  const path = "/api/v1/namespaces/app/pods?dryRun=All";
  const body = (name: string) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, annotations: { [own]: '[{"name":"blue"},{"name":"plain"}]' } },
    spec,
  });
  const round = async (from: number) => {
    for (let done = 0; done < 500; done += 20) {
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_, index) =>
          at.api.raw("POST", path, body(`many-${from + done + index}`)),
        ),
      );
      for (const answer of answers) assert.equal(answer.status, 201);
    }
  };
  await round(0);
  const before = rss();
  await round(500);
  assert.ok(rss() - before < 40, `${before} MiB before, ${rss()} MiB after`);
});

test("with the controller gone pods start as they did before podnet; it comes back with the certificate it had", async () => {
  const bundle = async () => {
    const answer = await at.api.raw(
      "GET",
      "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podnet",
    );
    return answer.body.webhooks[0].clientConfig.caBundle as string;
  };
  const before = await bundle();
  await controller.kill();
  const { status, pod } = await create({ [own]: "x" });
  assert.equal(status, 201);
  assert.equal(pod.metadata.annotations[own], "x");
  assert.equal((await create(undefined)).pod.metadata.annotations, undefined);
  controller = stack.use(start());
  await controller.said('"admission"');
  await webhooksServed(at);
  assert.equal(await bundle(), before);
});

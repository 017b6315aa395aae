import assert from "node:assert/strict";
import { test } from "node:test";
import { History } from "../../../daemon/node/explain-history.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import { decodeRequest } from "../../../lib/cni/request.ts";

function request(verb: string, id: string, config: object = {}) {
  const env = {
    CNI_COMMAND: verb,
    CNI_CONTAINERID: id,
    CNI_NETNS: "/run/netns/x",
    CNI_IFNAME: "eth0",
    CNI_PATH: "/opt/cni/bin",
    CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=web;K8S_POD_UID=u1",
  };
  return decodeRequest(
    env,
    JSON.stringify({ cniVersion: "1.0.0", name: "podnet", type: "podnet", ...config }),
  );
}

const annotated = (annotations: object) => ({
  runtimeConfig: { "io.kubernetes.cri.pod-annotations": annotations },
});

test("the history keeps what was asked, verbatim, what failed, and nothing of other annotations", () => {
  const history = new History();
  const text = '[{"name": "blue",  "ips": ["10.0.0.7"]}]';
  const config = annotated({ "podnet.dev/networks": text, "vault/token": "s3cret" });
  history.note(request("ADD", "c1", config), {
    ms: 12.34,
    failure: new CniError(100, "no such network", { details: "d".repeat(9_000) }),
  });
  const [call] = history.find(() => true);
  assert.equal(call?.annotations?.["podnet.dev/networks"], text);
  assert.deepEqual(Object.keys(call?.annotations ?? {}), ["podnet.dev/networks"]);
  assert.deepEqual([call?.code, call?.fault, call?.ms], [100, "no such network", 12.3]);
  assert.equal(call?.details?.length, 2_000);
});

test("the history is bounded by its size, whatever comes; the oldest go first", () => {
  const history = new History(20_000);
  for (let number = 0; number < 500; number += 1) {
    const text = "x".repeat(number * 40);
    history.note(request("ADD", `c${number}`, annotated({ "podnet.dev/networks": text })), {
      ms: 1,
    });
    assert.ok(history.size <= 20_000);
  }
  const kept = history.find(() => true);
  assert.ok(kept.length > 0);
  assert.equal(kept.at(-1)?.containerId, "c499");
});

test("calls that concern no sandbox are not kept", () => {
  const history = new History();
  history.note(undefined, { ms: 1 });
  history.note(request("VERSION", ""), { ms: 1 });
  assert.deepEqual(
    history.find(() => true),
    [],
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { decideGrant, type GrantQuery } from "../../../lib/api/grants.ts";

const names = "podnet.dev/allowed-namespaces";
const selector = "podnet.dev/allowed-namespace-selector";

function ask(
  target: Partial<GrantQuery["target"]>,
  query: Partial<Omit<GrantQuery, "target">> = {},
): string {
  const kind = target.namespace === undefined ? "PodNetwork" : "NetworkAttachmentDefinition";
  const answer = decideGrant({
    target: { kind, annotations: {}, ...target },
    namespace: "app",
    labels: { team: "a" },
    namespaceIsolation: false,
    globalNamespaces: [],
    ...query,
  });
  return answer.answer === "refused" ? `refused: ${answer.reason}` : answer.answer;
}

test("a PodNetwork without a grant is open to all, isolation or not", () => {
  assert.equal(ask({}), "allowed");
  assert.equal(ask({}, { namespaceIsolation: true }), "allowed");
});

test("a NAD without a grant is open to all, and with isolation to its own namespace and where it is global", () => {
  const isolated = { namespaceIsolation: true, globalNamespaces: ["infra"] };
  assert.equal(ask({ namespace: "other" }), "allowed");
  assert.match(ask({ namespace: "other" }, isolated), /^refused: namespaceIsolation is on.*"app"/);
  assert.equal(ask({ namespace: "app" }, isolated), "allowed");
  assert.equal(ask({ namespace: "infra" }, isolated), "allowed");
});

test("a grant by names decides, isolation or not, global or not", () => {
  for (const namespaceIsolation of [false, true]) {
    const query = { namespaceIsolation, globalNamespaces: ["infra"] };
    for (const target of [{}, { namespace: "infra" }]) {
      const granted = (value: string) => ask({ ...target, annotations: { [names]: value } }, query);
      assert.equal(granted("x, app"), "allowed");
      assert.match(granted("x,y"), /^refused: it is not granted to namespace "app"/);
      assert.match(granted(""), /^refused: it is not granted/);
      assert.match(granted("app,*"), /^refused: annotation podnet.dev\/allowed-namespaces: "\*"/);
    }
  }
});

test("a NAD serves its own namespace whatever its grant says", () => {
  assert.equal(ask({ namespace: "app", annotations: { [names]: "x" } }), "allowed");
});

test("a grant by labels looks at the labels of the pod's namespace", () => {
  const by = (text: string, labels: GrantQuery["labels"] = { team: "a", "acme.io/env": "prod" }) =>
    ask({ annotations: { [selector]: text } }, { labels });
  for (const text of [
    "team=a",
    "team==a,acme.io/env in (test, prod)",
    "!legacy",
    "team!=b",
    "team",
  ]) {
    assert.equal(by(text), "allowed", text);
  }
  for (const text of ["team=b", "team=a,legacy", "team notin (a,b)", "!team"]) {
    assert.match(by(text), /^refused: it is not granted/, text);
  }
  assert.equal(ask({ annotations: { [selector]: "team=a" } }, { labels: undefined }), "unknown");
});

test("a selector that can't be read, or an empty one, opens nothing", () => {
  for (const text of [
    "",
    " ",
    ",",
    "team=a=b",
    "team in a",
    "te am",
    "a in (b",
    "=a",
    "team=a,,x",
  ]) {
    const query = { annotations: { [selector]: text } };
    assert.match(ask(query), /^refused: annotation podnet.dev\/allowed-namespace-selector: /, text);
  }
});

test("with both kinds of grant either suffices", () => {
  const both = { [names]: "app", [selector]: "team=b" };
  assert.equal(ask({ annotations: both }, { labels: undefined }), "allowed");
  assert.equal(ask({ annotations: { [names]: "x", [selector]: "team=a" } }), "allowed");
  assert.match(ask({ annotations: { [names]: "x", [selector]: "team=b" } }), /^refused/);
});

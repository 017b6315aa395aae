import assert from "node:assert/strict";
import { test } from "node:test";
import { forwardedVariables, readEnvironment, readVerb } from "../../../cmd/podnet/environment.ts";
import { CniError } from "../../../lib/cni/errors.ts";
import type { CniVerb } from "../../../lib/cni/types.ts";

const full = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/x",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
};

function read(changes: Record<string, string | undefined>, verb: CniVerb = "ADD") {
  const variables: Record<string, string | undefined> = { ...full, ...changes };
  return readEnvironment((name) => variables[name], verb);
}

function failsWith(code: number, says: RegExp, work: () => unknown): void {
  assert.throws(work, (error: unknown) => {
    assert.ok(error instanceof CniError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, says);
    return true;
  });
}

test("every variable that is set goes to the daemon, empty ones too", () => {
  const all = Object.fromEntries(forwardedVariables.map((name) => [name, "x"]));
  assert.deepEqual(read({ ...all, OTHER: "y" }), all);
  assert.equal(read({ CNI_ARGS: "" })["CNI_ARGS"], "");
  assert.ok(!("CNI_ARGS" in read({})));
});

test("all missing variables are named in one message", () => {
  const nothing = {
    CNI_CONTAINERID: undefined,
    CNI_NETNS: "",
    CNI_IFNAME: undefined,
    CNI_PATH: undefined,
  };
  const expected: readonly (readonly [CniVerb, RegExp | undefined])[] = [
    ["ADD", /start ADD: .*missing: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME$/],
    ["CHECK", /start CHECK: .*missing: CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME$/],
    ["DEL", /start DEL: .*missing: CNI_CONTAINERID, CNI_IFNAME$/],
    ["GC", /start GC: .*missing: CNI_PATH$/],
    ["STATUS", undefined],
  ];
  for (const [verb, says] of expected) {
    if (says === undefined) read(nothing, verb);
    else failsWith(4, says, () => read(nothing, verb));
  }
});

test("DEL works without a namespace", () => {
  read({ CNI_NETNS: undefined }, "DEL");
});

test("a malformed container id or interface name is refused with its value", () => {
  failsWith(4, /CNI_CONTAINERID "a\/b": must start with/, () => read({ CNI_CONTAINERID: "a/b" }));
  failsWith(4, /CNI_CONTAINERID "a\\n": must/, () => read({ CNI_CONTAINERID: "a\n" }));
  failsWith(4, /CNI_CONTAINERID "-a": .*; CNI_IFNAME "a:b": must be an interface name/, () =>
    read({ CNI_CONTAINERID: "-a", CNI_IFNAME: "a:b" }),
  );
});

test("interface names are those that Linux takes", () => {
  for (const name of ["eth0", "a".repeat(15), "äöü", "x.1"]) read({ CNI_IFNAME: name });
  for (const name of ["a".repeat(16), "ä".repeat(8), ".", "..", "a/b", "a:b", "a b", "a\tb"]) {
    failsWith(4, /CNI_IFNAME ".*": must be an interface name/, () => read({ CNI_IFNAME: name }));
  }
});

test("bytes that are not UTF-8 are refused, but dropped from the trace context", () => {
  failsWith(4, /CNI_NETNS .*: not valid UTF-8/, () => read({ CNI_NETNS: "/x\ufffd" }));
  assert.ok(!("TRACEPARENT" in read({ TRACEPARENT: "\ufffd" })));
});

test("a delegate of podnetd is refused", () => {
  failsWith(7, /configured to delegate to itself/, () => read({ PODNET_DELEGATE: "1" }));
});

test("an unknown command is refused and named", () => {
  failsWith(4, /CNI_COMMAND "add": unknown command, must be one of ADD, DEL/, () =>
    readVerb(() => "add"),
  );
});

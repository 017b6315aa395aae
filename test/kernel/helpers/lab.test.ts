import assert from "node:assert/strict";
import { existsSync, openSync } from "node:fs";
import { test } from "node:test";
import { Lab } from "../../helpers/lab.ts";
import { kernelState, LeakCheck, openFiles } from "../../helpers/state.ts";

test("a lab, when it ends, takes its namespaces and folders away", () => {
  let left: string[];
  {
    using lab = new Lab();
    left = [lab.node().path, lab.pod().path, lab.folder()];
    assert.deepEqual(
      left.filter((path) => !existsSync(path)),
      [],
    );
  }
  assert.deepEqual(
    left.filter((path) => existsSync(path)),
    [],
  );
});

test("a leak check, when a link, an address, a route, a rule or an nftables table is left, is red", () => {
  const leaks: string[][] = [
    ["ip", "link", "add", "left0", "type", "bridge"],
    ["ip", "address", "add", "10.9.8.7/32", "dev", "lo"],
    ["ip", "route", "add", "blackhole", "10.9.0.0/16"],
    ["ip", "-6", "rule", "add", "pref", "77", "table", "77"],
    ["nft", "add", "table", "inet", "left"],
  ];
  for (const [program = "", ...args] of leaks) {
    using lab = new Lab();
    const node = lab.node();
    const check = new LeakCheck([node]);
    check.assertClean();
    node.run(program, ...args);
    assert.throws(() => check.assertClean(), assert.AssertionError, args.join(" "));
  }
});

test("a leak check, when a file or a namespace is left, is red", () => {
  using lab = new Lab();
  const node = lab.node();
  const check = new LeakCheck([node]);
  openSync("/etc/passwd", "r");
  assert.throws(() => check.assertClean(), assert.AssertionError);
  assert.equal(openFiles(process.pid)["/etc/passwd"], 1);
  const second = new LeakCheck([node]);
  const pod = lab.pod();
  assert.throws(() => second.assertClean(), assert.AssertionError);
  lab.remove(pod);
  second.assertClean();
});

test("kernel state, when asked for sysctls, has the namespace's own", () => {
  using lab = new Lab();
  const [one, other] = [lab.node(), lab.node()];
  one.run("sysctl", "-qw", "net.ipv4.ip_forward=1");
  const options = { sysctls: ["ipv4/ip_forward"] };
  assert.equal(kernelState(one, options).sysctls["ipv4/ip_forward"], "1");
  assert.equal(kernelState(other, options).sysctls["ipv4/ip_forward"], "0");
});

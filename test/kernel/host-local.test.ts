import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import type { CniVerb } from "../../lib/cni/types.ts";
import { InProcess } from "../helpers/in-process.ts";
import { Lab } from "../helpers/lab.ts";
import { part } from "../helpers/parts.ts";
import { runPlugin } from "../helpers/plugin-call.ts";

function configFor(dataDir: string) {
  return {
    cniVersion: "1.1.0",
    name: "blue",
    type: "bridge",
    ipam: {
      type: "host-local",
      dataDir,
      ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "fd00:1::/64" }]],
    },
  };
}

/** The reference's executable on the same directory. */
function reference(dataDir: string, verb: CniVerb, containerId: string) {
  const path = part("reference-plugins");
  const program = join(path, "host-local");
  return runPlugin({
    program,
    verb,
    containerId,
    ifName: "eth0",
    netns: "/none",
    path,
    config: configFor(dataDir),
  });
}

/** podnet's plugin on the directory. */
const podnet = (plugins: InProcess, dataDir: string) => (verb: CniVerb, containerId: string) =>
  plugins.run({
    type: "host-local",
    verb,
    containerId,
    ifName: "eth0",
    netns: "/none",
    config: configFor(dataDir),
  });

const addressFiles = (dataDir: string) =>
  readdirSync(join(dataDir, "blue")).filter((name) => /^(\d+\.|fd00)/.test(name));

test("host-local, at work beside the reference's executable, never gives an address twice and frees the other's", async () => {
  using lab = new Lab();
  const dataDir = lab.folder();
  await using plugins = InProcess.start();
  const answers = await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      index % 3 === 0
        ? reference(dataDir, "ADD", `c${index}`)
        : podnet(plugins, dataDir)("ADD", `c${index}`),
    ),
  );
  const failed = answers.filter(({ status }) => status !== 0).map(({ json }) => json);
  assert.deepEqual(failed, []);
  const given = answers.flatMap(({ json }) =>
    json.ips.map((ip: { address: string }) => ip.address),
  );
  assert.equal(new Set(given).size, 120);
  assert.equal(addressFiles(dataDir).length, 120);
  await Promise.all(
    Array.from({ length: 60 }, async (_, index) => {
      const done =
        index % 3 === 0
          ? await podnet(plugins, dataDir)("DEL", `c${index}`)
          : await reference(dataDir, "DEL", `c${index}`);
      assert.equal(done.status, 0);
    }),
  );
  assert.deepEqual(addressFiles(dataDir), []);
});

test("host-local, when its process is killed at any moment, leaves whole files that both sides can work with", async () => {
  using lab = new Lab();
  const dataDir = lab.folder();
  for (let round = 0; round < 5; round++) {
    const doomed = InProcess.start();
    await podnet(doomed, dataDir)("DEL", "warm");
    const running = Array.from({ length: 20 }, (_, index) =>
      podnet(doomed, dataDir)("ADD", `r${round}-${index}`),
    );
    await setTimeout(randomInt(5, 40));
    await doomed.kill();
    await Promise.all(running);
    if (!existsSync(join(dataDir, "blue"))) continue;
    for (const file of addressFiles(dataDir)) {
      assert.match(readFileSync(join(dataDir, "blue", file), "utf8"), /^r\d-\d+\r\neth0$/);
    }
    assert.equal((await reference(dataDir, "ADD", `ref${round}`)).status, 0);
    assert.equal((await reference(dataDir, "DEL", `ref${round}`)).status, 0);
  }
  await using plugins = InProcess.start();
  const retry = await podnet(plugins, dataDir)("ADD", "r0-0");
  assert.equal(retry.status, 0);
  await plugins.mustRun({
    type: "host-local",
    verb: "GC",
    containerId: "",
    ifName: "",
    config: {
      ...configFor(dataDir),
      "cni.dev/valid-attachments": [{ containerID: "r0-0", ifname: "eth0" }],
    },
  });
  assert.equal(addressFiles(dataDir).length, 2);
});

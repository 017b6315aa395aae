import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { createServer, get } from "node:https";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import {
  endOf,
  isSignedBy,
  issueServingPair,
  readServingCertificate,
  splitBundle,
} from "../../../lib/kube/serving-pair.ts";

const names = [
  "podnet-webhook.podnet-system.svc",
  "podnet-webhook.podnet-system.svc.cluster.local",
];
const now = Date.now();
const day = 86_400_000;
const options = { names, lifetime: 90 * day, now };

test("a pair's certificate names the service, is signed by its authority alone, and counts from an hour ago on", async () => {
  const [one, two] = await Promise.all([issueServingPair(options), issueServingPair(options)]);
  const facts = readServingCertificate(one.cert, one.key);
  assert.deepEqual(facts?.names, names);
  assert.ok(facts !== undefined && facts.notBefore <= now - 3_000_000);
  assert.equal(Math.abs(facts.notAfter - (now + 90 * day)) < 2_000, true);
  assert.equal(endOf(one.ca), facts.notAfter);
  assert.equal(isSignedBy(one.cert, one.ca), true);
  assert.equal(isSignedBy(one.cert, two.ca), false);
  const [cert, ca] = [new X509Certificate(one.cert), new X509Certificate(one.ca)];
  assert.equal(ca.ca, true);
  assert.equal(cert.ca, false);
  assert.notEqual(ca.subject, new X509Certificate(two.ca).subject);
  assert.equal(one.key.includes("PRIVATE KEY"), true);
});

test("what is no certificate, or has another's key, is known", async () => {
  const [one, two] = await Promise.all([issueServingPair(options), issueServingPair(options)]);
  for (const [cert, key] of [
    [one.cert, two.key],
    [one.cert, ""],
    ["", one.key],
    [one.key, one.key],
    [one.cert.slice(0, 200), one.key],
  ] as const)
    assert.equal(readServingCertificate(cert, key), undefined);
  const odd = `words\n${one.ca}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n${two.ca}`;
  assert.deepEqual(splitBundle(odd), [one.ca, two.ca]);
  assert.deepEqual(splitBundle(""), []);
  assert.equal(endOf("x"), 0);
  assert.equal(isSignedBy("x", one.ca), false);
});

test("a TLS client that trusts the authority accepts a server with the pair under the service's name", async () => {
  const pair = await issueServingPair(options);
  const server = createServer({ cert: pair.cert, key: pair.key }, (_, response) =>
    response.end("yes"),
  );
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const ask = (servername: string | undefined, ca: string) =>
    new Promise<string>((done) => {
      const request = get({ host: "127.0.0.1", port, servername, ca, agent: false }, (answer) => {
        answer.setEncoding("utf8").on("data", done);
      });
      request.on("error", (error) => done(error.message));
    });
  try {
    assert.equal(await ask(names[0], pair.ca), "yes");
    assert.match(await ask("other.example", pair.ca), /altnames/);
    const other = await issueServingPair(options);
    assert.match(await ask(names[0], other.ca), /signature|issuer|verify/);
  } finally {
    server.close();
  }
});

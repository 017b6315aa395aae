import assert from "node:assert/strict";
import { test } from "node:test";
import { nearest } from "../../../lib/api/nearest.ts";

const known = ["networksDir", "socket", "metrics"];

test("nearest: a word with a slip of the hand is found", () => {
  assert.equal(nearest("netwroksDir", known), "networksDir");
  assert.equal(nearest("NETWORKSDIR", known), "networksDir");
  assert.equal(nearest("socked", known), "socket");
});

test("nearest: a word that resembles nothing, and a huge one, are not", () => {
  assert.equal(nearest("colour", known), undefined);
  assert.equal(nearest("x".repeat(1_000_000), known), undefined);
});

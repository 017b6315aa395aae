import assert from "node:assert/strict";
import { test } from "node:test";
import { CniError } from "../../../lib/cni/errors.ts";

test("a message is one printable line, whatever texts of others are in it", () => {
  const message = (text: string) => new CniError(107, text).message;
  assert.equal(message("a\nb\r\nc\0d"), "a b c d");
  assert.equal(message("red \u001b[31mtext\u007f"), "red  [31mtext ");
  assert.equal(message("name\u202egnp.exe\u2028x"), "name gnp.exe x");
  assert.equal(message('network "blü": ünïcode stays 網'), 'network "blü": ünïcode stays 網');
});

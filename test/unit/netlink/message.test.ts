import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkDecodeError } from "../../../lib/netlink/attributes.ts";
import { acknowledgementError } from "../../../lib/netlink/error.ts";
import {
  emitMessage,
  type Message,
  parseAcknowledgement,
  parseMessages,
} from "../../../lib/netlink/message.ts";
import { dump, hex } from "../../helpers/hex.ts";

function only(bytes: Buffer): Message {
  const [message, ...others] = parseMessages(bytes);
  assert(message);
  assert.deepEqual(others, []);
  return message;
}

test("emitMessage, a body, gets a header with the request flag and padding", () => {
  const bytes = emitMessage({ type: 16, flags: 0x604, body: hex("0102030405") }, 0xa1);
  const expected = hex(
    "15000000", // length without padding
    "1000 0506", // RTM_NEWLINK, REQUEST | ACK | CREATE | EXCL
    "a1000000 00000000", // sequence, port
    "0102030405 000000",
  );
  assert.deepEqual(dump(bytes), dump(expected));
  assert.deepEqual(only(bytes), {
    type: 16,
    flags: 0x605,
    sequence: 0xa1,
    body: hex("0102030405"),
  });
});

test("parseMessages, several in a datagram, gives them in order", () => {
  const datagram = Buffer.concat(
    [1, 2, 3].map((sequence) => emitMessage({ type: 20, flags: 0, body: hex("aa") }, sequence)),
  );
  assert.deepEqual(
    parseMessages(datagram).map(({ sequence }) => sequence),
    [1, 2, 3],
  );
});

test("parseMessages, cut or wrong lengths, throw a NetlinkDecodeError", () => {
  for (const text of [
    "00",
    "0f000000 0000 0000 00000000 00000000",
    "11000000 0000 0000 00000000 00000000",
  ]) {
    assert.throws(() => parseMessages(hex(text)), NetlinkDecodeError);
  }
});

test("parseAcknowledgement, the kernel's refusal with words, gives errno, text and error", () => {
  const message = only(
    hex(
      "48000000 0200 0003 10000000 a1000000", // NLMSG_ERROR, CAPPED | ACK_TLVS
      "eaffffff", // -EINVAL
      "28000000 1000 0500 10000000 00000000", // the request's header, its body left out
      "2100 0100 6d7475206c657373207468616e20646576696365206d696e696d756d00 000000",
    ),
  );
  const answer = parseAcknowledgement(message);
  assert.deepEqual(answer, { errno: 22, text: "mtu less than device minimum", offset: undefined });
  const error = acknowledgementError("set mtu of link 3", answer);
  assert.equal(error?.message, "set mtu of link 3: mtu less than device minimum (EINVAL)");
  assert.equal(error?.code, "EINVAL");
  assert.equal(error?.errno, 22);
  assert.equal(error?.kernelText, "mtu less than device minimum");
});

test("parseAcknowledgement, a refusal without words, gives the errno's name", () => {
  const message = only(
    hex("24000000 0200 0001 11000000 a1000000", "edffffff", "2c000000 1100 0500 11000000 00000000"),
  );
  const error = acknowledgementError("delete link", parseAcknowledgement(message));
  assert.equal(error?.message, "delete link: ENODEV");
});

test("parseAcknowledgement, success, is no error", () => {
  const message = only(
    hex("24000000 0200 0001 12000000 a1000000", "00000000", "28000000 1000 0500 12000000 00000000"),
  );
  assert.deepEqual(parseAcknowledgement(message), { errno: 0, text: undefined, offset: undefined });
  assert.equal(acknowledgementError("set", parseAcknowledgement(message)), undefined);
});

test("parseAcknowledgement, a request quoted in full and an offset, skips the one and gives the other", () => {
  const message = only(
    hex(
      "38000000 0200 0002 01000000 00000000", // not CAPPED
      "eaffffff",
      "14000000 1000 0500 01000000 00000000",
      "aabbccdd", // the request's body
      "0800 0200 20000000", // NLMSGERR_ATTR_OFFS
      "0600 0100 7800 0000",
    ),
  );
  assert.deepEqual(parseAcknowledgement(message), { errno: 22, text: "x", offset: 32 });
});

test("parseAcknowledgement, the DONE of a refused dump, has the errno and the words", () => {
  const message = only(
    hex(
      "4c000000 0300 0202 13000000 a1000000", // NLMSG_DONE, MULTI | ACK_TLVS
      "eaffffff",
      "3800 0100 46696c7465722062792064657669636520696e646578206e6f7420737570706f7274656420666f72206c696e6b2064756d707300",
    ),
  );
  const answer = parseAcknowledgement(message);
  assert.deepEqual(
    [answer.errno, answer.text],
    [22, "Filter by device index not supported for link dumps"],
  );
});

test("parseAcknowledgement, too few bytes, throws a NetlinkDecodeError", () => {
  assert.throws(
    () => parseAcknowledgement({ type: 2, flags: 0, sequence: 1, body: hex("00000000") }),
    NetlinkDecodeError,
  );
});

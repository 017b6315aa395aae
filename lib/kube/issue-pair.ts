import { createPrivateKey, randomBytes, webcrypto } from "node:crypto";
// First: the package below does not load without it.
import "reflect-metadata";
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509CertificateGenerator,
} from "@peculiar/x509";

const curve = { name: "ECDSA", namedCurve: "P-256" } as const;
const signing = { name: "ECDSA", hash: "SHA-256" } as const;
/** Milliseconds before now from which a certificate counts: the clocks of a cluster differ. */
const backdated = 3_600_000;

/** A server's certificate with its key, and the authority that signed it; PEM. */
export interface ServingPair {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

export interface PairOptions {
  /** DNS names that the certificate is for; the first is its subject. */
  readonly names: readonly string[];
  /** Milliseconds that certificate and authority count from now on. */
  readonly lifetime: number;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** As `issueServingPair` of serving-pair.ts, which loads this file and its package when they are needed. */
export async function issue({ names, lifetime, now }: PairOptions): Promise<ServingPair> {
  const [authority, server] = await Promise.all([newKeys(), newKeys()]);
  const validity = { notBefore: new Date(now - backdated), notAfter: new Date(now + lifetime) };
  const common = { ...validity, signingAlgorithm: signing };
  // Authorities that follow one another must be told apart by name too.
  const issuer = `CN=podnet webhook authority ${randomBytes(4).toString("hex")}`;
  const ca = await X509CertificateGenerator.createSelfSigned({
    ...common,
    name: issuer,
    serialNumber: serialNumber(),
    keys: authority,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign, true),
      await SubjectKeyIdentifierExtension.create(authority.publicKey),
    ],
  });
  const cert = await X509CertificateGenerator.create({
    ...common,
    subject: [{ CN: [(names[0] ?? "podnet").slice(0, 64)] }],
    issuer,
    serialNumber: serialNumber(),
    publicKey: server.publicKey,
    signingKey: authority.privateKey,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(names.map((value) => ({ type: "dns" as const, value }))),
      await AuthorityKeyIdentifierExtension.create(authority.publicKey),
    ],
  });
  return {
    cert: pem(cert.toString("pem")),
    key: await keyPem(server),
    ca: pem(ca.toString("pem")),
  };
}

async function newKeys(): Promise<webcrypto.CryptoKeyPair> {
  return await webcrypto.subtle.generateKey(curve, true, ["sign", "verify"]);
}

async function keyPem({ privateKey }: webcrypto.CryptoKeyPair): Promise<string> {
  const der = await webcrypto.subtle.exportKey("pkcs8", privateKey);
  const key = createPrivateKey({ key: Buffer.from(der), format: "der", type: "pkcs8" });
  return pem(key.export({ format: "pem", type: "pkcs8" }).toString());
}

/** Positive and at most 20 bytes (RFC 5280, section 4.1.2.2). */
function serialNumber(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes.toString("hex");
}

function pem(text: string): string {
  return `${text.trim()}\n`;
}

import { createPrivateKey, randomBytes, webcrypto, X509Certificate } from "node:crypto";
// First: the package below does not load without it.
import "./reflect-metadata.ts";

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

/**
 * Makes a certificate (ECDSA P-256) and an authority that signs it and nothing else: its private key is gone when this returns, so that
 * nobody who reads the server's key can sign for another name.
 */
export async function issueServingPair({
  names,
  lifetime,
  now,
}: PairOptions): Promise<ServingPair> {
  // 18 MB of memory: loaded by whoever issues one, once in a lifetime.
  const x509 = await import("@peculiar/x509");
  const [authority, server] = await Promise.all([newKeys(), newKeys()]);
  const validity = { notBefore: new Date(now - backdated), notAfter: new Date(now + lifetime) };
  const common = { ...validity, signingAlgorithm: signing };
  // Authorities that follow one another must be told apart by name too.
  const issuer = `CN=podnet webhook authority ${randomBytes(4).toString("hex")}`;
  const ca = await x509.X509CertificateGenerator.createSelfSigned({
    ...common,
    name: issuer,
    serialNumber: serialNumber(),
    keys: authority,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(authority.publicKey),
    ],
  });
  const cert = await x509.X509CertificateGenerator.create({
    ...common,
    subject: [{ CN: [(names[0] ?? "podnet").slice(0, 64)] }],
    issuer,
    serialNumber: serialNumber(),
    publicKey: server.publicKey,
    signingKey: authority.privateKey,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(
        names.map((value) => ({ type: "dns" as const, value })),
      ),
      await x509.AuthorityKeyIdentifierExtension.create(authority.publicKey),
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

/** What a certificate says. */
export interface CertificateFacts {
  readonly names: readonly string[];
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** undefined: the text is no certificate, or the key is not the certificate's. */
export function readServingCertificate(cert: string, key: string): CertificateFacts | undefined {
  const read = parse(cert);
  if (read === undefined) return undefined;
  try {
    if (!read.checkPrivateKey(createPrivateKey(key))) return undefined;
  } catch {
    return undefined;
  }
  return {
    names: (read.subjectAltName ?? "")
      .split(", ")
      .filter((name) => name.startsWith("DNS:"))
      .map((name) => name.slice(4)),
    notBefore: read.validFromDate.getTime(),
    notAfter: read.validToDate.getTime(),
  };
}

/** The certificates of a bundle, one PEM text each; what is none is left out. */
export function splitBundle(text: string): string[] {
  const blocks = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.filter((block) => parse(block) !== undefined).map(pem);
}

/** Milliseconds since the epoch from which on a certificate counts no more. */
export function endOf(cert: string): number {
  return parse(cert)?.validToDate.getTime() ?? 0;
}

/** Whether an authority signed a certificate. */
export function isSignedBy(cert: string, ca: string): boolean {
  const [of, by] = [parse(cert), parse(ca)];
  if (of === undefined || by === undefined) return false;
  return of.checkIssued(by) && of.verify(by.publicKey);
}

function parse(text: string): X509Certificate | undefined {
  try {
    return new X509Certificate(text);
  } catch {
    return undefined;
  }
}

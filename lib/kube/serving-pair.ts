import { createPrivateKey, X509Certificate } from "node:crypto";
import type { PairOptions, ServingPair } from "./issue-pair.ts";

/**
 * Makes a certificate (ECDSA P-256) and an authority that signs it and nothing else: its private key is gone when this returns, so that
 * nobody who reads the server's key can sign for another name.
 */
export async function issueServingPair(options: PairOptions): Promise<ServingPair> {
  // 18 MB of memory: loaded by whoever issues one, once in a lifetime.
  const { issue } = await import("./issue-pair.ts");
  return await issue(options);
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
  return blocks.filter((block) => parse(block) !== undefined).map((block) => `${block}\n`);
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

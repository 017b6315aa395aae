import { X509Certificate } from "node:crypto";
import { isJsonObject } from "../../../lib/base/json.ts";
import type { Connection } from "../../../lib/kube/credentials.ts";
import { duration, error, type Finding, ok, warn } from "./finding.ts";

/** One of podnet's credentials, and when it ends (milliseconds since the epoch); undefined: never, or nobody can tell. */
export interface CredentialLife {
  readonly kind: "token" | "certificate" | "authority";
  readonly ends: number | undefined;
}

/** What a connection to the API server is made with. Nothing of the secrets themselves is in the answer. */
export function credentialLives({ headers, tls }: Connection): CredentialLife[] {
  const lives: CredentialLife[] = [];
  const token = /^Bearer (.+)$/.exec(headers["authorization"] ?? "")?.[1];
  if (token !== undefined) lives.push({ kind: "token", ends: tokenEnd(token) });
  if (tls.cert !== undefined) lives.push({ kind: "certificate", ends: certificateEnd(tls.cert) });
  if (tls.ca !== undefined) lives.push({ kind: "authority", ends: certificateEnd(tls.ca) });
  return lives;
}

/** `exp` of a JSON web token (RFC 7519 4.1.4); other tokens don't say. */
function tokenEnd(token: string): number | undefined {
  try {
    const text = Buffer.from(token.split(".")[1] ?? "", "base64url").toString("utf8");
    const claims: unknown = JSON.parse(text);
    const end = isJsonObject(claims) ? claims["exp"] : undefined;
    return typeof end === "number" ? end * 1000 : undefined;
  } catch {
    return undefined;
  }
}

/** Of the first certificate in PEM text. */
function certificateEnd(pem: string | Buffer): number | undefined {
  try {
    return Date.parse(new X509Certificate(pem).validTo);
  } catch {
    return undefined;
  }
}

/** Seconds before its end from which a credential that nobody renewed is told of: kubelets renew tokens at four fifths of an hour. */
const soon: Readonly<Record<CredentialLife["kind"], number>> = {
  token: 300,
  certificate: 7 * 86_400,
  authority: 30 * 86_400,
};

/** How long each credential lives. */
export function credentialFindings(lives: readonly CredentialLife[], now = Date.now()): Finding[] {
  if (lives.every(({ kind }) => kind === "authority")) {
    const none = "no token and no client certificate";
    return [
      warn("credentials", none, "give podnetd a kubeconfig with credentials"),
      ...lives.map((life) => finding(life, now)),
    ];
  }
  return lives.map((life) => finding(life, now));
}

function finding({ kind, ends }: CredentialLife, now: number): Finding {
  if (ends === undefined) return ok("credentials", `${kind}: does not say when it ends`);
  const left = (ends - now) / 1000;
  if (left <= 0) {
    const text = `${kind}: ended ${duration(-left)} ago`;
    return error(
      "credentials",
      text,
      "renew it: see the kubelet's log, or the kubeconfig's author",
    );
  }
  const text = `${kind}: ends in ${duration(left)}`;
  return left < soon[kind]
    ? warn("credentials", text, "see whether somebody renews it")
    : ok("credentials", text);
}

import type { ServingPair } from "../../../lib/kube/issue-pair.ts";
import {
  endOf,
  isSignedBy,
  readServingCertificate,
  splitBundle,
} from "../../../lib/kube/serving-pair.ts";

/** A certificate and its key, PEM. */
export interface KeyedCertificate {
  readonly cert: string;
  readonly key: string;
}

/** What the Secret holds: the same for all replicas. */
export interface TlsState {
  /** What every replica serves; undefined: nothing usable. */
  readonly current: KeyedCertificate | undefined;
  /** What they will serve as soon as its authority is trusted. */
  readonly next: KeyedCertificate | undefined;
  /** Authorities that the API server is to trust: those of both, and earlier ones until they end. */
  readonly authorities: readonly string[];
}

export interface TlsRules {
  /** DNS names that the API server may call us by. */
  readonly names: readonly string[];
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/**
 * The next step of the certificate's life:
 * - `create`: there is none; it is served at once, since there is nothing to lose.
 * - `prepare`: another one is needed soon: its authority becomes trusted first.
 * - `promote`: the one that was prepared is served from now on.
 * - `wait`: it is prepared, and not yet known to be trusted.
 * - `keep`: nothing.
 */
export type TlsStep = "create" | "prepare" | "promote" | "wait" | "keep";

/** Decides it. `trusted`: each webhook configuration has had all authorities for long enough that API servers know. */
export function nextStep(state: TlsState, rules: TlsRules, trusted: boolean): TlsStep {
  const { current, next, authorities } = state;
  if (!isUsable(current, authorities, rules)) {
    return isUsable(next, authorities, rules) ? "promote" : "create";
  }
  if (isUsable(next, authorities, rules)) return trusted ? "promote" : "wait";
  return isAging(current, rules) ? "prepare" : "keep";
}

/** Replicas that disagree about the service's name would make authorities without end. */
const mostAuthorities = 16;

/** The state after a step; `fresh`: a pair that was made for it, where the step needs one. Authorities that have ended are left out. */
export function takeStep(
  state: TlsState,
  step: TlsStep,
  { fresh, now }: { readonly fresh?: ServingPair | undefined; readonly now: number },
): TlsState {
  const authorities = state.authorities.filter((ca) => endOf(ca) > now);
  if (step === "promote") return { current: state.next, next: undefined, authorities };
  if (fresh === undefined) return { ...state, authorities };
  const { cert, key, ca } = fresh;
  const all = [...authorities, ca].slice(-mostAuthorities);
  if (step === "create") return { current: { cert, key }, next: undefined, authorities: all };
  return { current: state.current, next: { cert, key }, authorities: all };
}

/** Something that can be served now. */
export function isServable({ current, authorities }: TlsState, rules: TlsRules): boolean {
  return isUsable(current, authorities, rules);
}

/** The certificate has its key, an authority that is to be trusted, has begun (a clock may have been wrong) and has time left. */
function isUsable(
  pair: KeyedCertificate | undefined,
  authorities: readonly string[],
  { now }: TlsRules,
): boolean {
  if (pair === undefined) return false;
  const facts = readServingCertificate(pair.cert, pair.key);
  if (facts === undefined || facts.notBefore > now || facts.notAfter <= now) return false;
  return authorities.some((ca) => isSignedBy(pair.cert, ca));
}

/** Two thirds of its time are over, or the service has another name now. */
function isAging(pair: KeyedCertificate | undefined, { names, now }: TlsRules): boolean {
  const facts = pair === undefined ? undefined : readServingCertificate(pair.cert, pair.key);
  if (facts === undefined) return true;
  const { notBefore, notAfter } = facts;
  const old = now - notBefore > ((notAfter - notBefore) * 2) / 3;
  return old || names.some((name) => !facts.names.includes(name));
}

/** Keys of the Secret's data; `tls.crt`, `tls.key` and `ca.crt` as tools know them. */
const keys = {
  cert: "tls.crt",
  key: "tls.key",
  authorities: "ca.crt",
  nextCert: "next.crt",
  nextKey: "next.key",
} as const;

/** Reads a Secret's data (base64); what is not as it should be counts as absent. */
export function decodeTlsData(data: Readonly<Record<string, unknown>>): TlsState {
  const read = (key: string): string => {
    const value = Object.hasOwn(data, key) ? data[key] : undefined;
    return typeof value === "string" ? Buffer.from(value, "base64").toString("utf8") : "";
  };
  return {
    current: pairOf(read(keys.cert), read(keys.key)),
    next: pairOf(read(keys.nextCert), read(keys.nextKey)),
    authorities: splitBundle(read(keys.authorities)),
  };
}

/** The other way; null: the Secret must not have the key. */
export function encodeTlsData(state: TlsState): Record<string, string | null> {
  const { current, next, authorities } = state;
  const texts = {
    [keys.cert]: current?.cert,
    [keys.key]: current?.key,
    [keys.authorities]: bundleOf(authorities),
    [keys.nextCert]: next?.cert,
    [keys.nextKey]: next?.key,
  };
  return Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [
      key,
      text === undefined ? null : Buffer.from(text).toString("base64"),
    ]),
  );
}

/** PEM of all authorities. */
export function bundleOf(authorities: readonly string[]): string {
  return authorities.join("");
}

function pairOf(cert: string, key: string): KeyedCertificate | undefined {
  return cert === "" || key === "" ? undefined : { cert, key };
}

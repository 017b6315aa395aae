import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { dirname, resolve } from "node:path";
import { type Cluster, KubeConfig, type User } from "@kubernetes/client-node";
import { parse } from "yaml";
import { errorText } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import { KubeError } from "./error.ts";

/** What a TLS connection to the API server is opened with. */
export interface TlsOptions {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly servername?: string;
  readonly rejectUnauthorized?: boolean;
}

/** How to reach the API server now. */
export interface Connection {
  /** Without a slash at its end. */
  readonly server: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: TlsOptions;
  /** Another one means that new connections must be opened. */
  readonly fingerprint: string;
}

/**
 * The API server's address and podnet's credentials, from a kubeconfig file or (without one) as a pod has them. Files are looked at
 * again for each request, so that rotated tokens, certificates and authorities count at once; one that is empty, half written or
 * gone for a moment changes nothing.
 */
export class Credentials {
  readonly #kubeconfig: string | undefined;
  #loaded: { readonly stamp: string; readonly config: KubeConfig } | undefined;
  #token: { stamp: string; value: string } | undefined;
  #tls: { stamp: string; value: TlsOptions } | undefined;

  /** `kubeconfig`: path of the file; undefined: in-cluster. */
  constructor(kubeconfig?: string) {
    this.#kubeconfig = kubeconfig;
  }

  /** Rejects with a KubeError when nothing usable was ever read. */
  async current(): Promise<Connection> {
    const config = this.#config();
    const cluster = config.getCurrentCluster();
    const user = config.getCurrentUser();
    if (cluster === null) throw new KubeError(`${this.#origin()}: names no current cluster`);
    const tls = this.#tlsOf(cluster, user);
    const headers = await this.#headersOf(config, user);
    const { exec, ...plain } = headers;
    const all = { ...tls, ...exec };
    return {
      server: cluster.server.replace(/\/+$/, ""),
      headers: plain.headers,
      tls: all,
      fingerprint: fingerprint(cluster.server, all),
    };
  }

  #origin(): string {
    return this.#kubeconfig === undefined
      ? "in-cluster configuration"
      : `kubeconfig "${this.#kubeconfig}"`;
  }

  #config(): KubeConfig {
    const stamp = this.#kubeconfig === undefined ? "in-cluster" : stampOf([this.#kubeconfig]);
    if (this.#loaded?.stamp === stamp) return this.#loaded.config;
    try {
      const config = this.#kubeconfig === undefined ? inCluster() : fromFile(this.#kubeconfig);
      this.#loaded = { stamp, config };
      this.#tls = undefined;
      this.#token = undefined;
      return config;
    } catch (error) {
      if (this.#loaded !== undefined) return this.#loaded.config;
      throw unusable(this.#origin(), error);
    }
  }

  #tlsOf(cluster: Cluster, user: User | null): TlsOptions {
    const files = [cluster.caFile, user?.certFile, user?.keyFile].filter(
      (file) => file !== undefined && file !== null,
    );
    const stamp = stampOf(files);
    if (this.#tls?.stamp === stamp) return this.#tls.value;
    try {
      const value = readTls(cluster, user);
      this.#tls = { stamp, value };
      return value;
    } catch (error) {
      if (this.#tls !== undefined) return this.#tls.value;
      throw unusable(this.#origin(), error);
    }
  }

  async #headersOf(
    config: KubeConfig,
    user: User | null,
  ): Promise<{ readonly headers: Record<string, string>; readonly exec?: TlsOptions }> {
    const tokenFile = tokenFileOf(user);
    if (tokenFile !== undefined) {
      return { headers: { authorization: `Bearer ${this.#tokenOf(tokenFile)}` } };
    }
    if (user?.token) return { headers: { authorization: `Bearer ${user.token}` } };
    if (user?.exec === undefined && user?.authProvider === undefined && !user?.username) {
      return { headers: {} };
    }
    const options: RequestOptions = {};
    await config.applyToHTTPSOptions(options);
    const exec = {
      ...(options.cert === undefined ? {} : { cert: String(options.cert) }),
      ...(options.key === undefined ? {} : { key: String(options.key) }),
    };
    return { headers: textHeaders(options), exec };
  }

  /** A token that is being renewed may be empty or absent for a moment: the one before counts until then. */
  #tokenOf(file: string): string {
    const stamp = stampOf([file]);
    if (this.#token?.stamp === stamp) return this.#token.value;
    try {
      const value = readFileSync(file, "utf8").trim();
      if (value === "") throw new Error(`token file "${file}" is empty`);
      this.#token = { stamp, value };
    } catch (error) {
      if (this.#token === undefined) throw unusable(this.#origin(), error);
    }
    return this.#token.value;
  }
}

function unusable(origin: string, cause: unknown): KubeError {
  return new KubeError(`read ${origin}: ${errorText(cause)}`, { cause });
}

function inCluster(): KubeConfig {
  if (!process.env["KUBERNETES_SERVICE_HOST"]) {
    throw new Error("KUBERNETES_SERVICE_HOST is not set: this is no pod, give a kubeconfig file");
  }
  const config = new KubeConfig();
  config.loadFromCluster();
  return config;
}

/** The library knows `tokenFile` by another name only. */
function fromFile(path: string): KubeConfig {
  const text = readFileSync(path, "utf8");
  const config = new KubeConfig();
  config.loadFromString(text);
  config.makePathsAbsolute(resolve(dirname(path)));
  const files = tokenFiles(parse(text), resolve(dirname(path)));
  for (const user of config.users) {
    const tokenFile = files.get(user.name);
    if (tokenFile === undefined) continue;
    Object.assign(user, { authProvider: { name: "tokenFile", config: { tokenFile } } });
  }
  return config;
}

function tokenFiles(value: unknown, folder: string): Map<string, string> {
  const users = isJsonObject(value) && Array.isArray(value["users"]) ? value["users"] : [];
  const files = new Map<string, string>();
  for (const entry of users as readonly unknown[]) {
    if (!isJsonObject(entry) || !isJsonObject(entry["user"])) continue;
    const { tokenFile } = entry["user"];
    if (typeof tokenFile !== "string") continue;
    files.set(String(entry["name"]), resolve(folder, tokenFile));
  }
  return files;
}

function tokenFileOf(user: User | null): string | undefined {
  const config: unknown = user?.authProvider?.config;
  if (!isJsonObject(config)) return undefined;
  const { tokenFile } = config;
  return typeof tokenFile === "string" ? tokenFile : undefined;
}

function readTls(cluster: Cluster, user: User | null): TlsOptions {
  const ca = pem(cluster.caFile, cluster.caData);
  const cert = pem(user?.certFile, user?.certData);
  const key = pem(user?.keyFile, user?.keyData);
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined || key === undefined ? {} : { cert, key }),
    ...(cluster.tlsServerName === undefined ? {} : { servername: cluster.tlsServerName }),
    ...(cluster.skipTLSVerify === true ? { rejectUnauthorized: false } : {}),
  };
}

function pem(file: string | undefined | null, data: string | undefined | null): Buffer | undefined {
  if (data) return Buffer.from(data, "base64");
  if (!file) return undefined;
  const text = readFileSync(file);
  if (text.length === 0) throw new Error(`"${file}" is empty`);
  return text;
}

function textHeaders({ headers, auth }: RequestOptions): Record<string, string> {
  const basic = auth ? { authorization: `Basic ${Buffer.from(auth).toString("base64")}` } : {};
  const given = Object.entries(headers ?? {}).map(([name, value]) => [
    name.toLowerCase(),
    String(value),
  ]);
  return { ...basic, ...Object.fromEntries(given) };
}

function stampOf(files: readonly string[]): string {
  return files
    .map((file) => {
      try {
        const { ino, size, mtimeNs } = statSync(file, { bigint: true });
        return `${ino} ${size} ${mtimeNs}`;
      } catch (error) {
        return errorText(error);
      }
    })
    .join("|");
}

function fingerprint(server: string, tls: TlsOptions): string {
  const hash = createHash("sha256").update(server);
  for (const part of [tls.ca, tls.cert, tls.key]) hash.update("|").update(part ?? "");
  return hash.update(`|${tls.servername ?? ""}|${tls.rejectUnauthorized ?? ""}`).digest("hex");
}

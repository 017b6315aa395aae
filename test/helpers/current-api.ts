import { setTimeout as sleep } from "node:timers/promises";
import type { ApiServer } from "./apiserver.ts";
import type { Lab } from "./lab.ts";
import { part } from "./parts.ts";
import { RunningProgram } from "./process.ts";

/** A current API server for custom resources (with rules in CEL); an older one beside it knows the users and their rights. */
export class CurrentApi implements AsyncDisposable {
  readonly server = "https://127.0.0.1:7443";
  readonly #program: RunningProgram;

  private constructor(program: RunningProgram) {
    this.#program = program;
  }

  /** Resolves when it is ready; `isReady` asks it. */
  static async start(
    lab: Lab,
    api: ApiServer,
    isReady: () => boolean | Promise<boolean>,
  ): Promise<CurrentApi> {
    const admin = api.kubeconfig("admin");
    const self = new CurrentApi(
      new RunningProgram("apiextensions-apiserver", api.node, [
        part("apiextensions"),
        `--etcd-servers=${api.etcd}`,
        "--etcd-prefix=/current",
        "--bind-address=127.0.0.1",
        "--secure-port=7443",
        `--cert-dir=${lab.folder()}`,
        `--kubeconfig=${admin}`,
        `--authentication-kubeconfig=${admin}`,
        `--authorization-kubeconfig=${admin}`,
        "--authentication-skip-lookup",
        "--disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook",
        "--enable-priority-and-fairness=false",
      ]),
    );
    const until = Date.now() + 120_000;
    while (!(await isReady())) {
      self.#program.mustRun();
      if (Date.now() > until) throw new Error(`not ready:\n${self.#program.output.slice(-6000)}`);
      await sleep(300);
    }
    return self;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.stop(5);
  }
}

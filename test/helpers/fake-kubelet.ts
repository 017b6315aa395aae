import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
  status,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { podResourcesService } from "../../daemon/node/devices/pod-resources-proto.ts";

/** What a container was given, in the names of the wire in camelCase. */
export interface FakeContainer {
  readonly name?: string;
  readonly devices?: readonly { resourceName: string; deviceIds: readonly string[] }[];
  readonly dynamicResources?: readonly {
    readonly claimNamespace: string;
    readonly claimName: string;
    readonly claimResources: readonly object[];
  }[];
}

export interface FakePod {
  readonly namespace: string;
  readonly name: string;
  readonly containers: readonly FakeContainer[];
}

/** How it answers. */
export interface FakeMode {
  /** `unknown-method`: as kubelets before 1.27; `switched-off`: as those with the feature gate off. */
  readonly get?: "served" | "unknown-method" | "switched-off";
  /** So many calls are refused for their rate. */
  readonly refuse?: number;
  /** Answers never come. */
  readonly silent?: boolean;
}

type Answer = sendUnaryData<object>;
type Asked = ServerUnaryCall<{ podName: string; podNamespace: string }, object>;

/** A server that speaks the kubelet's pod-resources API on a unix socket of its own, and answers with `pods`. */
export class FakeKubelet implements AsyncDisposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "podnet-test-"));
  readonly socket = join(this.#folder, "kubelet.sock");
  readonly calls: string[] = [];
  pods: readonly FakePod[] = [];
  mode: FakeMode = {};
  #server: Server | undefined;

  static async start(pods: readonly FakePod[] = [], mode: FakeMode = {}): Promise<FakeKubelet> {
    const kubelet = new FakeKubelet();
    kubelet.pods = pods;
    kubelet.mode = mode;
    await kubelet.listen();
    return kubelet;
  }

  async listen(): Promise<void> {
    const server = new Server();
    const methods: UntypedServiceImplementation = {
      List: (_: Asked, answer: Answer) =>
        this.#answer("List", answer, () => answer(null, { podResources: this.pods })),
      Get: (call: Asked, answer: Answer) =>
        this.#answer("Get", answer, () => this.#get(call, answer)),
    };
    server.addService(podResourcesService(), methods);
    await new Promise<void>((done, failed) =>
      server.bindAsync(`unix:${this.socket}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? done() : failed(error),
      ),
    );
    this.#server = server;
  }

  /** As a kubelet that is being restarted. */
  away(): void {
    this.#server?.forceShutdown();
    this.#server = undefined;
    rmSync(this.socket, { force: true });
  }

  #answer(name: string, answer: Answer, work: () => void): void {
    this.calls.push(name);
    const { silent, refuse = 0 } = this.mode;
    if (silent) return;
    if (this.calls.length <= refuse) {
      answer({ code: status.RESOURCE_EXHAUSTED, details: "rejected by rate limit" });
      return;
    }
    work();
  }

  #get(call: Asked, answer: Answer): void {
    const { get = "served" } = this.mode;
    if (get === "unknown-method") {
      answer({ code: status.UNIMPLEMENTED, details: "unknown method Get" });
      return;
    }
    const { podName, podNamespace } = call.request;
    const pod = this.pods.find(
      ({ namespace, name }) => namespace === podNamespace && name === podName,
    );
    if (get === "switched-off" || pod === undefined) {
      answer({ code: status.UNKNOWN, details: "Get method disabled, or no such pod" });
      return;
    }
    answer(null, { podResources: pod });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.away();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

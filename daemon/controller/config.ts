import type { LogLevel } from "../../lib/base/log.ts";

/** Where a server listens; undefined: it does not. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Everything that the command line decides. */
export interface ControllerConfig {
  /** Path of a kubeconfig file; undefined: the controller is a pod. */
  readonly kubeconfig?: string;
  /** One of several replicas does the work. */
  readonly leaderElect: boolean;
  /** Namespace of the controller itself: of its lease, and of the webhook's service and secret. */
  readonly namespace: string;
  /** Seconds after which another replica takes over from one that gives no sign of life. */
  readonly leaseDuration: number;
  readonly metrics?: ListenAddress;
  readonly webhook?: ListenAddress;
  /** Name of the webhook's service, in `namespace`. */
  readonly webhookService: string;
  /** Makes the PodNetwork "default" where there is none. */
  readonly createDefault: boolean;
  /** Families of the pods' addresses on the default network; `auto`: those of the nodes' podCIDRs. */
  readonly ipFamilies: "auto" | readonly (4 | 6)[];
  readonly logLevel: LogLevel;
}

import { rmSync } from "node:fs";
import type { Server as NetServer } from "node:net";
import { join } from "node:path";
import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { fromJSON, type ServiceDefinition } from "@grpc/proto-loader";
import { openAuthorityProxy } from "./authority-proxy.ts";

const field = (type: string, id: number, rule?: "repeated") => ({
  type,
  id,
  ...(rule === undefined ? {} : { rule }),
});
const method = (requestType: string, responseType: string, responseStream = false) => ({
  requestType,
  responseType,
  responseStream,
  comment: "",
});

/** The kubelet's device plugin API, v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), as far as this plugin has it. */
const nested = {
  Empty: { fields: {} },
  DevicePluginOptions: { fields: { preStartRequired: field("bool", 1) } },
  RegisterRequest: {
    fields: {
      version: field("string", 1),
      endpoint: field("string", 2),
      resourceName: field("string", 3),
      options: field("DevicePluginOptions", 4),
    },
  },
  Device: { fields: { ID: field("string", 1), health: field("string", 2) } },
  ListAndWatchResponse: { fields: { devices: field("Device", 1, "repeated") } },
  ContainerAllocateRequest: { fields: { devicesIDs: field("string", 1, "repeated") } },
  AllocateRequest: {
    fields: { containerRequests: field("ContainerAllocateRequest", 1, "repeated") },
  },
  ContainerAllocateResponse: {
    fields: { envs: { keyType: "string", type: "string", id: 1 } },
  },
  AllocateResponse: {
    fields: { containerResponses: field("ContainerAllocateResponse", 1, "repeated") },
  },
  Registration: { methods: { Register: method("RegisterRequest", "Empty") } },
  DevicePlugin: {
    methods: {
      GetDevicePluginOptions: method("Empty", "DevicePluginOptions"),
      ListAndWatch: method("Empty", "ListAndWatchResponse", true),
      Allocate: method("AllocateRequest", "AllocateResponse"),
    },
  },
};

function serviceOf(name: "Registration" | "DevicePlugin"): ServiceDefinition {
  const root = { nested: { v1beta1: { nested } } };
  const found = fromJSON(root, { defaults: true, arrays: true })[`v1beta1.${name}`];
  if (found === undefined || "format" in found) throw new TypeError(`no service ${name}`);
  return found;
}

export interface DevicePluginOptions {
  /** The kubelet's folder of device plugins, as the test finds it: `/var/lib/kubelet/device-plugins` of the node. */
  readonly folder: string;
  /** `podnet.test/slot` */
  readonly resource: string;
  readonly ids: readonly string[];
}

interface Allocation {
  readonly containerRequests: readonly { readonly devicesIDs: readonly string[] }[];
}
type Empty = Record<string, never>;

/** A device plugin with slots of a bridge as its devices: all healthy, each can be given to one container. */
export class DevicePlugin implements AsyncDisposable {
  /** Ids in the order in which the kubelet gave them to containers. */
  readonly allocated: string[] = [];
  readonly #options: DevicePluginOptions;
  readonly #server = new Server();
  readonly #socket: string;
  #proxy: NetServer | undefined;

  private constructor(options: DevicePluginOptions) {
    this.#options = options;
    this.#socket = `${options.resource.replaceAll(/\W/g, "-")}.sock`;
  }

  /** Serves, and tells the kubelet. */
  static async start(options: DevicePluginOptions): Promise<DevicePlugin> {
    const plugin = new DevicePlugin(options);
    await plugin.#serve();
    await plugin.#register();
    return plugin;
  }

  async #serve(): Promise<void> {
    this.#server.addService(serviceOf("DevicePlugin"), {
      GetDevicePluginOptions: (_: ServerUnaryCall<Empty, object>, answer: sendUnaryData<object>) =>
        answer(null, {}),
      // The stream stays open: the kubelet takes its end for the plugin's.
      ListAndWatch: (stream: ServerWritableStream<Empty, object>) => {
        stream.write({ devices: this.#options.ids.map((ID) => ({ ID, health: "Healthy" })) });
      },
      Allocate: (call: ServerUnaryCall<Allocation, object>, answer: sendUnaryData<object>) => {
        const { containerRequests } = call.request;
        this.allocated.push(...containerRequests.flatMap(({ devicesIDs }) => devicesIDs));
        answer(null, {
          containerResponses: containerRequests.map(({ devicesIDs }) => ({
            envs: { PODNET_SLOTS: devicesIDs.join(" ") },
          })),
        });
      },
    });
    const own = join(this.#options.folder, `inner-${this.#socket}`);
    await new Promise<void>((done, failed) =>
      this.#server.bindAsync(`unix:${own}`, ServerCredentials.createInsecure(), (error) =>
        error === null ? done() : failed(error),
      ),
    );
    this.#proxy = await openAuthorityProxy(join(this.#options.folder, this.#socket), own);
  }

  async #register(): Promise<void> {
    const { folder, resource } = this.#options;
    const client = new Client(`unix:${join(folder, "kubelet.sock")}`, credentials.createInsecure());
    const register = serviceOf("Registration")["Register"];
    if (register === undefined) throw new TypeError("no method Register");
    const asked = { version: "v1beta1", endpoint: this.#socket, resourceName: resource };
    await new Promise<void>((done, failed) =>
      client.makeUnaryRequest(
        register.path,
        register.requestSerialize,
        register.responseDeserialize,
        asked,
        new Metadata(),
        { deadline: Date.now() + 10_000 },
        (error) => (error === null ? done() : failed(error)),
      ),
    );
    client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#proxy?.close();
    this.#server.forceShutdown();
    for (const name of [this.#socket, `inner-${this.#socket}`])
      rmSync(join(this.#options.folder, name), { force: true });
  }
}

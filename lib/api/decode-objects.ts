import type { z } from "zod";
import { DecodeError, type Fault, formatPath } from "../base/decode.ts";
import { isJsonObject, type Json, type JsonObject } from "../base/json.ts";
import { apiVersion, kinds, nadApiVersion, providers, quote } from "./names.ts";
import { unknownKeyText } from "./nearest.ts";
import { nadSchema, podNetworkAttachmentSchema, podNetworkSchema } from "./object-schema.ts";
import type { Nad, ObjectMeta, PodNetwork, PodNetworkAttachment } from "./objects.ts";

/** A decoded object, and what is odd about it but no fault: keys that podnet does not know. */
export interface Decoded<T> {
  readonly value: T;
  readonly warnings: readonly Fault[];
}

export type NetworkObject = PodNetwork | PodNetworkAttachment | Nad;

/** Decodes any of the kinds by its apiVersion and kind. Throws a DecodeError with all faults, also for another kind. */
export function decodeNetworkObject(value: unknown): Decoded<NetworkObject> {
  const head = isJsonObject(value) ? value : {};
  const kind = head["kind"];
  if (kind === kinds.podNetwork) return decodePodNetwork(value);
  if (kind === kinds.podNetworkAttachment) return decodePodNetworkAttachment(value);
  if (kind === kinds.nad) return decodeNad(value);
  const known = `${kinds.podNetwork} and ${kinds.podNetworkAttachment} (${apiVersion}), ${kinds.nad} (${nadApiVersion})`;
  const message = `${kind === undefined ? "missing" : shown(kind)}: podnet reads ${known}`;
  throw new DecodeError("manifest", [{ path: "kind", message }]);
}

/** Decodes a PodNetwork (spec A.1). Throws a DecodeError with all faults. */
export function decodePodNetwork(value: unknown): Decoded<PodNetwork> {
  const faults: Fault[] = [];
  const object = decodeWith(podNetworkSchema, value, faults);
  const provider = object?.spec.provider ?? providers.cni;
  for (const fault of parameterFaults(value, provider)) faults.push(fault);
  if (object === undefined || faults.length > 0)
    throw new DecodeError(titleOf(kinds.podNetwork, value), faults);
  const { enabled, parametersRefs, parameters, ipam4, ipam6 } = object.spec;
  return {
    value: {
      kind: "PodNetwork",
      metadata: readMeta(object.metadata),
      spec: {
        enabled,
        provider,
        parametersRefs: parametersRefs.map(readRef),
        ...(parameters === undefined ? {} : { parameters }),
        ...(ipam4 === undefined ? {} : { ipam4 }),
        ...(ipam6 === undefined ? {} : { ipam6 }),
      },
    },
    warnings: unknownKeys(value, podNetworkSchema),
  };
}

/** Decodes a PodNetworkAttachment (spec A.2). Throws a DecodeError with all faults. */
export function decodePodNetworkAttachment(value: unknown): Decoded<PodNetworkAttachment> {
  const faults: Fault[] = [];
  const object = decodeWith(podNetworkAttachmentSchema, value, faults);
  if (object === undefined)
    throw new DecodeError(titleOf(kinds.podNetworkAttachment, value), faults);
  const { podNetworkName, parametersRefs } = object.spec;
  return {
    value: {
      kind: "PodNetworkAttachment",
      metadata: { ...readMeta(object.metadata), namespace: object.metadata.namespace },
      spec: { podNetworkName, parametersRefs: parametersRefs.map(readRef) },
    },
    warnings: unknownKeys(value, podNetworkAttachmentSchema),
  };
}

/** Decodes a NetworkAttachmentDefinition (spec B.1); its config stays text. Throws a DecodeError with all faults. */
export function decodeNad(value: unknown): Decoded<Nad> {
  const faults: Fault[] = [];
  const object = decodeWith(nadSchema, value, faults);
  if (object === undefined) throw new DecodeError(titleOf(kinds.nad, value), faults);
  const config = "config" in object.spec ? object.spec.config : undefined;
  return {
    value: {
      kind: "NetworkAttachmentDefinition",
      metadata: { ...readMeta(object.metadata), namespace: object.metadata.namespace },
      ...(typeof config === "string" && config.trim() !== "" ? { config } : {}),
    },
    warnings: [],
  };
}

/** An object with more was not written by a person; it would only be kept. */
const mostFaults = 100;
/** As of every network configuration (lib/cni/conflist.ts). */
const mostPlugins = 64;

function decodeWith<T extends z.ZodType>(
  schema: T,
  value: unknown,
  faults: Fault[],
): z.output<T> | undefined {
  const outcome = schema.safeParse(value);
  if (outcome.success) return outcome.data;
  for (const { path, message } of outcome.error.issues.slice(0, mostFaults)) {
    const missing = path.length > 0 && valueAt(value, path) === undefined;
    faults.push({ path: formatPath(path), message: missing ? `missing: ${message}` : message });
  }
  return undefined;
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  let at = value;
  for (const key of path)
    at = typeof at === "object" && at !== null ? Reflect.get(at, key) : undefined;
  return at;
}

/** Any value for one line of text; `String()` fails on an object that has a key `toString`. */
function shown(value: unknown): string {
  return typeof value === "string" ? quote(value) : quote(JSON.stringify(value)).slice(1, -1);
}

/** `PodNetwork "blue"`, as far as the value says. */
function titleOf(kind: string, value: unknown): string {
  const metadata = isJsonObject(value) ? value["metadata"] : undefined;
  const name = isJsonObject(metadata) ? metadata["name"] : undefined;
  return typeof name === "string" ? `${kind} ${quote(name)}` : kind;
}

/** Parameters of podnet's own provider: one plugin configuration, or a list of them. */
function parameterFaults(value: unknown, provider: string): Fault[] {
  const spec = isJsonObject(value) ? value["spec"] : undefined;
  const parameters = isJsonObject(spec) ? spec["parameters"] : undefined;
  if (provider !== providers.cni || !isJsonObject(parameters)) return [];
  const { plugins } = parameters;
  if (plugins === undefined) return typeFaults(parameters, "spec.parameters");
  const path = "spec.parameters.plugins";
  if (!Array.isArray(plugins)) return [{ path, message: "must be a list" }];
  if (plugins.length === 0) return [{ path, message: "must have at least one plugin" }];
  if (plugins.length > mostPlugins) {
    return [{ path, message: `must have at most ${mostPlugins} plugins, not ${plugins.length}` }];
  }
  return (plugins as readonly Json[]).flatMap((plugin, index) => {
    const at = `${path}[${index}]`;
    return isJsonObject(plugin)
      ? typeFaults(plugin, at)
      : [{ path: at, message: "must be an object" }];
  });
}

function typeFaults(plugin: JsonObject, path: string): Fault[] {
  const { type } = plugin;
  if (type === undefined) {
    return [{ path: `${path}.type`, message: 'missing: the plugin, as in "bridge"' }];
  }
  if (typeof type === "string" && type !== "") return [];
  return [{ path: `${path}.type`, message: "must be the name of a plugin" }];
}

type SchemaOutput = z.output<typeof podNetworkSchema>;

function readRef(ref: SchemaOutput["spec"]["parametersRefs"][number]) {
  const { group, kind, name, namespace } = ref;
  return { group, kind, name, ...(namespace === undefined ? {} : { namespace }) };
}

function readMeta(meta: SchemaOutput["metadata"]): ObjectMeta {
  const { name, uid, generation, deletionTimestamp, labels, annotations } = meta;
  return {
    name,
    labels,
    annotations,
    ...(uid === undefined ? {} : { uid }),
    ...(generation === undefined ? {} : { generation }),
    ...(deletionTimestamp === undefined ? {} : { deletionTimestamp }),
  };
}

/** Keys of the object and of its spec that podnet does not know; nothing reads them. */
function unknownKeys(
  value: unknown,
  schema: typeof podNetworkSchema | typeof podNetworkAttachmentSchema,
): Fault[] {
  if (!isJsonObject(value)) return [];
  const { spec } = value;
  const specKeys = Object.keys(schema.shape.spec.shape);
  return [
    ...keysOutside(value, [...Object.keys(schema.shape), "status"], ""),
    ...(isJsonObject(spec) ? keysOutside(spec, specKeys, "spec") : []),
  ];
}

function keysOutside(object: JsonObject, known: readonly string[], path: string): Fault[] {
  return Object.keys(object)
    .filter((key) => !known.includes(key))
    .slice(0, 20)
    .map((key) => ({ path, message: unknownKeyText(key, known) }));
}

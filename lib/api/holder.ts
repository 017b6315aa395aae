import { isJsonObject, type JsonObject } from "../base/json.ts";

/** The pod that has the fixed addresses of a PodNetworkAttachment, in the attachment's namespace. */
export interface Holder {
  readonly name: string;
  readonly uid: string;
}

/** `status.holder` of a PodNetworkAttachment; undefined: nobody. */
export function readHolder({ status }: JsonObject): Holder | undefined {
  const holder = isJsonObject(status) ? status["holder"] : undefined;
  const { name, uid } = isJsonObject(holder) ? holder : {};
  return typeof name === "string" && typeof uid === "string" ? { name, uid } : undefined;
}

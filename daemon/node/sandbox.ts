import { errorCode, errorText } from "../../lib/base/errors.ts";
import { Netns, NetnsError } from "../../lib/base/netns.ts";
import { isPassing } from "../../lib/base/passing.ts";
import { CniError, cniCode } from "../../lib/cni/errors.ts";
import { Rtnetlink } from "../../lib/netlink/rtnetlink.ts";
import type { Sandbox } from "../plugins/plugin.ts";
import type { SandboxRecord } from "./record.ts";

/** A sandbox for the length of one operation; disposing of it closes the namespace and the socket in it. */
export interface OpenSandbox extends Sandbox, Disposable {
  /** SO_NETNS_COOKIE, decimal: no other namespace of this boot ever has it. */
  readonly cookie: string;
}

function open(path: string): OpenSandbox {
  const netns = Netns.open(path);
  try {
    const rtnl = Rtnetlink.open(netns);
    return {
      path,
      netns,
      rtnl,
      cookie: String(netns.cookie()),
      [Symbol.dispose]: () => {
        rtnl.close();
        netns.close();
      },
    };
  } catch (error) {
    netns.close();
    throw error;
  }
}

/** A NetnsError says by itself what was to be opened; what fails in an open namespace (a socket) does not. */
function openFault(path: string, error: unknown): string {
  if (error instanceof NetnsError) return error.message;
  return `open network namespace "${path}": ${errorText(error)}`;
}

/**
 * Opens the namespace that the runtime names. Throws code 3 when it is gone, code 8 when the path is no network namespace, and code 11 when it can't be opened
 * now, as without descriptors.
 */
export function openSandbox(path: string): OpenSandbox {
  try {
    return open(path);
  } catch (error) {
    throw new CniError(openCode(error), openFault(path, error), { cause: error });
  }
}

function openCode(error: unknown): number {
  if (errorCode(error) === "ENOENT") return cniCode.unknownContainer;
  return isPassing(error) ? cniCode.tryAgainLater : cniCode.invalidNetns;
}

/** What opening a path says when no network namespace is there any more; anything else is "can't tell". */
const gone = new Set(["ENOENT", "ENOTDIR", "ESRCH", "EINVAL"]);

/**
 * Opens the namespace that a record was made in, if it is still the same one: a path that is gone, one that now names
 * another namespace (inodes are reused at once, cookies are not before a reboot), and a record of another boot give undefined.
 * `path`: where the runtime says it is now. Throws a CniError (code 11) when nobody can tell: what lives must not be taken for gone.
 */
export function reopenSandbox(
  bootId: string,
  record: SandboxRecord,
  path: string | undefined = record.netns,
): OpenSandbox | undefined {
  if (record.bootId !== bootId) return undefined;
  for (const place of new Set([path, record.netns])) {
    const sandbox = place === undefined || place === "" ? undefined : openIfThere(place);
    if (sandbox?.cookie === record.netnsCookie) return sandbox;
    sandbox?.[Symbol.dispose]();
  }
  return undefined;
}

function openIfThere(path: string): OpenSandbox | undefined {
  try {
    return open(path);
  } catch (error) {
    if (gone.has(errorCode(error) ?? "")) return undefined;
    const message = `${openFault(path, error)}: whether it still exists is unknown`;
    throw new CniError(cniCode.tryAgainLater, message, { cause: error });
  }
}

/**
 * The namespace of a sandbox that somebody else attached, as a record has it: nobody kept its cookie, so the runtime's word counts. The node's own
 * namespace is no sandbox: executables would delete the node's interfaces in it.
 */
export function foreignNetns(
  { hostNetns }: { readonly hostNetns: Netns },
  path: string | undefined,
): Pick<SandboxRecord, "netns" | "netnsCookie"> {
  if (path === undefined) return {};
  using sandbox = openIfThere(path);
  if (sandbox === undefined) return { netns: path };
  if (sandbox.cookie === String(hostNetns.cookie())) return {};
  return { netns: path, netnsCookie: sandbox.cookie };
}

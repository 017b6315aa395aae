import { errorText } from "../../../lib/base/errors.ts";
import type { KubeClient } from "../../../lib/kube/client.ts";
import type { KubeNode, WatchState } from "../kube/node.ts";
import { type CredentialLife, credentialFindings, credentialLives } from "./credentials.ts";
import { duration, error, type Finding, ok, orFine, warn } from "./finding.ts";

/** Milliseconds that the API server has for the one question. */
const questionTimeout = 5_000;
/** Seconds without a word after which a watch is dead: a bookmark a minute is usual. */
const silent = 150;

/** Whether the API server answers, as whom, and how fresh what podnetd knows is. */
export async function clusterFindings(kube: KubeNode): Promise<Finding[]> {
  return [
    await apiFinding(kube.client),
    ...(await lifeFindings(kube.client)),
    ...watchFindings(kube.watches()),
  ];
}

async function apiFinding(client: KubeClient): Promise<Finding> {
  const started = performance.now();
  try {
    const { server } = await client.connection();
    await client.request({ path: "/version", timeout: questionTimeout });
    const ms = Math.round(performance.now() - started);
    return ok("api", `${server} answered in ${ms} ms`);
  } catch (cause) {
    const todo =
      "look at the API server, the node's way to it, and podnetd's rights; pods whose networks are known go on";
    return error("api", `the API server can't be asked: ${errorText(cause)}`, todo);
  }
}

async function lifeFindings(client: KubeClient): Promise<Finding[]> {
  let lives: CredentialLife[];
  try {
    lives = credentialLives(await client.connection());
  } catch (cause) {
    return [error("credentials", errorText(cause), "correct the kubeconfig or its files")];
  }
  return credentialFindings(lives);
}

/** What each watch is worth. */
export function watchFindings(watches: readonly WatchState[]): Finding[] {
  const findings = watches.flatMap(({ kind, current, age }): Finding[] => {
    if (age === undefined) {
      const todo = "see podnetd's log: rights, or a kind that the server does not have";
      return [error("watch", `${kind}: the API server never answered`, todo)];
    }
    if (age > silent) {
      const text = `${kind}: nothing was heard for ${duration(age)}`;
      return [error("watch", text, "what podnetd knows may be old: look at the API server")];
    }
    if (current) return [];
    return [
      warn(
        "watch",
        `${kind}: no watch is open, ${duration(age)} old`,
        "podnetd opens it again by itself",
      ),
    ];
  });
  const ages = watches.map(({ kind, age }) => `${kind} ${duration(age ?? 0)}`).join(", ");
  return orFine(findings, ok("watch", `the last word came before: ${ages}`));
}

// biome-ignore lint/suspicious/noExplicitAny: manifests are looked into
type Manifest = any;

/** One request of the API, as admission sees it. */
export interface ChainRequest {
  readonly operation: "CREATE" | "UPDATE" | "DELETE" | "CONNECT";
  readonly group: string;
  readonly version: string;
  /** Plural; with a subresource `pods/status`. */
  readonly resource: string;
  readonly namespace?: string;
  /** Of the namespace. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Empty where all objects of a kind are deleted at once. */
  readonly name?: string;
  readonly object?: Manifest;
  readonly oldObject?: Manifest;
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly apiVersions: readonly string[];
  readonly operations: readonly string[];
  readonly resources: readonly string[];
  readonly scope?: string;
}

const has = (list: readonly string[], value: string) => list.includes("*") || list.includes(value);

/** As an API server matches rules: a subresource only where it is named, `*` everything, scopes exactly. */
function matchesRule(rule: Rule, { operation, group, version, resource, namespace }: ChainRequest) {
  const scope = namespace === undefined ? "Cluster" : "Namespaced";
  const plain = !resource.includes("/");
  const named = rule.resources.some(
    (one) => one === resource || one === "*/*" || (one === "*" && plain),
  );
  const scoped = ["*", undefined, scope].includes(rule.scope);
  const of = has(rule.apiGroups, group) && has(rule.apiVersions, version);
  return named && scoped && of && has(rule.operations, operation);
}

function matchesLabels(selector: Manifest, { namespace, labels = {} }: ChainRequest): boolean {
  // Objects of the whole cluster are never left out by a namespace's labels.
  if (namespace === undefined) return true;
  return (selector?.matchExpressions ?? []).every(({ key, operator, values }: Manifest) => {
    if (operator !== "NotIn") throw new Error(`operator ${operator}: not known here`);
    return labels[key] === undefined || !values.includes(labels[key]);
  });
}

/** The webhooks that an API server asks about the request, as `Kind name: path`. */
export function askedWebhooks(objects: readonly Manifest[], request: ChainRequest): string[] {
  return objects
    .filter(({ kind }) => /^(Validat|Mutat)ingWebhookConfiguration$/.test(kind))
    .flatMap(({ webhooks }) => webhooks)
    .filter((one) => one.rules.some((rule: Rule) => matchesRule(rule, request)))
    .filter((one) => matchesLabels(one.namespaceSelector, request))
    .map((one) => `${one.name} ${one.clientConfig.service.path}`);
}

/** What the policies that are bound to deny say against the request; the few expressions that podnet's own have are evaluated. */
export function policyRefusals(objects: readonly Manifest[], request: ChainRequest): string[] {
  const bound = objects
    .filter(({ kind }) => kind === "ValidatingAdmissionPolicyBinding")
    .filter(({ spec }) => spec.validationActions.includes("Deny"))
    .map(({ spec }) => spec.policyName);
  return objects
    .filter(({ kind }) => kind === "ValidatingAdmissionPolicy")
    .filter(({ metadata }) => bound.includes(metadata.name))
    .filter(({ spec }) =>
      spec.matchConstraints.resourceRules.some((rule: Rule) => matchesRule(rule, request)),
    )
    .filter(({ spec }) =>
      (spec.matchConditions ?? []).every((one: Manifest) => holds(one.expression, request)),
    )
    .flatMap(({ spec }) =>
      spec.validations
        .filter(({ expression }: Manifest) => !holds(expression, request))
        .map(({ message }: Manifest) => message),
    );
}

/** `true`, `false`, and `path == "text"`; a path that leads nowhere is an error, as on a server. */
function holds(expression: string, request: ChainRequest): boolean {
  if (/^(true|false)$/.test(expression)) return expression === "true";
  const [, path = "", text = ""] = /^([\w.]+) == "([^"]*)"$/.exec(expression) ?? [];
  if (path === "") throw new Error(`expression not known here: ${expression}`);
  const value = path
    .replace(/^request\./, "")
    .split(".")
    .reduce((at: Manifest, key) => {
      if (at?.[key] === undefined) throw new Error(`no such key: ${key}`);
      return at[key];
    }, request);
  return value === text;
}

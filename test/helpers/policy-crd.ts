import { readFileSync } from "node:fs";
import { parseAllDocuments } from "yaml";

/** Group and path of the kind that a policy becomes. */
const group = "policy.test";
export const policyCases = (plural: string) => `/apis/${group}/v1/${plural}`;

// biome-ignore lint/suspicious/noExplicitAny: manifests are looked into
type Manifest = any;

/** The ValidatingAdmissionPolicy of a manifest. */
function policyOf(file: string): Manifest {
  const documents = parseAllDocuments(readFileSync(file, "utf8"));
  return documents
    .map((one) => one.toJS() as Manifest)
    .find(({ kind }) => kind === "ValidatingAdmissionPolicy");
}

const text = { type: "string", maxLength: 100 };
const texts = { type: "object", maxProperties: 8, additionalProperties: text };
const object = (properties: object) => ({ type: "object", properties });

/** An object as far as the policies look at it. */
const pod = object({
  metadata: object({ name: text, annotations: texts, labels: texts }),
  spec: object({ nodeName: text }),
  status: object({ phase: text }),
});
const extra = {
  type: "object",
  maxProperties: 4,
  additionalProperties: { type: "array", maxItems: 4, items: text },
};
const request = object({ userInfo: object({ username: text, extra }) });

/**
 * A definition, by the plural, whose objects hold what a ValidatingAdmissionPolicy sees (`spec.object`, `spec.oldObject`, `spec.request`) and whose rules are the
 * policy's own expressions: an API server for custom resources evaluates them as one for pods would.
 */
export function policyDefinition(file: string, plural: string): object {
  const kind = `${plural.charAt(0).toUpperCase()}${plural.slice(1, -1)}`;
  const { variables = [], validations, matchConditions = [] } = policyOf(file).spec;
  const expand = (expression: string): string => {
    let expanded = expression;
    for (const { name, expression: value } of variables.toReversed())
      expanded = expanded.replaceAll(`variables.${name}`, `(${value})`);
    // For a policy both are one type, the pod's; in a schema each place has a type of its own.
    const typeless = expanded.replaceAll(/\b(object|oldObject)\.status\b/g, "dyn($1.status)");
    return typeless.replaceAll(/\b(object|oldObject|request)\./g, "self.$1.");
  };
  const matches = matchConditions.map(({ expression }: Manifest) => `(${expand(expression)})`);
  const rules = validations.map(({ expression, message, messageExpression }: Manifest) => ({
    rule: `!(${matches.join(" && ")}) || (${expand(expression)})`,
    ...(message === undefined ? {} : { message }),
    ...(messageExpression === undefined ? {} : { messageExpression: expand(messageExpression) }),
  }));
  const spec = {
    ...object({ object: pod, oldObject: pod, request }),
    "x-kubernetes-validations": rules,
  };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: "Cluster",
      names: { kind, plural, singular: plural.replace(/s$/, ""), listKind: `${kind}List` },
      versions: [
        {
          name: "v1",
          served: true,
          storage: true,
          schema: { openAPIV3Schema: object({ spec }) },
        },
      ],
    },
  };
}

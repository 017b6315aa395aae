import type { ParametersRef, PodNetwork } from "../../lib/api/objects.ts";
import type { ControllerContext } from "./context.ts";
import type { KeptAttachment, KeptNetwork } from "./kept-objects.ts";
import { isOwnProvider, type Verdict, vetParams } from "./params.ts";

/** Vets parameters with the NADs that are known now. Inline parameters never change, so they are vetted once. */
export class Judge {
  readonly #context: Pick<ControllerContext, "stores">;
  readonly #inline = new WeakMap<PodNetwork, Verdict>();

  constructor(context: Pick<ControllerContext, "stores">) {
    this.#context = context;
  }

  /** undefined: they are another provider's, or the object can't be read. */
  network({ object }: KeptNetwork): Verdict | undefined {
    if (object === undefined || !isOwnProvider(object.spec.provider)) return undefined;
    if (object.spec.parametersRefs.length > 0) return this.#vet(object, []);
    const known = this.#inline.get(object) ?? this.#vet(object, []);
    this.#inline.set(object, known);
    return known;
  }

  /** Of an attachment's own parameters; undefined: it has none, or they are another provider's. */
  attachment({ object }: KeptAttachment, network: KeptNetwork | undefined): Verdict | undefined {
    const of = network?.object;
    if (object === undefined || of === undefined || !isOwnProvider(of.spec.provider))
      return undefined;
    const refs = object.spec.parametersRefs;
    if (refs.length === 0) return undefined;
    const { namespace } = object.metadata;
    return this.#vet(
      of,
      refs.map((ref) => ({ namespace, ...ref })),
    );
  }

  #vet(network: PodNetwork, refs: readonly ParametersRef[]): Verdict {
    const { nads } = this.#context.stores;
    return vetParams(network, refs, (namespace, name) => nads.get({ namespace, name }));
  }
}

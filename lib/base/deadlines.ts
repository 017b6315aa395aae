/**
 * A signal that ends after `milliseconds`, or with any of `others` before. The reason says what took too long.
 * `milliseconds` is a whole number below 2^31.
 */
export function deadline(
  milliseconds: number,
  what: string,
  others: readonly AbortSignal[] = [],
): AbortSignal & Disposable {
  const controller = new AbortController();
  const timer = setTimeout(
    () => controller.abort(new DeadlineError(`${what}: no end within ${milliseconds} ms`)),
    milliseconds,
  );
  const dispose = (): void => clearTimeout(timer);
  const signal = AbortSignal.any([controller.signal, ...others]);
  return Object.assign(signal, { [Symbol.dispose]: dispose });
}

export class DeadlineError extends Error {
  override readonly name = "DeadlineError";
}

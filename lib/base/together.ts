/**
 * The values of work that goes on at the same time. Waits for all of it, also after a failure, so that nothing goes on behind the caller's back,
 * and rejects with the failure that comes first in the list.
 */
export async function together<const T extends readonly Promise<unknown>[]>(
  work: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  await Promise.allSettled(work);
  return await Promise.all(work);
}

/**
 * The three functions of the Reflect metadata proposal that the container inside @peculiar/x509 asks for: it refuses to load without
 * them. Import this file before that package. Does nothing where somebody has defined them already.
 */
type Keys = Map<unknown, unknown>;

const known = new WeakMap<object, Keys>();

function getOwnMetadata(key: unknown, target: object): unknown {
  return known.get(target)?.get(key);
}

function getMetadata(key: unknown, target: object): unknown {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at)) {
    if (known.get(at)?.has(key) === true) return getOwnMetadata(key, at);
  }
  return undefined;
}

function defineMetadata(key: unknown, value: unknown, target: object): void {
  const keys: Keys = known.get(target) ?? new Map();
  keys.set(key, value);
  known.set(target, keys);
}

if (!("getMetadata" in Reflect)) {
  Object.assign(Reflect, { getMetadata, getOwnMetadata, defineMetadata });
}

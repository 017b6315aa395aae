import { type Document, isNode, isScalar, LineCounter, parseAllDocuments, visit } from "yaml";
import { errorText } from "../../lib/base/errors.ts";

/** One document of a YAML or JSON text. */
export interface YamlDocument {
  readonly value: unknown;
  /** The line, from 1, of the value at a path, or of what is there of the path. */
  lineOf(path: readonly PropertyKey[]): number;
}

/** A document that can't be read, or what is wrong with it. */
export type YamlResult = YamlDocument | { readonly line: number; readonly message: string };

/** A YAML text may have so many characters: hundreds of networks, and half a second of parsing. */
export const longestYaml = 262_144;

/** Lists and objects may be nested so deep; the parser would run out of stack far beyond. */
const deepest = 500;

/**
 * Parses YAML (JSON is YAML too) of one or more documents; empty ones are left out. Never throws: a document that is broken does
 * not hide the others. A key that occurs twice, more aliases than a person writes, and unknown tags are faults.
 */
export function parseYaml(text: string): readonly YamlResult[] {
  if (text.length > longestYaml) {
    const message = `must have at most ${longestYaml} characters, not ${text.length}`;
    return [{ line: 1, message }];
  }
  if (nestsTooDeep(text)) return [{ line: 1, message: `nested deeper than ${deepest} levels` }];
  const lines = new LineCounter();
  try {
    const documents = parseAllDocuments(text, {
      lineCounter: lines,
      // Looked for below: the parser compares each key of a map with each other one.
      uniqueKeys: false,
      logLevel: "silent",
      prettyErrors: false,
    });
    return [...documents].flatMap((document) => read(document, lines));
  } catch (error) {
    return [{ line: 1, message: errorText(error) }];
  }
}

/** Brackets or indentation that only a machine writes. */
function nestsTooDeep(text: string): boolean {
  let depth = 0;
  for (const [bracket] of text.matchAll(/[[\]{}]/g)) {
    depth += bracket === "[" || bracket === "{" ? 1 : -1;
    if (depth > deepest) return true;
  }
  return /^[ ]{1000}|^ *(?:[-?] ?){250}/m.test(text);
}

function read(document: Document.Parsed, lines: LineCounter): readonly YamlResult[] {
  const [first] = [...document.errors, ...document.warnings];
  if (first !== undefined) {
    return [{ line: lines.linePos(first.pos[0]).line, message: first.message }];
  }
  if (document.contents === null) return [];
  const repeated = repeatedKey(document);
  if (repeated !== undefined) {
    const message = `key ${JSON.stringify(repeated.key)} occurs twice in one map`;
    return [{ line: lines.linePos(repeated.offset).line, message }];
  }
  try {
    const value: unknown = document.toJS({ maxAliasCount: 100 });
    return value === null ? [] : [{ value, lineOf: (path) => lineOf(document, lines, path) }];
  } catch (error) {
    return [{ line: lines.linePos(document.range[0]).line, message: errorText(error) }];
  }
}

/** The first key that a map has twice. */
function repeatedKey(document: Document.Parsed): { key: string; offset: number } | undefined {
  let found: { key: string; offset: number } | undefined;
  visit(document, {
    Map(_, map) {
      const seen = new Set<string>();
      for (const { key } of map.items) {
        if (!isScalar(key)) continue;
        const name = String(key.value);
        if (seen.has(name)) {
          found = { key: name, offset: key.range?.[0] ?? 0 };
          return visit.BREAK;
        }
        seen.add(name);
      }
      return undefined;
    },
  });
  return found;
}

function lineOf(
  document: Document.Parsed,
  lines: LineCounter,
  path: readonly PropertyKey[],
): number {
  for (let length = path.length; length > 0; length--) {
    const node = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
  }
  return lines.linePos(document.contents?.range[0] ?? document.range[0]).line;
}

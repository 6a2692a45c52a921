// Writes schema/ts/hpc.ts from schema/json/*.json, or with --check compares it with what it would write.
// All schemas become one: each type stands once, under the name that it has in Rust.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { compile } from "json-schema-to-typescript";

const root = new URL("../../../", import.meta.url);
const folder = new URL("schema/json/", root);
const target = new URL("schema/ts/hpc.ts", root);

// The generator copies a type whose reference has a neighbour, such as a description; a list of one keeps both.
function apart(schema) {
  if (Array.isArray(schema)) return schema.map(apart);
  if (schema === null || typeof schema !== "object") return schema;
  const { $ref, ...others } = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, apart(value)]));
  if ($ref === undefined) return others;
  // A default would make the generator guess a type of its own beside the named one.
  const { default: _, ...rest } = others;
  return Object.keys(rest).length === 0 ? { $ref } : { ...rest, allOf: [{ $ref }] };
}

const definitions = {};
function define(name, schema, file) {
  if (name in definitions && !isDeepStrictEqual(definitions[name], schema)) {
    throw new Error(`${file}: another ${name} than in the files before`);
  }
  definitions[name] = schema;
}
for (const file of readdirSync(folder).filter((name) => name.endsWith(".json")).sort()) {
  const { $defs, $schema, title, ...schema } = JSON.parse(readFileSync(new URL(file, folder), "utf8"));
  for (const [name, definition] of Object.entries($defs ?? {})) define(name, definition, file);
  define(title, schema, file);
}

// A root that is nothing but the list; its own type is cut off below.
const bundle = { title: "Everything", type: "object", additionalProperties: false, $defs: apart(definitions) };
const banner = `/* Written by tests/interop/types/generate.mjs from schema/json; do not edit.
   64-bit integers are numbers here, as JSON.parse makes them: exact up to 2^53 - 1. */`;
const text = await compile(bundle, "Everything", {
  additionalProperties: false,
  bannerComment: banner,
  enableConstEnums: false,
  format: true,
  style: { printWidth: 120 },
  unreachableDefinitions: true,
});
const written = text
  .replace(/export interface Everything \{\}\n/, "")
  .replaceAll(/(?:\n \*)?\n \* This interface was referenced by `Everything`'s JSON-Schema\n \* via the `definition` "\w+"\./g, "");
const names = [...written.matchAll(/^export (?:type|interface) (\w+)/gm)].map((match) => match[1]);
const missing = Object.keys(definitions).filter((name) => !names.includes(name));
if (missing.length > 0 || names.length !== Object.keys(definitions).length) {
  throw new Error(`types and schemas are not the same list: ${names.filter((n) => !(n in definitions))}, ${missing}`);
}

if (process.argv.includes("--check")) {
  const committed = readFileSync(target, "utf8");
  if (committed !== written) {
    console.error("schema/ts/hpc.ts is not what schema/json gives. Remedy: npm run generate in tests/interop/types, then look at what changed");
    process.exit(1);
  }
} else {
  writeFileSync(target, written);
}
console.log(JSON.stringify({ types: names.length }));

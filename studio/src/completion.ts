// Words to complete a query with: types, properties and edges of the schema, functions, keywords.
import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import type { GraphType } from "./api";

const KEYWORDS = "query match return distinct order limit offset having not any all optional insert update delete set where";
const FUNCTIONS =
  "count sum avg min max collect lower upper length abs round coalesce date_part now search match_text fuzzy bm25 nearest rrf";

export function edgeWord(name: string): string {
  return name.slice(0, 1).toLowerCase() + name.slice(1);
}

export function completeFrom(types: GraphType[]) {
  const named: Completion[] = types.map((type) => ({
    label: type.kind === "edge" ? edgeWord(type.name) : type.name,
    type: type.kind === "edge" ? "method" : "class",
    detail: type.kind === "edge" ? `${type.source} → ${type.target}` : type.kind,
  }));
  const words: Completion[] = [
    ...named,
    ...KEYWORDS.split(" ").map((label) => ({ label, type: "keyword" })),
    ...FUNCTIONS.split(" ").map((label) => ({ label, type: "function" })),
  ];
  return (context: CompletionContext): CompletionResult | null => {
    const property = context.matchBefore(/\$\w+\.\w*/);
    if (property) {
      const variable = property.text.slice(1, property.text.indexOf("."));
      const from = property.from + variable.length + 2;
      return { from, options: propertiesOf(types, typeOf(context.state.doc.toString(), variable)) };
    }
    const word = context.matchBefore(/\w+/);
    if (!word && !context.explicit) return null;
    return { from: word?.from ?? context.pos, options: words };
  };
}

/** The type that a variable is bound to, as far as the text says it. */
function typeOf(text: string, variable: string): string | undefined {
  return new RegExp(`\\$${variable}\\s*:\\s*(\\w+)`).exec(text)?.[1];
}

function propertiesOf(types: GraphType[], name: string | undefined): Completion[] {
  const found = types.filter((type) => name === undefined || type.name === name);
  const properties = new Map(
    (found.length ? found : types).flatMap((type) => type.properties.map((each) => [each.name, each])),
  );
  return [...properties.values()].map((each) => ({ label: each.name, type: "property", detail: each.type }));
}

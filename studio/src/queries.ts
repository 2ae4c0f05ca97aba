// Queries that pages make up. Values travel as parameters; names come from the schema.
import type { Graph, GraphType, Row, Schema, Target } from "./api";

export interface Node {
  type: string;
  id: string;
  properties: Row;
}
export interface Edge {
  type: string;
  id: string;
  from: string;
  to: string;
  fromType: string;
  toType: string;
  properties: Row;
}
/** A way from a node: an edge type, in one direction. */
export interface Way {
  edge: GraphType;
  direction: "out" | "in";
}

/** An edge type as queries spell it. */
const edgeWord = (name: string) => name.slice(0, 1).toLowerCase() + name.slice(1);

export function typeNamed(schema: Schema, name: string): GraphType | undefined {
  return schema.types.find((type) => type.name === name);
}

function isEnd(schema: Schema, end: string | undefined, type: string): boolean {
  return end === type || (typeNamed(schema, type)?.implements?.includes(end ?? "") ?? false);
}

/** Every way that edges of the schema lead from nodes of a type. */
export function waysFrom(schema: Schema, type: string): Way[] {
  return schema.types
    .filter((each) => each.kind === "edge")
    .flatMap((edge) => [
      ...(isEnd(schema, edge.source, type) ? [{ edge, direction: "out" as const }] : []),
      ...(isEnd(schema, edge.target, type) ? [{ edge, direction: "in" as const }] : []),
    ]);
}

const hop = ({ edge, direction }: Way, name = "") => {
  const word = `${name ? `${name}:` : ""}${edgeWord(edge.name)}`;
  return direction === "out" ? `$n ${word} $o` : `$o ${word} $n`;
};

export async function findNode(graph: Graph, type: GraphType, id: string, target: Target): Promise<Node | null> {
  const text = `query entity($id: String) { match { $n: ${type.name} { id: $id } } return { $n.* as n } }`;
  const answer = await graph.query(text, { id }, target);
  return answer.rows.length ? nodeOf(type.name, answer.rows[0]!.n as Row) : null;
}

/** An edge, found among those between its two ends; without these, its history tells them. */
export async function findEdge(
  graph: Graph,
  type: GraphType,
  id: string,
  target: Target,
  ends?: { from: string; to: string },
): Promise<Edge | null> {
  const known = ends ?? (await lastEnds(graph, type, id, target));
  if (!known) return null;
  const text = `query edge($from: String, $to: String) { match { $a: ${type.source} { id: $from }  $b: ${type.target} { id: $to }  $a $e:${edgeWord(type.name)} $b } return { $e.* as e } }`;
  const answer = await graph.query(text, known, target);
  const found = answer.rows.map(({ e }) => edgeOf(type, e as Row)).find((edge) => edge.id === id);
  return found ?? null;
}

async function lastEnds(graph: Graph, type: GraphType, id: string, { branch }: Target) {
  const { versions } = await graph.history(`edge:${type.name}`, id, branch);
  const change = versions[0]?.change;
  const ends = (change?.after ?? change?.before)?.endpoints;
  return ends && { from: ends.from, to: ends.to };
}

/** How many edges lead each way from a node. */
export async function countWays(graph: Graph, schema: Schema, node: { type: string; id: string }, target: Target): Promise<{ way: Way; count: number }[]> {
  return Promise.all(
    waysFrom(schema, node.type).map(async (way) => {
      const text = `query ways($id: String) { match { $n: ${node.type} { id: $id }  ${hop(way, "$e")} } return { count($e) as n } }`;
      const answer = await graph.query(text, { id: node.id }, target);
      return { way, count: Number(answer.rows[0]?.n ?? 0) };
    }),
  );
}

/** The nodes that edges lead to, one way, with the edges. */
export async function follow(
  graph: Graph,
  node: { type: string; id: string },
  way: Way,
  target: Target,
  limit: number,
): Promise<{ nodes: Node[]; edges: Edge[] }> {
  const text = `query follow($id: String, $limit: I32) { match { $n: ${node.type} { id: $id }  ${hop(way, "$e")} } return { $e.* as e, $o.* as o, $o as k } order { k } limit $limit }`;
  const answer = await graph.query(text, { id: node.id, limit }, target);
  const end = way.direction === "out" ? way.edge.target! : way.edge.source!;
  const rows = answer.rows as { e: Row; o: Row }[];
  return {
    nodes: rows.map(({ o }) => nodeOf((o["@type"] as string) ?? end, o)),
    edges: rows.map(({ e, o }) => {
      const other = (o["@type"] as string) ?? end;
      const [fromType, toType] = way.direction === "out" ? [node.type, other] : [other, node.type];
      return { ...edgeOf(way.edge, e), fromType, toType };
    }),
  };
}

/** Nodes by id; those that are not there are left out. */
export async function findNodes(graph: Graph, type: GraphType, ids: string[], target: Target): Promise<Node[]> {
  const text = `query nodes($ids: [String]) { match { $n: ${type.name}  ($n) in $ids } return { $n.* as n } }`;
  const answer = await graph.query(text, { ids }, target);
  return answer.rows.map(({ n }) => nodeOf(type.name, n as Row));
}

const EDGES_MAX = 20_000;

/** Every edge between some nodes. */
export async function edgesBetween(graph: Graph, schema: Schema, nodes: Node[], target: Target): Promise<Edge[]> {
  const ids = new Map<string, string[]>();
  for (const node of nodes) ids.set(node.type, [...(ids.get(node.type) ?? []), node.id]);
  const known = new Set(nodes.map((node) => `${node.type} ${node.id}`));
  const asked = [...ids.keys()].flatMap((type) =>
    waysFrom(schema, type)
      .filter((way) => way.direction === "out" && [...ids.keys()].some((other) => isEnd(schema, way.edge.target, other)))
      .map((way) => ({ type, way })),
  );
  const found = await Promise.all(
    asked.map(async ({ type, way: { edge } }) => {
      // An end at an interface may be of any type: those on the canvas are picked afterwards.
      const others = ids.get(edge.target!);
      const text = `query between($from: [String]${others ? ", $to: [String]" : ""}) { match { $n: ${type}  ($n) in $from  $n $e:${edgeWord(edge.name)} $o  ${others ? "($o) in $to" : ""} } return { $e.* as e } limit ${EDGES_MAX} }`;
      const params = { from: ids.get(type), ...(others ? { to: others } : {}) };
      const answer = await graph.query(text, params, target);
      return answer.rows.map(({ e }) => ({ ...edgeOf(edge, e as Row), fromType: type }));
    }),
  );
  return found.flat().filter((edge) => known.has(`${edge.fromType} ${edge.from}`) && known.has(`${edge.toType} ${edge.to}`));
}

/** Nodes whose indexed texts have a word, or whose key begins with it; of one type or of all. */
export async function search(graph: Graph, schema: Schema, words: string, type: string | undefined, target: Target, limit: number): Promise<Node[]> {
  const asked = schema.types
    .filter((each) => each.kind === "node" && (!type || each.name === type))
    .map((each) => ({ each, clauses: clausesOf(each) }))
    .filter(({ clauses }) => clauses.length > 0 || words === "");
  const found = await Promise.all(
    asked.map(async ({ each, clauses }) => {
      const text = words
        ? `query find($words: String, $limit: I32) { match { $n: ${each.name}  any { ${clauses.join("  ")} } } return { $n.* as n, $n as k } order { k } limit $limit }`
        : `query some($limit: I32) { match { $n: ${each.name} } return { $n.* as n, $n as k } order { k } limit $limit }`;
      const answer = await graph.query(text, words ? { words, limit } : { limit }, target);
      return answer.rows.map(({ n }) => nodeOf(each.name, n as Row));
    }),
  );
  return found.flat();
}

function clausesOf(type: GraphType): string[] {
  const texts = type.properties.filter((each) => each.indexes?.includes("inverted"));
  const keys = type.properties.filter((each) => type.key?.includes(each.name) && each.kind === "string" && !each.values);
  return [...texts.map((each) => `search($n.${each.name}, $words)`), ...keys.map((each) => `$n.${each.name} starts_with $words`)];
}

// --- paths ---------------------------------------------------------------------------------------

export const PATH_STEPS_MAX = 8;
const NEXT_MAX = 20_000;

/** One step of a path: the edge type it went over, in its direction or against it, and where to. */
export interface Step {
  edge: string;
  direction: "out" | "in";
  node: { type: string; id: string };
}
type Reached = Map<string, { step: Step; from: string } | null>;
const keyOf = ({ type, id }: { type: string; id: string }) => `${type}:${id}`;

/** A shortest path over edges of some types, in either direction; null if there is none so short.
 *
 * Both ends are expanded in turns, the one with fewer nodes first, a step at a time. */
export async function pathBetween(
  graph: Graph,
  schema: Schema,
  edges: string[],
  from: { type: string; id: string },
  to: { type: string; id: string },
  target: Target,
): Promise<Step[] | null> {
  const sides = [from, to].map((end) => ({
    reached: new Map([[keyOf(end), null]]) as Reached,
    frontier: [{ type: end.type, id: end.id }],
  }));
  for (let steps = 0; steps < PATH_STEPS_MAX; steps++) {
    const [near, far] = sides[0]!.frontier.length <= sides[1]!.frontier.length ? [0, 1] : [1, 0];
    const [side, other] = [sides[near]!, sides[far]!];
    const next: Step["node"][] = [];
    for (const { from: start, step } of await stepsFrom(graph, schema, edges, side.frontier, target)) {
      const key = keyOf(step.node);
      if (side.reached.has(key)) continue;
      side.reached.set(key, { step, from: keyOf(start) });
      next.push(step.node);
      if (other.reached.has(key)) return joined(sides[0]!.reached, sides[1]!.reached, key);
    }
    if (next.length === 0) return null;
    side.frontier = next;
  }
  return null;
}

/** Every step from some nodes over edges of some types. */
async function stepsFrom(
  graph: Graph,
  schema: Schema,
  edges: string[],
  nodes: Step["node"][],
  target: Target,
): Promise<{ from: Step["node"]; step: Step }[]> {
  const ids = new Map<string, string[]>();
  for (const { type, id } of nodes) ids.set(type, [...(ids.get(type) ?? []), id]);
  const asked = [...ids.keys()].flatMap((type) =>
    waysFrom(schema, type).filter((way) => edges.includes(way.edge.name)).map((way) => ({ type, way })),
  );
  const found = await Promise.all(
    asked.map(async ({ type, way }) => {
      const end = way.direction === "out" ? way.edge.target! : way.edge.source!;
      const isMany = typeNamed(schema, end)?.kind === "interface";
      const text = `query next($ids: [String]) { match { $n: ${type}  ($n) in $ids  ${hop(way)} } return { $n as n, $o as o${isMany ? ", $o.@type as t" : ""} } limit ${NEXT_MAX} }`;
      const answer = await graph.query(text, { ids: ids.get(type) }, target);
      return answer.rows.map(({ n, o, t }) => ({
        from: { type, id: String(n) },
        step: { edge: way.edge.name, direction: way.direction, node: { type: String(t ?? end), id: String(o) } },
      }));
    }),
  );
  return found.flat();
}

/** The way from the first end to where both searches met, and on to the second. */
function joined(first: Reached, second: Reached, meeting: string): Step[] {
  const steps: Step[] = [];
  for (let at = first.get(meeting); at; at = first.get(at.from)) steps.unshift(at.step);
  for (let at = second.get(meeting); at; at = second.get(at.from)) {
    const colon = at.from.indexOf(":");
    const node = { type: at.from.slice(0, colon), id: at.from.slice(colon + 1) };
    steps.push({ edge: at.step.edge, direction: at.step.direction === "out" ? "in" : "out", node });
  }
  return steps;
}

function nodeOf(type: string, { id, "@type": _, ...properties }: Row): Node {
  return { type, id: String(id), properties };
}

function edgeOf(type: GraphType, { id, src, dst, src_type, dst_type, ...properties }: Row): Edge {
  return {
    type: type.name,
    id: String(id),
    from: String(src),
    to: String(dst),
    fromType: String(src_type ?? type.source),
    toType: String(dst_type ?? type.target),
    properties,
  };
}

/** What a person calls a node: a name, a title, a key, else its id. */
export function labelOf(schema: Schema, node: Node, property?: string): string {
  const type = typeNamed(schema, node.type);
  const wanted = property ? [property] : ["name", "title", "label", ...(type?.key ?? [])];
  const found = wanted.map((name) => node.properties[name]).find((value) => value !== null && value !== undefined);
  return String(found ?? node.id);
}


// Explore: search, a canvas that grows by expanding nodes, and a table of the same nodes.
import { useMemo, useState } from "preact/hooks";
import { go, to } from "../address";
import { Canvas, type Dot, LAYOUTS, type Layout, type Line } from "../canvas";
import { colourOf } from "../colours";
import type { PageProps } from "../main";
import { Action, EmptyGraph, EntityLink, ROWS_AT_ONCE, Show, count, isEmpty, plural, useLoad } from "../parts";
import {
  type Edge,
  type Node,
  PATH_STEPS_MAX,
  type Step,
  countWays,
  edgesBetween,
  findNodes,
  follow,
  labelOf,
  pathBetween,
  search,
  typeNamed,
} from "../queries";

const FOUND_MAX = 20;
const EXPANDED_MAX = 100;
const keyOf = (node: { type: string; id: string }) => `${node.type}:${node.id}`;
const nodeIn = (key: string) => {
  const at = key.indexOf(":");
  return { type: key.slice(0, at), id: key.slice(at + 1) };
};
const listIn = (text?: string) => (text ? text.split(",").map(decodeURIComponent) : []);
const listText = (keys: string[]) =>
  keys.map((key) => key.replace(/[%,]/g, encodeURIComponent)).join(",") || undefined;

export function Explore(props: PageProps) {
  const { address, graph, schema, branch, at } = props;
  const fields = address.fields;
  const [pinned, setPinned] = useState<Set<string>>(new Set());
  const shownKeys = listIn(fields.show);
  const selected = useMemo(() => listIn(fields.select), [fields.select]);
  const drawn = useLoad(async () => {
    const nodes = await nodesOf(props, shownKeys);
    return { nodes, edges: await edgesBetween(graph, schema, nodes, { branch, at }) };
  }, [fields.show], true); // the canvas and what is beside it stay while more arrives
  const layout = (fields.layout as Layout) ?? "force";
  const show = (keys: string[], select?: string[]) =>
    go(address, { show: listText([...new Set(keys)]), select: select && listText(select) });
  const add = (nodes: { type: string; id: string }[], select?: string[]) =>
    show([...shownKeys, ...nodes.map(keyOf)], select);
  const hide = (key: string) => show(shownKeys.filter((each) => each !== key), []);
  return (
    <>
      <h1>Explore</h1>
      {isEmpty(schema) && <EmptyGraph graph={graph} schema={schema} />}
      <Search {...props} onAdd={add} isEmpty={shownKeys.length === 0} />
      {shownKeys.length > 0 && (
        <Show of={drawn} what="nodes and edges">
          {({ nodes, edges }) => (
            <Drawn
              {...{ ...props, nodes, edges, selected, pinned, layout, hide, add }}
              missing={drawn.isLoading ? 0 : shownKeys.length - nodes.length}
              onSelect={(keys) => go(address, { select: listText(keys) }, true)}
              onPin={(key, is) => {
                const next = new Set(pinned);
                if (is) next.add(key);
                else next.delete(key);
                setPinned(next);
              }}
              clear={() => show([], [])}
            />
          )}
        </Show>
      )}
    </>
  );
}

/** The nodes of an address; what is not there at this branch or commit is left out. */
async function nodesOf({ graph, schema, branch, at }: PageProps, keys: string[]): Promise<Node[]> {
  const byType = new Map<string, string[]>();
  for (const { type, id } of keys.map(nodeIn)) byType.set(type, [...(byType.get(type) ?? []), id]);
  const found = await Promise.all(
    [...byType].map(([name, ids]) => {
      const type = typeNamed(schema, name);
      return type ? findNodes(graph, type, ids, { branch, at }) : [];
    }),
  );
  const byKey = new Map(found.flat().map((node) => [keyOf(node), node]));
  return keys.flatMap((key) => byKey.get(key) ?? []);
}

// --- search --------------------------------------------------------------------------------------

function Search(props: PageProps & { onAdd: (nodes: Node[], select?: string[]) => void; isEmpty: boolean }) {
  const { address, graph, schema, branch, at } = props;
  const { find, type } = address.fields;
  const [words, setWords] = useState(find ?? "");
  const isAsked = find !== undefined || type !== undefined;
  const found = useLoad(
    () => (isAsked ? search(graph, schema, find ?? "", type, { branch, at }, FOUND_MAX) : Promise.resolve([])),
    [find, type],
  );
  const nodeTypes = schema.types.filter((each) => each.kind === "node");
  const submit = (event: Event) => {
    event.preventDefault();
    go(address, { find: words.trim() || undefined });
  };
  return (
    <section class="card" aria-label="Search">
      <form class="actions" role="search" onSubmit={submit}>
        <label class="inline">
          Search{" "}
          <input
            type="search"
            value={words}
            size={26}
            placeholder="words, or the start of a key"
            onInput={(event) => setWords(event.currentTarget.value)}
          />
        </label>
        <label class="inline">
          in{" "}
          <select value={type ?? ""} onChange={(event) => go(address, { type: event.currentTarget.value || undefined })}>
            <option value="">all types</option>
            {nodeTypes.map((each) => (
              <option key={each.name} value={each.name}>
                {each.name} ({count(each.entity_count ?? 0)})
              </option>
            ))}
          </select>
        </label>
        <button class="primary">Search</button>
      </form>
      {!isAsked && props.isEmpty && (
        <>
          <p>Search for a word, or start with the first nodes of a type. Then expand what you find.</p>
          <ul class="found">
            {nodeTypes
              .filter((each) => each.entity_count)
              .map((each) => (
                <li key={each.name}>
                  <a class="button" href={to(address, "explore", { type: each.name })}>
                    <Swatch type={each.name} schema={schema} /> {each.name} <small>{count(each.entity_count!)}</small>
                  </a>
                </li>
              ))}
          </ul>
        </>
      )}
      {isAsked && (
        <Show of={found} what="what was found">
          {(nodes) =>
            nodes.length === 0 ? (
              <p role="status">Nothing was found. Words are searched in indexed texts, and keys from their start.</p>
            ) : (
              <>
                <ul class="found">
                  {nodes.map((node) => (
                    <li key={keyOf(node)}>
                      <button type="button" onClick={() => props.onAdd([node], [keyOf(node)])}>
                        <Swatch type={node.type} schema={schema} /> <bdi>{labelOf(schema, node)}</bdi>{" "}
                        <small>{node.type}</small>
                      </button>
                    </li>
                  ))}
                </ul>
                <p class="actions">
                  <button type="button" onClick={() => props.onAdd(nodes, [])}>
                    Show all {nodes.length}
                  </button>
                </p>
              </>
            )
          }
        </Show>
      )}
    </section>
  );
}

function Swatch({ type, schema }: { type: string; schema: PageProps["schema"] }) {
  return <span class="swatch" style={{ background: colourOf(type, typeNames(schema)) }} aria-hidden="true" />;
}

const typeNames = (schema: PageProps["schema"]) =>
  schema.types.filter((each) => each.kind === "node").map((each) => each.name);

// --- what is drawn -------------------------------------------------------------------------------

interface DrawnProps extends PageProps {
  nodes: Node[];
  edges: Edge[];
  selected: string[];
  pinned: Set<string>;
  layout: Layout;
  missing: number;
  add: (nodes: { type: string; id: string }[], select?: string[]) => void;
  hide: (key: string) => void;
  clear: () => void;
  onSelect: (keys: string[]) => void;
  onPin: (key: string, isPinned: boolean) => void;
}

function Drawn(props: DrawnProps) {
  const { address, schema, nodes, edges, selected } = props;
  const label = address.fields.label;
  const names = typeNames(schema);
  const dots: Dot[] = useMemo(
    () =>
      nodes.map((node) => ({
        key: keyOf(node),
        label: labelOf(schema, node, label),
        colour: colourOf(node.type, names),
        group: node.type,
      })),
    [nodes, label],
  );
  const lines: Line[] = useMemo(
    () =>
      edges.map((edge) => ({
        key: `${edge.type} ${edge.id}`,
        from: `${edge.fromType}:${edge.from}`,
        to: `${edge.toType}:${edge.to}`,
        label: edge.type,
      })),
    [edges],
  );
  const properties = [...new Set(nodes.flatMap((node) => Object.keys(node.properties)))].sort();
  const shownTypes = names.filter((name) => nodes.some((node) => node.type === name));
  const chosen = selected.flatMap((key) => nodes.find((node) => keyOf(node) === key) ?? []);
  return (
    <div class="explore">
      <section aria-label="Canvas" class="card">
        <div class="actions tools">
          <label class="inline">
            Layout{" "}
            <select value={props.layout} onChange={(event) => go(address, { layout: event.currentTarget.value }, true)}>
              {LAYOUTS.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <label class="inline">
            Label{" "}
            <select value={label ?? ""} onChange={(event) => go(address, { label: event.currentTarget.value || undefined }, true)}>
              <option value="">name</option>
              {properties.map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
          <button type="button" onClick={props.clear}>
            Clear
          </button>
          <span class="legend">
            {shownTypes.map((name) => (
              <span key={name}>
                <Swatch type={name} schema={schema} /> {name}
              </span>
            ))}
          </span>
        </div>
        <Canvas
          label={`${plural(nodes.length, "node")} and ${plural(edges.length, "edge")}; the table lists the nodes`}
          {...{ dots, lines, selected, layout: props.layout, pinned: props.pinned }}
          onSelect={props.onSelect}
          onOpen={(key) => props.onSelect([key])}
          onPin={(key) => props.onPin(key, true)}
        />
        <p role="status">
          {plural(nodes.length, "node")}, {plural(edges.length, "edge")}
          {props.missing > 0 && `; ${plural(props.missing, "node")} of this address ${props.missing === 1 ? "is" : "are"} not here`}
          . Shift selects a second node.
        </p>
      </section>
      <div>
        {chosen.length === 2 && <PathPanel {...props} from={chosen[0]!} to={chosen[1]!} />}
        {chosen.length === 1 && <NodePanel key={keyOf(chosen[0]!)} {...props} node={chosen[0]!} />}
        <NodeTable {...props} />
      </div>
    </div>
  );
}

function NodeTable({ nodes, edges, schema, address, selected, onSelect }: DrawnProps) {
  const degree = new Map<string, number>();
  for (const edge of edges) {
    for (const key of new Set([`${edge.fromType}:${edge.from}`, `${edge.toType}:${edge.to}`])) {
      degree.set(key, (degree.get(key) ?? 0) + 1);
    }
  }
  const [limit, setLimit] = useState(ROWS_AT_ONCE);
  const toggle = (key: string) =>
    onSelect(selected.includes(key) ? selected.filter((each) => each !== key) : [...selected, key].slice(-2));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Nodes on the canvas">
      <table>
        <thead>
          <tr>
            <th scope="col">Select</th>
            <th scope="col">Node</th>
            <th scope="col">Type</th>
            <th scope="col" class="number">
              Edges
            </th>
          </tr>
        </thead>
        <tbody>
          {nodes.slice(0, limit).map((node) => {
            const key = keyOf(node);
            const name = labelOf(schema, node, address.fields.label);
            return (
              <tr key={key} class={selected.includes(key) ? "chosen" : undefined}>
                <td>
                  <input
                    type="checkbox"
                    checked={selected.includes(key)}
                    onChange={() => toggle(key)}
                    aria-label={`Select ${name}`}
                  />
                </td>
                <td>
                  <EntityLink address={address} type={node.type} id={node.id}>
                    <bdi>{name}</bdi>
                  </EntityLink>
                </td>
                <td>{node.type}</td>
                <td class="number">{degree.get(key) ?? 0}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {nodes.length > limit && (
        <p class="actions">
          {count(limit)} of {count(nodes.length)} nodes{" "}
          <button type="button" onClick={() => setLimit(limit * 5)}>
            Show more
          </button>
        </p>
      )}
    </div>
  );
}

/** One node: where its edges lead, with their numbers, before anything is loaded. */
function NodePanel(props: DrawnProps & { node: Node }) {
  const { graph, schema, branch, at, node, add, pinned } = props;
  const key = keyOf(node);
  const ways = useLoad(() => countWays(graph, schema, node, { branch, at }), []);
  return (
    <section class="card" aria-label="Selected node">
      <h2 dir="auto">
        <EntityLink address={props.address} type={node.type} id={node.id}>
          {labelOf(schema, node)}
        </EntityLink>{" "}
        <span class="kind">{node.type}</span>
      </h2>
      <Show of={ways} what="edges">
        {(found) => (
          <ul class="ways">
            {found
              .filter((each) => each.count > 0)
              .map(({ way, count: amount }) => (
                <li key={`${way.edge.name} ${way.direction}`}>
                  <Action
                    label={`${way.direction === "out" ? "→" : "←"} ${way.edge.name} (${count(amount)})`}
                    run={async () => {
                      const next = await follow(graph, node, way, { branch, at }, EXPANDED_MAX);
                      add(next.nodes, [key]);
                    }}
                  />
                  {amount > EXPANDED_MAX && <small> the first {EXPANDED_MAX}</small>}
                </li>
              ))}
            {found.every((each) => each.count === 0) && <li>No edges.</li>}
          </ul>
        )}
      </Show>
      <p class="actions">
        <button type="button" onClick={() => props.hide(key)}>
          Hide
        </button>
        <button type="button" aria-pressed={pinned.has(key)} onClick={() => props.onPin(key, !pinned.has(key))}>
          Pin
        </button>
      </p>
    </section>
  );
}

/** Two nodes: a shortest path between them, over edges of the chosen types. */
function PathPanel(props: DrawnProps & { from: Node; to: Node }) {
  const { graph, schema, branch, at, from, to, add } = props;
  const names = schema.types.filter((each) => each.kind === "edge").map((each) => each.name);
  const [left, setLeft] = useState<Set<string>>(new Set());
  const [found, setFound] = useState<{ steps: Step[] | null }>();
  const over = names.filter((name) => !left.has(name));
  const search = async () => {
    const steps = await pathBetween(graph, schema, over, from, to, { branch, at });
    setFound({ steps });
    if (steps) add(steps.map((step) => step.node), [keyOf(from), keyOf(to)]);
  };
  const toggle = (name: string) => {
    const next = new Set(left);
    if (!next.delete(name)) next.add(name);
    setLeft(next);
    setFound(undefined);
  };
  return (
    <section class="card" aria-label="Path">
      <h2>
        Path from <bdi>{labelOf(schema, from)}</bdi> to <bdi>{labelOf(schema, to)}</bdi>
      </h2>
      <fieldset class="choices">
        <legend>Over edges of</legend>
        {names.map((name) => (
          <label key={name} class="inline">
            <input type="checkbox" checked={!left.has(name)} onChange={() => toggle(name)} />
            {name}
          </label>
        ))}
      </fieldset>
      <div class="actions">
        <Action label="Find a shortest path" kind="primary" disabled={over.length === 0} run={search} />
      </div>
      {found?.steps && (
        <p role="status">
          {plural(found.steps.length, "step")}: <bdi>{labelOf(schema, from)}</bdi>
          {found.steps.map((step, place) => {
            const node = props.nodes.find((each) => keyOf(each) === keyOf(step.node));
            return (
              <span key={place}>
                {" "}
                {step.direction === "out" ? `— ${step.edge} →` : `← ${step.edge} —`}{" "}
                <bdi>{node ? labelOf(schema, node) : step.node.id}</bdi>
              </span>
            );
          })}
        </p>
      )}
      {found?.steps === null && (
        <p class="note" role="status">
          No path of at most {PATH_STEPS_MAX} steps. Choose more edge types, or nodes that are nearer.
        </p>
      )}
    </section>
  );
}

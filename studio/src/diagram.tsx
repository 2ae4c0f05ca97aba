// The types of a schema and the edges between them, as a picture. The cards below it say the same.
import { forceCenter, forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import { useMemo } from "preact/hooks";
import type { GraphType } from "./api";
import { colourOf } from "./colours";
import { count } from "./parts";

interface Spot {
  id: string;
  type: GraphType;
  x: number;
  y: number;
}
const HEIGHT = 38;
const widthOf = (type: GraphType) => Math.max(84, type.name.length * 8.2 + 28);

export function SchemaDiagram(props: { types: GraphType[]; chosen?: string; onChoose: (name: string) => void }) {
  const { spots, edges, box } = useMemo(() => arrange(props.types), [props.types]);
  if (spots.length === 0) return null;
  const names = props.types.filter((type) => type.kind === "node").map((type) => type.name);
  return (
    <svg
      class="diagram"
      viewBox={box.join(" ")}
      role="img"
      aria-label={`Diagram of ${spots.length} types and ${edges.length} edge types`}
    >
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0 8 4 0 8z" class="arrow" />
        </marker>
      </defs>
      {edges.map((edge) => (
        <g key={edge.name} class={`relation ${edge.name === props.chosen ? "chosen" : ""}`} onClick={() => props.onChoose(edge.name)}>
          <path d={edge.path} marker-end="url(#arrow)" />
          <text x={edge.x} y={edge.y}>
            {edge.name}
          </text>
        </g>
      ))}
      {spots.map(({ type, x, y }) => (
        <g
          key={type.name}
          class={`spot ${type.kind} ${type.name === props.chosen ? "chosen" : ""}`}
          transform={`translate(${x},${y})`}
          onClick={() => props.onChoose(type.name)}
        >
          <rect
            x={-widthOf(type) / 2}
            y={-HEIGHT / 2}
            width={widthOf(type)}
            height={HEIGHT}
            rx="10"
            style={type.kind === "node" ? { stroke: colourOf(type.name, names) } : undefined}
          />
          <text y={type.entity_count === undefined ? 4 : -2}>{type.name}</text>
          {type.entity_count !== undefined && (
            <text y="12" class="amount">
              {count(type.entity_count)}
            </text>
          )}
        </g>
      ))}
    </svg>
  );
}

function arrange(types: GraphType[]) {
  const spots: Spot[] = types
    .filter((type) => type.kind !== "edge")
    .map((type, at, all) => {
      const angle = (2 * Math.PI * at) / all.length;
      return { id: type.name, type, x: 200 * Math.cos(angle), y: 120 * Math.sin(angle) };
    });
  const known = new Map(spots.map((spot) => [spot.id, spot]));
  const relations = types.filter((type) => known.has(type.source ?? "") && known.has(type.target ?? ""));
  const links = relations.map((type) => ({ source: type.source!, target: type.target! }));
  forceSimulation(spots)
    .force("charge", forceManyBody().strength(-900))
    .force("link", forceLink(links).id((spot) => (spot as Spot).id).distance(190))
    .force("collide", forceCollide<Spot>((spot) => widthOf(spot.type) / 2 + 30))
    .force("center", forceCenter())
    .force("x", forceX().strength(0.05))
    .force("y", forceY().strength(0.16))
    .stop()
    .tick(250);
  const seen = new Map<string, number>();
  const edges = relations.map((type) => {
    const [from, to] = [known.get(type.source!)!, known.get(type.target!)!];
    const pair = [from.id, to.id].sort().join(" ");
    const turn = seen.get(pair) ?? 0;
    seen.set(pair, turn + 1);
    return { name: type.name, ...(from === to ? loop(from, turn) : curve(from, to, turn, pair)) };
  });
  const xs = [...spots.map((spot) => spot.x), ...edges.map((edge) => edge.x)];
  const ys = [...spots.map((spot) => spot.y), ...edges.map((edge) => edge.y)];
  const [left, top] = [Math.min(...xs) - 100, Math.min(...ys) - 45];
  const box = [left, top, Math.max(...xs) + 100 - left, Math.max(...ys) + 45 - top];
  return { spots, edges, box };
}

/** A line between two boxes, bent away from other lines of the same pair. */
function curve(from: Spot, to: Spot, turn: number, pair: string) {
  const bend = (Math.ceil(turn / 2) * (turn % 2 ? 46 : -46)) * (pair.startsWith(from.id) ? 1 : -1);
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const middle = {
    x: (from.x + to.x) / 2 - (dy / length) * bend * 1.6,
    y: (from.y + to.y) / 2 + (dx / length) * bend * 1.6,
  };
  const start = border(from, middle);
  const end = border(to, middle);
  return {
    path: `M${start.x} ${start.y}Q${middle.x} ${middle.y} ${end.x} ${end.y}`,
    x: (start.x + 2 * middle.x + end.x) / 4,
    y: (start.y + 2 * middle.y + end.y) / 4 - 4,
  };
}

function loop(spot: Spot, turn: number) {
  const reach = 36 + 30 * turn;
  const top = spot.y - HEIGHT / 2;
  return {
    path: `M${spot.x - 16 - 6 * turn} ${top}C${spot.x - 34 - 14 * turn} ${top - reach} ${spot.x + 34 + 14 * turn} ${top - reach} ${spot.x + 16 + 6 * turn} ${top}`,
    x: spot.x,
    y: top - reach * 0.75 - 5,
  };
}

/** Where the way from the middle of a box to a point leaves the box. */
function border(spot: Spot, point: { x: number; y: number }) {
  const [dx, dy] = [point.x - spot.x, point.y - spot.y];
  const [half, tall] = [widthOf(spot.type) / 2 + 3, HEIGHT / 2 + 3];
  const scale = Math.min(half / Math.max(Math.abs(dx), 0.01), tall / Math.max(Math.abs(dy), 0.01));
  return { x: spot.x + dx * scale, y: spot.y + dy * scale };
}

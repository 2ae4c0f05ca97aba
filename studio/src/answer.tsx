// An answer as a chart or as a graph, where its columns allow it.
import { useMemo } from "preact/hooks";
import type { Answer, Row, Value } from "./api";
import { Canvas, type Dot, type Line } from "./canvas";
import { colourOf } from "./colours";
import { count, shown } from "./parts";

// --- charts --------------------------------------------------------------------------------------

const BARS_MAX = 40;
const POINTS_MAX = 2000;
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [900, 380, 80, 70];
const DATE = /^\d{4}-\d\d-\d\d/;

interface Plot {
  kind: "bar" | "line" | "scatter";
  x: string;
  y: string;
}

/** What suits the columns: times give a line, two numbers points, a text and a number bars. */
export function plotOf(answer: Answer): Plot | undefined {
  const columns = answer.columns ?? [];
  const holds = (name: string, test: (value: Value) => boolean) => {
    const values = answer.rows.map((row) => row[name]).filter((value) => value !== null && value !== undefined);
    return values.length > 0 && values.every(test);
  };
  const numbers = columns.filter((name) => holds(name, (value) => typeof value === "number"));
  const texts = columns.filter((name) => holds(name, (value) => typeof value === "string"));
  const [y] = numbers;
  if (y === undefined) return undefined;
  const time = texts.find((name) => holds(name, (value) => DATE.test(String(value))));
  if (time) return { kind: "line", x: time, y };
  if (texts[0]) return { kind: "bar", x: texts[0], y };
  return numbers[1] ? { kind: "scatter", x: y, y: numbers[1] } : undefined;
}

export function Chart({ answer, plot }: { answer: Answer; plot: Plot }) {
  const rows = answer.rows
    .filter((row) => typeof row[plot.y] === "number" && row[plot.x] !== null)
    .slice(0, plot.kind === "bar" ? BARS_MAX : POINTS_MAX);
  const ys = rows.map((row) => row[plot.y] as number);
  const xs = rows.map((row, at) =>
    plot.kind === "bar" ? at + 0.5 : plot.kind === "line" ? Date.parse(String(row[plot.x])) : (row[plot.x] as number),
  );
  const [low, high] = [Math.min(0, ...ys), Math.max(0, ...ys)];
  const [first, last] = plot.kind === "bar" ? [0, rows.length] : [Math.min(...xs), Math.max(...xs)];
  const x = (value: number) => LEFT + ((value - first) / (last - first || 1)) * (WIDTH - LEFT - 20);
  const y = (value: number) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - 20);
  const step = (WIDTH - LEFT - 20) / Math.max(1, rows.length);
  const inOrder = xs.map((_, at) => at).sort((a, b) => xs[a]! - xs[b]!);
  const label = `${plot.kind} chart of ${plot.y} by ${plot.x}, ${rows.length} of ${answer.row_count} rows; the table has the values`;
  return (
    <svg class="chart" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
      {[low, (low + high) / 2, high].map((value) => (
        <g key={value}>
          <line x1={LEFT} x2={WIDTH - 20} y1={y(value)} y2={y(value)} class="grid" />
          <text x={LEFT - 8} y={y(value) + 4} class="tick end">
            {count(Number(value.toPrecision(4)))}
          </text>
        </g>
      ))}
      {plot.kind === "bar" &&
        rows.map((row, at) => (
          <g key={at}>
            <rect
              class="mark"
              x={x(at) + step * 0.12}
              width={step * 0.76}
              y={Math.min(y(0), y(ys[at]!))}
              height={Math.abs(y(ys[at]!) - y(0))}
            >
              <title>{`${shown(row[plot.x])}: ${ys[at]}`}</title>
            </rect>
            <text class="tick end" transform={`translate(${x(at + 0.5) + 4},${HEIGHT - BOTTOM + 14}) rotate(-35)`}>
              {shown(row[plot.x]).slice(0, 14)}
            </text>
          </g>
        ))}
      {plot.kind === "line" && (
        <polyline class="stroke" points={inOrder.map((at) => `${x(xs[at]!)},${y(ys[at]!)}`).join(" ")} />
      )}
      {plot.kind !== "bar" && rows.map((_, at) => <circle key={at} class="mark" cx={x(xs[at]!)} cy={y(ys[at]!)} r="3.5" />)}
      {plot.kind !== "bar" &&
        [first, last].map((value, at) => (
          <text key={at} x={x(value)} y={HEIGHT - BOTTOM + 20} class={`tick ${at ? "end" : ""}`}>
            {plot.kind === "line" ? new Date(value).toISOString().slice(0, 10) : count(value)}
          </text>
        ))}
      <text x={LEFT} y={14} class="tick">
        {plot.y} by {plot.x}
      </text>
    </svg>
  );
}

// --- graphs --------------------------------------------------------------------------------------

const isObject = (value: Value): value is Row => typeof value === "object" && value !== null && !Array.isArray(value);

/** What `$path.nodes` is called unless the query says otherwise, or says so. */
const PATH = /(^|[._])(nodes|path)$/;
const isIds = (value: Value): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.every((each) => typeof each === "string");

/** The nodes and edges that an answer holds as `$x.*` or as paths; undefined if it holds none. */
export function graphOf(answer: Answer): { dots: Dot[]; lines: Line[] } | undefined {
  const [dots, lines] = [new Map<string, Dot>(), new Map<string, Line>()];
  const columns = (answer.columns ?? []).filter((name) => answer.rows.some((row) => isObject(row[name])));
  const paths = (answer.columns ?? []).filter((name) => PATH.test(name) && answer.rows.every((row) => isIds(row[name])));
  const put = (id: string, group: string, label = id) => {
    const known = dots.get(id);
    if (!known || (known.group === "" && group !== "")) dots.set(id, { key: id, label, colour: colourOf(group, columns), group });
  };
  for (const row of answer.rows) {
    for (const name of columns) {
      const value = row[name];
      if (!isObject(value) || typeof value.id !== "string" || "src" in value) continue;
      put(value.id, name, String(value.name ?? value.title ?? value.id));
    }
    for (const name of columns) {
      const value = row[name];
      if (!isObject(value) || typeof value.src !== "string" || typeof value.dst !== "string") continue;
      for (const end of [value.src, value.dst]) if (!dots.has(end)) put(end, "");
      const key = `${name} ${value.id}`;
      lines.set(key, { key, from: value.src, to: value.dst, label: name });
    }
    for (const name of paths) {
      const ids = row[name] as string[];
      ids.forEach((id, at) => {
        put(id, "");
        const key = `${name} ${ids[at - 1]} ${id}`;
        if (at > 0) lines.set(key, { key, from: ids[at - 1]!, to: id, label: "" });
      });
    }
  }
  return dots.size ? { dots: [...dots.values()], lines: [...lines.values()] } : undefined;
}

export function AnswerGraph({ answer }: { answer: Answer }) {
  const found = useMemo(() => graphOf(answer), [answer]);
  if (!found) return null;
  const label = `${found.dots.length} nodes and ${found.lines.length} edges of the answer; the table has them, too`;
  return <Canvas label={label} layout="force" {...found} />;
}

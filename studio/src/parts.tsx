// What several pages show: errors, waiting, tables, links, times.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Address, to } from "./address";
import { ApiError, type Commit, type Graph, type Row, type Schema, type Value } from "./api";

// --- asking the server ---------------------------------------------------------------------------

export interface Loaded<T> {
  value?: T;
  error?: ApiError;
  isLoading: boolean;
  reload: () => void;
}

/** What `load` gives, asked for again whenever one of `inputs` changes.
 *
 * Until then nothing of other inputs is shown, unless `keeps` says that it is near enough. */
export function useLoad<T>(load: () => Promise<T>, inputs: unknown[], keeps = false): Loaded<T> {
  const [state, setState] = useState<{ value?: T; error?: ApiError; isLoading: boolean }>({
    isLoading: true,
  });
  const [round, setRound] = useState(0);
  const asked = useRef<unknown[]>(inputs);
  const isOther = !keeps && inputs.some((input, at) => input !== asked.current[at]);
  useEffect(() => {
    let isCurrent = true;
    asked.current = inputs;
    setState((before) => ({ value: isOther ? undefined : before.value, isLoading: true }));
    load().then(
      (value) => isCurrent && setState({ value, isLoading: false }),
      (error) => isCurrent && setState({ error: asApiError(error), isLoading: false }),
    );
    return () => {
      isCurrent = false;
    };
  }, [...inputs, round]);
  const reload = () => setRound(round + 1);
  return isOther ? { isLoading: true, reload } : { ...state, reload };
}

export function asApiError(problem: unknown): ApiError {
  return problem instanceof ApiError ? problem : new ApiError(0, String(problem), undefined, "page");
}

/** What was loaded, or that it is on its way, or why it is not there and how to go on. */
export function Show<T>(props: { of: Loaded<T>; what: string; children: (value: T) => ComponentChildren }) {
  const { value, error, isLoading, reload } = props.of;
  if (error) return <Failure error={error} retry={reload} />;
  if (value === undefined) return <Waiting what={props.what} />;
  return <div class={isLoading ? "outdated" : undefined}>{props.children(value)}</div>;
}

export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting" role="status">
      Loading {what}…
    </p>
  );
}

/** An error: what the API said, its hint, and a way on. */
export function Failure(props: { error: ApiError; retry?: () => void; children?: ComponentChildren }) {
  const { error, retry } = props;
  const isGone = error.status === 404;
  return (
    <div class="failure" role="alert">
      <p>
        <strong>{capital(error.message)}</strong>
        {error.position && ` (line ${error.position.line}, column ${error.position.column})`}
      </p>
      {error.hint && <p>{capital(error.hint)}</p>}
      {props.children}
      <p class="actions">
        {retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
        {isGone && <a href={to({ ...parseHere(), fields: {} }, "branches")}>Look at the branches</a>}
      </p>
    </div>
  );
}

function parseHere(): Address {
  const [graph = ""] = location.hash.replace(/^#\//, "").split("/");
  return { graph: decodeURIComponent(graph), page: "", fields: {} };
}

/** A button that asks for something and shows that it is under way, and what went wrong. */
export function Action(props: {
  label: string;
  run: () => Promise<unknown>;
  kind?: "primary" | "danger";
  disabled?: boolean;
  confirm?: string;
}) {
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [isAsking, setAsking] = useState(false);
  const run = async () => {
    setAsking(false);
    setRunning(true);
    setError(undefined);
    try {
      await props.run();
    } catch (problem) {
      setError(asApiError(problem));
    }
    setRunning(false);
  };
  return (
    <span class="action">
      {isAsking ? (
        <span role="group" aria-label={props.confirm}>
          {props.confirm}{" "}
          <button type="button" class="danger" onClick={run}>
            {props.label}
          </button>{" "}
          <button type="button" onClick={() => setAsking(false)}>
            Keep
          </button>
        </span>
      ) : (
        <button
          type="button"
          class={props.kind}
          disabled={props.disabled || isRunning}
          onClick={() => (props.confirm ? setAsking(true) : run())}
        >
          {isRunning ? `${props.label}…` : props.label}
        </button>
      )}
      {error && <Failure error={error} />}
    </span>
  );
}

// --- values --------------------------------------------------------------------------------------

const TEXT_SHOWN_MAX = 2000;

/** Whether no type has an entity. */
export const isEmpty = (schema: Schema) => schema.types.every((type) => !type.entity_count);

/** A value as text; never as markup. */
export function shown(value: Value): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") {
    return value.length > TEXT_SHOWN_MAX
      ? `${value.slice(0, TEXT_SHOWN_MAX)}… (${value.length.toLocaleString("en")} characters)`
      : value;
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function Cell({ value }: { value: Value }) {
  if (value === null || value === undefined) return <span class="null">null</span>;
  return <span dir="auto">{shown(value)}</span>;
}

/** Rows of a table that are drawn before more are asked for. */
export const ROWS_AT_ONCE = 200;

/** Rows of a result as a table; many rows are drawn when they are asked for. */
export function ResultTable(props: { columns: string[]; rows: Row[]; label: string; numbers?: string[] }) {
  const [limit, setLimit] = useState(ROWS_AT_ONCE);
  useEffect(() => setLimit(ROWS_AT_ONCE), [props.rows]);
  const isNumber = props.columns.map(
    (name) => props.numbers?.includes(name) || props.rows.some((row) => typeof row[name] === "number"),
  );
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={props.label}>
        <table>
          <thead>
            <tr>
              {props.columns.map((name, column) => (
                <th key={name} scope="col" class={isNumber[column] ? "number" : undefined}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {props.rows.slice(0, limit).map((row, at) => (
              <tr key={at}>
                {props.columns.map((name, column) => (
                  <td key={name} class={isNumber[column] ? "number" : undefined}>
                    <Cell value={row[name]} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {props.rows.length > limit && (
        <p>
          {limit} of {count(props.rows.length)} rows{" "}
          <button type="button" onClick={() => setLimit(limit * 5)}>
            Show more
          </button>
        </p>
      )}
    </>
  );
}

/** How the first entities get into a graph: shown where there is nothing else to show. */
export function EmptyGraph({ graph, schema }: { graph: Graph; schema: Schema }) {
  const server = new URL("..", location.href).href.replace(/\/$/, "").split("#")[0]!;
  const command = `omnigraph load --server ${server} --graph ${graph.id} --data records.jsonl --mode append`;
  return (
    <section class="card empty" aria-label="The graph is empty">
      <h2>The graph is empty</h2>
      <p>Write records into a file, one JSON object a line, such as this one:</p>
      <pre class="json" tabIndex={0} aria-label="A record">
        {exampleOf(schema)}
      </pre>
      <p>Then load it. Tables (CSV, Parquet and others) load with <code>--node Type=file.csv</code>.</p>
      <pre class="json" tabIndex={0} aria-label="The command">
        {command}
      </pre>
      <p class="actions">
        <CopyButton label="Copy the command" text={() => command} />
        <span>
          Or insert on the page <a href={to(parseHere(), "query")}>Query</a>.
        </span>
      </p>
    </section>
  );
}

const EXAMPLES: Record<string, Value> = { int: 1, bigint: 1, float: 1.5, bool: true, date: "2031-04-09", datetime: "2031-04-09T12:00:00Z", list: [] };

/** A record of the first node type, with what it has to have. */
function exampleOf(schema: Schema): string {
  const type = schema.types.find((each) => each.kind === "node");
  if (!type) return "";
  const needed = type.properties.filter((each) => !each.nullable && each.kind !== "blob" && each.kind !== "vector");
  const data = Object.fromEntries(needed.map((each) => [each.name, each.values?.[0] ?? EXAMPLES[each.kind] ?? "…"]));
  return JSON.stringify({ type: type.name, data });
}

// --- words ---------------------------------------------------------------------------------------

export function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export function count(number: number): string {
  return number.toLocaleString("en");
}

export function plural(number: number, word: string, words = `${word}s`): string {
  return `${count(number)} ${number === 1 ? word : words}`;
}

/** Microseconds since 1970 as a time that people read. */
export function Moment({ us }: { us: number }) {
  const date = new Date(us / 1000);
  return <time dateTime={date.toISOString()}>{date.toISOString().slice(0, 19).replace("T", " ")}</time>;
}

export function shortId(id: string): string {
  return id.length > 12 ? `${id.slice(0, 4)}…${id.slice(-6)}` : id;
}

export function commitTitle(commit: Commit): string {
  return commit.message ?? capital(commit.kind ?? "commit");
}

/** A link to a node or an edge; an edge is found faster if its ends are known. */
export function EntityLink(props: {
  address: Address;
  type: string;
  id: string;
  from?: string;
  to?: string;
  children?: ComponentChildren;
}) {
  const { type, id, from, to: end } = props;
  const target = to(props.address, "entity", { type, id, from, to: end });
  return <a href={target}>{props.children ?? <bdi>{props.id}</bdi>}</a>;
}

export function CopyButton(props: { label: string; text: () => string }) {
  const [isCopied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const copy = async () => {
    await navigator.clipboard.writeText(props.text());
    setCopied(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" onClick={copy}>
      {isCopied ? "Copied" : props.label}
    </button>
  );
}

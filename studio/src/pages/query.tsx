// Queries: text, parameters, answer. The server checks the text while it is written.
import { useEffect, useRef, useState } from "preact/hooks";
import { go, to } from "../address";
import {
  type Answer,
  ApiError,
  type Field,
  type LanguageAnswer,
  type MutationReceipt,
  type Row,
  type Signature,
} from "../api";
import { AnswerGraph, Chart, graphOf, plotOf } from "../answer";
import { Editor } from "../editor";
import type { PageProps } from "../main";
import { CopyButton, Failure, ResultTable, asApiError, capital, count, plural, shortId, useLoad } from "../parts";

const HISTORY = "omnigraph.queries";
const HISTORY_MAX = 30;
type View = "table" | "json" | "chart" | "graph" | "plan";
const NAMES: Record<View, string> = { table: "Table", json: "JSON", chart: "Chart", graph: "Graph", plan: "Plan" };
/** An answer without `ms` is not whole: its rows still arrive, or were stopped. */
type Outcome = { answer: Answer; ms?: number } | { receipt: MutationReceipt };
const SHOW_MS = 120;

export function QueryPage({ address, graph, branch, at, schema, permissions, refresh }: PageProps) {
  const fields = address.fields;
  const [text, setText] = useState(fields.q ?? firstQuery(schema.types));
  const [edition, setEdition] = useState(0);
  const [described, setDescribed] = useState<{ of?: string; signatures: Signature[] }>({ signatures: [] });
  const [problems, setProblems] = useState<LanguageAnswer["diagnostics"]>([]);
  const [unchecked, setUnchecked] = useState<ApiError>();
  const [given, setGiven] = useState<Record<string, string>>(() => readParams(fields.params));
  const [outcome, setOutcome] = useState<Outcome>();
  const [failure, setFailure] = useState<ApiError>();
  const [running, setRunning] = useState<AbortController>();
  const [seconds, setSeconds] = useState(0);
  const [message, setMessage] = useState("");
  const shouldRun = useRef(fields.q !== undefined);
  const latest = useRef(text);
  latest.current = text;
  const stored = useLoad(() => graph.storedQueries(), []);
  const view = (fields.view as View) ?? "table";
  const { signatures } = described;
  const signature = signatures.find((each) => each.name === fields.name) ?? signatures[0];
  const isChecked = described.of === text;
  const mayWrite = permissions.actions.includes("change") && !at;

  // Another link, or a step back in the history, brings another text.
  useEffect(() => {
    if (fields.q === undefined || fields.q === text) return;
    shouldRun.current = true;
    setOutcome(undefined);
    setFailure(undefined);
    setDescribed({ signatures: [] });
    setGiven(readParams(fields.params));
    replaceText(fields.q);
  }, [fields.q]);

  // A text without errors says which queries it has, and what they take.
  async function checked(of: string, found: LanguageAnswer["diagnostics"], failed?: ApiError) {
    setProblems(found);
    setUnchecked(failed);
    if (failed || found.some((each) => each.severity === "error")) return;
    try {
      const signatures = await graph.describe(of, branch);
      if (of === latest.current) setDescribed({ of, signatures });
    } catch (error) {
      setUnchecked(asApiError(error));
    }
  }

  // A link to a query shows its answer; a query that writes is never run by a link.
  useEffect(() => {
    if (shouldRun.current && signature && isChecked) {
      shouldRun.current = false;
      if (!signature.mutation && text === fields.q) run();
    }
  }, [described]);

  useEffect(() => {
    if (running === undefined) return;
    const began = performance.now();
    const timer = setInterval(() => setSeconds((performance.now() - began) / 1000), 100);
    return () => clearInterval(timer);
  }, [running]);

  function replaceText(next: string) {
    setText(next);
    setEdition((before) => before + 1);
  }

  async function run() {
    if (signature === undefined || !isChecked || running) return;
    const asking = new AbortController();
    setRunning(asking);
    setSeconds(0);
    setOutcome(undefined);
    setFailure(undefined);
    const began = performance.now();
    try {
      const params = paramsOf(signature, given);
      if (signature.mutation) {
        const receipt = await graph.mutate(text, params, branch, signature.name, message || undefined);
        setOutcome({ receipt });
        refresh();
      } else {
        const explain = view === "plan" || undefined;
        let shownAt = -Infinity;
        const onRows = (soFar: Answer) => {
          if (performance.now() - shownAt < SHOW_MS) return;
          shownAt = performance.now();
          setOutcome({ answer: soFar });
        };
        const options = { name: signature.name, explain, signal: asking.signal, onRows };
        const answer = await graph.query(text, params, { branch, at }, options);
        setOutcome({ answer, ms: performance.now() - began });
      }
      remember(text);
    } catch (error) {
      const failed = asApiError(error);
      // Rows that were there when somebody cancelled stay to be looked at.
      if (failed.code !== "cancelled") setOutcome(undefined);
      setFailure(failed);
    }
    setRunning(undefined);
    const params = JSON.stringify(given);
    go(address, { q: text, name: signature.name, params: params === "{}" ? undefined : params });
  }

  const show = (next: View) => {
    go(address, { view: next });
    // The plan with its numbers comes with a run.
    if (next === "plan" && outcome && "answer" in outcome && !outcome.answer.explain) {
      shouldRun.current = false;
      graph
        .query(text, paramsOf(signature!, given), { branch, at }, { name: signature!.name, explain: true })
        .then((answer) => setOutcome({ answer, ms: outcome.ms }), (error) => setFailure(asApiError(error)));
    }
  };
  const writes = signature?.mutation ?? false;
  const hasErrors = problems.some((each) => each.severity === "error");
  return (
    <>
      <h1>Query</h1>
      <section class="card" aria-label="Query text">
        <Editor
          key={edition}
          label="Query text"
          language="gq"
          {...{ graph, branch, text }}
          onChange={setText}
          onRun={run}
          onChecked={checked}
          error={failure?.position ? failure : undefined}
        />
        <Problems found={problems} />
        {unchecked && <Failure error={unchecked} retry={() => checked(text, [])} />}
        {signatures.length > 1 && (
          <label>
            Which query{" "}
            <select
              value={signature?.name}
              onChange={(event) => go(address, { name: event.currentTarget.value }, true)}
            >
              {signatures.map((each) => (
                <option key={each.name}>{each.name}</option>
              ))}
            </select>
          </label>
        )}
        {signature && signature.params.length > 0 && (
          <fieldset>
            <legend>Parameters</legend>
            {signature.params.map((field) => (
              <Parameter
                key={field.name}
                field={field}
                value={given[field.name] ?? ""}
                onInput={(value) => setGiven({ ...given, [field.name]: value })}
              />
            ))}
          </fieldset>
        )}
        {writes && mayWrite && (
          <label>
            Message of the commit{" "}
            <input value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
          </label>
        )}
        <div class="actions">
          {writes && !mayWrite ? (
            <p>
              This query writes,{" "}
              {at ? "and a commit of the past does not change." : `and you may not change branch ${branch}.`}
            </p>
          ) : (
            <button
              type="button"
              class="primary"
              onClick={run}
              disabled={!signature || !isChecked || hasErrors || !!running}
              aria-keyshortcuts="Control+Enter"
            >
              {writes ? `Write to ${branch}` : "Run"}
            </button>
          )}
          {running && (
            <>
              <span role="status">running for {seconds.toFixed(1)} s</span>
              {!writes && (
                <button type="button" onClick={() => running.abort()}>
                  Cancel
                </button>
              )}
            </>
          )}
          <Recent onPick={replaceText} />
          {stored.value && stored.value.length > 0 && <Stored signatures={stored.value} />}
          {signature && isChecked && <CopyAs {...{ text, signature, given, branch, at, graphId: graph.id }} />}
        </div>
      </section>
      {failure && failure.code !== "cancelled" && <Failure error={failure} retry={run} />}
      {failure?.code === "cancelled" && (
        <p class="note" role="status">
          Cancelled: the server stopped the query. <button type="button" onClick={run}>Run again</button>
        </p>
      )}
      {outcome && "receipt" in outcome && <Receipt receipt={outcome.receipt} address={address} />}
      {outcome && "answer" in outcome && (
        <section aria-label="Answer">
          <div class="answer-head">
            <p role="status">
              {outcome.ms === undefined
                ? `${count(outcome.answer.rows.length)} of ${plural(outcome.answer.row_count, "row")}`
                : `${plural(outcome.answer.row_count, "row")} in ${outcome.ms.toFixed(0)} ms`}
            </p>
            <div role="group" aria-label="Show the answer as" class="tabs">
              {viewsOf(outcome.answer).map((each) => (
                <button key={each} type="button" aria-pressed={view === each} onClick={() => show(each)}>
                  {NAMES[each]}
                </button>
              ))}
            </div>
          </div>
          {(view === "table" || !viewsOf(outcome.answer).includes(view)) && (
            <ResultTable
              label="Rows"
              columns={outcome.answer.columns ?? Object.keys(outcome.answer.rows[0] ?? {})}
              rows={outcome.answer.rows}
            />
          )}
          {view === "json" && (
            <pre class="json" tabIndex={0} aria-label="Rows as JSON">
              {jsonOf(outcome.answer.rows)}
            </pre>
          )}
          {view === "chart" && plotOf(outcome.answer) && (
            <Chart answer={outcome.answer} plot={plotOf(outcome.answer)!} />
          )}
          {view === "graph" && <AnswerGraph answer={outcome.answer} />}
          {view === "plan" && <Plan answer={outcome.answer} />}
        </section>
      )}
    </>
  );
}

function Problems({ found }: { found: LanguageAnswer["diagnostics"] }) {
  if (found.length === 0) return null;
  return (
    <ul class="diagnostics" role="status">
      {found.map((each, at) => (
        <li key={at} class={each.severity}>
          {capital(each.message)} (line {each.place.line}, column {each.place.column}){each.hint && `; ${each.hint}`}
        </li>
      ))}
    </ul>
  );
}

const JSON_CHARACTERS_MAX = 1_000_000;

/** Rows as JSON; of very many, the first ones: a page of megabytes would not be readable. */
function jsonOf(rows: Row[]): string {
  const parts: string[] = [];
  let size = 0;
  for (const row of rows) {
    parts.push(JSON.stringify(row, null, 2));
    size += parts.at(-1)!.length;
    if (size > JSON_CHARACTERS_MAX) break;
  }
  const text = parts.join(",\n").slice(0, JSON_CHARACTERS_MAX);
  const isWhole = parts.length === rows.length && size <= JSON_CHARACTERS_MAX;
  return isWhole ? `[\n${text.replace(/^/gm, "  ")}\n]` : `[\n${text}\n… cut: "Copy as" gives all of it`;
}

/** The forms that suit an answer. */
function viewsOf(answer: Answer): View[] {
  return [
    "table",
    "json",
    ...(plotOf(answer) ? ["chart" as const] : []),
    ...(graphOf(answer) ? ["graph" as const] : []),
    "plan",
  ];
}

function Parameter(props: { field: Field; value: string; onInput: (value: string) => void }) {
  const { field, value, onInput } = props;
  const label = `${field.name}${field.nullable ? " (optional)" : ""}`;
  const kind = field.kind === "list" ? `list of ${field.item_kind}` : field.kind;
  if (field.kind === "bool") {
    return (
      <label>
        {label}
        <select value={value} onChange={(event) => onInput(event.currentTarget.value)}>
          <option value="">{field.nullable ? "null" : "choose"}</option>
          <option>true</option>
          <option>false</option>
        </select>
      </label>
    );
  }
  return (
    <label>
      {label}
      <input
        value={value}
        placeholder={field.kind === "list" || field.kind === "vector" ? `${kind}, as JSON` : field.kind === "date" ? "2031-04-09" : kind}
        inputMode={["int", "bigint", "float"].includes(field.kind) ? "decimal" : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
    </label>
  );
}

/** The values of a form as the API takes them; an empty optional one is left out. */
export function paramsOf(signature: Signature, given: Record<string, string>): Row {
  const params: Row = {};
  for (const field of signature.params) {
    const text = given[field.name] ?? "";
    if (text === "" && (field.nullable || field.kind !== "string")) continue;
    params[field.name] = valueOf(field, text);
  }
  return params;
}

function valueOf(field: Field, text: string): unknown {
  switch (field.kind) {
    case "bool":
      return text === "true";
    case "int":
    case "float":
      return Number(text);
    case "list":
    case "vector":
      try {
        return JSON.parse(text);
      } catch {
        throw new ApiError(0, `parameter ${field.name} is not JSON`, 'Write a list, such as ["a", "b"].');
      }
    default:
      return text;
  }
}

function readParams(text: string | undefined): Record<string, string> {
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return {};
  }
}

function Receipt({ receipt, address }: { receipt: MutationReceipt; address: PageProps["address"] }) {
  const changed = `${plural(receipt.affected_nodes, "node")} and ${plural(receipt.affected_edges, "edge")}`;
  return (
    <p class="success" role="status">
      {receipt.commit === null ? (
        "Nothing matched: there is no new commit."
      ) : (
        <>
          {changed} changed on {receipt.branch}, in commit{" "}
          <a href={to(address, "branches", { commit: receipt.commit.graph_commit_id })}>
            <code>{shortId(receipt.commit.graph_commit_id)}</code>
          </a>
        </>
      )}
    </p>
  );
}

function Plan({ answer }: { answer: Answer }) {
  const explain = answer.explain;
  if (!explain) return <p role="status">Asking for the plan…</p>;
  const rows = (explain.steps ?? []).map((step) => ({
    step: step.step,
    strategy: step.strategy,
    rows: step.rows,
    "ms": Number((step.seconds * 1000).toFixed(2)),
  }));
  return (
    <>
      <ResultTable label="Steps" columns={["step", "strategy", "rows", "ms"]} rows={rows} />
      <pre class="json" tabIndex={0} aria-label="Plan">
        {explain.plan.join("\n")}
      </pre>
    </>
  );
}

// --- beside the text -----------------------------------------------------------------------------

function recent(): string[] {
  return JSON.parse(sessionStorage.getItem(HISTORY) ?? "[]");
}

function remember(text: string): void {
  const kept = [text, ...recent().filter((each) => each !== text)].slice(0, HISTORY_MAX);
  sessionStorage.setItem(HISTORY, JSON.stringify(kept));
}

function Recent({ onPick }: { onPick: (text: string) => void }) {
  const known = recent();
  if (known.length === 0) return null;
  return (
    <label class="inline">
      History{" "}
      <select
        value=""
        onChange={(event) => {
          onPick(known[Number(event.currentTarget.value)] ?? "");
          event.currentTarget.value = "";
        }}
      >
        <option value="">choose…</option>
        {known.map((text, at) => (
          <option key={at} value={at}>
            {text.replace(/\s+/g, " ").slice(0, 70)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Stored({ signatures }: { signatures: Signature[] }) {
  return (
    <details class="inline">
      <summary>Stored queries</summary>
      <ul>
        {signatures.map((each) => (
          <li key={each.name}>
            <code>
              {each.name}({each.params.map((field) => `${field.name}: ${field.kind}`).join(", ")})
            </code>{" "}
            {each.description}
          </li>
        ))}
      </ul>
    </details>
  );
}

interface CopyProps {
  text: string;
  signature: Signature;
  given: Record<string, string>;
  branch: string;
  at?: string;
  graphId: string;
}

function CopyAs(props: CopyProps) {
  return (
    <details class="inline copy">
      <summary>Copy as</summary>
      <div class="actions">
        <CopyButton label="Python" text={() => asPython(props)} />
        <CopyButton label="curl" text={() => asCurl(props)} />
        <CopyButton label="Command line" text={() => asCommand(props)} />
      </div>
    </details>
  );
}

const api = (graphId: string) => new URL(`../graphs/${graphId}`, location.href).href.split("#")[0]!;
/** A text of several lines stays readable where it can. */
const inTripleQuotes = (text: string) =>
  /["\\]{3}|\\|"$/.test(text) ? JSON.stringify(text) : `"""${text}"""`;
const inShell = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
/** JSON strings are strings of Python, too; only three words differ. */
const inPython = (value: unknown): string =>
  Array.isArray(value)
    ? `[${value.map(inPython).join(", ")}]`
    : value === null || typeof value === "boolean"
      ? { null: "None", true: "True", false: "False" }[String(value) as "null"]
      : JSON.stringify(value);

export function asPython({ text, signature, given, branch, at, graphId }: CopyProps): string {
  const params = Object.entries(paramsOf(signature, given)).map(
    ([name, value]) => `${JSON.stringify(name)}: ${inPython(value)}`,
  );
  const target = at ? `snapshot=${JSON.stringify(at)}` : `branch=${JSON.stringify(branch)}`;
  return `import os

import omnigraph as og

graph = og.connect(${JSON.stringify(api(graphId))}, token=os.environ.get("OMNIGRAPH_BEARER_TOKEN"))
answer = graph.${signature.mutation ? "mutate" : "query"}(
    ${inTripleQuotes(text)},
    {${params.join(", ")}},
    name=${JSON.stringify(signature.name)},
    ${target},
)
print(answer)
`;
}

function asCurl({ text, signature, given, branch, at, graphId }: CopyProps): string {
  const target = at ? { snapshot: at } : { branch };
  const body = { query: text, name: signature.name, params: paramsOf(signature, given), ...target };
  return `curl -s ${inShell(`${api(graphId)}/${signature.mutation ? "mutate" : "query"}`)} -H "Authorization: Bearer $OMNIGRAPH_BEARER_TOKEN" -H 'Content-Type: application/json' -d ${inShell(JSON.stringify(body))}`;
}

function asCommand({ text, signature, given, branch, at, graphId }: CopyProps): string {
  const server = api(graphId).replace(/\/graphs\/[^/]*$/, "");
  const target = at ? `--snapshot ${at}` : `--branch ${inShell(branch)}`;
  const params = JSON.stringify(paramsOf(signature, given));
  return `omnigraph ${signature.mutation ? "mutate" : "query"} ${signature.name} --server ${server} --graph ${graphId} ${target} --params ${inShell(params)} -e ${inShell(text)}`;
}

/** Something to start with: the first rows of the first type. */
function firstQuery(types: PageProps["schema"]["types"]): string {
  const type = types.find((each) => each.kind === "node");
  if (!type) return "";
  return `query first($limit: I32) {
    match { $n: ${type.name} }
    return { $n.* as ${type.name[0]!.toLowerCase()}${type.name.slice(1)} }
    limit $limit
}
`;
}

// The public HTTP API of a server, and nothing else. `docs/reference/http.md` describes it.

export interface Position {
  line: number;
  column: number;
  byte_start: number;
  byte_end: number;
}

/** What the API said, or that it said nothing. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint?: string,
    readonly code?: string,
    readonly position?: Position,
    readonly body: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

export interface Property {
  name: string;
  type: string;
  kind: string;
  item_kind?: string;
  nullable: boolean;
  values?: string[];
  rules?: string[];
  indexes?: string[];
  description?: string;
}
export interface GraphType {
  kind: "node" | "edge" | "interface";
  name: string;
  source?: string;
  target?: string;
  implements?: string[];
  key?: string[];
  rules?: string[];
  properties: Property[];
  entity_count?: number;
  description?: string;
}
export interface Schema {
  branch: string;
  graph_commit_id: string;
  types: GraphType[];
}
export interface Field {
  name: string;
  kind: string;
  item_kind?: string;
  vector_dim?: number;
  nullable: boolean;
}
export interface Signature {
  name: string;
  mutation: boolean;
  params: Field[];
  description?: string;
}
/** A range of a text: lines and columns from 1, in characters. */
export interface Place {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
}
/** What the language service says about a text, and about the place of a cursor. */
export interface LanguageAnswer {
  diagnostics: { severity: "error" | "warning" | "info"; message: string; place: Place; hint?: string }[];
  completions: { label: string; kind: string; detail?: string }[];
  hover?: { text: string; place: Place };
  formatted?: string;
}
export type Value = unknown;
export type Row = Record<string, Value>;
export interface Explanation {
  plan: string[];
  engine?: string;
  seconds?: number;
  steps?: { step: string; strategy: string; rows: number; seconds: number; expected_rows?: number }[];
}
export interface Answer {
  query_name: string;
  row_count: number;
  columns?: string[];
  rows: Row[];
  graph_commit_id?: string;
  explain?: Explanation;
}
export interface Commit {
  graph_commit_id: string;
  graph_branch: string | null;
  parent_commit_id: string | null;
  merged_parent_commit_id: string | null;
  actor_id: string | null;
  created_at: number;
  kind?: string;
  affected_nodes?: number;
  affected_edges?: number;
  message?: string;
}
export interface MutationReceipt {
  branch: string;
  affected_nodes: number;
  affected_edges: number;
  commit: Commit | null;
}
export interface Image {
  properties: Row;
  endpoints?: Endpoints;
}
export interface Endpoints {
  from: string;
  to: string;
  from_type?: string;
  to_type?: string;
}
/** One changed entity, as diffs list it. */
export interface Change {
  kind: "node" | "edge";
  type_name: string;
  id: string;
  op: "insert" | "update" | "delete";
  endpoints?: Endpoints;
  before?: Image;
  after?: Image;
}
/** The same in the changes of a commit, where the type is an object. */
export type CommitChange = Omit<Change, "type_name"> & { type: { name: string } };
export interface TypeCounts {
  kind: string;
  type_name: string;
  inserted: number;
  updated: number;
  deleted: number;
}
export interface DiffEnd {
  graph_branch: string;
  graph_commit_id: string;
}
export interface DiffPage {
  from: DiffEnd;
  to: DiffEnd;
  changes: Change[];
  stats: { inserted: number; updated: number; deleted: number; types: TypeCounts[] };
  next_page_token?: string;
}
export interface ChangePage {
  changes: CommitChange[];
  next_page_token?: string;
}
export interface EntityVersion {
  cause: { graph_commit_id: string; authored_branch: string; actor_id?: string; authored_at: number };
  change: CommitChange;
}
export interface MergeConflict {
  entity_kind: string;
  type_name: string;
  entity_id: string | null;
  kind: string;
  message: string;
  base?: Image;
  source?: Image;
  target?: Image;
  properties?: string[];
}
export interface MergePlan {
  outcome: "already_up_to_date" | "fast_forward" | "merged";
  types: (TypeCounts & { conflicts: number; adopted: boolean })[];
  merge_conflicts: MergeConflict[];
  blocked_by_hidden?: boolean;
}
export interface MergeReceipt {
  outcome: string;
  commit: Commit | null;
}
export interface ReviewSummary {
  id: string;
  title: string;
  state: "open" | "merged" | "closed";
  source: string;
  target: string;
  author: string | null;
  opened_at: number;
  comment_count: number;
}
export interface Review {
  id: string;
  title: string;
  description: string;
  state: "open" | "merged" | "closed";
  source: string;
  target: string;
  author: string | null;
  opened_at: number;
  source_commit_id: string;
  reviews: {
    actor_id: string | null;
    verdict: "approved" | "changes_requested";
    created_at: number;
    stale: boolean;
    text?: string;
  }[];
  comments: {
    id: string;
    actor_id: string | null;
    created_at: number;
    text: string;
    resolved: boolean;
    reply_to?: string;
    type_name?: string;
    entity_id?: string;
    property_name?: string;
  }[];
  checks: { name: string; state: string; stale: boolean; text?: string; rows?: Row[] }[];
  mergeable?: "clean" | "conflicts" | "behind" | "blocked";
  reasons: { code: string; text: string }[];
  merge_commit_id?: string;
  closed_because?: string;
}
/** Which side wins where both changed one entity. */
export type ConflictRule = "fail" | "source" | "target";
/** Rules of a merge: for everything, and for `Type:id` or `Type.property:id`. */
export interface MergeRules {
  on_conflict?: ConflictRule;
  on_conflict_of?: Record<string, ConflictRule>;
  granularity?: "entity" | "property";
}
export interface Finding {
  code: string;
  severity: "problem" | "advice";
  subject: string;
  message: string;
  command: string;
}
export interface TableStats {
  type_key: string;
  rows: number;
  fragments: number;
  small_fragments: number;
  deleted_rows: number;
  bytes: number;
  versions: number;
  indexes: { property: string; kind: string; rows_covered: number; rows_uncovered: number }[];
}
export interface Stats {
  branch: string;
  graph_commit_id: string;
  commits: number;
  branches: string[];
  datasets: TableStats[];
  pending_operations: { operation_id: string; writer_kind: string | null; branch: string | null }[];
  leases: { scope: string; owner_id: string; operation_id: string | null }[];
  findings: Finding[];
}
export interface Ready {
  status: string;
  graphs_ready: number;
  graphs_quarantined: number;
  branches_blocked: number;
  blocked: { graph_id: string; branch: string | null; reason: string }[];
}
export interface Permissions {
  actor_id: string | null;
  branch: string;
  actions: string[];
}

// --- the token -----------------------------------------------------------------------------------

const TOKEN = "omnigraph.token";
/** An event of the window: the server does not know the token any more. */
export const SIGNED_OUT = "omnigraph-signed-out";

export function token(): string | null {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(value: string | null): void {
  if (value === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, value);
}

// --- requests ------------------------------------------------------------------------------------

export interface Request {
  query?: Record<string, string | number | boolean | undefined | string[]>;
  body?: unknown;
  signal?: AbortSignal;
}

/** One request to the server; raises `ApiError` for everything but a success. */
export async function send(method: string, path: string, request: Request = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const bearer = token();
  if (bearer !== null) headers["Authorization"] = `Bearer ${bearer}`;
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    // The page is at /studio/, and the API beside it, also behind a proxy that adds a prefix.
    response = await fetch(new URL(`..${path}${queryOf(request.query)}`, location.href), {
      method,
      headers,
      body: request.body === undefined ? undefined : JSON.stringify(request.body),
      signal: request.signal,
    });
  } catch (problem) {
    if (request.signal?.aborted) throw new ApiError(0, "cancelled", undefined, "cancelled");
    throw lost(problem);
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  if (error.status === 401 && bearer !== null) dispatchEvent(new CustomEvent(SIGNED_OUT, { detail: error }));
  throw error;
}

export async function ask<T>(method: string, path: string, request: Request = {}): Promise<T> {
  return exact(await (await send(method, path, request)).text()) as T;
}

function lost(cause: unknown): ApiError {
  const hint = "It may have been stopped, or the connection lost. Start it again, then try again.";
  const error = new ApiError(0, "the server does not answer", hint, "unreachable");
  error.cause = cause;
  return error;
}

function queryOf(query: Request["query"]): string {
  const pairs = Object.entries(query ?? {}).flatMap(([name, value]) =>
    value === undefined || value === ""
      ? []
      : (Array.isArray(value) ? value : [value]).map((each) => [name, String(each)]),
  );
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function errorOf(response: Response): Promise<ApiError> {
  const body = await response.json().catch(() => ({}));
  return new ApiError(
    response.status,
    body.error ?? `the server answered with status ${response.status}`,
    body.hint,
    body.error_code ?? body.code,
    body.position,
    body,
  );
}

const ROWS = '"rows":[';

/** An answer whose rows are handed on while they arrive: `onRows` gets all of them so far. */
async function readAnswer(response: Response, onRows: (soFar: Answer) => void, signal?: AbortSignal): Promise<Answer> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const scan: Scan = { text: "", at: 0, depth: 0, isInText: false };
  let head = "";
  let answer: Answer | undefined;
  for (;;) {
    const { value, done } = await reader.read().catch((problem) => {
      throw signal?.aborted ? new ApiError(0, "cancelled", undefined, "cancelled") : lost(problem);
    });
    if (done) break;
    scan.text += value;
    if (answer === undefined) {
      const found = scan.text.indexOf(ROWS);
      if (found < 0) continue;
      head = scan.text.slice(0, found + ROWS.length);
      scan.text = scan.text.slice(head.length);
      answer = exact(`${head}]}`) as Answer;
    }
    const rows = completeRows(scan);
    if (rows.length) {
      for (const row of rows) answer.rows.push(row);
      onRows({ ...answer });
    }
  }
  if (answer === undefined) return exact(scan.text) as Answer;
  // What is left is the end of the list and of the document.
  return { ...(exact(head + scan.text) as Answer), rows: answer.rows };
}

interface Scan {
  text: string;
  /** What was looked at. */
  at: number;
  depth: number;
  isInText: boolean;
}

/** Take the rows off a text that are whole; the rest waits for more of it. */
function completeRows(scan: Scan): Row[] {
  const { text } = scan;
  let { at, depth, isInText } = scan;
  let end = 0;
  for (; at < text.length && depth >= 0; at++) {
    const character = text.charCodeAt(at);
    if (isInText) {
      if (character === 0x5c) at++; // a backslash: the next one is a part of the text
      else if (character === 0x22) isInText = false;
    } else if (character === 0x22) isInText = true;
    else if (character === 0x7b || character === 0x5b) depth++;
    else if (character === 0x7d || character === 0x5d) {
      if (--depth === 0) end = at + 1;
    }
  }
  const rows = end ? (exact(`[${text.slice(0, end).replace(/^,/, "")}]`) as Row[]) : [];
  scan.text = text.slice(end);
  Object.assign(scan, { at: at - end, depth, isInText });
  return rows;
}

/** JSON whose integers beyond 2^53 stay exact, as texts of digits. */
function exact(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const parse = JSON.parse as (
    text: string,
    reviver: (key: string, value: unknown, context?: { source?: string }) => unknown,
  ) => unknown;
  return parse(text, (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
      ? (context?.source ?? value)
      : value,
  );
}

// --- one graph -----------------------------------------------------------------------------------

/** What is read: the head of a branch, or a commit. */
export interface Target {
  branch?: string;
  at?: string;
}

const reviewPath = (id: string) => `/reviews/${encodeURIComponent(id)}`;
const targetOf = ({ branch, at }: Target) => (at ? { snapshot: at } : { branch });

export class Graph {
  constructor(readonly id: string) {}

  private ask<T>(method: string, path: string, request?: Request): Promise<T> {
    return ask<T>(method, `/graphs/${encodeURIComponent(this.id)}${path}`, request);
  }

  schema = (target: Target) => this.ask<Schema>("GET", "/schema/types", { query: targetOf(target) });
  schemaSource = (branch?: string) =>
    this.ask<{ schema_source: string }>("GET", "/schema", { query: { branch } });
  planSchema = (schema_source: string) =>
    this.ask<{ supported: boolean; steps: Row[] }>("POST", "/schema/plan", {
      body: { schema_source },
    });
  applySchema = (schema_source: string) =>
    this.ask<{ applied: boolean }>("POST", "/schema/apply", { body: { schema_source } });
  permissions = (branch?: string) =>
    this.ask<Permissions>("GET", "/permissions", { query: { branch } });
  branches = async () => (await this.ask<{ branches: string[] }>("GET", "/branches")).branches;
  createBranch = (name: string, from: string) =>
    this.ask("POST", "/branches", { body: { name, from } });
  deleteBranch = (name: string) => this.ask("DELETE", `/branches/${encodeURIComponent(name)}`);
  commits = async (branch: string) =>
    (await this.ask<{ commits: Commit[] }>("GET", "/commits", { query: { branch } })).commits;
  commit = (id: string) => this.ask<Commit>("GET", `/commits/${encodeURIComponent(id)}`);
  commitChanges = (id: string, page_token?: string) =>
    this.ask<ChangePage>("GET", `/commits/${encodeURIComponent(id)}/changes`, {
      query: { page_token, limit: 100 },
    });
  history = (type: string, id: string, branch?: string) =>
    this.ask<{ versions: EntityVersion[] }>("GET", "/history", {
      query: { type, id, branch, limit: 100 },
    });
  storedQueries = async () =>
    (await this.ask<{ queries: Signature[] }>("GET", "/queries")).queries;
  describe = async (query: string, branch?: string, signal?: AbortSignal) =>
    (await this.ask<{ queries: Signature[] }>("POST", "/describe", { body: { query, branch }, signal }))
      .queries;
  language = (text: string, language: "gq" | "pg", branch: string, at?: { line: number; column: number }, signal?: AbortSignal) =>
    this.ask<LanguageAnswer>("POST", "/language", { body: { text, language, branch, ...at }, signal });
  query = async (
    query: string,
    params: Row,
    target: Target,
    options: { name?: string; explain?: boolean; signal?: AbortSignal; onRows?: (soFar: Answer) => void } = {},
  ): Promise<Answer> => {
    const body = { query, params, ...targetOf(target), name: options.name, explain: options.explain };
    const request = { body, signal: options.signal };
    if (!options.onRows) return this.ask<Answer>("POST", "/query", request);
    const response = await send("POST", `/graphs/${encodeURIComponent(this.id)}/query`, request);
    return readAnswer(response, options.onRows, options.signal);
  };
  mutate = (query: string, params: Row, branch: string, name?: string, message?: string) =>
    this.ask<MutationReceipt>("POST", "/mutate", { body: { query, params, branch, name, message } });
  diff = (target: string, source: string, page_token?: string) =>
    this.ask<DiffPage>("GET", "/diff", {
      query: { target, source, images: true, page_token, limit: 100 },
    });
  planMerge = (source: string, target: string, rules: MergeRules = {}) =>
    this.ask<MergePlan>("POST", "/branches/merge/plan", { body: { source, target, limit: 1, ...rules } });
  merge = (source: string, target: string, rules: MergeRules, message?: string) =>
    this.ask<MergeReceipt>("POST", "/branches/merge", { body: { source, target, message, ...rules } });
  reviews = async (state: string) =>
    (await this.ask<{ reviews: ReviewSummary[] }>("GET", "/reviews", { query: { state } })).reviews;
  openReview = (body: { source: string; target: string; title?: string; description?: string }) =>
    this.ask<Review>("POST", "/reviews", { body });
  review = (id: string) => this.ask<Review>("GET", reviewPath(id));
  reviewDiff = (id: string, page_token?: string) =>
    this.ask<DiffPage>("GET", `${reviewPath(id)}/diff`, { query: { images: true, page_token, limit: 100 } });
  comment = (id: string, body: { text: string; reply_to?: string }) =>
    this.ask<Review>("POST", `${reviewPath(id)}/comments`, { body });
  resolve = (id: string, comment: string, resolved: boolean) =>
    this.ask<Review>("POST", `${reviewPath(id)}/comments/${encodeURIComponent(comment)}/resolve`, {
      body: { resolved },
    });
  judge = (id: string, body: { verdict: "approve" | "request_changes"; text?: string; head: string }) =>
    this.ask<Review>("POST", `${reviewPath(id)}/review`, { body });
  check = (id: string) => this.ask<Review>("POST", `${reviewPath(id)}/check`, { body: {} });
  mergeReview = (id: string, rules: MergeRules) =>
    this.ask<{ merge: MergeReceipt }>("POST", `${reviewPath(id)}/merge`, { body: rules });
  closeReview = (id: string) => this.ask<Review>("POST", `${reviewPath(id)}/close`);
  reopenReview = (id: string) => this.ask<Review>("POST", `${reviewPath(id)}/reopen`);
  stats = (branch?: string) => this.ask<Stats>("GET", "/stats", { query: { branch } });
  blob = (kind: string, type: string, id: string, property: string, target: Target) =>
    send("GET", `/graphs/${encodeURIComponent(this.id)}/blob`, {
      query: { entity: kind, type, id, property, ...targetOf(target) },
    });
}

export const health = () => ask<{ version: string }>("GET", "/healthz");
export const ready = () => ask<Ready>("GET", "/readyz");
export const graphs = async () =>
  (await ask<{ graphs: { graph_id: string }[] }>("GET", "/graphs")).graphs.map((g) => g.graph_id);
export const openSession = (code: string) =>
  ask<{ token: string; actor_id: string | null }>("POST", "/session", { body: { code } });

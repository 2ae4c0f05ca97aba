// Health: what needs attention, with its commands; tables, indexes, unfinished operations, the server.
import { health, ready } from "../api";
import type { Finding, TableStats } from "../api";
import type { PageProps } from "../main";
import { CopyButton, ResultTable, Show, capital, count, plural, useLoad } from "../parts";

export function Health({ graph, branch, at }: PageProps) {
  const found = useLoad(async () => {
    const [stats, server, state] = await Promise.all([graph.stats(branch), health(), ready()]);
    return { stats, server, state };
  }, []);
  return (
    <>
      <h1>Health</h1>
      {at && <p class="note">These numbers are of the branch as it is now, not of the commit.</p>}
      <Show of={found} what="numbers">
        {({ stats, server, state }) => (
          <>
            <section class="card" aria-label="Findings">
              <h2>Findings</h2>
              {stats.findings.length === 0 && <p class="success">Nothing needs attention.</p>}
              <ul class="findings">
                {byCommand(stats.findings).map(([first, ...more]) => (
                  <li key={first.command} class={first.severity}>
                    {[first, ...more].map((each) => (
                      <div key={`${each.subject} ${each.code}`}>
                        <strong>{capital(each.severity)}</strong>: {each.subject}: {each.message}
                      </div>
                    ))}
                    <div class="actions">
                      <code>{first.command}</code> <CopyButton label="Copy" text={() => first.command} />
                    </div>
                  </li>
                ))}
              </ul>
            </section>
            <section aria-label="Tables">
              <h2>Tables</h2>
              <ResultTable
                label="Tables"
                columns={["type", "rows", "deleted", "fragments", "small", "size", "versions", "indexed"]}
                numbers={["size", "indexed"]}
                rows={stats.datasets.map(rowOf)}
              />
            </section>
            <div class="split">
              <section class="card" aria-label="Operations">
                <h2>Operations</h2>
                <p>
                  {plural(stats.commits, "commit")} on {stats.branch}, {plural(stats.branches.length, "branch", "branches")}
                </p>
                <h3>Writes, loads and pipelines under way</h3>
                {stats.pending_operations.length === 0 ? (
                  <p>None that has begun to write.</p>
                ) : (
                  <ResultTable
                    label="Operations under way"
                    columns={["kind", "branch", "operation"]}
                    rows={stats.pending_operations.map((each) => ({
                      kind: each.writer_kind ?? "unreadable",
                      branch: each.branch,
                      operation: each.operation_id,
                    }))}
                  />
                )}
                <h3>Leases</h3>
                {stats.leases.length === 0 ? (
                  <p>No writer owns a branch or the graph.</p>
                ) : (
                  <ResultTable
                    label="Leases"
                    columns={["scope", "owner", "operation"]}
                    rows={stats.leases.map((each) => ({
                      scope: each.scope,
                      owner: each.owner_id,
                      operation: each.operation_id,
                    }))}
                  />
                )}
              </section>
              <section class="card" aria-label="Server">
                <h2>Server</h2>
                <dl>
                  <dt>Version</dt>
                  <dd>{server.version}</dd>
                  <dt>State</dt>
                  <dd>{state.status}</dd>
                  <dt>Graphs</dt>
                  <dd>
                    {count(state.graphs_ready)} served, {count(state.graphs_quarantined)} left out
                  </dd>
                  <dt>Blocked</dt>
                  <dd>
                    {plural(state.branches_blocked, "branch", "branches")}
                    {state.blocked.map((each) => ` ${each.branch ?? "all"}: ${each.reason}`)}
                  </dd>
                </dl>
                <p class="actions">
                  <button type="button" onClick={found.reload}>
                    Look again
                  </button>
                  <a href="./THIRD-PARTY.txt" target="_blank" rel="noreferrer">
                    Licences of the parts of this page
                  </a>
                </p>
              </section>
            </div>
          </>
        )}
      </Show>
    </>
  );
}

/** Findings that one command mends together. */
function byCommand(findings: Finding[]): [Finding, ...Finding[]][] {
  const found = new Map<string, [Finding, ...Finding[]]>();
  for (const each of findings) {
    const others = found.get(each.command);
    if (others) others.push(each);
    else found.set(each.command, [each]);
  }
  return [...found.values()];
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

function bytes(number: number): string {
  const unit = Math.min(UNITS.length - 1, Math.floor(Math.log10(Math.max(1, number)) / 3));
  return `${(number / 1000 ** unit).toFixed(unit && number < 100 * 1000 ** unit ? 1 : 0)} ${UNITS[unit]}`;
}

function rowOf(table: TableStats) {
  const shares = table.indexes.map(
    (index) => (100 * index.rows_covered) / Math.max(1, index.rows_covered + index.rows_uncovered),
  );
  return {
    type: table.type_key.replace(":", " "),
    rows: table.rows,
    deleted: table.deleted_rows,
    fragments: table.fragments,
    small: table.small_fragments,
    size: bytes(table.bytes),
    versions: table.versions,
    indexed: shares.length ? `${Math.floor(Math.min(...shares))} %` : "",
  };
}

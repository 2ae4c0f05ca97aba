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
                columns={["type", "rows", "deleted", "fragments", "small", "bytes", "versions", "indexed"]}
                rows={stats.datasets.map(rowOf)}
              />
            </section>
            <div class="split">
              <section class="card" aria-label="Operations">
                <h2>Operations</h2>
                <p>
                  {plural(stats.commits, "commit")} on {stats.branch}, {plural(stats.branches.length, "branch", "branches")}
                </p>
                {stats.pending_operations.length === 0 && <p>No unfinished operation.</p>}
                <ul>
                  {stats.pending_operations.map((each) => (
                    <li key={each.operation_id}>
                      <code>{each.operation_id}</code> {each.writer_kind ?? "unreadable"} on {each.branch ?? "?"}
                    </li>
                  ))}
                  {stats.leases.map((each) => (
                    <li key={each.scope}>
                      {each.scope} is owned by {each.owner_id}
                    </li>
                  ))}
                </ul>
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
    bytes: table.bytes,
    versions: table.versions,
    indexed: shares.length ? `${Math.floor(Math.min(...shares))} %` : "",
  };
}

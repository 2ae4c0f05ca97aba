// Branches: the commit graph with a lane for each branch, what a commit changed, time travel.
import { useState } from "preact/hooks";
import { type Address, MAIN, go, to } from "../address";
import type { Commit, CommitChange } from "../api";
import type { PageProps } from "../main";
import { Action, EntityLink, Moment, Show, commitTitle, plural, shortId, shown, useLoad } from "../parts";

const COMMITS_SHOWN = 200;
const [ROW, LANE] = [44, 18];

export function Branches(props: PageProps) {
  const { address, graph, branches } = props;
  const loaded = useLoad(async () => {
    const lists = await Promise.all(branches.map((name) => graph.commits(name)));
    return merged(lists);
  }, [branches.join("\n")]);
  const chosen = address.fields.commit;
  return (
    <>
      <h1>Branches</h1>
      <BranchList {...props} onChange={loaded.reload} />
      <div class="split">
        <section aria-label="Commits">
          <h2>Commits</h2>
          <Show of={loaded} what="commits">
            {(commits) => <CommitGraph {...{ commits, branches, chosen, address }} />}
          </Show>
        </section>
        {chosen && <CommitPanel key={chosen} {...props} id={chosen} />}
      </div>
    </>
  );
}

/** The commits of all branches, each once, newest first and no parent before its child. */
function merged(lists: Commit[][]): Commit[] {
  const byId = new Map(lists.flat().map((commit) => [commit.graph_commit_id, commit]));
  return [...byId.values()].sort(
    (a, b) => b.created_at - a.created_at || (a.graph_commit_id < b.graph_commit_id ? 1 : -1),
  );
}

function BranchList(props: PageProps & { onChange: () => void }) {
  const { address, graph, branches, permissions, branch, refresh } = props;
  const [name, setName] = useState("");
  const mayCreate = permissions.actions.includes("branch_create");
  const mayDelete = permissions.actions.includes("branch_delete");
  const after = () => {
    refresh();
    props.onChange();
  };
  return (
    <section class="card" aria-label="Branches">
      <ul class="branches">
        {branches.map((each) => (
          <li key={each}>
            <a
              href={to(address, "branches", { branch: each, at: undefined })}
              aria-current={each === branch ? "true" : undefined}
            >
              <bdi>{each}</bdi>
            </a>
            {each !== MAIN && each === branch && mayDelete && (
              <Action
                label="Delete"
                kind="danger"
                confirm={`Delete branch ${each}?`}
                run={async () => {
                  await graph.deleteBranch(each);
                  location.hash = to({ ...address, fields: {} }, "branches");
                  after();
                }}
              />
            )}
          </li>
        ))}
      </ul>
      {mayCreate && (
        <form class="actions" onSubmit={(event) => event.preventDefault()}>
          <label class="inline">
            New branch{" "}
            <input
              value={name}
              placeholder={`from ${branch}`}
              onInput={(event) => setName(event.currentTarget.value)}
            />
          </label>
          <Action
            label="Create"
            disabled={!name.trim()}
            run={async () => {
              await graph.createBranch(name.trim(), branch);
              setName("");
              after();
            }}
          />
        </form>
      )}
    </section>
  );
}

// --- the graph of commits ------------------------------------------------------------------------

function CommitGraph(props: { commits: Commit[]; branches: string[]; chosen?: string; address: Address }) {
  const shown = props.commits.slice(0, COMMITS_SHOWN);
  const row = new Map(shown.map((commit, at) => [commit.graph_commit_id, at]));
  const lanes = [MAIN, ...new Set(shown.map(branchOf))].filter((name, at, all) => all.indexOf(name) === at);
  const x = (commit: Commit) => 12 + lanes.indexOf(branchOf(commit)) * LANE;
  const y = (id: string) => (row.get(id) ?? shown.length) * ROW + ROW / 2;
  const byId = new Map(shown.map((commit) => [commit.graph_commit_id, commit]));
  const width = 24 + lanes.length * LANE;
  return (
    <>
      <div class="commits">
        <svg width={width} height={shown.length * ROW} aria-hidden="true">
          {shown.flatMap((commit) =>
            [commit.parent_commit_id, commit.merged_parent_commit_id].map((parent, at) => {
              const other = byId.get(parent ?? "");
              if (!parent || !other) return null;
              const [x1, y1, x2, y2] = [x(commit), y(commit.graph_commit_id), x(other), y(parent)];
              const path =
                x1 === x2
                  ? `M${x1} ${y1}V${y2}`
                  : `M${x1} ${y1}C${x1} ${y1 + ROW * 0.7} ${x2} ${y2 - ROW * 0.7} ${x2} ${y2}`;
              return <path key={`${commit.graph_commit_id} ${at}`} d={path} class={`lane lane-${lanes.indexOf(branchOf(at ? other : x1 > x2 ? commit : other)) % 6}`} />;
            }),
          )}
          {shown.map((commit) => (
            <circle
              key={commit.graph_commit_id}
              cx={x(commit)}
              cy={y(commit.graph_commit_id)}
              r={commit.merged_parent_commit_id ? 6 : 5}
              class={`lane-${lanes.indexOf(branchOf(commit)) % 6}`}
            />
          ))}
        </svg>
        <ol>
          {shown.map((commit) => (
            <li key={commit.graph_commit_id} style={{ height: `${ROW}px` }}>
              <a
                href={to(props.address, "branches", { commit: commit.graph_commit_id })}
                aria-current={commit.graph_commit_id === props.chosen ? "true" : undefined}
              >
                <span class="title" dir="auto">
                  {commitTitle(commit)}
                </span>
                <span class="about">
                  <bdi>{branchOf(commit)}</bdi> · {affected(commit)}
                  {commit.actor_id ?? "no actor"} · <Moment us={commit.created_at} />
                </span>
              </a>
            </li>
          ))}
        </ol>
      </div>
      {props.commits.length > COMMITS_SHOWN && (
        <p>The newest {COMMITS_SHOWN} of {plural(props.commits.length, "commit")}.</p>
      )}
    </>
  );
}

/** How much a commit changed, where its record says so. */
function affected({ kind, affected_nodes: nodes, affected_edges: edges }: Commit): string {
  if (nodes === undefined || edges === undefined) return kind ? `${kind} · ` : "";
  return `${kind}: ${plural(nodes, "node")}, ${plural(edges, "edge")} · `;
}

function branchOf(commit: Commit): string {
  return commit.graph_branch ?? MAIN;
}

function CommitPanel(props: PageProps & { id: string }) {
  const { address, graph, id } = props;
  const commit = useLoad(() => graph.commit(id), []);
  const changes = useLoad(() => graph.commitChanges(id), []);
  const close = () => go(address, { commit: undefined });
  return (
    <aside class="card" aria-label="Commit">
      <button type="button" class="close" onClick={close} aria-label="Close the commit">
        ×
      </button>
      <Show of={commit} what="the commit">
        {(value) => (
          <>
            <h2 dir="auto">{commitTitle(value)}</h2>
            <dl>
              <dt>Commit</dt>
              <dd>
                <code>{id}</code>
              </dd>
              <dt>Branch</dt>
              <dd>
                <bdi>{branchOf(value)}</bdi>
              </dd>
              <dt>Actor</dt>
              <dd>{value.actor_id ?? "none"}</dd>
              <dt>Time (UTC)</dt>
              <dd>
                <Moment us={value.created_at} />
              </dd>
            </dl>
            <p class="actions">
              <a class="button" href={to(address, "schema", { at: id, branch: undefined })}>
                See the graph as it was here
              </a>
              {value.parent_commit_id && (
                <a href={to(address, "branches", { commit: value.parent_commit_id })}>
                  Parent <code>{shortId(value.parent_commit_id)}</code>
                </a>
              )}
            </p>
          </>
        )}
      </Show>
      <h3>Changes</h3>
      <Show of={changes} what="changes">
        {(page) =>
          page.changes.length === 0 ? (
            <p>No entity changed.</p>
          ) : (
            <>
              <ul class="changes">
                {page.changes.map((change) => (
                  <CommitChangeLine key={`${change.type.name} ${change.id}`} {...{ change, address }} at={id} />
                ))}
              </ul>
              {page.next_page_token && <p>… and more.</p>}
            </>
          )
        }
      </Show>
    </aside>
  );
}

const MARKS = { insert: "+", update: "~", delete: "−" };

function CommitChangeLine(props: { change: CommitChange; address: Address; at: string }) {
  const { change } = props;
  const there = { ...props.address, fields: { at: props.at } };
  return (
    <li class={change.op}>
      <span class="mark" aria-label={change.op}>
        {MARKS[change.op]}
      </span>{" "}
      {change.type.name}{" "}
      {change.op === "delete" ? (
        <bdi>{change.id}</bdi>
      ) : (
        <EntityLink address={there} type={change.type.name} id={change.id} {...change.after?.endpoints} />
      )}{" "}
      <small>{differences(change)}</small>
    </li>
  );
}

/** What an update changed, in one line. */
export function differences(change: Pick<CommitChange, "op" | "before" | "after">): string {
  if (change.op !== "update" || !change.before || !change.after) return "";
  const [before, after] = [change.before.properties, change.after.properties];
  return Object.keys(after)
    .filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
    .map((name) => `${name}: ${shown(before[name]) || "null"} → ${shown(after[name]) || "null"}`)
    .join("; ");
}

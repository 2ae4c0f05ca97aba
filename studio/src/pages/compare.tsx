// Compare: what a branch changed since it went apart from another, and the merge of the two.
import { useMemo, useState } from "preact/hooks";
import { type Address, MAIN, go, to } from "../address";
import type { Change, DiffPage, MergePlan, MergeReceipt } from "../api";
import { Canvas, type Dot, type Line } from "../canvas";
import { colourOf } from "../colours";
import { Conflicts, flat, useSettling } from "../conflicts";
import type { PageProps } from "../main";
import { Action, Cell, EntityLink, Show, plural, shortId, useLoad } from "../parts";

export function Compare(props: PageProps) {
  const { address, branches, branch, at } = props;
  const target = address.fields.target ?? MAIN;
  const others = branches.filter((name) => name !== target);
  const source = address.fields.source ?? at ?? (branch === target ? others[0] : branch);
  return (
    <>
      <h1>Compare</h1>
      <section class="card actions" aria-label="What is compared">
        <Pick label="Changes of" value={source ?? ""} names={[...others, ...(source && !others.includes(source) ? [source] : [])]} onPick={(name) => go(address, { source: name })} />
        <Pick label="since they left" value={target} names={branches} onPick={(name) => go(address, { target: name, source })} />
      </section>
      {source === undefined || source === target ? (
        <p class="note">
          There is nothing to compare yet. Create a branch on the page Branches, write to it, and come back to see
          what it changed and to merge it.
        </p>
      ) : (
        <Comparison key={`${source} ${target}`} {...props} source={source} target={target} />
      )}
    </>
  );
}

function Pick(props: { label: string; value: string; names: string[]; onPick: (name: string) => void }) {
  return (
    <label class="inline">
      {props.label}{" "}
      <select value={props.value} onChange={(event) => props.onPick(event.currentTarget.value)}>
        {props.names.map((name) => (
          <option key={name} value={name}>
            {name.length > 40 ? shortId(name) : name}
          </option>
        ))}
      </select>
    </label>
  );
}

type Sides = PageProps & { source: string; target: string };

function Comparison(props: Sides) {
  const { graph, source, target, address, branches } = props;
  const diff = useLoad(() => graph.diff(target, source), []);
  const view = address.fields.view ?? "list";
  return (
    <>
      {branches.includes(source) && branches.includes(target) && <Merge {...props} onMerged={diff.reload} />}
      <Show of={diff} what="the differences">
        {(first) => (
          <section aria-label="Differences">
            <div class="answer-head">
              <p role="status">
                {plural(first.stats.inserted, "entity", "entities")} added, {first.stats.updated} changed,{" "}
                {first.stats.deleted} removed since{" "}
                <a href={to(address, "branches", { commit: first.from.graph_commit_id })}>
                  <code>{shortId(first.from.graph_commit_id)}</code>
                </a>
              </p>
              <div role="group" aria-label="Show the differences as" class="tabs">
                {["list", "graph"].map((each) => (
                  <button key={each} type="button" aria-pressed={view === each} onClick={() => go(address, { view: each }, true)}>
                    {each === "list" ? "List" : "Graph"}
                  </button>
                ))}
              </div>
            </div>
            <Differences {...props} first={first} view={view} load={(token) => graph.diff(target, source, token)} />
          </section>
        )}
      </Show>
    </>
  );
}

/** Every changed entity of a diff, as a list or as a graph; `load` brings further pages. */
export function Differences(
  props: PageProps & { first: DiffPage; view: string; load: (token?: string) => Promise<DiffPage> },
) {
  const { first, address, load } = props;
  const [more, setMore] = useState<{ changes: Change[]; next?: string }>({ changes: [], next: first.next_page_token });
  const changes = [...first.changes, ...more.changes];
  if (changes.length === 0) return <p>No differences.</p>;
  // Links lead to the side that has the entity.
  const side = (change: Change): Address => {
    const commit = change.op === "delete" ? first.from.graph_commit_id : first.to.graph_commit_id;
    return { ...address, fields: { at: commit } };
  };
  return (
    <>
      <table class="counts">
        <thead>
          <tr>
            <th scope="col">Type</th>
            <th scope="col" class="number">Added</th>
            <th scope="col" class="number">Changed</th>
            <th scope="col" class="number">Removed</th>
          </tr>
        </thead>
        <tbody>
          {first.stats.types.map((each) => (
            <tr key={`${each.kind} ${each.type_name}`}>
              <th scope="row">
                {each.kind} {each.type_name}
              </th>
              <td class="number">{each.inserted}</td>
              <td class="number">{each.updated}</td>
              <td class="number">{each.deleted}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {props.view === "graph" ? (
        <ChangeGraph changes={changes} schema={props.schema} />
      ) : (
        changes.map((change) => (
          <ChangeCard key={`${change.type_name} ${change.id}`} change={change} address={side(change)} />
        ))
      )}
      {more.next && (
        <Action
          label="Show more"
          run={async () => {
            const page = await load(more.next);
            setMore({ changes: [...more.changes, ...page.changes], next: page.next_page_token });
          }}
        />
      )}
    </>
  );
}

const WORDS = { insert: "added", update: "changed", delete: "removed" };

/** An entity, property by property: old beside new. */
function ChangeCard({ change, address }: { change: Change; address: Address }) {
  const before = flat(change.before);
  const after = flat(change.after);
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (name) => change.op !== "update" || JSON.stringify(before[name]) !== JSON.stringify(after[name]),
  );
  const title = `${change.type_name} ${change.id} ${WORDS[change.op]}`;
  return (
    <section class={`card change ${change.op}`} aria-label={title}>
      <h2>
        <span class="kind">{WORDS[change.op]}</span> {change.type_name}{" "}
        <EntityLink address={address} type={change.type_name} id={change.id} {...ends(change)} />
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Properties of ${change.id}`}>
        <table>
          <thead>
            <tr>
              <th scope="col">Property</th>
              {change.op !== "insert" && <th scope="col">Before</th>}
              {change.op !== "delete" && <th scope="col">After</th>}
            </tr>
          </thead>
          <tbody>
            {names.map((name) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {change.op !== "insert" && (
                  <td class="old">
                    <Cell value={before[name]} />
                  </td>
                )}
                {change.op !== "delete" && (
                  <td class="new">
                    <Cell value={after[name]} />
                  </td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const ends = (change: Change) =>
  change.endpoints ? { from: change.endpoints.from, to: change.endpoints.to } : {};

function ChangeGraph({ changes, schema }: { changes: Change[]; schema: PageProps["schema"] }) {
  const names = schema.types.filter((each) => each.kind === "node").map((each) => each.name);
  const { dots, lines } = useMemo(() => {
    const dots = new Map<string, Dot>();
    const lines: Line[] = [];
    const put = (type: string, id: string, tone?: Dot["tone"]) => {
      const key = `${type}:${id}`;
      if (tone || !dots.has(key)) dots.set(key, { key, label: id, colour: colourOf(type, names), group: type, tone });
      return key;
    };
    for (const change of changes) if (change.kind === "node") put(change.type_name, change.id, change.op);
    for (const change of changes) {
      const edge = schema.types.find((each) => each.kind === "edge" && each.name === change.type_name);
      const between = change.endpoints;
      if (change.kind !== "edge" || !edge || !between) continue;
      const from = put(between.from_type ?? edge.source!, between.from);
      const end = put(between.to_type ?? edge.target!, between.to);
      lines.push({ key: `${change.type_name} ${change.id}`, from, to: end, label: change.type_name, tone: change.op });
    }
    return { dots: [...dots.values()], lines };
  }, [changes.length]);
  return (
    <div class="card">
      <p class="legend">
        <span class="insert">added</span> <span class="update">changed</span> <span class="delete">removed</span>
      </p>
      <Canvas label={`Graph of ${changes.length} changes; the list says the same`} dots={dots} lines={lines} layout="force" />
    </div>
  );
}

// --- merging -------------------------------------------------------------------------------------

function Merge(props: Sides & { onMerged: () => void }) {
  const { graph, source, target, refresh, address } = props;
  const [receipt, setReceipt] = useState<MergeReceipt>();
  const [message, setMessage] = useState("");
  const settling = useSettling(graph, source, target, true, []);
  const { plan } = settling;
  const rights = useLoad(async () => (await graph.permissions(target)).actions, []);
  const merge = async () => {
    try {
      setReceipt(await graph.merge(source, target, settling.rules, message || undefined));
    } finally {
      // Somebody else may have been faster: what is shown is of now, in any case.
      settling.loaded.reload();
      props.onMerged();
      refresh();
    }
  };
  return (
    <section class="card" aria-label="Merge">
      <h2>
        Merge <bdi>{source}</bdi> into <bdi>{target}</bdi>
      </h2>
      {receipt?.commit && (
        <p class="success" role="status">
          Merged, in commit{" "}
          <a href={to(address, "branches", { commit: receipt.commit.graph_commit_id, branch: undefined })}>
            <code>{shortId(receipt.commit.graph_commit_id)}</code>
          </a>
        </p>
      )}
      <Show of={settling.loaded} what="the plan of the merge">
        {() => (
          <>
            {plan && <p>{planned(plan)}</p>}
            {plan && plan.merge_conflicts.length > 0 && <Conflicts {...settling} source={source} target={target} />}
            {plan &&
              plan.outcome !== "already_up_to_date" &&
              rights.value &&
              (rights.value.includes("branch_merge") ? (
                <div class="actions">
                  <label class="inline">
                    Message{" "}
                    <input value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
                  </label>
                  <Action label={`Merge into ${target}`} kind="primary" run={merge} disabled={!settling.isSettled} />
                  <a class="button" href={to(address, "reviews", { source, target })}>
                    Ask for a review
                  </a>
                </div>
              ) : (
                <p>You may not merge into {target}.</p>
              ))}
          </>
        )}
      </Show>
    </section>
  );
}

function planned(plan: MergePlan): string {
  if (plan.outcome === "already_up_to_date") return "There is nothing to merge.";
  const total = plan.types.reduce((sum, each) => sum + each.inserted + each.updated + each.deleted, 0);
  const changes = `${plural(total, "entity", "entities")} will change.`;
  if (plan.merge_conflicts.length === 0 && plan.blocked_by_hidden)
    return `Something that you do not see prevents this merge: ask an actor who sees all of both branches. ${changes}`;
  if (plan.merge_conflicts.length === 0) return `No conflicts. ${changes}`;
  return `${plural(plan.merge_conflicts.length, "conflict")} must be settled first. ${total ? changes : ""}`;
}

// Reviews: change requests are opened, discussed, judged and merged here.
import { useState } from "preact/hooks";
import { MAIN, go, to } from "../address";
import type { Review } from "../api";
import { Conflicts, useSettling } from "../conflicts";
import type { PageProps } from "../main";
import { Action, Moment, ResultTable, Show, plural, shortId, useLoad } from "../parts";
import { Differences } from "./compare";

export function Reviews(props: PageProps) {
  const id = props.address.fields.review;
  return id ? <ReviewView key={id} {...props} id={id} /> : <ReviewList {...props} />;
}

// --- the list ------------------------------------------------------------------------------------

const STATES = ["open", "merged", "closed", "all"];

function ReviewList(props: PageProps) {
  const { address, graph } = props;
  const state = address.fields.state ?? "open";
  const found = useLoad(() => graph.reviews(state), [state]);
  return (
    <>
      <h1>Reviews</h1>
      <OpenForm {...props} />
      <section class="card" aria-label="Change requests">
        <label class="inline">
          Show{" "}
          <select value={state} onChange={(event) => go(address, { state: event.currentTarget.value })}>
            {STATES.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <Show of={found} what="change requests">
          {(reviews) =>
            reviews.length === 0 ? (
              <div class="empty">
                <p>There are none{state === "all" ? "" : ` that are ${state}`}.</p>
                <p>
                  A change request asks to merge a branch into another. People see what it changes, entity by entity,
                  comment, approve or ask for changes, settle conflicts, and merge it as one commit.
                </p>
                <ol>
                  <li>
                    Create a branch on the page <a href={to(address, "branches")}>Branches</a>, or with{" "}
                    <code>omnigraph branch create</code>.
                  </li>
                  <li>Write to it: queries, loads, an agent.</li>
                  <li>Ask to merge it, above.</li>
                </ol>
              </div>
            ) : (
              <ul class="requests">
                {reviews.map((each) => (
                  <li key={each.id}>
                    <a href={to(address, "reviews", { review: each.id })} dir="auto">
                      {each.title}
                    </a>{" "}
                    <span class={`state ${each.state}`}>{each.state}</span>
                    <br />
                    <small>
                      <bdi>{each.source}</bdi> into <bdi>{each.target}</bdi> · {each.author ?? "no actor"} ·{" "}
                      <Moment us={each.opened_at} /> · {plural(each.comment_count, "comment")}
                    </small>
                  </li>
                ))}
              </ul>
            )
          }
        </Show>
      </section>
    </>
  );
}

function OpenForm({ address, graph, branches }: PageProps) {
  const target = address.fields.target ?? MAIN;
  const sources = branches.filter((name) => name !== target);
  const [source, setSource] = useState(address.fields.source ?? sources[0]);
  const [title, setTitle] = useState("");
  const [description, setDescription] = useState("");
  if (source === undefined) return null;
  const open = async () => {
    const made = await graph.openReview({
      source,
      target,
      title: title || undefined,
      description: description || undefined,
    });
    location.hash = to(address, "reviews", { review: made.id });
  };
  return (
    <details class="card" open={address.fields.source !== undefined}>
      <summary>Ask to merge a branch</summary>
      <div class="actions">
        <label class="inline">
          Branch{" "}
          <select aria-label="Branch to merge" value={source} onChange={(event) => setSource(event.currentTarget.value)}>
            {sources.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <span>
          into <bdi>{target}</bdi>
        </span>
      </div>
      <label>
        Title
        <input value={title} placeholder={source} onInput={(event) => setTitle(event.currentTarget.value)} />
      </label>
      <label>
        Description
        <textarea value={description} onInput={(event) => setDescription(event.currentTarget.value)} />
      </label>
      <p class="actions">
        <Action label="Open" kind="primary" run={open} />
      </p>
    </details>
  );
}

// --- one request ---------------------------------------------------------------------------------

type ViewProps = PageProps & { id: string };

function ReviewView(props: ViewProps) {
  const { graph, id, address } = props;
  const found = useLoad(() => graph.review(id), []);
  const diff = useLoad(() => graph.reviewDiff(id), []);
  const view = address.fields.view ?? "list";
  const changed = () => {
    found.reload();
    diff.reload();
    props.refresh();
  };
  return (
    <>
      <p>
        <a href={to(address, "reviews")}>All change requests</a>
      </p>
      <Show of={found} what="the change request">
        {(review) => (
          <>
            <h1 dir="auto">
              {review.title} <span class={`state ${review.state}`}>{review.state}</span>
            </h1>
            <p>
              {review.author ?? "Somebody"} asks to merge <bdi>{review.source}</bdi> into <bdi>{review.target}</bdi>,{" "}
              <Moment us={review.opened_at} />
            </p>
            {review.description && (
              <p class="description" dir="auto">
                {review.description}
              </p>
            )}
            <div class="split">
              <div>
                <Talk {...props} review={review} changed={changed} />
                <section aria-label="Differences">
                  <h2>What it changes</h2>
                  <Show of={diff} what="the differences">
                    {(first) => (
                      <Differences {...props} first={first} view={view} load={(token) => graph.reviewDiff(id, token)} />
                    )}
                  </Show>
                </section>
              </div>
              <div>
                <MergeBox {...props} review={review} changed={changed} />
                <Verdicts {...props} review={review} changed={changed} />
              </div>
            </div>
          </>
        )}
      </Show>
    </>
  );
}

type PartProps = ViewProps & { review: Review; changed: () => void };

function Talk({ graph, review, changed }: PartProps) {
  const [text, setText] = useState("");
  const [replyTo, setReplyTo] = useState<string>();
  const threads = review.comments.filter((each) => !each.reply_to);
  const about = (comment: Review["comments"][number]) =>
    comment.type_name &&
    [comment.type_name, comment.entity_id, comment.property_name].filter(Boolean).join(" ");
  return (
    <section class="card" aria-label="Comments">
      <h2>Comments</h2>
      <ul class="threads">
        {threads.map((thread) => (
          <li key={thread.id}>
            {[thread, ...review.comments.filter((each) => each.reply_to === thread.id)].map((comment) => (
              <div key={comment.id} class={comment.reply_to ? "reply" : undefined}>
                <small>
                  {comment.actor_id ?? "no actor"} · <Moment us={comment.created_at} />
                  {about(comment) && ` · ${about(comment)}`}
                </small>
                <p dir="auto">{comment.text}</p>
              </div>
            ))}
            <span class="actions">
              <button type="button" onClick={() => setReplyTo(thread.id)}>
                Reply
              </button>
              <Action
                label={thread.resolved ? "Open again" : "Resolve"}
                run={async () => {
                  await graph.resolve(review.id, thread.id, !thread.resolved);
                  changed();
                }}
              />
              {thread.resolved && <small>resolved</small>}
            </span>
          </li>
        ))}
      </ul>
      <label>
        {replyTo ? "Reply" : "Comment"}
        <textarea value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p class="actions">
        <Action
          label={replyTo ? "Send reply" : "Send comment"}
          disabled={!text.trim()}
          run={async () => {
            await graph.comment(review.id, { text, reply_to: replyTo });
            setText("");
            setReplyTo(undefined);
            changed();
          }}
        />
        {replyTo && (
          <button type="button" onClick={() => setReplyTo(undefined)}>
            New comment instead
          </button>
        )}
      </p>
    </section>
  );
}

function Verdicts({ graph, review, changed }: PartProps) {
  const [text, setText] = useState("");
  // The verdict is about the commit that was looked at, even if the branch has moved since.
  const judge = (verdict: "approve" | "request_changes") => async () => {
    await graph.judge(review.id, { verdict, text: text || undefined, head: review.source_commit_id });
    setText("");
    changed();
  };
  return (
    <section class="card" aria-label="Verdicts">
      <h2>Verdicts</h2>
      <ul class="threads">
        {review.reviews.map((each) => (
          <li key={each.actor_id ?? ""}>
            <strong>{each.actor_id ?? "no actor"}</strong>{" "}
            <span class={each.verdict}>{each.verdict.replace("_", " ")}</span>
            {each.stale && <small> before the branch changed</small>}
            {each.text && <p dir="auto">{each.text}</p>}
          </li>
        ))}
      </ul>
      {review.state === "open" && (
        <>
          <label>
            Reason
            <textarea value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>
          <p class="actions">
            <Action label="Approve" kind="primary" run={judge("approve")} />
            <Action label="Request changes" kind="danger" run={judge("request_changes")} />
          </p>
        </>
      )}
    </section>
  );
}

function MergeBox(props: PartProps) {
  const { graph, review, changed, address, branches } = props;
  const isOpen = review.state === "open";
  const hasConflicts = isOpen && review.reasons.some((each) => each.code === "conflicts");
  const settling = useSettling(graph, review.source, review.target, hasConflicts, [review.source_commit_id]);
  const rights = useLoad(
    async () => (branches.includes(review.target) ? (await graph.permissions(review.target)).actions : []),
    [],
  );
  const others = review.reasons.filter((each) => each.code !== "conflicts" || !settling.isSettled);
  return (
    <section class="card" aria-label="Merge">
      <h2>Merge</h2>
      {review.merge_commit_id && (
        <p class="success" role="status">
          Merged, in commit{" "}
          <a href={to(address, "branches", { commit: review.merge_commit_id })}>
            <code>{shortId(review.merge_commit_id)}</code>
          </a>
        </p>
      )}
      {review.closed_because && <p>{review.closed_because}</p>}
      {isOpen && review.reasons.length === 0 && <p>Nothing is in the way.</p>}
      <ul>
        {review.reasons.filter((each) => each.code !== "conflicts").map((each) => (
          <li key={`${each.code} ${each.text}`}>{each.text}</li>
        ))}
      </ul>
      {hasConflicts && (
        <Show of={settling.loaded} what="the conflicts">
          {() => <Conflicts {...settling} source={review.source} target={review.target} />}
        </Show>
      )}
      {review.checks.length > 0 && (
        <ResultTable
          label="Checks"
          columns={["check", "state", "about"]}
          rows={review.checks.map((each) => ({
            check: each.name,
            state: each.stale ? `${each.state}, before the branch changed` : each.state,
            about: each.text ?? "",
          }))}
        />
      )}
      <div class="actions">
        {isOpen && rights.value?.includes("branch_merge") && (
          <Action
            label={`Merge into ${review.target}`}
            kind="primary"
            disabled={others.length > 0}
            run={async () => {
              try {
                await graph.mergeReview(review.id, hasConflicts ? settling.rules : {});
              } finally {
                // Somebody else may have been faster: the request is shown as it is now, in any case.
                changed();
              }
            }}
          />
        )}
        {isOpen && (
          <Action
            label="Run checks"
            run={async () => {
              await graph.check(review.id);
              changed();
            }}
          />
        )}
        {isOpen && props.permissions.actor_id === review.author && (
          <Action
            label="Close"
            confirm="Close it without merging?"
            run={async () => {
              await graph.closeReview(review.id);
              changed();
            }}
          />
        )}
        {review.state === "closed" && props.permissions.actor_id === review.author && (
          <Action
            label="Reopen"
            run={async () => {
              await graph.reopenReview(review.id);
              changed();
            }}
          />
        )}
      </div>
    </section>
  );
}

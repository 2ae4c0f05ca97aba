"""Diffs, merge plans and pages of changes, as text and as JSON.

Pages are written as they arrive, into one JSON document or one listing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, TypeVar

from omnigraph.cli.options import option
from omnigraph.cli.output import Line, Output, Styled, moment, table
from omnigraph.errors import MergeConflicts
from omnigraph.model.changes import (
    CHANGE_OPS,
    CHANGES_DEFAULT,
    CHANGES_MAX,
    MARKS,
    CommitCause,
    CommitPage,
    EntityChange,
    EntityVersion,
    FeedPage,
    TypeCounts,
    difference,
    short,
    spelled,
    subject,
)
from omnigraph.model.merging import HEADERS, HIDDEN_CONFLICT, MergeConflict, MergePlan
from omnigraph.model.receipts import ReplayReceipt
from omnigraph.model.text_table import one_line

CHANGES_SHOWN = 50
CONFLICTS_SHOWN = 20
KindOption = Annotated[list[str] | None, option("--kind", "node|edge", "only nodes, or only edges")]
TypeOption = Annotated[list[str] | None, option("--type", "NAME", "only this type; repeatable")]
OpOption = Annotated[
    list[str] | None, option("--op", "insert|update|delete", "only this operation; repeatable")
]
LimitOption = Annotated[
    int, option("--limit", "N", "how many changes to list; not with --json", min=0)
]
PageLimitOption = Annotated[
    int | None,
    option(
        "--limit", "N", f"changes per page; {CHANGES_DEFAULT:,} by default. All pages are shown"
    ),
]
PlanLimitOption = Annotated[
    int | None,
    option(
        "--limit",
        "N",
        f"with --dry-run, entities to list; {CHANGES_SHOWN} by default, with --json all",
        min=0,
    ),
]
PageTokenOption = Annotated[
    str | None, option("--page-token", "TOKEN", "show only the page this leads to")
]


def change_filter(
    kinds: list[str] | None, types: list[str] | None, ops: list[str] | None
) -> dict[str, Any]:
    """The keyword arguments that select changes, from `--kind`, `--type` and `--op`."""
    return {"kinds": kinds or [], "types": types or [], "ops": ops or []}


def diff_lines(
    types: Sequence[TypeCounts], changes: Iterator[EntityChange], limit: int
) -> Iterator[Line]:
    """The number of changes of each type, then the first changes one by one."""
    if not types:
        yield ("no differences",)
        return
    rows = [(f"{each.kind} {each.type_name}", *each.numbers) for each in types]
    yield from table(("type", "inserted", "updated", "deleted"), rows)
    yield from _change_lines(changes, sum(each.total for each in types), limit)


def _change_lines(changes: Iterator[EntityChange], total: int, limit: int) -> Iterator[Line]:
    """One line a change: the operation, the entity, and for an update how its values differ."""
    if limit:
        yield ()
    yield from map(change_line, islice(changes, limit))
    if total > limit:
        left = f"{total - limit} of {total} changes"
        yield (f"… {left} are not listed; `--limit` or `--json` shows more",)


def change_line(change: EntityChange) -> Line:
    """The operation, the entity, and for an update how its values differ."""
    mark, style = MARKS[change.op]
    how = difference(change)
    return Styled(mark, style), f" {subject(change)}", Styled(f"  {how}" if how else "", "dim")


def history_lines(versions: Sequence[EntityVersion]) -> Iterator[Line]:
    """Two lines per version of an entity: commit, time and author, then the values."""
    if not versions:
        yield ("no commit changed it",)
    for each in versions:
        cause, change = each.cause, each.change
        mark, style = MARKS[change.op]
        by = cause.actor_id or "-"
        yield Styled(mark, style), f" {cause.graph_commit_id}  {moment(cause.authored_at)}  {by}"
        image = change.after or change.before
        assert image is not None
        shown = difference(change) if change.op == "update" else spelled(image)
        yield (Styled(f"    {shown}", "dim"),)


def plan_lines(plan: MergePlan, limit: int) -> Iterator[Line]:
    """The effect of a merge: counts per type, the first entities, then the conflicts."""
    style = "bold red" if plan.is_blocked else "bold green"
    yield (Styled(plan.title, style),)
    if plan.schema_note:
        yield (plan.schema_note,)
    if plan.types:
        yield ()
        yield from table(HEADERS, [each.cells for each in plan.types])
    if plan.changes and limit:
        yield ()
    for change in plan.changes[:limit]:
        mark, entity, properties = change.cells
        style = MARKS[change.op][1]
        yield Styled(mark, style), f" {entity}", Styled(f"  {properties}".rstrip(), "dim")
    if more := plan.more_changes(limit):
        yield (f"{more}; `--limit` or `--json` shows more",)
    if plan.conflicts:
        yield ()
        yield from conflict_lines([conflict.to_dict() for conflict in plan.conflicts])
    if plan.is_blocked_by_hidden:
        yield ()
        yield (Styled(HIDDEN_CONFLICT, "red"),)


def show_plan(
    output: Output,
    fetch: Callable[..., MergePlan],
    limit: int | None,
    page_token: str | None,
    *,
    json: bool,
) -> None:
    """Write a merge plan; ``fetch`` returns the plan with one page of its entities.

    With `--json`, the requested page, or all pages joined in one document.
    """
    if not json:
        shown = CHANGES_SHOWN if limit is None else limit
        wanted = min(max(shown, 1), CHANGES_MAX)
        output.lines(plan_lines(fetch(limit=wanted, page_token=page_token), shown))
        return
    if page_token is not None or limit is not None:
        output.json(fetch(limit=limit, page_token=page_token).to_dict())
        return
    pages = list(followed(fetch, fetch()))
    changes = tuple(change for page in pages for change in page.changes)
    output.json(replace(pages[0], changes=changes, next_page_token=None).to_dict())


def show_replay(output: Output, receipt: ReplayReceipt, *, json: bool) -> None:
    """Write the outcome of a cherry-pick or a revert."""
    output.show(receipt, _replay_lines(receipt), json=json)


def _replay_lines(receipt: ReplayReceipt) -> Iterator[Line]:
    done = {"revert": "reverted", "cherry-pick": "picked"}[receipt.verb]
    if receipt.commit is None:
        yield (f"{receipt.branch} needs nothing of it: there is nothing to change",)
        return
    yield (Styled(f"{done} {receipt.of_commit_id} on {receipt.branch}", "bold green"),)
    yield (f"{receipt.inserted} inserted, {receipt.updated} updated, {receipt.deleted} deleted",)
    yield (f"commit {receipt.commit.graph_commit_id}",)


@contextmanager
def conflicts_shown(output: Output, *, json: bool) -> Iterator[None]:
    """List the conflicts of a merge before its failure is reported."""
    try:
        yield
    except MergeConflicts as refused:
        if not json:
            output.notes(conflict_lines(refused.details["merge_conflicts"]))
        raise


def conflict_lines(conflicts: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """One line per conflict, then the values on each side; long lists are cut."""
    for conflict in conflicts[:CONFLICTS_SHOWN]:
        text = MergeConflict.from_dict(conflict).text
        yield Styled(conflict["kind"], "red"), f"  {one_line(text)}"
        if "source" in conflict or "target" in conflict:
            yield from (_side_line(conflict, side) for side in ("base", "source", "target"))
    if (more := len(conflicts) - CONFLICTS_SHOWN) > 0:
        yield (f"… and {more} more; `--json` lists them all",)


def _side_line(conflict: dict[str, Any], side: str) -> Line:
    image = conflict.get(side)
    if image is None:
        return (Styled(f"    {side:<6}  -", "dim"),)
    values = {**image.get("endpoints", {}), **image["properties"]}
    shown = conflict.get("properties") or values
    text = ", ".join(f"{name} {short(values[name])}" for name in shown)
    return (Styled(f"    {side:<6}  {text}", "dim"),)


Page = TypeVar("Page", CommitPage, FeedPage, MergePlan)


def followed(fetch: Callable[..., Page], first: Page) -> Iterator[Page]:
    """A first page and all that follow it, each fetched on demand."""
    page = first
    yield page
    while page.next_page_token is not None:
        page = fetch(page_token=page.next_page_token)
        yield page


class JsonDocument:
    """A JSON document that is written in parts, as pages arrive."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._closing: list[str] = []
        self._is_first = True

    def open(self, brackets: str, name: str | None = None) -> None:
        """Open an object (`{}`) or a list (`[]`), as a member if named, else as an element."""
        self._begin(name, brackets[0])
        self._closing.append(brackets[1])
        self._is_first = True

    def close(self, count: int = 1) -> None:
        """Close the innermost ``count`` brackets."""
        for _ in range(count):
            bracket = self._closing.pop()
            self._write(bracket if self._is_first else f"\n{self._indent}{bracket}")
            self._is_first = False
        if not self._closing:
            self._write("\n")

    def put(self, value: Any, name: str | None = None) -> None:
        """Write a value, as a member or as an element."""
        self._begin(name, json.dumps(value, ensure_ascii=False))

    @property
    def _indent(self) -> str:
        return "  " * len(self._closing)

    def _begin(self, name: str | None, text: str) -> None:
        if self._closing:
            self._write(("" if self._is_first else ",") + f"\n{self._indent}")
        self._write(text if name is None else f"{json.dumps(name)}: {text}")
        self._is_first = False

    def _write(self, text: str) -> None:
        self._output.stdout.write(text)


def show_commit_pages(output: Output, pages: Iterable[CommitPage], *, as_json: bool) -> None:
    """Write all changes of one commit."""
    if as_json:
        _commit_document(output, pages)
    else:
        _commit_listing(output, pages)


def _commit_document(output: Output, pages: Iterable[CommitPage]) -> None:
    document = JsonDocument(output)
    for at, page in enumerate(pages):
        if at == 0:
            output.stdout_is_payload = True
            document.open("{}")
            document.put(page.cause.to_dict(), "cause")
            document.open("[]", "changes")
        for change in page.changes:
            document.put(change.to_dict())
        output.flush()
    document.close(2)


def _commit_listing(output: Output, pages: Iterable[CommitPage]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for page in pages:
        for change in page.changes:
            output.line(*change_line(change))
            counts[f"{change.kind} {change.type_name}", change.op] += 1
        output.flush()
    if not counts:
        output.line("no changes")
        return
    output.line()
    names = dict.fromkeys(name for name, _ in counts)
    rows: list[list[str | int]] = [
        [name, *(counts[name, op] for op in CHANGE_OPS)] for name in names
    ]
    output.lines(table(("type", "inserted", "updated", "deleted"), rows))


def show_page(output: Output, page: CommitPage, *, as_json: bool) -> None:
    """Write one page of a commit as it is."""
    lines = [change_line(change) for change in page.changes]
    if page.next_page_token is not None:
        lines.append(("next page  ", page.next_page_token))
    output.show(page, lines, json=as_json)


def show_feed(output: Output, pages: Iterable[FeedPage], *, as_json: bool) -> None:
    """Write the blocks of a poll, then the cursor."""
    if as_json:
        _feed_document(output, pages)
    else:
        _feed_listing(output, pages)


def _feed_document(output: Output, pages: Iterable[FeedPage]) -> None:
    document = JsonDocument(output)
    last: FeedPage | None = None
    open_commit: str | None = None
    for page in pages:
        if last is None:
            output.stdout_is_payload = True
            document.open("{}")
            document.open("[]", "blocks")
        for block in page.blocks:
            # A commit that spans pages is printed as one block.
            if block.cause.graph_commit_id != open_commit:
                document.close(2 if open_commit else 0)
                open_commit = block.cause.graph_commit_id
                document.open("{}")
                document.put(block.cause.to_dict(), "cause")
                document.open("[]", "changes")
            for change in block.changes:
                document.put(change.to_dict())
        output.flush()
        last = page
    assert last is not None
    document.close(3 if open_commit else 1)
    document.put(last.cursor, "cursor")
    document.put(last.caught_up, "caught_up")
    document.close()


def _feed_listing(output: Output, pages: Iterable[FeedPage]) -> None:
    last: FeedPage | None = None
    open_commit: str | None = None
    for page in pages:
        for block in page.blocks:
            if block.cause.graph_commit_id != open_commit:
                open_commit = block.cause.graph_commit_id
                output.line(*_cause_line(block.cause))
                if not block.changes:
                    output.line("  no changes")
            for change in block.changes:
                output.line("  ", *change_line(change))
        output.flush()
        last = page
    assert last is not None
    output.lines(_end_lines(last, is_empty=open_commit is None))


def _cause_line(cause: CommitCause) -> Line:
    by = cause.actor_id or "-"
    rest = f"  {cause.authored_branch}  {by}  {moment(cause.authored_at)}"
    return Styled(cause.graph_commit_id, "bold"), Styled(rest, "dim")


def _end_lines(last: FeedPage, *, is_empty: bool) -> Iterator[Line]:
    if is_empty:
        yield ("no commits",)
    yield ()
    how = "caught up" if last.caught_up else "there is more: poll again with this cursor"
    yield (Styled(how, "bold green" if last.caught_up else "bold yellow"),)
    assert last.cursor is not None
    yield "cursor ", last.cursor

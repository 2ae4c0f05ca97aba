"""Change requests of an open graph: `graph.reviews`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph.branching import merge as merges
from omnigraph.branching.change_pages import DiffPageRequest
from omnigraph.branching.diff import GraphDiff
from omnigraph.branching.entity_history import find_type
from omnigraph.branching.three_way import ConflictRules
from omnigraph.errors import (
    Conflict,
    InputError,
    NotFound,
    ReviewBlocked,
    StorageError,
)
from omnigraph.graph.branches import CompareEngine, comparing
from omnigraph.graph.facade import audited
from omnigraph.graph.gate import Access
from omnigraph.graph.history import compared, compared_page
from omnigraph.graph.opened import Handle
from omnigraph.graph.reading import describe_queries, query, query_files
from omnigraph.graph.sight import rights_to_bring
from omnigraph.model.changes import ChangeFilter, PageLimits
from omnigraph.model.diffs import DiffPage
from omnigraph.model.governor import Governor
from omnigraph.model.ids import checked_key, checked_message, normalize_commit_id
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.model.result import Result
from omnigraph.model.reviews import (
    CHECK_NAME_CHARACTERS_MAX,
    ID_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    CheckState,
    Review,
    ReviewComment,
    ReviewEvent,
    ReviewEventKind,
    ReviewEvents,
    ReviewMerged,
    ReviewOutcome,
    ReviewPage,
    ReviewState,
    ReviewSummary,
    ReviewVerdict,
    checked_choice,
    checked_text,
    checked_title,
    kept_rows,
    no_review,
)
from omnigraph.model.signatures import QuerySignature
from omnigraph.policy import Action
from omnigraph.review.checks import FILE_NAME, DeclaredCheck, RunCheck, check_outcome, load_checks
from omnigraph.review.events import EventAuthor, Request
from omnigraph.review.requests import Readable, Standing, not_open
from omnigraph.review.requirements import Requirements
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.views import View

OUTCOMES: Mapping[ReviewVerdict, ReviewOutcome] = {
    "approve": "approved",
    "request_changes": "changes_requested",
}


@audited
class Reviews:
    """The change requests of a graph. A request is named by its id, or the beginning of one.

    Every verb that adds an event takes its ``actor``, and an ``operation_id`` as idempotency key:
    if the same actor repeats the call, nothing is added.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._opened = handle._opened
        self._requests = handle._opened.reviews

    def __repr__(self) -> str:
        return f"Reviews({self._opened.kernel.root.uri!r})"

    # --- reading ----------------------------------------------------------------------------------

    def list(
        self,
        *,
        state: ReviewState | None = "open",
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ReviewPage:
        """Change requests, newest first: those in a ``state``, or all with None.

        A page has ``limit`` requests (50 by default); `ReviewPage.next_page_token` gets the next.
        """
        if state is not None:
            checked_choice(state, ReviewState, "state")
        self._handle._may_read("review list")
        return self._requests.page(state, limit, page_token, self._shown)

    def get(self, id: str) -> Review:
        """The current state of one request: reviews, comments, checks, and what blocks it."""
        return self._described(self._readable("review show", id), self._handle._access)

    def diff(
        self,
        id: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> GraphDiff:
        """The changes that a request would make in its target, or has made if it is merged."""
        target, source, direct = self._ends(id)
        wanted = ChangeFilter.of(kinds, types, ops)
        return compared(self._handle, target, source, wanted, direct=direct)

    def diff_page(
        self,
        id: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
        images: bool = False,
    ) -> DiffPage:
        """One page of `diff`, as `Graph.diff_page` returns it."""
        target, source, direct = self._ends(id)
        wanted, limits = ChangeFilter.of(kinds, types, ops), PageLimits.of(limit, limit_bytes)
        request = DiffPageRequest(target, source, wanted, limits, page_token, images, direct)
        return compared_page(self._handle, request)

    def _ends(self, id: str) -> tuple[str, str, bool]:
        """The two ends of a request's diff, and whether they are compared directly."""
        request = self._readable("review diff", id)
        standing = self._requests.standing(request)
        merged = standing.merge_commit
        if merged is not None and merged.parent_commit_id is not None:
            return merged.parent_commit_id, merged.commit_id, True
        if standing.source is None or standing.target is None:
            raise Conflict(
                f"the changes of {request.id} are gone: {standing.closed_because}",
                hint="only requests whose branches are there can be compared",
            )
        return request.outline.target, request.outline.source, False

    def export(self) -> Iterator[ReviewEvent]:
        """Every event of every request, in order."""
        page = self.export_page()
        while True:
            yield from page.events
            if page.next_page_token is None:
                return
            page = self.export_page(page_token=page.next_page_token)

    def export_page(
        self, *, page_token: str | None = None, limit: int | None = None
    ) -> ReviewEvents:
        """One page of `export`; `ReviewEvents.next_page_token` gets the next."""
        gate, by = self._opened.gate, self._handle._access
        gate.read("review export", by, MAIN, Action.EXPORT)
        # Events contain rows returned by check queries, and comments on any entity.
        self._handle._require_everything("review export", MAIN, action=Action.EXPORT)
        return self._requests.export(page_token, limit, self._shown)

    # --- for a server -----------------------------------------------------------------------------

    def summary(self, id: str) -> ReviewSummary:
        """One request as in a list; computes no merge plan."""
        return self._requests.summary(self._readable("review", id))

    def follow(self, known: Mapping[str, Standing | None], most: int) -> dict[str, Standing]:
        """The states of the newest open and all ``known`` requests; cheap if no head moved."""
        return self._requests.follow(known, most)

    def check_head(self, id: str, checks: Iterable[DeclaredCheck], run: RunCheck) -> Review:
        """Run the checks of a server, without a policy decision: once per head.

        If several processes do so, the first results count.
        """
        request = self._requests.find(id)
        head = self._requests.open_head(request)
        return self._run_checks(request, checks, run, EventAuthor(None, f"{request.id}:{head}"))

    # --- adding events ----------------------------------------------------------------------------

    def open(
        self,
        source: str,
        into: str | None = None,
        *,
        title: str | None = None,
        description: str = "",
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Ask to merge a branch into main, or ``into`` another.

        The default title is the name of the branch. Raises `NotFound` for a missing branch, and
        `InputError` if the target already contains the source.
        """
        target, caller = self._handle._branch_of(into), self._caller(actor, operation_id)
        self._opened.gate.review("review open", self._by(actor), source, target)
        told = checked_title(source if title is None else title)
        about = checked_text(description, "description") if description else ""
        request = self._requests.open(source, target, told, about, caller)
        return self._described(request, self._by(actor))

    def edit(
        self,
        id: str,
        *,
        title: str | None = None,
        description: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Change the title or the description of a request."""
        request, caller = self._for_author("review edit", id, actor, operation_id)
        body: dict[str, Any] = {}
        if title is not None:
            body["title"] = checked_title(title)
        if description is not None:
            body["description"] = (
                checked_text(description, "description") if description.strip() else ""
            )
        if not body:
            raise InputError("nothing is to be edited", hint="give a title or a description")
        return self._added(request, "edited", caller, body)

    def comment(
        self,
        id: str,
        text: str,
        *,
        type_name: str | None = None,
        entity_id: str | None = None,
        property_name: str | None = None,
        commit_id: str | None = None,
        reply_to: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Comment on a request, or on a type, an entity or a property of its changes.

        ``commit_id`` is the reviewed commit, by default the head of the source. ``reply_to`` is the
        id of the comment to answer.
        """
        request, caller = self._for_reader("review comment", id, actor, operation_id)
        body: dict[str, Any] = {"text": checked_text(text, "comment")}
        if reply_to is not None:
            answered = _comment(request, reply_to)
            body["reply_to"] = answered.reply_to or answered.id
        if type_name is not None:
            body |= self._place(request, type_name, entity_id, property_name, commit_id)
        elif entity_id is not None or property_name is not None:
            raise InputError(
                "an entity or a property needs its type", hint="give the type with `type_name`"
            )
        return self._added(request, "commented", caller, body)

    def resolve(
        self,
        id: str,
        comment_id: str,
        *,
        resolved: bool = True,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Mark the thread of a comment as resolved, or as open again."""
        request, caller = self._for_reader("review resolve", id, actor, operation_id)
        comment = _comment(request, comment_id)
        body = {"comment_id": comment.reply_to or comment.id, "resolved": resolved}
        return self._added(request, "resolved", caller, body)

    def review(
        self,
        id: str,
        verdict: ReviewVerdict,
        *,
        text: str | None = None,
        head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Approve a request (`approve`), or ask for changes (`request_changes`).

        Only the latest review of an actor counts. It applies to the reviewed ``head`` of the
        source, by default the current one. Raises `ReviewBlocked` for a request that is not open.
        """
        checked_choice(verdict, ReviewVerdict, "verdict")
        request, caller = self._for_reader(f"review {verdict}", id, actor, operation_id)
        body = {
            "verdict": OUTCOMES[verdict],
            "source_commit_id": self._head(request, head),
            "text": None if text is None else checked_text(text, "text"),
        }
        return self._added(request, "reviewed", caller, body)

    def report_check(
        self,
        id: str,
        name: str,
        state: CheckState,
        *,
        text: str | None = None,
        rows: Iterable[Mapping[str, Any]] = (),
        head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Report the result of an external check, by its name, on a ``head`` of the source."""
        request, caller = self._for_reader("review check report", id, actor, operation_id)
        source = request.outline.source
        self._opened.gate.check_report("review check report", self._by(actor), source)
        body = {
            "name": checked_text(name, "name of the check", CHECK_NAME_CHARACTERS_MAX),
            "state": checked_choice(state, CheckState, "state of a check"),
            "source_commit_id": self._head(request, head),
            "text": None if text is None else checked_text(text, "text"),
            "rows": kept_rows(rows),
        }
        return self._added(request, "check_reported", caller, body)

    def check(
        self,
        id: str,
        *,
        checks: Path | None = None,
        again: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Run the checks of a ``checks.yaml`` on the head of the source, and record the results.

        ``checks`` is the file, or its directory, with the stored queries beside it; or a pipeline
        file. Checks with a current result are skipped, unless ``again``. A query that raises or
        times out is a failed check with that reason.
        """
        if checks is None:
            raise InputError(
                "there are no checks", hint="name a checks.yaml, or the directory it lies in"
            )
        request, _ = self._for_reader("review check", id, actor, operation_id)
        # The caller's own checks count as a report by the caller.
        self._opened.gate.check_report("review check", self._by(actor), request.outline.source)
        path = checks / FILE_NAME if checks.is_dir() else checks
        loaded, queries = load_checks(path), query_files([path.parent])
        sources = {each.name: file for file in queries for each in self._signatures(file)}

        def run(check: DeclaredCheck, head: str) -> Result:
            source = check.file
            if source is None:
                if check.query not in sources:
                    raise NotFound(
                        f"there is no query `{check.query}` beside {path}",
                        hint=did_you_mean(check.query or "", sources),
                    )
                source = sources[check.query]
            limits = Governor(timeout_s=check.timeout_seconds)
            return run_check(self._handle, check, source, head, limits)

        return self.run_checks(id, loaded, run, again=again, actor=actor, operation_id=operation_id)

    def run_checks(
        self,
        id: str,
        checks: Iterable[DeclaredCheck],
        run: RunCheck,
        *,
        again: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Run checks with ``run`` on the head of the source, and record the results."""
        request, caller = self._for_reader("review check", id, actor, operation_id)
        return self._run_checks(request, checks, run, caller, again)

    def _run_checks(
        self,
        request: Request,
        checks: Iterable[DeclaredCheck],
        run: RunCheck,
        caller: EventAuthor,
        again: bool = False,
    ) -> Review:
        head = self._requests.open_head(request)
        done = frozenset[str]() if again else self._requests.checked(request, head)
        for check in checks:
            if check.name in done:
                continue
            state, text, rows = check_outcome(check, head, run)
            body = {
                "name": check.name,
                "state": state,
                "source_commit_id": head,
                "text": text,
                "rows": rows or None,
            }
            own = None if caller.operation_id is None else f"{caller.operation_id}:{check.name}"
            key = EventAuthor(caller.actor_id, own)
            request = self._requests.add(request, "check_reported", key, body)
        return self._described(request, self._by(caller.actor_id))

    def _signatures(self, file: Path) -> Iterable[QuerySignature]:
        return describe_queries(self._handle, file)

    def close(
        self, id: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> Review:
        """Close a request without merging it; raises `ReviewBlocked` if it is not open."""
        request, caller = self._for_author("review close", id, actor, operation_id)
        if self._requests.events.of_caller(caller) is None:
            self._requests.open_head(request)
        return self._added(request, "closed", caller, {})

    def reopen(
        self, id: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> Review:
        """Reopen a closed request; raises `ReviewBlocked` if it is merged or a branch is gone."""
        request, caller = self._for_author("review reopen", id, actor, operation_id)
        standing = self._requests.standing(request)
        if standing.state == "merged" or standing.closed_because is not None:
            raise not_open(request, standing)
        return self._added(request, "reopened", caller, {})

    # --- merging ----------------------------------------------------------------------------------

    def merge(
        self,
        id: str,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = False,
        message: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        engine: CompareEngine = "auto",
        spark: SparkOptions | None = None,
    ) -> ReviewMerged:
        """Merge a request as one commit, which records its id, title and approvers.

        The options are those of `merge_branch`; the default message is the title. Only the approved
        head is merged: raises `ReadSetChanged` if the source has moved, `ReviewBlocked` with all
        unmet requirements, and `MergeConflicts`; then nothing has changed.
        """
        request, caller = self._found(id, actor, operation_id)
        outline = request.outline
        by = self._by(actor)
        self._opened.gate.review_merge(by, outline.source, outline.target)
        rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
        with comparing(self._opened, engine, spark, "merge") as choose:
            merged = self._requests.merge(
                request,
                rules,
                caller,
                self._required,
                choose,
                message=checked_message(message),
                rights=rights_to_bring(self._opened.sight, by, outline.source),
            )
        self._opened.notify_auto_optimizer()
        if not delete_branch:
            return merged
        permit = partial(self._opened.gate.branch_delete, by, outline.source)
        receipt = merges.delete_source(
            self._opened.kernel, merged.merge, permit, caller.operation_id
        )
        return ReviewMerged(merged.id, merged.title, merged.approvers, receipt)

    # --- visibility -------------------------------------------------------------------------------

    def _described(self, request: Request, by: Access) -> Review:
        """The current state of a request, as visible to an actor.

        An actor who sees only a part of the branches gets neither rows of checks, which may be of
        any type, nor comments on hidden types.
        """
        sight = self._opened.sight
        sees = None if sight is None else sight.sees(by)
        found = self._requests.show(request, self._required, sees)
        if sees is None:
            return found
        catalog = self._opened.known_catalog(MAIN)
        view = sees(catalog, (found.source, found.target))
        if view is None:
            return found
        checks = tuple(replace(each, text=None, rows=()) for each in found.checks)
        hidden = {each.id for each in found.comments if not self._is_shown(each, view, found)}
        comments = tuple(each for each in found.comments if not hidden & {each.id, each.reply_to})
        return replace(found, checks=checks, comments=comments)

    def _is_shown(self, comment: ReviewComment, view: View, review: Review) -> bool:
        """Whether a comment is on something that the view shows."""
        named = view.catalog
        type = named.nodes.get(comment.type_name or "") or named.edges.get(comment.type_name or "")
        if comment.type_name is None or type is None:
            return comment.type_name is None
        if comment.property_name is not None and comment.property_name not in type.properties:
            return False
        if comment.entity_id is None or not view.restricts(type.table_key):
            return True
        import pyarrow as pa

        wanted = pa.array([comment.entity_id])
        opened = self._opened
        places = (
            partial(opened.snapshot_of_any_branch, comment.graph_commit_id or ""),
            partial(opened.snapshot, review.target),
        )
        for place in places:
            try:
                reader = opened.seen(opened.reader_of(place()), view)
                if reader.is_empty(type.table_key):
                    continue
                if reader.rows_where_in(type.table_key, "id", wanted, ["id"]).num_rows:
                    return True
            except (NotFound, StorageError):
                continue  # the branch, or the commented entity or commit, is gone
        return False

    # --- parts ------------------------------------------------------------------------------------

    def _required(self, branch: str) -> Requirements:
        return self._opened.gate.requirements(branch)

    def _by(self, actor: str | None) -> Access:
        return self._handle._by(actor)

    def _caller(self, actor: str | None, operation_id: str | None) -> EventAuthor:
        return EventAuthor(self._handle._actor_of(actor), checked_key(operation_id))

    def _found(
        self, id: str, actor: str | None, operation_id: str | None
    ) -> tuple[Request, EventAuthor]:
        return self._readable("review", id), self._caller(actor, operation_id)

    def _readable(self, verb: str, id: str) -> Request:
        """The request; raises `NotFound` if its branches may not be read."""
        gate, by = self._opened.gate, self._handle._access
        found = self._requests.find(id)
        if not gate.decides_reads(by):
            gate.read(verb, by, found.outline.source)
        elif not all(
            gate.may_read(by, each) for each in (found.outline.source, found.outline.target)
        ):
            raise no_review(id)
        return found

    @property
    def _shown(self) -> Readable | None:
        """A predicate of readable branches; None for all."""
        gate, by = self._opened.gate, self._handle._access
        if not gate.decides_reads(by):
            return None
        shown = gate.shown_branches(by)
        return lambda *branches: all(map(shown, branches))

    def _for_reader(
        self, verb: str, id: str, actor: str | None, operation_id: str | None
    ) -> tuple[Request, EventAuthor]:
        """The request, after checking that the actor may read both branches."""
        request, caller = self._found(id, actor, operation_id)
        outline = request.outline
        self._opened.gate.review(verb, self._by(actor), outline.source, outline.target)
        return request, caller

    def _for_author(
        self, verb: str, id: str, actor: str | None, operation_id: str | None
    ) -> tuple[Request, EventAuthor]:
        """The request, after checking that the actor is its author or may merge it."""
        request, caller = self._found(id, actor, operation_id)
        outline = request.outline
        self._opened.gate.review_of(
            verb, self._by(actor), request.author, outline.source, outline.target
        )
        return request, caller

    def _added(
        self, request: Request, kind: ReviewEventKind, caller: EventAuthor, body: dict[str, Any]
    ) -> Review:
        added = self._requests.add(request, kind, caller, body)
        return self._described(added, self._by(caller.actor_id))

    def _head(self, request: Request, head: str | None) -> str:
        """The head for a review or check; raises `ReviewBlocked` if the request is not open."""
        present = self._requests.open_head(request)
        if head is None:
            return present
        wanted = normalize_commit_id(head)
        source = self._requests.standing(request).source
        if source is None or wanted not in source.commits:
            raise NotFound(
                f"branch {request.outline.source} has no commit {wanted}",
                hint=f"`omnigraph commit list --branch {request.outline.source}` shows them",
            )
        return wanted

    def _place(
        self,
        request: Request,
        type_name: str,
        entity_id: str | None,
        property_name: str | None,
        commit_id: str | None,
    ) -> dict[str, Any]:
        """The target of a comment, checked against the types of the source."""
        state = self._requests.standing(request).source
        if state is None:
            raise ReviewBlocked(
                request.id, [{"code": "not_open", "text": f"{request.outline.source} is gone"}]
            )
        checked_text(type_name, "type", NAME_CHARACTERS_MAX)
        if property_name is not None:
            checked_text(property_name, "property", NAME_CHARACTERS_MAX)
        catalog = self._opened.catalog_of(state.head_snapshot())
        found = find_type(self._handle._named_types(state.branch, catalog), type_name)
        if property_name is not None and property_name not in found.properties:
            raise NotFound(
                f"type {found.name} has no property {property_name}",
                hint=did_you_mean(property_name, found.properties),
            )
        commit = state.head.commit_id if commit_id is None else normalize_commit_id(commit_id)
        return {
            "type_name": type_name,
            "entity_id": None if entity_id is None else checked_text(entity_id, "id", 2_000),
            "property_name": property_name,
            "graph_commit_id": commit,
        }


def run_check(
    handle: Handle, check: DeclaredCheck, source: str | Path, head: str, governor: Governor
) -> Result:
    """Run the query of a check on a commit, within the governor's limits."""
    with closing(governor), governor:
        governor.check()
        params = dict(check.params)
        return query(handle, source, params, name=check.query, snapshot=head, governor=governor)


def _comment(request: Request, comment_id: str) -> ReviewComment:
    for each in request.comments:
        if each.id == comment_id:
            return each
    raise NotFound(
        f"{request.id} has no comment {comment_id[:ID_CHARACTERS_MAX]}",
        hint=f"`omnigraph review show {request.id} --json` shows them",
    )

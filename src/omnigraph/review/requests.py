"""Change requests of one graph: opening, listing, reviewing and merging.

A request is `merged` if and only if the target has its merge commit, so there is no second write
that could be lost. It is closed by an event, or if one of its branches was deleted. Merging is a
branch merge that checks, under the lease of the target, that the source still has the approved
head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import orjson

from omnigraph.branching import merge as merges
from omnigraph.branching.ancestry import diff_ends, distances, with_merged
from omnigraph.branching.change_pages import Unfinished
from omnigraph.branching.commit_changes import diff_of
from omnigraph.branching.moments import SchemaHistory, Sees
from omnigraph.branching.three_way import ConflictRules
from omnigraph.branching.workers import Choose
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import (
    Conflict,
    InputError,
    LimitExceeded,
    NotFound,
    ReviewBlocked,
    StorageError,
)
from omnigraph.model.changes import ChangeFilter, PageLimits
from omnigraph.model.ids import MAIN_BRANCH, SCHEMA_APPLY_LOCK, check_branch_name
from omnigraph.model.merging import HIDDEN_CONFLICT
from omnigraph.model.records import dataclass
from omnigraph.model.reviews import (
    ID_CHARACTERS_MAX,
    ID_PREFIX,
    BlockReason,
    GivenReview,
    Mergeable,
    Review,
    ReviewCheck,
    ReviewEvent,
    ReviewEventKind,
    ReviewEvents,
    ReviewMerged,
    ReviewPage,
    ReviewState,
    ReviewSummary,
    no_review,
)
from omnigraph.review.events import EventAuthor, Events, Outline, Request, fold
from omnigraph.review.requirements import Requirements, RequirementsOf, blocks, lacking_commits
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow

PAGE_DEFAULT, PAGE_MAX = 50, 1_000
"""Requests, or events, per page."""
SIMILAR_MAX = 10
"""Requests that an error for an ambiguous id lists."""
DIGEST_CHANGES_MAX = 100_000
"""Changes up to which two heads are compared; with more, a review of the older one is stale."""
DIGESTS_KEPT_MAX = 256
BYPASSES = "bypass"
"""The request id of bypass events, which belong to no request."""
UNCHANGING = frozenset({"maintenance", "recovery"})
"""Kinds of commits that do not change the content of a branch."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a request, from its events and the commits of its branches."""

    state: ReviewState
    source: ManifestState | None
    """None if the branch was deleted."""
    target: ManifestState | None
    merge_commit: CommitRow | None = None
    closed_because: str | None = None

    def is_at(self, *ends: ManifestState | None) -> bool:
        """Whether source and target still have the heads for which this was computed."""
        return [_head_of(end) for end in (self.source, self.target)] == [*map(_head_of, ends)]

    def head(self, request: Request) -> str:
        """The head of the source: the current one, the merged one, or the last known."""
        if self.merge_commit is not None and self.merge_commit.merged_parent_commit_id is not None:
            return self.merge_commit.merged_parent_commit_id
        return request.known_heads[-1] if self.source is None else self.source.head.commit_id


def _head_of(state: ManifestState | None) -> str | None:
    return None if state is None else state.head.commit_id


Readable = Callable[[str, str], bool]
"""Whether requests between a source and a target are visible."""


class _Branches:
    """A cache of branches for one call."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._states: dict[str | None, ManifestState | None] = {}
        self._reached: dict[str | None, frozenset[str]] = {}

    @cached_property
    def _names(self) -> Mapping[str | None, str]:
        registered = self._kernel.manifest.main.refresh().branches
        names: dict[str | None, str] = {None: MAIN_BRANCH}
        names |= {row.ref: name for name, row in registered.items() if name != SCHEMA_APPLY_LOCK}
        return names

    def is_live(self, ref: str | None) -> bool:
        """Whether a branch with this physical ref exists."""
        return ref in self._names

    def state(self, ref: str | None) -> ManifestState | None:
        """The branch with a physical ref; None if it was deleted."""
        if ref not in self._states:
            name, found = self._names.get(ref), None
            if name is not None:
                try:
                    branch = self._kernel.manifest.refreshed(name)
                    found = branch.state if branch.where.ref == ref else None
                except NotFound:
                    found = None
            self._states[ref] = found
        return self._states[ref]

    def standing(self, outline: Outline) -> Standing:
        """Compute the state of a request."""
        target = self.state(outline.target_ref)
        if target is None:
            gone = f"branch {outline.target} is gone"
            return Standing("closed", self.state(outline.source_ref), None, closed_because=gone)
        merged = _merge_of(outline, target)
        source = self.state(outline.source_ref)
        if merged is None and source is not None and self.has(target, source.head.commit_id):
            merged = _merge_of_commit(target, source.head.commit_id)
        if merged is not None:
            return Standing("merged", source, target, merged)
        if source is None:
            gone = f"branch {outline.source} is gone"
            return Standing("closed", None, target, closed_because=gone)
        return Standing("closed" if outline.is_closed else "open", source, target)

    def has(self, target: ManifestState, commit_id: str) -> bool:
        """Whether a commit is reachable from the head of a branch."""
        found = self._reached.get(target.ref)
        if found is None:
            head = target.head.commit_id
            commits = with_merged(target.commits, (head, head), self._all_commits)
            found = self._reached[target.ref] = frozenset(distances(commits, head))
        return commit_id in found

    def _all_commits(self) -> Iterator[Mapping[str, CommitRow]]:
        for ref in self._names:
            if (state := self.state(ref)) is not None:
                yield state.commits


def _merge_of(outline: Outline, target: ManifestState) -> CommitRow | None:
    """The commit of the target that merged a request, by the request's id or the merged commit."""
    opened_on = target.commits.get(outline.target_commit_id)
    since = -1 if opened_on is None else opened_on.commit_seq
    for row in target.commits.values():
        if row.kind != "merge" or row.commit_seq <= since:
            continue
        stored = row.receipt or {}
        if stored.get("change_request", {}).get("id") == outline.id:
            return row
        if stored.get("source_ref") == outline.source_ref and outline.source_ref is not None:
            return row
    return None


def _merge_of_commit(target: ManifestState, commit_id: str) -> CommitRow:
    """The commit of a branch that brought in another commit, as far as its own line shows."""
    own = target.commits.get(commit_id)
    if own is not None:
        return own
    merged = [row for row in target.commits.values() if row.merged_parent_commit_id is not None]
    direct = [row for row in merged if row.merged_parent_commit_id == commit_id]
    return max(direct or merged, key=lambda row: row.commit_seq)


class Requests:
    """The change requests of one graph. Safe to share between threads."""

    def __init__(self, kernel: Kernel, schemas: SchemaHistory) -> None:
        self._kernel = kernel
        self._schemas = schemas
        self.events = Events(kernel)
        self._digests: dict[tuple[str, str], str | None] = {}

    # --- reading ----------------------------------------------------------------------------------

    def find(self, id: str) -> Request:
        """A request by its id, or by a unique prefix; raises `NotFound`."""
        if not id.strip() or len(id) > ID_CHARACTERS_MAX:
            raise no_review(id)
        wanted = id.strip()
        bare = wanted[len(ID_PREFIX) :] if wanted.lower().startswith(ID_PREFIX) else wanted
        wanted = ID_PREFIX + bare.upper()
        found = fold(self.events.of_request(wanted)).get(wanted)
        if found is not None:
            return found
        similar = self.events.ids_beginning(wanted, SIMILAR_MAX + 1) if bare else []
        if len(similar) > 1:
            shown = ", ".join(similar[:SIMILAR_MAX])
            raise InputError(
                f"{len(similar)} change requests begin with {wanted}",
                hint=f"give more of the id: {shown}",
            )
        if not similar:
            raise no_review(id)
        return fold(self.events.of_request(similar[0]))[similar[0]]

    def page(
        self,
        state: ReviewState | None = None,
        limit: int | None = None,
        page_token: str | None = None,
        readable: Readable | None = None,
    ) -> ReviewPage:
        """One page of requests, newest first: those in a state, or all.

        ``readable`` decides which requests are visible. Besides outlines, only the listed requests
        are read.
        """
        wanted = _page_limit("change requests", limit)
        branches = _Branches(self._kernel)
        shown: list[tuple[Outline, ReviewState]] = []
        for outline in self.events.outlines():
            if page_token is not None and outline.id >= page_token:
                continue
            if state == "open" and (outline.is_closed or not branches.is_live(outline.source_ref)):
                continue  # closed, unless merged
            if readable is not None and not readable(outline.source, outline.target):
                continue
            standing = branches.standing(outline)
            if state in (None, standing.state):
                shown.append((outline, standing.state))
                if len(shown) > wanted:
                    break
        rest = shown[wanted - 1][0].id if len(shown) > wanted else None
        requests = fold(self.events.of_requests(outline.id for outline, _ in shown[:wanted]))
        return ReviewPage(
            tuple(
                _summary(requests[outline.id], found)
                for outline, found in shown[:wanted]
                if outline.id in requests
            ),
            rest,
        )

    def show(self, request: Request, required: RequirementsOf, sees: Sees | None = None) -> Review:
        """The current state of a request, with everything that blocks its merge.

        Lists only conflicts that are visible by ``sees``.
        """
        standing = self.standing(request)
        shown = self._described(request, standing, standing.head(request))
        if standing.state != "open":
            return shown
        return self._with_blockers(shown, required(shown.target), sees)

    def _described(self, request: Request, standing: Standing, head: str) -> Review:
        """A request with its reviews and checks as they apply to a head; computes no merge plan."""
        outline, target, merged = request.outline, standing.target, standing.merge_commit
        reviews = (
            GivenReview(
                each.actor_id,
                each.outcome,
                each.head,
                each.created_at,
                self._is_stale(standing, each.head, head),
                each.text,
            )
            for each in request.verdicts
        )
        checks = (
            ReviewCheck(
                each.name,
                each.state,
                each.head,
                each.created_at,
                self._is_stale(standing, each.head, head),
                each.actor_id,
                each.text,
                each.rows,
            )
            for each in request.checks
        )
        return Review(
            request.id,
            request.title,
            request.description,
            standing.state,
            outline.source,
            outline.target,
            request.author,
            request.opened_at,
            head,
            None if target is None else target.head.commit_id,
            tuple(reviews),
            request.comments,
            tuple(checks),
            merge_commit_id=None if merged is None else merged.commit_id,
            closed_because=_why_closed(request, standing),
        )

    def _with_blockers(self, review: Review, required: Requirements, sees: Sees | None) -> Review:
        """An open request with the conflicts and blockers that its merge would have."""
        reasons = list(blocks(review, required))
        conflicts: list[BlockReason] = []
        base: str | None = None
        try:
            spec = merges.MergeSpec(review.source, review.target, ConflictRules())
            page = merges.PlanPage(Unfinished(), PageLimits.of(1))
            plan = merges.plan_merge(self._kernel, spec, page, sees=sees)
            base = plan.base_commit_id
            conflicts = [BlockReason("conflicts", each.text) for each in plan.conflicts]
            if plan.is_blocked_by_hidden:
                conflicts.append(BlockReason("conflicts", HIDDEN_CONFLICT))
        except Conflict as refused:
            conflicts = [BlockReason("conflicts", refused.message)]
        behind = (
            []
            if base in (None, review.target_commit_id)
            else list(lacking_commits(review, required))
        )
        status: Mergeable = "clean"
        for found, name in ((behind, "behind"), (conflicts, "conflicts"), (reasons, "blocked")):
            if found:
                status = name  # type: ignore[assignment]
        return replace(
            review,
            base_commit_id=base,
            mergeable=status,
            reasons=(*reasons, *conflicts, *behind),
        )

    def summary(self, request: Request) -> ReviewSummary:
        """A request as in a list."""
        return _summary(request, self.standing(request).state)

    def export(
        self,
        page_token: str | None = None,
        limit: int | None = None,
        readable: Readable | None = None,
    ) -> ReviewEvents:
        """One page of all events, in order, of requests about ``readable`` branches."""
        wanted = _page_limit("events", limit)
        found = self.events.after(page_token or "", wanted + 1)
        rest = found[wanted - 1].event_id if len(found) > wanted else None
        shown = found[:wanted]
        if readable is not None:
            seen = {o.id for o in self.events.outlines() if readable(o.source, o.target)}
            shown = [event for event in shown if event.request_id in seen]
        return ReviewEvents(tuple(shown), rest)

    def follow(self, known: Mapping[str, Standing | None], most: int) -> dict[str, Standing]:
        """The states of the ``most`` newest open requests, and of all ``known`` ones.

        The state of a known one is reused if its branches have not moved, so that polling only
        reads the state of each branch.
        """
        branches, found = _Branches(self._kernel), dict[str, Standing]()
        for outline in self.events.outlines():
            before = known.get(outline.id)
            if outline.id not in known and (
                len(found) >= most or outline.is_closed or not branches.is_live(outline.source_ref)
            ):
                continue
            ends = [branches.state(ref) for ref in (outline.source_ref, outline.target_ref)]
            is_same = before is not None and before.state == "open" and before.is_at(*ends)
            if before is not None and is_same and not outline.is_closed:
                found[outline.id] = before
            else:
                found[outline.id] = branches.standing(outline)
        return found

    def checked(self, request: Request, head: str) -> frozenset[str]:
        """The checks whose result is current for a head."""
        standing = self.standing(request)
        return frozenset(
            each.name for each in request.checks if not self._is_stale(standing, each.head, head)
        )

    # --- staleness --------------------------------------------------------------------------------

    def _is_stale(self, standing: Standing, given_for: str, head: str) -> bool:
        """Whether the content of the source differs between two of its heads.

        It does not if all commits between are upkeep, or if the diff to the target is equal, as
        after a merge of the target into the source.
        """
        if given_for == head:
            return False
        source, target = standing.source, standing.target
        if source is None or target is None:
            return True
        first, last = source.commits.get(given_for), source.commits.get(head)
        if first is None or last is None:
            return True
        since = [
            row
            for row in source.commits.values()
            if first.commit_seq < row.commit_seq <= last.commit_seq
        ]
        if all(row.kind in UNCHANGING for row in since):
            return False
        if standing.state != "open":
            return True
        shown = [self._digest(target.head.commit_id, each) for each in (given_for, head)]
        return shown[0] is None or shown[0] != shown[1]

    def _digest(self, target: str, head: str) -> str | None:
        """A digest of a diff's content; None if it is unreadable or too large."""
        if (target, head) not in self._digests:
            if len(self._digests) >= DIGESTS_KEPT_MAX:
                self._digests.clear()
            self._digests[target, head] = self._read_digest(target, head)
        return self._digests[target, head]

    def _read_digest(self, target: str, head: str) -> str | None:
        digest = hashlib.sha256()
        try:
            before, after, against = diff_ends(self._kernel, target, head, direct=False)
            diff = diff_of(
                self._schemas, before, after, ChangeFilter.of((), (), ()), target=against
            )
            if len(diff) > DIGEST_CHANGES_MAX:
                return None
            for change in diff.changes(images=True):
                document = change.to_dict()
                digest.update(orjson.dumps(document, option=orjson.OPT_SORT_KEYS, default=str))
        except (Conflict, NotFound, StorageError):
            return None
        return digest.hexdigest()

    # --- events -----------------------------------------------------------------------------------

    def open(
        self,
        source: str,
        target: str,
        title: str,
        description: str,
        caller: EventAuthor,
    ) -> Request:
        """Open a request; raises `NotFound` for a missing branch, `InputError` without changes."""
        for name in (source, target):
            check_branch_name(name)
        if source == target:
            raise InputError(
                f"branch `{source}` cannot be merged into itself",
                hint="name another branch to merge into",
            )
        if (earlier := self.events.of_caller(caller)) is not None:
            return self._repeated(earlier, "opened")
        theirs, ours = (self._kernel.manifest.refreshed(name) for name in (source, target))
        body = {
            "title": title,
            "description": description,
            "source": source,
            "source_ref": theirs.where.ref,
            "target": target,
            "target_ref": ours.where.ref,
            "source_commit_id": theirs.state.head.commit_id,
            "target_commit_id": ours.state.head.commit_id,
        }
        if _Branches(self._kernel).has(ours.state, theirs.state.head.commit_id):
            raise InputError(
                f"there is nothing to review: {target} has everything of {source}",
                hint=f"write to {source} first; `omnigraph branch diff {target} {source}` shows it",
            )
        event = self.events.append("opened", None, caller, body)
        return fold([event])[event.request_id]

    def add(
        self,
        request: Request,
        kind: ReviewEventKind,
        caller: EventAuthor,
        body: dict[str, Any],
    ) -> Request:
        """Append an event to a request; a repeated one adds nothing."""
        if (earlier := self.events.of_caller(caller)) is not None:
            return self._repeated(earlier, kind)
        self.events.append(kind, request.id, caller, body, after=request.last_event)
        return self.find(request.id)

    def record_bypass(self, caller: EventAuthor, facts: dict[str, Any]) -> None:
        """Record an upcoming direct write to a branch that requires change requests."""
        self.events.append("bypassed", BYPASSES, caller, facts)

    def _repeated(self, earlier: ReviewEvent, kind: ReviewEventKind) -> Request:
        if earlier.kind != kind:
            raise Conflict(
                f"the idempotency key '{earlier.operation_id}' was already used for another event",
                hint="use a new key for each of them",
                details={"idempotency_key": earlier.operation_id},
            )
        return self.find(earlier.request_id)

    def standing(self, request: Request) -> Standing:
        """The current state of a request."""
        return _Branches(self._kernel).standing(request.outline)

    def open_head(self, request: Request) -> str:
        """The head of the source of an open request; raises `Conflict` if it is not open."""
        standing = self.standing(request)
        if standing.state != "open":
            raise not_open(request, standing)
        return standing.head(request)

    # --- merging ----------------------------------------------------------------------------------

    def merge(
        self,
        request: Request,
        rules: ConflictRules,
        caller: EventAuthor,
        required: RequirementsOf,
        choose: Choose | None = None,
        *,
        message: str | None = None,
        rights: merges.Rights = merges.everything,
    ) -> ReviewMerged:
        """Merge a request as one commit that names it; raises `ReviewBlocked` with every reason.

        Raises `ReadSetChanged`, without merging, if the source moves before the target's lease is
        taken, and as `branching.merge.merge` does.
        """
        outline = request.outline
        spec = merges.MergeSpec(
            outline.source,
            outline.target,
            rules,
            caller.actor_id,
            caller.operation_id,
            rights=rights,
        )
        standing = self.standing(request)
        done = standing.merge_commit
        if done is not None and caller == EventAuthor(done.actor_id, done.operation_id or ""):
            mark = (done.receipt or {}).get("change_request", {})
            receipt = merges.merge(self._kernel, spec, choose)
            return ReviewMerged(
                request.id, request.title, tuple(mark.get("approvers", ())), receipt
            )
        if standing.state != "open":
            raise not_open(request, standing)
        head = standing.head(request)

        def require() -> tuple[str, ...]:
            """The approvers of the head; raises `ReviewBlocked` if a requirement is unmet."""
            now = self.find(request.id)
            review = self._described(now, self.standing(now), head)
            reasons = list(blocks(review, required(outline.target)))
            if now.outline.is_closed:
                reasons.insert(0, BlockReason("not_open", "it was closed"))
            reasons += self._behind_now(review, required(outline.target))
            if reasons:
                raise ReviewBlocked(request.id, [reason.to_dict() for reason in reasons])
            return tuple(sorted(each for each in review.approvers if each is not None))

        def require_still() -> None:
            require()

        approvers = require()
        mark = {"id": request.id, "title": request.title, "approvers": list(approvers)}
        condition = merges.MergeCondition(
            outline.source_ref, head, require_still, {"change_request": mark}
        )
        spec = replace(spec, condition=condition, message=message or request.title)
        try:
            receipt = merges.merge(self._kernel, spec, choose)
        except Conflict as refused:
            # Another reviewer may already have merged it.
            now = self.standing(request)
            if now.state == "merged":
                raise not_open(request, now) from refused
            raise
        return ReviewMerged(request.id, request.title, approvers, receipt)

    def _behind_now(self, review: Review, required: Requirements) -> list[BlockReason]:
        if not required.up_to_date or review.target_commit_id is None:
            return []
        before, _, _ = diff_ends(self._kernel, review.target, review.source_commit_id, direct=False)
        is_behind = before.commit.commit_id != review.target_commit_id
        return list(lacking_commits(review, required)) if is_behind else []


def not_open(request: Request, standing: Standing) -> ReviewBlocked:
    """The error for a request that is merged or closed."""
    told = f"it is {standing.state}"
    if standing.merge_commit is not None:
        told += f", as commit {standing.merge_commit.commit_id}"
    if (why := _why_closed(request, standing)) is not None:
        told += f": {why}"
    return ReviewBlocked(request.id, [BlockReason("not_open", told).to_dict()])


def _why_closed(request: Request, standing: Standing) -> str | None:
    if standing.state != "closed":
        return None
    if standing.closed_because is not None:
        return standing.closed_because
    return "closed" if request.closed_by is None else f"closed by {request.closed_by}"


def _summary(request: Request, state: ReviewState) -> ReviewSummary:
    return ReviewSummary(
        request.id,
        request.title,
        state,
        request.outline.source,
        request.outline.target,
        request.author,
        request.opened_at,
        request.updated_at,
        len(request.comments),
    )


def _page_limit(what: str, limit: int | None) -> int:
    if limit is None:
        return PAGE_DEFAULT
    if limit < 1:
        raise InputError(f"a page has at least one of the {what}", hint="leave `limit` out")
    if limit > PAGE_MAX:
        raise LimitExceeded(f"{what} per page", PAGE_MAX, limit, hint="ask for less")
    return limit

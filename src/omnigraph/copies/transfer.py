"""Transferring the commits of a branch between two graphs, of which one is a clone of the other.

A commit has the same id and content in both graphs. If the source is ahead of the destination, each
new commit is replayed there with its id, author, time and message: one commit of the write path
each, with its sidecar and its compare-and-swap. If both have new commits, the two heads are merged
like branches.

An interrupted transfer has replayed the first of the commits, which is a state that existed. The
next transfer continues from there. Only the destination is written to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from omnigraph.branching.ancestry import Commits, distances, merge_base, parents
from omnigraph.branching.branches import create_branch, list_branches
from omnigraph.branching.merge import Rights, carry_out, everything
from omnigraph.branching.merge_plan import PlannedMerge, Sides, merge_types, require_mergeable
from omnigraph.branching.moments import first_parents, moments, reader_of
from omnigraph.branching.three_way import ConflictRules
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import Intent
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.rebase import SchemaPath
from omnigraph.copies.receipts import TransferReceipt
from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    EffectFreeConflict,
    HistoricalVersionReclaimed,
    InputError,
    ReadSetChanged,
)
from omnigraph.model.ids import MAIN_BRANCH, SCHEMA_APPLY_LOCK, check_branch_name
from omnigraph.model.records import dataclass
from omnigraph.storage.manifest import ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """The branch to transfer, and how conflicting changes are merged."""

    verb: str
    """`push` or `pull`."""
    branch: str = MAIN_BRANCH
    rules: ConflictRules = field(default_factory=ConflictRules)
    actor_id: str | None = None
    """The author of a merge commit; other commits keep their authors."""
    message: str | None = None
    """The message of a merge commit."""
    rights: Rights = everything
    """What the actor may write at the destination."""


def transfer(source: Kernel, destination: Kernel, request: TransferSpec) -> TransferReceipt:
    """Transfer the commits of a branch to another graph with common history.

    A branch that the destination lacks is created there, at the newest commit that both have.

    Raises `Conflict` if the graphs have no common commit or different schemas, `MergeConflicts` if
    both sides changed the same entities differently, and `ReadSetChanged` if the destination kept
    moving. After an error no commit is half transferred.
    """
    _check(source, destination, request.branch)
    theirs = source.manifest.refreshed(request.branch)
    created = _made_branch(theirs.state, destination, request)
    brought: list[str] = []
    for left in reversed(range(destination.settings.retries + 1)):
        target = Recoverer(destination).barrier(request.branch, request.verb)
        work = _Transfer(source, destination, theirs.state, target, request)
        try:
            outcome = work.run(brought)
        except (EffectFreeConflict, ReadSetChanged):
            if not left:
                raise
            continue
        if brought and outcome == "already_up_to_date":
            outcome = "fast_forward"
        return TransferReceipt(
            request.verb,
            source.root.uri,
            destination.root.uri,
            request.branch,
            outcome,
            target.refresh().head.commit_id,
            tuple(brought),
            created,
        )
    raise AssertionError("unreachable: the last attempt returns or raises")


def _check(source: Kernel, destination: Kernel, branch: str) -> None:
    check_branch_name(branch)
    if branch == SCHEMA_APPLY_LOCK:
        raise InputError(f"`{branch}` is no branch that can be brought to another graph")
    if source.root.uri == destination.root.uri:
        raise InputError(
            f"{source.root.uri} is both ends",
            hint="name the other graph; branches of one graph are merged with "
            "`omnigraph branch merge`",
        )


def _made_branch(theirs: ManifestState, destination: Kernel, request: TransferSpec) -> bool:
    """Create the branch at the destination if it is missing, at the newest commit both have."""
    name = request.branch
    if name == MAIN_BRANCH or name in list_branches(destination):
        return False
    states = [destination.manifest.refreshed(each).state for each in list_branches(destination)]
    for commit in first_parents(theirs, theirs.head.commit_id):
        known = [state for state in states if commit.commit_id in state.commits]
        if known:
            # Prefer a branch with this commit as its head: its table versions exist for certain.
            known.sort(key=lambda state: state.head.commit_id != commit.commit_id)
            try:
                create_branch(
                    destination,
                    name,
                    known[0].branch,
                    at=commit.commit_id,
                    actor_id=request.actor_id,
                )
            except AlreadyExists:
                return False
            return True
    raise _nothing_in_common(name)


def _nothing_in_common(branch: str) -> Conflict:
    return Conflict(
        f"the two graphs have no commit of {branch} in common",
        hint="commits are brought between a graph and its clones; others are exported and loaded",
        details={"branch": branch},
    )


class _PendingCommit(NamedTuple):
    """A commit to replay at the destination."""

    commit: CommitRow
    before: SnapshotReader | None
    """The source at the parent commit; None if the source does not have it."""
    after: SnapshotReader


@dataclass(frozen=True)
class _Transfer:
    """One attempt at a transfer, from captured heads."""

    source: Kernel
    destination: Kernel
    theirs: ManifestState
    target: ManifestBranch
    request: TransferSpec

    def run(self, brought: list[str]) -> str:
        """Replay or merge; returns the outcome. Adds the ids of created commits to ``brought``."""
        ours, theirs = self.target.state, self.theirs
        heads = ours.head.commit_id, theirs.head.commit_id
        commits: Commits = {**ours.commits, **theirs.commits}
        if not self._is_related(commits, *heads):
            commits = {**self._commits_elsewhere(), **commits}
        if heads[1] in distances(commits, heads[0]):
            return "already_up_to_date"
        if heads[0] in distances(commits, heads[1]):
            for step in self._steps(list(self._missing(commits, heads[0]))):
                # One by one, so that created commits are reported even if a later one fails.
                brought += self._made_again(step, heads[1])
            return "fast_forward"
        base = merge_base(commits, heads[1], heads[0])
        if base is None:
            raise _nothing_in_common(self.request.branch)
        brought.append(self._merge(base).commit_id)
        return "merged"

    def _is_related(self, commits: Commits, ours: str, theirs: str) -> bool:
        return theirs in distances(commits, ours) or ours in distances(commits, theirs)

    def _commits_elsewhere(self) -> dict[str, CommitRow]:
        """The commits of all branches of both graphs, which may have been merged into this one."""
        found: dict[str, CommitRow] = {}
        for kernel in (self.source, self.destination):
            for name in list_branches(kernel):
                if name != self.request.branch:
                    found |= kernel.manifest.refreshed(name).state.commits
        return found

    def _missing(self, commits: Commits, head: str) -> Iterator[CommitRow]:
        """The commits of the source that follow the head of the destination, oldest first."""
        children: dict[str, list[str]] = {}
        for commit in commits.values():
            for parent in parents(commit):
                children.setdefault(parent, []).append(commit.commit_id)
        after, ahead = {head}, [head]
        while ahead:
            for child in children.get(ahead.pop(), ()):
                if child not in after:
                    after.add(child)
                    ahead.append(child)
        line: list[CommitRow] = []
        for commit in first_parents(self.theirs, self.theirs.head.commit_id):
            if commit.commit_id not in after or commit.commit_id == head:
                break
            line.append(commit)
        return reversed(line)

    # --- replaying commits ------------------------------------------------------------------------

    def _steps(self, line: list[CommitRow]) -> Iterator[_PendingCommit]:
        """The readers of each commit and its parent, to compare only files they do not share."""
        self._require_schema(line)
        state = self.theirs
        parent = state.commits.get(line[0].parent_commit_id or "")
        known = [each for each in (parent, *line) if each is not None]
        before: SnapshotReader | None = None
        for moment in moments(self.source, state, known):
            schema = self.source.required_schema(state.branch, moment.commit.schema_hash)
            after = moment.reader(schema.catalog)
            if moment.commit is not parent:
                yield _PendingCommit(moment.commit, before, after)
            before = after

    def _require_schema(self, line: list[CommitRow]) -> None:
        """Raise `Conflict` unless all commits have the schema of the destination."""
        accepted = self.target.state.head_snapshot().commit.schema_hash
        for commit in line:
            if commit.schema_hash != accepted:
                raise self._other_schema(commit)

    def _other_schema(self, commit: CommitRow) -> Conflict:
        return Conflict(
            f"commit {commit.commit_id} has another schema than branch {self.request.branch} of "
            f"{self.destination.root.uri}",
            hint="changes of schema are not brought along: apply the same schema to both graphs "
            f"with `omnigraph schema apply`, then {self.request.verb} again",
            details={"branch": self.request.branch, "graph_commit_id": commit.commit_id},
        )

    def _made_again(self, step: _PendingCommit, last: str) -> list[str]:
        """Replay one commit of the source as the next commit of the destination.

        If its parent is the head of the destination, the changes are those at the source. If the
        commit merged that head, or the source no longer has the parent's versions, source and
        destination are compared. A commit whose versions were cleaned up at the source is skipped:
        its changes become part of the next one.
        """
        commit, head = step.commit, self.target.refresh().head.commit_id
        if commit.parent_commit_id == head and step.before is not None:
            try:
                return [self._made(step, step.before).commit_id]
            except HistoricalVersionReclaimed:
                # The parent's versions were cleaned up at the source; the destination has them.
                pass
        try:
            return [self._made(step, None).commit_id]
        except HistoricalVersionReclaimed:
            if commit.commit_id == last:
                raise
            return []

    def _made(self, step: _PendingCommit, before: SnapshotReader | None) -> CommitRow:
        commit, target = step.commit, self._captured()
        head = target.snapshot.commit_id
        base = before or target.reader
        sides = Sides(
            base,
            step.after,
            target,
            self.source.root.uri,
            self.request.branch,
            "fast_forward",
            base_there=target.reader,
        )
        catalog = self.destination.accepted_at(target.snapshot).catalog
        planned, write = merge_types(self.destination, catalog, sides, ConflictRules())
        self._require_mergeable(sides, ConflictRules(), planned)
        merged = commit.merged_parent_commit_id
        if commit.kind == "merge" and commit.parent_commit_id != head:
            # The commit merged the head of the destination, so there the parents are swapped.
            merged = commit.parent_commit_id
        intent = Intent(
            "BranchMerge",
            commit.kind,
            commit.actor_id,
            operation_id=commit.operation_id,
            receipt=commit.receipt,
            merged_parent=merged,
            brought=commit,
        )
        return carry_out(self.destination, target, write.change_set(), intent)

    def _require_mergeable(self, sides: Sides, rules: ConflictRules, planned: PlannedMerge) -> None:
        catalog = self.destination.accepted_at(sides.target.snapshot).catalog
        rights = self.request.rights(catalog, (self.request.branch,))
        require_mergeable(self.destination, sides, rules, planned, rights)

    def _captured(self) -> Capture:
        head = self.target.refresh().head_snapshot()
        return self.destination.capture(self.target, head.commit.schema_hash, head)

    # --- merging ----------------------------------------------------------------------------------

    def _merge(self, base: CommitRow) -> CommitRow:
        """Merge both heads: one commit with both as parents."""
        request, target = self.request, self._captured()
        theirs = self.theirs.head_snapshot()
        if theirs.commit.schema_hash != target.snapshot.commit.schema_hash:
            raise self._other_schema(theirs.commit)
        accepted = self.destination.accepted_at(target.snapshot)
        request.rules.check(accepted.catalog)
        there = self._reader_at(self.destination, self.target.state, base)
        here = self._reader_at(self.source, self.theirs, base) or there
        if here is None:
            raise _nothing_in_common(request.branch)
        sides = Sides(
            here,
            reader_of(self.source, theirs, SchemaPath((accepted,))),
            target,
            self.source.root.uri,
            request.branch,
            base_there=there or here,
        )
        planned, write = merge_types(self.destination, accepted.catalog, sides, request.rules)
        self._require_mergeable(sides, request.rules, planned)
        receipt = {
            "source": self.source.root.uri,
            "outcome": "merged",
            "on_conflict": request.rules.on_conflict,
            **planned.plan.affected,
        }
        intent = Intent(
            "BranchMerge",
            "merge",
            request.actor_id,
            receipt=receipt,
            merged_parent=theirs.commit.commit_id,
            message=request.message,
        )
        return carry_out(self.destination, target, write.change_set(), intent)

    def _reader_at(
        self, kernel: Kernel, state: ManifestState, commit: CommitRow
    ) -> SnapshotReader | None:
        """A reader of a commit in one of the graphs, in today's schema; None without the commit."""
        if commit.commit_id not in state.commits:
            others = (
                kernel.manifest.refreshed(name).state
                for name in list_branches(kernel)
                if name != state.branch
            )
            found = next((each for each in others if commit.commit_id in each.commits), None)
            if found is None:
                return None
            state = found
        snapshot = state.snapshot_at(commit.commit_id)
        start = kernel.schema_of(snapshot.commit.schema_hash)
        if start is None:
            return None
        last = kernel.required_schema(state.branch, self.theirs.head_snapshot().commit.schema_hash)
        return reader_of(kernel, snapshot, SchemaPath.between(kernel, start, last))

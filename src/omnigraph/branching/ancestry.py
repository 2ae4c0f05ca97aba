"""The graph of commits: ancestors of a commit, and where two commits went apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from omnigraph.branching.branches import list_branches
from omnigraph.branching.moments import Moment, moment_of, moments
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import Conflict
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow

Commits = Mapping[str, CommitRow]


def merge_base(commits: Commits, source: str, target: str) -> CommitRow | None:
    """The common ancestor nearest to both heads together; of several, the one published last.

    A head that the other side already contains is nearer than anything else, however long the way.
    None where there is none among ``commits``, as between graphs that never were one.
    """
    from_source, from_target = distances(commits, source), distances(commits, target)
    for head, reached in ((source, from_target), (target, from_source)):
        if head in reached:
            return commits[head]
    common = from_source.keys() & from_target.keys()

    def nearness(commit_id: str) -> tuple[int, int, str]:
        steps = from_source[commit_id] + from_target[commit_id]
        return steps, -commits[commit_id].manifest_version, commit_id

    return commits[min(common, key=nearness)] if common else None


def distances(commits: Commits, head: str) -> dict[str, int]:
    """Every known ancestor of a commit, itself included, and how many steps away it is."""
    found = {head: 0} if head in commits else {}
    ahead = deque(found)
    while ahead:
        commit = ahead.popleft()
        for parent in parents(commits[commit]):
            if parent in commits and parent not in found:
                found[parent] = found[commit] + 1
                ahead.append(parent)
    return found


def parents(commit: CommitRow) -> Iterator[str]:
    """The commits a commit follows: its own line first, then what it merged."""
    for parent in (commit.parent_commit_id, commit.merged_parent_commit_id):
        if parent is not None:
            yield parent


def with_merged(
    known: Commits, heads: tuple[str, str], others: Callable[[], Iterator[Commits]]
) -> Commits:
    """``known``, completed from other branches if they were merged into these.

    What the others have is read only if a commit is missing on the way down from ``heads``.
    """
    reached = {commit for head in heads for commit in distances(known, head)}
    merged = {parent for commit in reached for parent in parents(known[commit])}
    if merged <= known.keys():
        return known
    complete = dict(known)
    for commits in others():
        complete |= commits
    return complete


def common_ancestor(
    kernel: Kernel, source: tuple[ManifestState, str], target: tuple[ManifestState, str]
) -> tuple[ManifestState, CommitRow] | None:
    """The merge base of two commits, each given with a state that has it, and a state that has it.

    States of other branches are read only if commits of theirs were merged into these. None where
    the two have no commit in common.
    """
    (theirs, source_id), (ours, target_id) = source, target
    states = [ours, theirs]

    def others() -> Iterator[Commits]:
        for name in list_branches(kernel):
            if name not in (theirs.branch, ours.branch):
                state = kernel.manifest.refreshed(name).state
                states.append(state)
                yield state.commits

    commits = with_merged({**theirs.commits, **ours.commits}, (source_id, target_id), others)
    base = merge_base(commits, source_id, target_id)
    if base is None:
        return None
    return next(state for state in states if base.commit_id in state.commits), base


def diff_ends(
    kernel: Kernel, target: str, source: str, direct: bool
) -> tuple[Moment, Moment, Moment | None]:
    """The two commits that a diff of branches or commits compares, and the target if it is none.

    Compared are the merge base of both with ``source``, or with ``direct`` the two that were named.
    Raises `NotFound`.
    """
    ours, theirs = moment_of(kernel, target), moment_of(kernel, source)
    if direct:
        return ours, theirs, None
    ends = [(each.state, each.commit.commit_id) for each in (theirs, ours)]
    found = common_ancestor(kernel, ends[0], ends[1])
    if found is None:
        raise Conflict(
            f"{target} and {source} have no commit in common",
            hint="compare the two directly with `--direct`, or `direct=True`",
        )
    return next(moments(kernel, found[0], [found[1]])), theirs, ours

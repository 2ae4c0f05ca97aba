"""The commit graph: ancestors of a commit, and merge bases."""

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
    """The common ancestor with the fewest steps to both heads; among equals, the newest.

    If one head is an ancestor of the other, it is the merge base. None if there is no common
    ancestor among ``commits``, as between unrelated graphs.
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
    """Every known ancestor of a commit, including itself, with its distance in steps."""
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
    """The parents of a commit: first the one on its own line, then the merged one."""
    for parent in (commit.parent_commit_id, commit.merged_parent_commit_id):
        if parent is not None:
            yield parent


def with_merged(
    known: Commits, heads: tuple[str, str], others: Callable[[], Iterator[Commits]]
) -> Commits:
    """``known``, with commits of other branches added if those were merged.

    The other branches are read only if an ancestor of ``heads`` is missing.
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
    """The merge base of two commits, with a state that contains it; each commit is given likewise.

    Other branches are read only if they were merged into these. None without a common commit.
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
    """The two commits that a diff compares, and the target if it is not one of them.

    These are the merge base and ``source``, or with ``direct``, ``target`` and ``source``. Raises
    `NotFound`.
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

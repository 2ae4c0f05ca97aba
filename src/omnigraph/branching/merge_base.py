"""The commit from which two branches went apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

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

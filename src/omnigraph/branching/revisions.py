"""Resolving revisions to commits, and tags, which are user-defined names of commits.

A revision is a commit id or a unique prefix of one, a branch (its head), a tag, or a branch and a
time; a suffix `~2` goes two commits back. `model.ids` parses the text, this module looks up the
name. Every verb that takes a commit takes a revision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.branching.branches import list_branches, own_registry, require_tables
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import NotFound, UnresolvedRevision
from omnigraph.model.ids import (
    MAIN_BRANCH,
    PREFIX_CHARACTERS_MIN,
    Revision,
    check_new_tag_name,
    is_ulid,
)
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow, TagRow
from omnigraph.storage.publisher import register_tag, unregister_tag
from omnigraph.syntax.suggest import did_you_mean, nearest_name

CANDIDATES_MAX = 10
"""Commits that the error for an ambiguous revision lists."""

Found = tuple[ManifestState, CommitRow]
"""A commit, and the newest state of a branch that has it."""
Readable = Callable[[str], bool]
"""Whether the caller may read a branch; unreadable ones are treated as missing."""


def resolve(kernel: Kernel, revision: str, readable: Readable = lambda branch: True) -> Found:
    """The commit that a revision names, and a branch that has it (main, if main does).

    `HEAD` and times without a branch must be completed by `model.ids.on_branch`. If a name is both
    a branch and a commit id, the branch is used. Raises `UnresolvedRevision`.
    """
    asked = Revision.parse(revision)
    state, commit = _named(kernel, revision, asked, readable)
    for steps in range(asked.steps):
        parent = state.commits.get(commit.parent_commit_id or "")
        if parent is None:
            raise UnresolvedRevision(
                f"`{revision}` goes {asked.steps} commits back, and there are {steps}",
                revision,
                hint="list commits with `omnigraph commit list`",
            )
        commit = parent
    return state, commit


def _named(kernel: Kernel, revision: str, asked: Revision, readable: Readable) -> Found:
    """The commit of a revision without its `~N` suffix."""
    main = kernel.manifest.refreshed(MAIN_BRANCH).state
    name = asked.name
    if name == MAIN_BRANCH or name in main.branches:
        if readable(name):
            state = main if name == MAIN_BRANCH else kernel.manifest.refreshed(name).state
            return state, _newest(state, revision, asked.until)
    elif asked.until is None and is_ulid(name.upper()):
        return _with_id(kernel, main, name.upper(), readable)
    elif asked.until is None and name in main.tags:
        tag = main.tags[name]
        if readable(tag.branch):
            return _with_id(kernel, main, tag.commit_id, readable)
    elif asked.until is None and asked.prefix is not None:
        return _beginning_with(kernel, main, revision, asked.prefix, readable)
    raise _unknown(main, revision, name, readable)


def _newest(state: ManifestState, revision: str, until: int | None) -> CommitRow:
    """The head of a branch, or its newest commit not later than a time."""
    if until is None:
        return state.commits[state.head.commit_id]
    for commit in state.lineage():
        if commit.created_at <= until:
            return commit
    raise UnresolvedRevision(
        f"branch `{state.branch}` has no commit as old as `{revision}` says",
        revision,
        hint=f"list its commits with `omnigraph commit list --branch {state.branch}`",
    )


def _states(kernel: Kernel, main: ManifestState) -> Iterator[ManifestState]:
    """The newest state of every branch, main first."""
    yield main
    for name in list_branches(kernel):
        if name != MAIN_BRANCH:
            yield kernel.manifest.refreshed(name).state


def find_commit(kernel: Kernel, commit_id: str) -> Found:
    """The commit with an id, and a branch that has it (main, if main does).

    Raises `UnresolvedRevision`.
    """
    return _with_id(kernel, kernel.manifest.refreshed(MAIN_BRANCH).state, commit_id)


def _with_id(
    kernel: Kernel,
    main: ManifestState,
    commit_id: str,
    readable: Readable = lambda branch: True,
) -> Found:
    for state in _states(kernel, main):
        commit = state.commits.get(commit_id)
        if commit is not None:
            if readable(authored_branch(commit)):
                return state, commit
            break
    raise UnresolvedRevision.no_commit(commit_id)


def _beginning_with(
    kernel: Kernel, main: ManifestState, revision: str, prefix: str, readable: Readable
) -> Found:
    found: dict[str, Found] = {}
    for state in _states(kernel, main):
        for commit_id, commit in state.commits.items():
            if commit_id.startswith(prefix) and readable(authored_branch(commit)):
                found.setdefault(commit_id, (state, commit))
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise _unknown(main, revision, prefix, readable)
    listed = sorted(found, reverse=True)[:CANDIDATES_MAX]
    raise UnresolvedRevision(
        f"{len(found)} commits begin with `{prefix}`",
        revision,
        "ambiguous",
        listed,
        hint=f"give more of the id: {', '.join(listed)}{' …' * (len(found) > len(listed))}",
    )


def authored_branch(commit: CommitRow) -> str:
    """The branch on which a commit was made."""
    return commit.branch or MAIN_BRANCH


def _unknown(
    main: ManifestState, revision: str, name: str, readable: Readable
) -> UnresolvedRevision:
    names = [each for each in (MAIN_BRANCH, *sorted(main.branches)) if readable(each)]
    names += [tag.name for tag in main.tags.values() if readable(tag.branch)]
    near = nearest_name(name, names)
    return UnresolvedRevision(
        f"`{revision}` names no commit: there is no branch, tag or commit id `{name}`",
        revision,
        candidates=[] if near is None else [near],
        hint=did_you_mean(name, names)
        or f"give a commit id or its first characters ({PREFIX_CHARACTERS_MIN} or more), a branch, "
        "a tag, BRANCH~2, or BRANCH@2026-11-16T12:53:27Z",
    )


# --- tags -----------------------------------------------------------------------------------------


def list_tags(kernel: Kernel) -> list[TagRow]:
    """The tags, by name."""
    tags = kernel.manifest.main.refresh().tags
    return [tags[name] for name in sorted(tags)]


def find_tag(kernel: Kernel, name: str) -> TagRow:
    """The tag with a name; raises `NotFound`."""
    tags = kernel.manifest.main.refresh().tags
    row = tags.get(name)
    if row is None:
        raise NotFound(
            f"there is no tag `{name}`",
            hint=did_you_mean(name, tags) or "list tags with `omnigraph tag list`",
        )
    return row


def create_tag(kernel: Kernel, name: str, found: Found, *, actor_id: str | None = None) -> TagRow:
    """Tag a commit; the tag is visible, and protects the commit from cleanup, once this returns.

    One publish on main, as for a branch: cleanup and the deletion of branches take the same lease,
    so the commit and its tables cannot be removed concurrently. Raises `AlreadyExists`, and
    `HistoricalVersionReclaimed` if cleanup already removed rows of the commit.
    """
    check_new_tag_name(name)
    seen, commit = found
    with own_registry(kernel, seen.branch) as lease:
        state = kernel.manifest.refreshed(seen.branch).state
        if commit.commit_id not in state.commits:
            raise UnresolvedRevision.no_commit(commit.commit_id)
        if commit.commit_id != state.head.commit_id:
            require_tables(kernel, state, next(state.pins_along([commit])))
        now = kernel.clock.wall_us()
        row = TagRow(name, commit.commit_id, authored_branch(commit), now, actor_id)
        landed = register_tag(kernel.manifest, row, lease.epoch)
        hit(Failpoint.TAG_CREATE_POST_REGISTER)
    return landed


def delete_tag(kernel: Kernel, name: str) -> TagRow:
    """Remove a tag; the commit stays, and loses protection from cleanup. Raises `NotFound`."""
    find_tag(kernel, name)
    with own_registry(kernel, MAIN_BRANCH) as lease:
        row = find_tag(kernel, name)
        unregister_tag(kernel.manifest, row, lease.epoch)
        hit(Failpoint.TAG_DELETE_POST_UNREGISTER)
    return row

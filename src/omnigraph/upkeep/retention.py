"""Retention: versions used by live branches and tags, and merge bases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from omnigraph.commit.plan import FIRST_VERSION
from omnigraph.effects.clock import ulid_at
from omnigraph.effects.objects import ObjectStore
from omnigraph.model.ids import is_ulid
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import (
    LOAD_SCRATCH,
    MAIN,
    PAST_SCHEMAS,
    past_schema_name,
    past_source_name,
)
from omnigraph.storage.manifest import ManifestState, Snapshot
from omnigraph.storage.manifest_rows import TableIdentity

Place = tuple[TableIdentity, str | None]
"""A table on one physical ref."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The versions that the live branches of a graph use."""

    oldest: Mapping[Place, int]
    """The oldest version of a table that a branch uses. It and all newer ones stay."""
    bases: frozenset[tuple[Place, int]]
    """Single versions that tags use, or that the next merge of two branches compares with."""
    owned: frozenset[Place]
    """The tables and forks that belong to live branches."""

    @classmethod
    def of(cls, states: Mapping[str, ManifestState]) -> Retention:
        """Compute the versions that these branches use."""
        oldest: dict[Place, int] = {}
        for state in states.values():
            for place, version in _pins(state.head_snapshot()):
                oldest[place] = min(version, oldest.get(place, version))
        forks = [*_merge_bases(states), *_tagged(states)]
        bases = {pin for snapshot in forks for pin in _pins(snapshot)}
        heads = [state.head_snapshot() for state in states.values()]
        bases |= set(_first_versions([*heads, *forks]))
        owned = {(row.identity, row.ref) for state in states.values() for row in state.versions}
        return cls(oldest, frozenset(bases), frozenset(owned))

    def needs(self, place: Place, version: int) -> bool:
        """Whether a version must be kept."""
        seen = self.oldest.get(place)
        return (seen is not None and version >= seen) or (place, version) in self.bases


def _first_versions(snapshots: Sequence[Snapshot]) -> Iterator[tuple[Place, int]]:
    """The empty first versions of types that only some branches have.

    A branch that is rebased to main's schema gets such a type in this version, and merges compare
    with it.
    """
    each = [{entry.identity for entry in snapshot.tables.values()} for snapshot in snapshots]
    everywhere = set.intersection(*each)
    for identity in set.union(*each) - everywhere:
        yield (identity, None), FIRST_VERSION


def _pins(snapshot: Snapshot) -> Iterator[tuple[Place, int]]:
    for entry in snapshot.tables.values():
        yield (entry.identity, entry.ref), entry.version


def _merge_bases(states: Mapping[str, ManifestState]) -> Iterator[Snapshot]:
    """The starting commit of each branch, and the last commit merged from each other branch."""
    registered = states[MAIN].branches
    for name, state in states.items():
        if name != MAIN and registered[name].source_commit_id in state.commits:
            yield state.snapshot_at(registered[name].source_commit_id)
        found: set[str] = set()
        for commit in state.lineage():
            merged = commit.merged_parent_commit_id
            if merged is None:
                continue
            for source in states.values():
                if merged in source.commits and source.branch not in found:
                    found.add(source.branch)
                    yield source.snapshot_at(merged)


def _tagged(states: Mapping[str, ManifestState]) -> Iterator[Snapshot]:
    """The snapshots of tagged commits."""
    for tag in states[MAIN].tags.values():
        for state in states.values():
            if tag.commit_id in state.commits:
                yield state.snapshot_at(tag.commit_id)
                break


ABANDONED_DAYS = 7
"""A slow load looks like a killed one, but no load takes a week."""


def abandoned_scratch(store: ObjectStore, now_us: int) -> tuple[str, ...]:
    """The folders of loads that began long ago, according to the operation id in their name."""
    names = store.list(LOAD_SCRATCH)
    operations = {name.split("/")[1] for name in names if name.count("/") > 1}
    first_kept = ulid_at(now_us // 1_000 - ABANDONED_DAYS * 86_400_000)
    return tuple(
        f"{LOAD_SCRATCH}/{operation}"
        for operation in sorted(operations)
        if is_ulid(operation.upper()) and operation.upper() < first_kept
    )


def unneeded_schemas(
    store: ObjectStore, states: Mapping[str, ManifestState], kept: Set[tuple[Place, int]]
) -> tuple[str, ...]:
    """The objects of schemas whose commits are all older than the oldest kept rows.

    ``states`` are all live branches, and ``kept`` the table versions that stay. Objects without a
    commit are kept.
    """
    stored = set(store.list(PAST_SCHEMAS))
    if not stored:
        return ()
    known: set[str] = set()
    needed = {past_schema_name(each.commit.schema_hash) for each in _tagged(states)}
    needed |= set(_schemas_since_branches(states))
    for state in states.values():
        seen = (
            row.commit_seq
            for row in state.versions
            if row.row_count and ((row.identity, row.ref), row.version) in kept
        )
        oldest = min(seen, default=state.head.commit_seq)
        for commit in state.commits.values():
            name = past_schema_name(commit.schema_hash)
            known.add(name)
            if commit.commit_seq >= min(oldest, state.head.commit_seq):
                needed.add(name)
    return tuple(sorted(stored & known - needed))


def _schemas_since_branches(states: Mapping[str, ManifestState]) -> Iterator[str]:
    """The schemas of main since the oldest one that a live branch started with.

    They are needed to migrate entities of that branch to main's current schema.
    """
    main = states[MAIN]
    began = [
        main.schema_positions.get(state.commits[row.source_commit_id].schema_hash, 0)
        for name, state in states.items()
        if name != MAIN and (row := main.branches[name]).source_commit_id in state.commits
    ]
    if began:
        for commit in main.commits.values():
            if commit.commit_seq >= min(began):
                yield past_schema_name(commit.schema_hash)


def remove_schemas(store: ObjectStore, names: tuple[str, ...]) -> int:
    """Remove schema objects; returns their total size."""
    sizes = [len(store.read_if_exists(name) or b"") for name in names]
    for name in names:
        store.delete(past_source_name(name))
        store.delete(name)
    return sum(sizes)

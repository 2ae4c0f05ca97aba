"""What has to stay: the versions that live branches see, and those their merges start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.storage.snapshot import ManifestState, Snapshot

Place = tuple[TableIdentity, str | None]
"""A table on one physical ref."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What the live branches of a graph need."""

    oldest: Mapping[Place, int]
    """The oldest version of a table that a branch sees. It and all newer ones stay."""
    bases: frozenset[tuple[Place, int]]
    """Single versions that the next merge of two branches has to compare with."""
    owned: frozenset[Place]
    """The tables, and forks of tables, that belong to live branches."""

    @classmethod
    def of(cls, states: Mapping[str, ManifestState]) -> Retention:
        """What these branches need."""
        oldest: dict[Place, int] = {}
        for state in states.values():
            for place, version in _pins(state.head_snapshot()):
                oldest[place] = min(version, oldest.get(place, version))
        bases = {pin for snapshot in _merge_bases(states) for pin in _pins(snapshot)}
        owned = {(row.identity, row.ref) for state in states.values() for row in state.versions}
        return cls(oldest, frozenset(bases), frozenset(owned))

    def needs(self, place: Place, version: int) -> bool:
        """Whether a version must not go."""
        seen = self.oldest.get(place)
        return (seen is not None and version >= seen) or (place, version) in self.bases


def _pins(snapshot: Snapshot) -> Iterator[tuple[Place, int]]:
    for entry in snapshot.tables.values():
        yield (entry.identity, entry.ref), entry.version


def _merge_bases(states: Mapping[str, ManifestState]) -> Iterator[Snapshot]:
    """What each branch was created from, and what it last took over from each other one."""
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

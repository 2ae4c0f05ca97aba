"""Schemas of the past that no commit needs any more.

A replaced schema is kept for the commits that were made with it: they are shown in its words. Once
every row they saw is gone, nothing is left to be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from omnigraph.effects.objects import ObjectStore
from omnigraph.storage.layout import PAST_SCHEMAS, past_schema_name
from omnigraph.storage.snapshot import ManifestState
from omnigraph.upkeep.retention import Place


def unneeded_schemas(
    store: ObjectStore, states: Mapping[str, ManifestState], kept: Set[tuple[Place, int]]
) -> tuple[str, ...]:
    """The objects of schemas whose commits all lie before the oldest rows that are kept.

    ``states`` are all live branches, and ``kept`` the versions of tables that stay. An object that
    belongs to no commit is left alone.
    """
    stored = set(store.list(PAST_SCHEMAS))
    if not stored:
        return ()
    known: set[str] = set()
    needed: set[str] = set()
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


def remove_schemas(store: ObjectStore, names: tuple[str, ...]) -> int:
    """Remove them; how many bytes they had."""
    sizes = [len(store.read_if_exists(name) or b"") for name in names]
    for name in names:
        store.delete(name)
    return sum(sizes)

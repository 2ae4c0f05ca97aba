"""The exact changes between two commits, usually of one commit against its first parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

from omnigraph.branching.delta import DELETE, INSERT, TableDelta, lifetime_delta
from omnigraph.branching.diff import GraphDiff, ListedChanges, WantedTypes, public_type_id
from omnigraph.branching.moments import Moment, SchemaHistory, moments, reclaimed_told
from omnigraph.branching.revisions import find_commit
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows
from omnigraph.branching.workers import Choose, InProcess, Workers
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.change import identity_of
from omnigraph.commit.schema.rebase import SchemaPath
from omnigraph.errors import ChangeDiffRefused, ChangeFeedGap, HistoricalVersionReclaimed
from omnigraph.model.arrow import arrow_type
from omnigraph.model.changes import ChangeBlock, ChangeFilter, CommitCause, EntityChange
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views import View, ViewedReader


def compare(
    schemas: SchemaHistory,
    before: Moment,
    after: Moment,
    wanted: WantedTypes,
    choose: Choose | None = None,
    *,
    target: Moment | None = None,
) -> GraphDiff:
    """The differences between two moments, of any branches and in either order.

    Both are shown with the names of the newest schema among them and the ``target``, as a merge
    would write them. If one branch has an older schema, its rows are compared as a merge would
    convert them: with the defaults of added properties, and in widened types. Raises
    `ChangeDiffRefused` if a schema change between them rewrote or dropped data.
    """
    catalogs = schemas.catalog_of(before.commit), schemas.catalog_of(after.commit)
    is_forward = not _has_newer_schema(schemas, before, after)
    first, last = (before, after) if is_forward else (after, before)
    is_beyond = target is not None and _has_newer_schema(schemas, target, last)
    if target is not None and is_beyond:
        last = target
    newer = schemas.catalog_of(last.commit)
    view = schemas.view(newer, *(each.state.branch for each in (before, after, last)))
    has_path = is_beyond or first.commit.commit_id not in last.state.commits
    sides = []
    for own, moment in zip(catalogs, (before, after), strict=True):
        path: SchemaPath | None = None
        rewritten = _rewritten(own, newer, moment)
        if rewritten is not None:
            if has_path:
                path = schemas.path(moment.commit, last.commit)
            if path is None or _dropped_property(own, newer, moment) is not None:
                raise _refused(after, rewritten, view)
        sides.append(_Side(moment, own, newer, path, view))
    rows = [
        (sides[0].rows(type), sides[1].rows(type))
        for type in _visible(_types(*catalogs, newer), view)
        if wanted.wants(type)
    ]
    found = _deltas(before.kernel, rows, choose if view is None else None)
    return GraphDiff(
        sides[0].own.snapshot,
        sides[1].own.snapshot,
        tuple(delta for delta in found if not delta.is_empty),
        wanted.wanted,
    )


def _has_newer_schema(schemas: SchemaHistory, one: Moment, other: Moment) -> bool:
    if one.commit.schema_hash == other.commit.schema_hash:
        return False
    return schemas.position(one.commit) > schemas.position(other.commit)


def _refused(after: Moment, type_name: str | None, view: View | None) -> ChangeDiffRefused:
    """The refusal for a rewritten type, which is named only if it is visible."""
    if type_name is not None and view is not None:
        shown = any(type.name == type_name for type in view.catalog.types)
        type_name = type_name if shown else None
    return ChangeDiffRefused("schema_boundary", after.commit.commit_id, type_name)


def _visible(types: list[TableType], view: View | None) -> list[TableType]:
    """The visible types with their visible properties."""
    if view is None:
        return types
    return [view.types[each.table_key].type for each in types if view.shows(each.table_key)]


def require_data_kept(schemas: SchemaHistory, before: Moment, after: Moment) -> None:
    """Check that a schema change between a commit and its parent kept every entity.

    Raises `ChangeDiffRefused` otherwise. Hidden types are ignored, as if they did not exist.
    """
    older, newer = _visible_types(schemas, before), _visible_types(schemas, after)
    lost = _dropped(older, newer, before) or _rewritten(older, newer, before)
    if lost is not None:
        raise ChangeDiffRefused("schema_boundary", after.commit.commit_id, lost)


class _Side:
    """The tables of one end, in the newer of two schemas."""

    def __init__(
        self,
        moment: Moment,
        own: Catalog,
        newer: Catalog,
        path: SchemaPath | None,
        view: View | None,
    ) -> None:
        self._moment = moment
        self.own = moment.reader(own)
        self._visible: SnapshotReader = self.own
        if own is not newer:
            self._visible = moment.reader_through(newer) if path is None else moment.forward(path)
        self._newer = set(map(identity_of, newer.types))
        if view is not None:
            self._visible = ViewedReader(self._visible, view)

    def rows(self, type: NodeType | EdgeType) -> TableRows | None:
        """The rows of a type; None if it did not exist."""
        identity = identity_of(type)
        if identity not in self._moment.pins:
            return None
        return TableRows(self._visible if identity in self._newer else self.own, type)


def _types(*catalogs: Catalog) -> list[NodeType | EdgeType]:
    """The types of all catalogs, each from the last one that has it: nodes before edges, by id."""
    found = {identity_of(type): type for catalog in catalogs for type in catalog.types}
    return sorted(
        found.values(), key=lambda type: (isinstance(type, EdgeType), public_type_id(type))
    )


def _deltas(
    kernel: Kernel,
    types: Sequence[tuple[TableRows | None, TableRows | None]],
    choose: Choose | None,
) -> list[TableDelta]:
    """The differences of each type, in order; a type of only one end differs as a whole."""
    pairs = {
        number: (before, after)
        for number, (before, after) in enumerate(types)
        if before is not None and after is not None
    }
    versions = [*pairs.values()]
    workers: Workers = InProcess(kernel)
    if choose is not None:
        workers = choose([each for pair in versions for each in (pair, pair[::-1])])
    found = dict(zip(pairs, workers.deltas(versions), strict=True))
    for number, (before, after) in enumerate(types):
        if before is None and after is not None:
            found[number] = lifetime_delta(after, INSERT, Spill())
        elif after is None and before is not None:
            found[number] = lifetime_delta(before, DELETE, Spill())
    return [found[number] for number in sorted(found)]


def _rewritten(older: Catalog, newer: Catalog, moment: Moment) -> str | None:
    """A type with rows in ``moment`` whose values a schema change rewrote or dropped."""
    if older is newer:
        return None
    now = {identity_of(type): type for type in newer.types}
    for type in older.types:
        identity = identity_of(type)
        if identity in now and moment.row_count(identity) and not _is_kept(type, now[identity]):
            return now[identity].name
    return None


def _dropped_property(older: Catalog, newer: Catalog, moment: Moment) -> str | None:
    """A type with entities of which a schema change dropped properties."""
    now = {identity_of(type): type for type in newer.types}
    for type in older.types:
        kept = now.get(identity_of(type))
        if kept is not None and moment.row_count(identity_of(type)):
            ids = {prop.property_id for prop in kept.properties.values()}
            if any(prop.property_id not in ids for prop in type.properties.values()):
                return kept.name
    return None


def _dropped(older: Catalog, newer: Catalog, moment: Moment) -> str | None:
    """A type with entities that a schema change dropped."""
    now = set(map(identity_of, newer.types))
    for type in older.types:
        if identity_of(type) not in now and moment.row_count(identity_of(type)):
            return type.name
    return None


def _is_kept(old: NodeType | EdgeType, new: NodeType | EdgeType) -> bool:
    """Whether entities keep all values, and have null for all added properties."""
    now = {prop.property_id: prop for prop in new.properties.values()}
    for prop in old.properties.values():
        kept = now.pop(prop.property_id, None)
        if kept is None or arrow_type(kept.type) != arrow_type(prop.type):
            return False
    return all(prop.type.nullable and prop.default is None for prop in now.values())


def diff_of(
    schemas: SchemaHistory,
    before: Moment,
    after: Moment,
    wanted: ChangeFilter,
    choose: Choose | None = None,
    *,
    target: Moment | None = None,
) -> GraphDiff:
    """The differences between two moments that pass a filter; raises as `compare` does.

    With a ``target``, ``before`` is the merge base of ``target`` and ``after``.
    """
    ends = [after, before]
    if target is not None and _has_newer_schema(schemas, target, after):
        ends.insert(0, target)
    types = WantedTypes.of(wanted, (_visible_types(schemas, end) for end in ends))
    found = compare(schemas, before, after, types, choose, target=target)
    return replace(found, direct=target is None)


def _visible_types(schemas: SchemaHistory, end: Moment) -> Catalog:
    """The visible types of a commit."""
    catalog = schemas.catalog_of(end.commit)
    view = schemas.view(catalog, end.state.branch)
    return catalog if view is None else view.catalog


@dataclass(frozen=True)
class CommitChanges:
    """The changes of one commit, with images before and after."""

    cause: CommitCause
    diff: GraphDiff | None = None
    """None if it was known without a comparison that no entity changed."""

    @cached_property
    def lists(self) -> tuple[ListedChanges, ...]:
        """The changes by type: nodes before edges, in the order of public type ids."""
        if self.diff is None:
            return ()
        return tuple(ListedChanges.of(delta, self.diff.wanted) for delta in self.diff.deltas)

    def __iter__(self) -> Iterator[EntityChange]:
        for changes in self.lists:
            yield from changes.read(images=True)

    def __len__(self) -> int:
        return sum(map(len, self.lists))

    def __str__(self) -> str:
        return "no differences" if self.diff is None else "\n".join(self.diff.count_lines())

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: first the cause, then every change."""
        return ChangeBlock(self.cause, tuple(self)).to_dict()


def commit_changes(
    kernel: Kernel, schemas: SchemaHistory, commit_id: str, wanted: ChangeFilter
) -> CommitChanges:
    """The changes of a commit of any branch, with the names of its own schema.

    A commit that changed no content, such as an `optimize`, has none. Raises `NotFound`,
    `ChangeDiffRefused` for the first commit of a graph and for a schema change that rewrote or
    dropped data, and `ChangeFeedGap` if a version that it needs was reclaimed.
    """
    return changes_between(kernel, schemas, *commit_step(kernel, commit_id), wanted)


def changes_between(
    kernel: Kernel, schemas: SchemaHistory, before: Moment, after: Moment, wanted: ChangeFilter
) -> CommitChanges:
    """The same for a commit that was already looked up."""
    today = kernel.manifest.main.state.head_snapshot().commit
    catalogs = schemas.named(today, after.commit, state=after.state)
    types = WantedTypes.of(wanted, catalogs)
    with gaps_told(before, after):
        return step_changes(schemas, before, after, types)


def commit_step(kernel: Kernel, commit_id: str) -> tuple[Moment, Moment]:
    """The moments before and after a commit of any branch.

    Raises `NotFound`, and `ChangeDiffRefused` for the first commit of a graph.
    """
    state, _ = find_commit(kernel, commit_id)
    commit = state.commits[commit_id]
    parent = state.commits.get(commit.parent_commit_id or "")
    if parent is None:
        raise ChangeDiffRefused("parentless_commit", commit_id)
    before, after = moments(kernel, state, [parent, commit])
    return before, after


@contextmanager
def gaps_told(before: Moment, after: Moment, cursor: str | None = None) -> Iterator[None]:
    """Within the block, reading removed versions of a commit raises `ChangeFeedGap`."""
    try:
        with reclaimed_told(before, after):
            yield
    except HistoricalVersionReclaimed as reclaimed:
        raise ChangeFeedGap(after.commit.commit_id, cursor) from reclaimed


def step_changes(
    schemas: SchemaHistory, before: Moment, after: Moment, wanted: WantedTypes
) -> CommitChanges:
    """The changes from a commit's parent to the commit; only tables with new versions are read.

    Raises `ChangeDiffRefused` and `HistoricalVersionReclaimed`.
    """
    cause = cause_of(after.commit)
    if before.commit.schema_hash != after.commit.schema_hash:
        # A schema change adds no entities, so the parent has all of them.
        require_data_kept(schemas, before, after)
        return CommitChanges(cause)
    if after.commit.kind == "maintenance" or before.pins == after.pins:
        return CommitChanges(cause)
    return CommitChanges(cause, compare(schemas, before, after, wanted))


def cause_of(row: CommitRow) -> CommitCause:
    """The commit as the cause of changes."""
    return CommitCause(
        row.commit_id,
        row.parent_commit_id,
        row.merged_parent_commit_id,
        row.branch or MAIN_BRANCH,
        row.actor_id,
        row.created_at,
    )

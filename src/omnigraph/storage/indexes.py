"""The indexes of a table: listing them, their coverage, and building missing ones.

An index covers fragments. Rows written later are in fragments that it does not cover, which are
scanned, so results are correct and only slower. Index names contain the field id, which does not
change with a rename: a new column that takes over the name of an old one gets its own index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import Index

from omnigraph.errors import InternalError
from omnigraph.model.records import dataclass
from omnigraph.model.types import IndexKind, IndexSpec, PendingIndex
from omnigraph.storage.failures import count_lance, lance_errors
from omnigraph.storage.upkeep_tasks import (
    THIS_PROCESS,
    BuildIndexPart,
    UpkeepWorkers,
    divided,
    vector_count,
)

PARTS_AT_ONCE_MAX = 4
"""The most parts of an index that workers build in parallel: every search reads all parts."""
PART_ROWS_MIN = 1_000_000


@dataclass(frozen=True, slots=True)
class TableIndex:
    """One index of a table at one version."""

    name: str
    spec: IndexSpec
    fragment_ids: frozenset[int]
    """The fragments of this version that it covers."""
    rows_covered: int
    rows_uncovered: int
    segments: tuple[Index, ...]
    """Its physical parts, which Lance needs to remove them."""


def indexes_of(handle: LanceDataset) -> list[TableIndex]:
    """The indexes of a table of the kinds that this product builds, sorted by name."""
    count_lance("indexes", handle.uri)
    rows = {fragment.fragment_id: fragment.metadata.num_rows for fragment in handle.get_fragments()}
    found = []
    with lance_errors(handle):
        for described in handle.describe_indices():
            spec = _spec_of(described)
            if spec is None:
                continue
            covered = {fragment for part in described.segments for fragment in part.fragment_ids}
            covered &= rows.keys()
            rows_covered = sum(rows[fragment] for fragment in covered)
            found.append(
                TableIndex(
                    described.name,
                    spec,
                    frozenset(covered),
                    rows_covered,
                    sum(rows.values()) - rows_covered,
                    tuple(
                        Index(
                            uuid=part.uuid,
                            name=described.name,
                            fields=list(described.fields),
                            dataset_version=part.dataset_version_at_last_update,
                            fragment_ids=part.fragment_ids,
                            index_version=part.index_version,
                        )
                        for part in described.segments
                    ),
                )
            )
    return sorted(found, key=lambda index: index.name)


def index_parts(handle: LanceDataset) -> list[tuple[IndexSpec | None, frozenset[int]]]:
    """The specs of all index parts and the fragments they cover; None for unknown kinds."""
    with lance_errors(handle):
        return [
            (_spec_of(described), frozenset(part.fragment_ids))
            for described in handle.describe_indices()
            for part in described.segments
        ]


def missing_indexes(handle: LanceDataset, wanted: Iterable[IndexSpec]) -> list[IndexSpec]:
    """The indexes of ``wanted`` that a table does not have.

    An index that no longer covers any fragment counts as missing: rewriting a fragment removes it
    from the ordered indexes.
    """
    useful = {index.spec for index in indexes_of(handle) if index.fragment_ids}
    return [spec for spec in wanted if spec not in useful]


def why_not_buildable(handle: LanceDataset, spec: IndexSpec) -> PendingIndex | None:
    """Why an index cannot be built on the present rows of a table; None if it can."""
    if spec.kind == "vector" and vector_count(handle, spec.column) == 0:
        return PendingIndex(spec.column, "there is no vector yet: every value is null")
    return None


def stage_indexes(
    handle: LanceDataset,
    specs: Sequence[IndexSpec],
    uuid: str,
    *,
    fold: Sequence[IndexSpec] = (),
    drop: Sequence[IndexSpec] = (),
    drop_parts: Sequence[str] = (),
    fold_without: frozenset[int] = frozenset(),
    workers: UpkeepWorkers = THIS_PROCESS,
    parts_max: int = PARTS_AT_ONCE_MAX,
) -> Transaction:
    """One transaction that builds ``specs`` over the whole table, replacing existing indexes.

    Indexes to ``fold`` get a further part for fragments they do not cover, except
    ``fold_without``. Indexes to ``drop`` are removed, and so are ``drop_parts``, by uuid. Several
    ``workers`` build at most ``parts_max`` parts of an index.
    """
    count_lance("index", handle.uri)
    known = indexes_of(handle)
    everything = frozenset(fragment.fragment_id for fragment in handle.get_fragments())
    gone = [
        part
        for index in known
        for part in index.segments
        if index.spec in specs or index.spec in drop or part.uuid in drop_parts
    ]
    with lance_errors(handle):
        most = min(workers.spread, parts_max)
        tasks = [task for spec in specs for task in _parts(handle, spec, everything, most)]
        by_spec = {index.spec: index for index in known}
        for spec in fold:
            # None if all of its parts have just been dropped.
            index = by_spec.get(spec)
            parts = () if index is None else index.segments
            kept = (part for part in parts if part.uuid not in drop_parts)
            missing = everything.difference(fold_without, *(part.fragment_ids for part in kept))
            tasks += _parts(handle, spec, missing, most, None if index is None else index.name)
        built = [BuildIndexPart.result(given) for given in workers.run(handle, tasks)]
    return Transaction(handle.version, LanceOperation.CreateIndex(built, gone), uuid=uuid)


def _parts(
    handle: LanceDataset,
    spec: IndexSpec,
    fragment_ids: Iterable[int],
    parts_max: int,
    part_of: str | None = None,
) -> list[BuildIndexPart]:
    """The tasks that build an index over some fragments, one per part."""
    fragments = sorted(fragment_ids)
    groups = [tuple(fragments)]
    if parts_max > 1 and spec.kind != "vector":  # each part would train its own partitions
        groups = list(divided(handle, fragments, parts_max, PART_ROWS_MIN))
    name = index_name(handle, spec)
    return [BuildIndexPart(spec, name, group, part_of) for group in groups]


def index_name(handle: LanceDataset, spec: IndexSpec) -> str:
    """The name that this product gives to an index."""
    field = handle.lance_schema.field(spec.column)
    if field is None:
        raise InternalError(f"{handle.uri} has no column {spec.column} to index")
    return f"{spec.column}_{spec.kind}_{field.id()}"


def is_named_by_us(handle: LanceDataset, index: TableIndex) -> bool:
    """Whether the name of an index is one of `index_name`; its column may have been renamed."""
    field = handle.lance_schema.field(index.spec.column)
    return field is not None and index.name.endswith(f"_{index.spec.kind}_{field.id()}")


def _spec_of(described: Any) -> IndexSpec | None:
    """The spec of an index of Lance; None for kinds that this product does not build."""
    kind = _kind_of(described.index_type)
    if kind is None or len(described.field_names) != 1:
        return None
    return IndexSpec(described.field_names[0], kind)


def _kind_of(index_type: str) -> IndexKind | None:
    match index_type:
        case "BTree":
            return "btree"
        case "Inverted":
            return "inverted"
        case ivf if ivf.startswith("IVF"):
            return "vector"
        case _:
            return None

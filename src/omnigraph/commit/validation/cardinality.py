"""`@card`: how many edges of a type each touched source has in the result."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.violations import Degree, Violation, violation
from omnigraph.model.arrow import SRC
from omnigraph.model.merging import ConflictKind
from omnigraph.schema.catalog import Cardinality, Catalog, EdgeType


def check_cardinality(type: EdgeType, catalog: Catalog, graph: ResultGraph) -> list[Violation]:
    """Every touched source with too few or too many edges, by its id.

    Touched are the sources of written edges, and the former sources of moved and deleted ones. A
    source that goes with the write is not counted.
    """
    if type.cardinality == Cardinality() or not graph.is_touched(type.table_key):
        return []
    sources = _touched_sources(type, catalog.nodes[type.source].table_key, graph)
    if not len(sources):
        return []
    counts = _count_edges(type, sources, graph)
    found = []
    low, high = type.cardinality.minimum, type.cardinality.maximum
    for limit, word, broken in (
        (low, "min", pc.less(counts, low)),
        (high, "max", None if high is None else pc.greater(counts, high)),
    ):
        if broken is None:
            continue
        for source, count in zip(
            sources.filter(broken).to_pylist(), counts.filter(broken).to_pylist(), strict=True
        ):
            text = f"source '{source}' has {count} edges ({word} {limit})"
            degree = Degree(source, too_few=word == "min")
            found.append((source, f"@card violation on edge {type.name}: {text}", degree))
    # A source breaks one of the two bounds at most. The edges counted are not to blame one by one.
    kind = ConflictKind.CARDINALITY_VIOLATION
    in_order = sorted(found, key=lambda each: each[0])
    return [violation(type, None, kind, text, degree=degree) for _, text, degree in in_order]


def _touched_sources(type: EdgeType, node_key: str, graph: ResultGraph) -> pa.Array:
    written = graph.written(type.table_key)
    touched = [graph.former(type.table_key, SRC)]
    if written is not None:
        touched += written[SRC].chunks
    sources = pc.unique(pa.chunked_array(touched, pa.string()))
    if graph.is_replaced(node_key):
        gone = graph.absent(node_key, sources)
    else:
        gone = graph.removed(node_key)
    return sources.filter(pc.invert(pc.is_in(sources, value_set=gone))) if len(gone) else sources


def _count_edges(type: EdgeType, sources: pa.Array, graph: ResultGraph) -> pa.Array:
    """The number of edges at each of ``sources``, none included."""
    written = graph.written(type.table_key)
    kept = graph.kept_where_in(type.table_key, SRC, sources, [SRC])
    # Ids are unique in a table, and a row that is written again is not among those kept.
    edges = [rows[SRC] for rows in (kept, written) if rows is not None]
    tally = pc.value_counts(pa.chunked_array([c for at in edges for c in at.chunks], pa.string()))
    position = pc.index_in(sources, value_set=tally.field("values"))
    return pc.fill_null(tally.field("counts").take(position), 0)

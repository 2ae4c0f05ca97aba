"""The one validator: what a mutation, a load and a merge must satisfy before they are staged.

It examines the final change set against the committed rows by lookup and is right for any mix of
appended, upserted, deleted and replaced tables. Values are checked first, then uniqueness, then
endpoints, then cardinality; within each, node types before edge types by name, then by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from omnigraph.commit.change_set import ChangeSet, GraphView
from omnigraph.commit.validation.cardinality import check_cardinality
from omnigraph.commit.validation.endpoints import check_endpoints
from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.uniqueness import check_uniqueness
from omnigraph.commit.validation.values import check_values
from omnigraph.commit.validation.violations import Violation
from omnigraph.errors import InternalError
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType

__all__ = ["Violation", "validate"]


def validate(
    change_set: ChangeSet,
    catalog: Catalog,
    view: GraphView,
    *,
    given: Mapping[str, pa.Table] | None = None,
    collect: bool = False,
) -> list[Violation]:
    """Raise the first violation as `ConstraintViolation`, or with ``collect`` return them all.

    ``view`` shows the branch as it is now, replaced types included or not: they count as empty.
    ``given`` holds, by type key, the one input batch the rows of a change come from, before records
    of the same id were folded into one. Within it no tuple may repeat, not even for one id. It
    needs `id` and the columns of keys and unique groups. A mutation has no such batches.
    """
    known = {node.table_key for node in catalog.nodes.values()}
    known |= {edge.table_key for edge in catalog.edges.values()}
    if unknown := sorted(change_set.tables.keys() - known):
        raise InternalError(f"a change set names types the schema does not have: {unknown}")
    found: list[Violation] = []
    for violations in _findings(ResultGraph(change_set, view), catalog, given or {}):
        if violations and not collect:
            raise violations[0].to_error()
        found += violations
    return found


def _findings(
    graph: ResultGraph, catalog: Catalog, given: Mapping[str, pa.Table]
) -> Iterator[list[Violation]]:
    """The violations of each rule and type, in the order they are reported."""
    nodes = [catalog.nodes[name] for name in sorted(catalog.nodes)]
    edges = [catalog.edges[name] for name in sorted(catalog.edges)]
    everything: list[NodeType | EdgeType] = [*nodes, *edges]
    for type in everything:
        yield check_values(type, graph)
    for type in everything:
        yield check_uniqueness(type, graph, given.get(type.table_key))
    for edge in edges:
        yield check_endpoints(edge, catalog, graph)
    for edge in edges:
        yield check_cardinality(edge, catalog, graph)

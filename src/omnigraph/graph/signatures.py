"""What the queries of a text are called, take, and do: for catalogues of stored queries."""

from __future__ import annotations

from pathlib import Path

from omnigraph.model.signatures import QuerySignature
from omnigraph.query.compile import check_query
from omnigraph.query.descriptor import describe_parameter
from omnigraph.query.parser import parse_query_file
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.source import Source


def signatures_of(
    source: str | Path | Source, catalog: Catalog, *, name: str | None = None
) -> tuple[QuerySignature, ...]:
    """The queries of a text in their order, or the one called ``name``.

    Raises the compile error of the first of them that does not match the catalog.
    """
    file = parse_query_file(source)
    plans = [
        check_query(query, file.source, catalog)
        for query in file.queries
        if name is None or query.name == name
    ]
    return tuple(
        QuerySignature(
            plan.name,
            isinstance(plan, MutationPlan),
            tuple(describe_parameter(parameter) for parameter in plan.parameters),
            plan.description,
            plan.instruction,
        )
        for plan in plans
    )

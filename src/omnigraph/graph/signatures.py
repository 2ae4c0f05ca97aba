"""What the queries of a text are called, take, and do: for catalogues of stored queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.query.check import check_query
from omnigraph.query.descriptor import FieldDescriptor, describe_parameter
from omnigraph.query.parser import parse_query_file
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.source import Source


@dataclass(frozen=True, slots=True)
class QuerySignature:
    """One query of a text, type-checked."""

    name: str
    is_mutation: bool
    parameters: tuple[FieldDescriptor, ...]
    description: str | None
    instruction: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; annotations that are absent are left out."""
        document: dict[str, Any] = {"name": self.name, "tool_name": self.name}
        if self.description is not None:
            document["description"] = self.description
        if self.instruction is not None:
            document["instruction"] = self.instruction
        document["mutation"] = self.is_mutation
        document["params"] = [parameter.to_dict() for parameter in self.parameters]
        return document


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

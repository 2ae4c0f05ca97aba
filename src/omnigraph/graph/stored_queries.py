"""Stored queries: which files hold them, and what each is called, takes and does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import InputError
from omnigraph.model.signatures import QuerySignature
from omnigraph.query.compile import check_query
from omnigraph.query.descriptor import describe_parameter
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source

SUFFIX = ".gq"


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


def query_files(paths: Iterable[Path]) -> list[Path]:
    """Each path itself, or the `.gq` files of a directory by name; raises `InputError`."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(each for each in path.glob(f"*{SUFFIX}") if each.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(
                f"there are no stored queries at {path}", hint="name a `.gq` file or a directory"
            )
    return files

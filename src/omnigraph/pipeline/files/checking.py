"""Checks a pipeline file against a graph: finds all problems at once, without reading rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.loading.edge_identity import check_edge_ids
from omnigraph.loading.formats.table_columns import (
    check_type,
    known_columns,
    missing_properties,
    target_of,
)
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.pipeline.files.document import Mapped, PipelineDocument, PipelineProblem
from omnigraph.pipeline.files.frames import Frames
from omnigraph.schema.catalog import Catalog, EdgeType, TableType
from omnigraph.schema.compile import compile_schema

CASTS = {
    "I32": "int",
    "I64": "bigint",
    "U32": "bigint",
    "U64": "decimal(20, 0)",
    "F32": "float",
    "F64": "double",
    "Bool": "boolean",
    "Date": "date",
    "DateTime": "timestamp",
    "String": "string",
}
"""By scalar of a property: the Spark type to cast to."""


def catalog_of(graph: Graph) -> Catalog:
    """The types of a graph."""
    return compile_schema(graph.schema_source, accepted=graph.accepted_ir).catalog


def type_named(mapped: Mapped, catalog: Catalog) -> TableType | None:
    """The type of a mapping; None if the graph has no such type."""
    if mapped.kind == "node":
        return catalog.nodes.get(mapped.type_name)
    return catalog.edges.get(mapped.type_name)


def graph_problems(
    document: PipelineDocument, graph: Graph, catalog: Catalog
) -> Iterator[PipelineProblem]:
    """The mismatches with the graph that can be found without Spark."""
    branches = graph.list_branches()
    for key, name in (("from", document.base), ("merge_into", document.merge_into)):
        if name is not None and name not in branches:
            hint = name_hint(name, branches, "branches")
            yield document.problem(("target", key), f"there is no branch `{name}`", hint)
    for mapped in document.mappings:
        if type_named(mapped, catalog) is None:
            known = catalog.nodes if mapped.kind == "node" else catalog.edges
            hint = name_hint(mapped.type_name, known, f"{mapped.kind} types")
            message = f"there is no {mapped.kind} type `{mapped.type_name}`"
            yield document.problem(mapped.path[:2], message, hint)
    yield from _different_columns(document)
    yield from _check_problems(document, graph)
    yield from _embed_problems(document, catalog)


def _different_columns(document: PipelineDocument) -> Iterator[PipelineProblem]:
    """Several mappings of one type go into one table, so they must have the same columns."""
    first: dict[tuple[str, str], set[str] | None] = {}
    for mapped in document.mappings:
        given = None if mapped.keys.map is None else set(mapped.keys.map)
        before = first.setdefault((mapped.kind, mapped.type_name), given)
        if before != given:
            differs = ", ".join(sorted((before or set()) ^ (given or set()))) or "no `map`"
            yield document.problem(
                (*mapped.path, "map"),
                f"the mappings of {mapped.type_name} give different properties: {differs}",
                "give each the same ones; `null` is an expression",
            )


def _check_problems(document: PipelineDocument, graph: Graph) -> Iterator[PipelineProblem]:
    for at, check in enumerate(document.keys.checks):
        path = Path(document.resolved(check.file))
        try:
            queries = {each.name: each for each in graph.describe_queries(path)}
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            yield document.problem(("checks", at, "file"), f"{path}: {reason}")
            continue
        except InputError as error:
            sentence = error.render().partition("\n")[0]
            yield document.problem(("checks", at, "file"), sentence, error.hint)
            continue
        if check.query is None and len(queries) != 1:
            hint = f"they are {', '.join(queries)}"
            yield document.problem(
                ("checks", at), f"{check.file} has {len(queries)} queries: say which", hint
            )
        elif check.query is not None and check.query not in queries:
            hint = name_hint(check.query, queries, "queries")
            message = f"{check.file} has no query `{check.query}`"
            yield document.problem(("checks", at, "query"), message, hint)
        else:
            chosen = queries[check.query] if check.query else next(iter(queries.values()))
            if chosen.is_mutation:
                yield document.problem(
                    ("checks", at, "query"), f"`{chosen.name}` writes, and a check only reads"
                )
            taken = [each.name for each in chosen.parameters]
            for name in check.params:
                if name not in taken:
                    known = name_hint(name, taken, "parameters") if taken else None
                    message = f"`{chosen.name}` has no parameter `{name}`"
                    yield document.problem(("checks", at, "params", name), message, known)


def _embed_problems(document: PipelineDocument, catalog: Catalog) -> Iterator[PipelineProblem]:
    for at, embed in enumerate(document.keys.embed):
        node = catalog.nodes.get(embed.type)
        if node is None:
            hint = name_hint(embed.type, catalog.nodes, "node types")
            yield document.problem(
                ("embed", at, "type"), f"there is no node type `{embed.type}`", hint
            )
            continue
        prop = node.properties.get(embed.property)
        vectors = [name for name, each in node.properties.items() if each.embed is not None]
        if prop is None or prop.embed is None:
            yield document.problem(
                ("embed", at, "property"),
                f"{embed.type} has no vector `{embed.property}` with `@embed`",
                name_hint(embed.property, vectors, f"vectors of {embed.type}") if vectors else None,
            )
        elif any(
            embed.property in (each.keys.map or {})
            for each in document.mappings
            if each.kind == "node" and each.type_name == embed.type
        ):
            yield document.problem(
                ("embed", at, "property"),
                f"{embed.type}.{embed.property} is mapped under `nodes` already",
                "leave out one of the two",
            )
        elif not prop.type.nullable:
            yield document.problem(
                ("embed", at, "property"),
                f"{embed.type}.{embed.property} is required, so that no node can be loaded before"
                " its vector is computed",
                f"declare it `{embed.property}: {prop.type}?`",
            )


def frame_problems(
    document: PipelineDocument, frames: Frames, catalog: Catalog
) -> Iterator[PipelineProblem]:
    """The problems of sources and mappings that Spark's analyzer and the graph's schema show."""
    # Spark's errors in sources and transforms first, in the order of the file.
    columns: list[tuple[Mapped, Mapping[str, Any]]] = [
        (mapped, frames.checked_columns(mapped))
        for mapped in document.mappings
        if mapped.keys.source in frames.steps
    ]
    yield from frames.problems
    for mapped, found in columns:
        type = type_named(mapped, catalog)
        if type is not None:
            planned = frames.columns_of(mapped) or {}
            yield from _column_problems(document, mapped, type, found, planned, catalog=catalog)
            given = {target_of(name, type) for name in {*found, *planned}} - {None}
            yield from _missing_columns(document, mapped, type, given)


def _column_problems(
    document: PipelineDocument,
    mapped: Mapped,
    type: TableType,
    found: Mapping[str, Any],
    planned: Mapping[str, tuple[tuple[str | int, ...], str]],
    *,
    catalog: Catalog,
) -> Iterator[PipelineProblem]:
    """Problems of columns without a property, and of columns whose type does not fit it."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    for name, spark_type in found.items():
        path = planned[name][0] if name in planned else mapped.path
        target = target_of(name, type)
        if target is None:
            yield document.problem(
                path, f"{type.name} has no property `{name}`", known_columns(name, type)
            )
            continue
        try:
            arrow = to_arrow_schema(StructType([StructField(name, spark_type)]), timezone="UTC")
            check_type(arrow.field(0), target, type, catalog, mapped.keys.source)
        except OmnigraphError:
            wanted = _wanted(type, target)
            text = planned[name][1] if name in planned else name
            yield document.problem(
                path,
                f"`{text}` is {spark_type.simpleString()}, and {type.name}.{target} is {wanted}",
                _cast_hint(text, wanted),
            )


def _missing_columns(
    document: PipelineDocument, mapped: Mapped, type: TableType, given: Collection[str | None]
) -> Iterator[PipelineProblem]:
    """Problems of required columns that a mapping lacks."""
    keeps = document.keys.mode == "merge" and document.keys.absent == "keep"
    known = [name for name in given if name is not None]
    for name in missing_properties(type, known, keeps_absent=keeps):
        prop = type.properties[name]
        yield document.problem(
            mapped.path, f"does not map `{name}`, which is required", f"its type is {prop.type}"
        )
    if isinstance(type, EdgeType):
        for end in (SRC, DST):
            if end not in given:
                yield document.problem(
                    mapped.path, f"does not say `{end}`", "every edge names both its nodes"
                )
    if document.keys.mode == "merge":
        try:
            check_edge_ids(type, has_ids=ID in given, lacks_ids=ID not in given)
        except InputError as error:
            yield document.problem(mapped.path, error.message, error.hint)


def _wanted(type: TableType, target: str) -> str:
    if target in type.properties:
        return str(type.properties[target].type)
    return "the id or key of a node" if target in (SRC, DST) else "String"


def _cast_hint(text: str, wanted: str) -> str | None:
    inner = wanted.rstrip("?")
    if inner in CASTS:
        return f"write `cast({text} as {CASTS[inner]})`, or `try_cast` to make null of bad values"
    if inner.startswith("["):
        return f"write `split({text}, ';')` if it is a list in one text"
    return None

"""A first pipeline file for a graph and some files, with comments, to be edited."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import orc

from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.loading.files import COMPRESSED, Files
from omnigraph.loading.records.absence import is_needed
from omnigraph.model.records import dataclass
from omnigraph.pipeline.files.checking import CASTS, catalog_of
from omnigraph.schema.catalog import EdgeType, NodeType, Property, TableType

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
}
SIMILAR = 0.75
_DELIMITERS = ",;|\t"


@dataclass(frozen=True, slots=True)
class _SourceFile:
    """A file that becomes a source."""

    name: str
    path: str
    """The path as written in the pipeline file."""
    format: str
    columns: Mapping[str, bool]
    """By column: whether it is text."""
    delimiter: str = ","


def starter_text(name: str, graph: Graph, folder: Path, files: Sequence[Path]) -> str:
    """The text of a pipeline file in ``folder`` that maps files to the types of a graph.

    Raises `InputError` for a file whose columns cannot be read.
    """
    tables = [_table(path, folder) for path in files]
    catalog = catalog_of(graph)
    where = graph.uri if "://" in graph.uri else os.path.relpath(graph.uri, folder)
    lines = [
        "# Written by `omnigraph pipeline init`. Look at every line, then try",
        "# `omnigraph pipeline validate`, `plan` and `run`.",
        "version: 1",
        f"name: {name}",
        f"graph: {_quoted(where)}",
        "",
        "# Rows are loaded on a branch, checked there, and merged if every check passes.",
        f"target: {{branch: pipeline/{name}, from: main, merge_into: main, delete_branch: true}}",
        "mode: merge",
        "",
        "# Anything that Spark reads. `incremental: files` reads only files that are new.",
        "sources:",
        *(line for table in tables for line in _source_lines(table)),
        "",
        "# Queries in Spark SQL over sources and other transforms:",
        "# transforms:",
        "#   clean: {sql: select distinct * from people}",
        "",
        "# For each property an expression over the columns of a source or transform.",
    ]
    for kind, types in (("nodes", catalog.nodes), ("edges", catalog.edges)):
        if types:
            several: Mapping[str, TableType] = types
            mapped = [
                line
                for type in several.values()
                for line in _type_lines(type, tables, catalog.nodes)
            ]
            is_empty = all(line.lstrip().startswith("#") for line in mapped)
            lines += [f"{kind}: {{}}" if is_empty else f"{kind}:", *mapped]
    lines += [
        "",
        "# Queries of a `.gq` file that decide whether the branch is merged:",
        "# checks:",
        "#   - {name: no-orphans, file: checks.gq, query: orphans, expect: empty}",
    ]
    return "\n".join(lines) + "\n"


# --- files ----------------------------------------------------------------------------------------


def _table(path: Path, folder: Path) -> _SourceFile:
    suffixes = [each for each in path.suffixes if each not in COMPRESSED]
    format = FORMATS.get(suffixes[-1].lower() if suffixes else "")
    if format is None:
        raise InputError(
            f"{path} does not say what it is",
            hint=f"names end in {', '.join(FORMATS)}; add other sources to the file by hand",
            details={"file": str(path)},
        )
    name = re.sub(r"\W+", "_", path.name.partition(".")[0]) or "source"
    name = name if not name[0].isdigit() else f"_{name}"
    shown = os.path.relpath(path.absolute(), folder.absolute())
    try:
        if format == "csv":
            delimiter, columns = _csv_columns(path)
            return _SourceFile(name, shown, format, dict.fromkeys(columns, True), delimiter)
        return _SourceFile(name, shown, format, _typed_columns(path, format))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}", details={"file": str(path)}) from error


def _first_line(path: Path) -> str:
    with Files().stream(str(path)) as stream:
        text: str = stream.read(1 << 16).decode("utf-8-sig", errors="replace")
    return text.partition("\n")[0]


def _csv_columns(path: Path) -> tuple[str, list[str]]:
    line = _first_line(path)
    delimiter = max(_DELIMITERS, key=line.count)
    return delimiter, next(csv.reader([line.rstrip("\r")], delimiter=delimiter), [])


def _typed_columns(path: Path, format: str) -> dict[str, bool]:
    if format == "json":
        record = json.loads(_first_line(path))
        if not isinstance(record, dict):
            raise ValueError("its first line is no JSON object")
        return {name: isinstance(value, str) for name, value in record.items()}
    schema = pq.read_schema(path) if format == "parquet" else orc.ORCFile(path).schema
    return {each.name: str(each.type).endswith("string") for each in schema}


# --- lines ----------------------------------------------------------------------------------------


def _source_lines(table: _SourceFile) -> Iterator[str]:
    options = ""
    if table.format == "csv":
        delimiter = "" if table.delimiter == "," else f", sep: {json.dumps(table.delimiter)}"
        options = f", options: {{header: true{delimiter}}}"
    yield f"  {table.name}: {{format: {table.format}, path: {_quoted(table.path)}{options}}}"


def _type_lines(
    type: TableType, tables: Sequence[_SourceFile], nodes: Mapping[str, NodeType]
) -> Iterator[str]:
    table = _best(type, tables)
    if table is None:
        ends = ", src: …, dst: …" if isinstance(type, EdgeType) else ""
        yield f"  # no file fits: {type.name}: {{from: …{ends}, map: {{…}}}}"
        return
    yield f"  {type.name}:"
    yield f"    from: {table.name}"
    if isinstance(type, EdgeType):
        found = _ends(type, table, nodes)
        for end, column, node in zip(
            ("src", "dst"), found, (type.source, type.target), strict=True
        ):
            if column is None:
                columns = ", ".join(table.columns)
                yield f"    # {end}: …  # the key of a {node}; columns: {columns}"
            else:
                yield f"    {end}: {_expression(column)}"
    mapped = {name: _column(name, table) for name in type.properties}
    if not any(mapped.values()):
        return
    yield "    map:"
    for name, prop in type.properties.items():
        column = mapped[name]
        if column is not None:
            yield f"      {name}: {_quoted(_converted(column, prop, table))}"
        elif is_needed(prop):
            yield f"      # {name}: …  # {prop.type}, required"


def _best(type: TableType, tables: Sequence[_SourceFile]) -> _SourceFile | None:
    """The file whose name or columns are most similar to the type."""

    def score(table: _SourceFile) -> float:
        named = _similarity(type.name, table.name)
        found = [name for name in type.properties if _column(name, table) is not None]
        shared = len(found) / max(1, len(type.properties))
        if isinstance(type, NodeType) and type.key and not set(type.key) <= set(found):
            shared = 0.0
        return named + shared

    best = max(tables, key=score, default=None)
    return best if best is not None and score(best) >= SIMILAR else None


def _column(name: str, table: _SourceFile) -> str | None:
    best = max(table.columns, key=lambda column: _similarity(name, column), default=None)
    return best if best is not None and _similarity(name, best) >= SIMILAR else None


def _ends(
    type: EdgeType, table: _SourceFile, nodes: Mapping[str, NodeType]
) -> tuple[str | None, str | None]:
    """The columns that are likely to hold the two ends of an edge."""
    for ends in (("from", "to"), ("src", "dst"), ("source", "target")):
        if set(ends) <= set(table.columns):
            return ends
    found: list[str | None] = []
    for end in (type.source, type.target):
        key = nodes[end].key if end in nodes else ()
        named = (_column(name, table) for name in (end, *key))
        found.append(next((each for each in named if each is not None and each not in found), None))
    return found[0], found[1]


def _similarity(one: str, other: str) -> float:
    """From 0 to 1; a name that is a word of the other scores almost 1."""
    plain, column = (re.sub(r"[\W_]|s$", "", each.lower()) for each in (one, other))
    if one.lower() in re.split(r"[\W_]+", other.lower()):
        return max(0.9, SequenceMatcher(a=plain, b=column).ratio())
    return SequenceMatcher(a=plain, b=column).ratio()


def _converted(column: str, prop: Property, table: _SourceFile) -> str:
    """The column as an expression of the type that the property has."""
    expression = _expression(column)
    kind = str(prop.type).rstrip("?")
    if not table.columns[column] or kind == "String" or kind.startswith("enum"):
        return expression
    if kind.startswith("["):
        return f"split({expression}, ';')"
    return f"cast({expression} as {CASTS[kind]})" if kind in CASTS else expression


def _expression(column: str) -> str:
    """A column as Spark SQL names it."""
    return column if re.fullmatch(r"[A-Za-z_]\w*", column) else f"`{column}`"


def _quoted(text: str) -> str:
    """A text quoted for YAML."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w./ ()]*[\w./()]|[A-Za-z_]", text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)

"""A proposed schema as text, with the arguments of a load that fits it."""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph import __version__
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.local_disk import flush_directory
from omnigraph.effects.uri import Root
from omnigraph.errors import AlreadyInitialized, InputError, NotFound
from omnigraph.graph import Graph, init, open_graph
from omnigraph.inference.proposal import InferredProperty, InferredType, counted, propose, quoted
from omnigraph.inference.tables import InferredTable, Source, tables_of
from omnigraph.model.load_options import CsvOptions, checked_options
from omnigraph.model.receipts import LoadReceipt
from omnigraph.model.records import dataclass
from omnigraph.schema.compile import compile_schema

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.model.receipts import LoadReceipt

SCHEMA_FILE = "schema.pg"
GRAPH = "graph.omni"
_PLAIN_COLUMN = re.compile(r"[^\s#`\"()]([^`()]*[^\s`()])?")
"""Names that a mapping takes for columns without quotes."""


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """The result of `infer_schema`: a schema, and the arguments of a load that fits it."""

    types: tuple[InferredType, ...]
    text: str
    """The schema; comments explain the choices."""
    load_arguments: Mapping[str, Any] = field(repr=False)
    """For `Graph.load`: `nodes`, `edges`, `frames`, `map`, `where` and `csv`, as needed."""

    @property
    def findings(self) -> list[str]:
        """What to check before the schema is used, one sentence each."""
        return list(chain.from_iterable(map(_findings, self.types)))

    @property
    def init_command(self) -> str:
        """The command that creates a graph, after the text is saved as `schema.pg`."""
        return f"omnigraph init --schema {SCHEMA_FILE} {GRAPH}"

    @property
    def load_command(self) -> str | None:
        """The command that loads the files into the graph; None if there are frames among them."""
        return None if "frames" in self.load_arguments else _command(self.load_arguments)

    def create_graph(
        self, uri: str, *, actor: str | None = None, **load_options: Any
    ) -> tuple[Graph, LoadReceipt]:
        """A new graph with the schema and all rows; ``load_options`` are those of `Graph.load`.

        If anything fails, no graph is left. Raises `AlreadyInitialized` if there is a graph at the
        place, and the errors of `init` and `load`.
        """

        return create_graph(uri, self.text, {**self.load_arguments, **load_options}, actor=actor)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        load = {name: value for name, value in self.load_arguments.items() if name != "frames"}
        if (csv := load.get("csv")) is not None:
            load["csv"] = dict(_csv_texts(csv))
        return {
            "schema": self.text,
            "types": [_type_dict(each) for each in self.types],
            "findings": self.findings,
            "load": load,
            "commands": [each for each in (self.init_command, self.load_command) if each],
        }


def infer_schema(
    sources: Source | Sequence[Source] | Mapping[str, Any], *, csv: CsvOptions | None = None
) -> InferredSchema:
    """A schema for files and frames, with the arguments of a load that fits it.

    ``sources`` are paths of CSV, JSON, Parquet, ORC, Avro, Arrow or Lance files, directories or
    patterns, one for each type; or paths and pandas, Polars or Arrow frames by the names of their
    types. All rows are read. Columns of unique values become keys, columns with keys of other
    tables become the ends of edges. ``csv`` tells how cells are separated, for all CSV files, by
    type or by file; columns in which a cell has the separator of lists become lists of texts.
    Raises `InputError` if an input cannot be read.

    >>> inferred = infer_schema(["airports.csv", "flights.csv"])  # doctest: +SKIP
    >>> graph = og.init("air.omni", inferred.text)  # doctest: +SKIP
    >>> graph.load(mode="append", **inferred.load_arguments)  # doctest: +SKIP
    """
    csv = checked_options(csv, CsvOptions, "csv")
    tables = tables_of(sources, csv)
    types = tuple(propose(tables))
    arguments = _load_arguments(types, {table.type_name: table for table in tables})
    command = None if "frames" in arguments else _command(arguments)
    text = "".join(f"{line}\n" for line in _lines(types, command))
    compile_schema(text)
    return InferredSchema(types, text, arguments)


# --- the load -------------------------------------------------------------------------------------


def _load_arguments(
    types: Sequence[InferredType], tables: Mapping[str, InferredTable]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for type in types:
        table = tables[type.table]
        if table.source is None:
            arguments.setdefault("frames", {})[type.name] = table.frame
        else:
            arguments.setdefault(f"{type.kind}s", {})[type.name] = table.source
        if columns := dict(_mapped(type, table)):
            arguments.setdefault("map", {})[type.name] = columns
        if conditions := dict(_not_empty(type, table)):
            arguments.setdefault("where", {})[type.name] = conditions
    csv = {name: _by_type(types, tables, name) for name in ("delimiter", "list_separator")}
    if any(csv.values()):
        arguments["csv"] = CsvOptions(**csv)
    return arguments


def _by_type(
    types: Sequence[InferredType], tables: Mapping[str, InferredTable], option: str
) -> str | dict[str, str] | None:
    """An option of CSV files: one text for all of them, or by type."""
    found: dict[str, str | None] = {
        each.name: getattr(tables[each.table].mapping, option) for each in types
    }
    given = {name: text for name, text in found.items() if text is not None}
    if len(given) == len(found) and len(set(given.values())) == 1:
        return next(iter(given.values()))
    return given or None


def _not_empty(type: InferredType, table: InferredTable) -> Iterator[tuple[str, None]]:
    """Conditions for rows that have both ends of an edge."""
    names = Counter(column.name for column in table.columns.values())
    for end in type.ends or ():
        if end.empty:
            text = _column_text(end.key, end.column, names[end.column] > 1, type)
            yield f"{text}!", None


def _mapped(type: InferredType, table: InferredTable) -> Iterator[tuple[str, str | None]]:
    """The columns with another name than their property, and those without a property."""
    targets: dict[int | str, str] = {each.key: each.name for each in type.properties}
    if type.ends is not None:
        targets |= {type.ends[0].key: "from", type.ends[1].key: "to"}
    names = Counter(column.name for column in table.columns.values())
    for key, column in table.columns.items():
        target = targets.get(key)
        if target != column.name:
            yield _column_text(key, column.name, names[column.name] > 1, type), target


def _column_text(key: int | str, name: str, is_repeated: bool, type: InferredType) -> str:
    """The name of a column in a mapping."""
    if not is_repeated and _PLAIN_COLUMN.fullmatch(name):
        return name
    if not is_repeated and name and "`" not in name:
        return f"`{name}`"
    if isinstance(key, int):
        return f"#{key + 1}"
    raise InputError(
        f"{type.source} has a member called {quoted(name)}, which no mapping can name",
        hint="rename it in the file",
        details={"file": type.source},
    )


def _command(arguments: Mapping[str, Any]) -> str:
    words = ["omnigraph", "load", "--store", GRAPH]
    for kind in ("node", "edge"):
        for name, path in arguments.get(f"{kind}s", {}).items():
            words += [f"--{kind}", f"{name}={path}"]
    for name, columns in arguments.get("map", {}).items():
        for column, target in columns.items():
            words += ["--map", f"{name}:{column}={target or ''}"]
    for name, conditions in arguments.get("where", {}).items():
        words += [word for column in conditions for word in ("--where", f"{name}:{column}=")]
    for option, given in _csv_texts(arguments.get("csv") or CsvOptions()):
        flag = f"--{option.replace('_', '-')}"
        texts = [given] if isinstance(given, str) else [f"{k}:{v}" for k, v in given.items()]
        words += [word for text in texts for word in (flag, text)]
    return shlex.join([*words, "--mode", "append"])


def _csv_texts(csv: CsvOptions) -> Iterator[tuple[str, str | Mapping[str, str]]]:
    """The given options, in the form of `_load_arguments`."""
    for name in ("delimiter", "list_separator"):
        if (given := getattr(csv, name)) is not None:
            yield name, given


# --- the text -------------------------------------------------------------------------------------


def _lines(types: Sequence[InferredType], command: str | None) -> Iterator[str]:
    yield f"// Inferred by omnigraph {__version__}. Edit it before the graph is created:"
    yield f"// omnigraph init --schema {SCHEMA_FILE} {GRAPH}"
    if command is not None:
        yield f"// {_in_comment(command)}"
    for type in types:
        yield ""
        yield from _type_lines(type)


def _type_lines(type: InferredType) -> Iterator[str]:
    yield _comment(f"{type.source}: {counted(type.rows, 'row')}")
    for note in _type_notes(type):
        yield _comment(note)
    for column, reason in type.left_out:
        yield _comment(f"left out: column {quoted(column)}, because it has {reason}")
    if type.ends is None:
        yield f"node {type.name} {{"
    else:
        yield f"edge {type.name}: {type.ends[0].node} -> {type.ends[1].node} {{"
    for prop in type.properties:
        yield _property_line(prop, is_key=type.key == (prop.name,))
    if type.ends is not None and type.key:
        reason = f"no repetition in {counted(type.rows, 'row')}"
        yield f"    @key({', '.join(type.key)}) {_comment(reason)}"
    yield "}"


def _type_notes(type: InferredType) -> Iterator[str]:
    if type.ends is not None:
        for word, end in zip(("from", "to"), type.ends, strict=True):
            key = f"{end.node}.{end.key_property}"
            yield f"{word}: column {quoted(end.column)} holds values of {key}"
    yield from type.notes


def _property_line(prop: InferredProperty, *, is_key: bool) -> str:
    line = f"    {prop.name}: {prop.type}{' @key' if is_key else ''}"
    return f"{line} {_comment('; '.join(prop.notes))}" if prop.notes else line


def _comment(text: str) -> str:
    return f"// {_in_comment(text)}"


def _in_comment(text: str) -> str:
    """A text on one line: names of files and columns may have line breaks."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _findings(type: InferredType) -> Iterator[str]:
    yield from (f"{type.name}: {note}" for note in type.notes)
    for column, reason in type.left_out:
        yield f"{type.name}: column {quoted(column)} is left out, because it has {reason}"


def _type_dict(type: InferredType) -> dict[str, Any]:
    return {
        "kind": type.kind,
        "name": type.name,
        "source": type.source,
        "rows": type.rows,
        "key": list(type.key),
        **(
            {}
            if type.ends is None
            else {
                name: {"column": end.column, "type": end.node, "property": end.key_property}
                for name, end in zip(("from", "to"), type.ends, strict=True)
            }
        ),
        "properties": [
            {
                "name": each.name,
                "column": each.column,
                "type": str(each.type),
                "notes": list(each.notes),
            }
            for each in type.properties
        ],
        "left_out": [{"column": column, "reason": reason} for column, reason in type.left_out],
        "notes": list(type.notes),
    }


# --- the graph of an inferred schema --------------------------------------------------------------

# Creates a new graph with all rows, or none.
#
# On local disk the graph is built beside its place, under a name that begins with a dot, and
# renamed when it is complete. A process that is killed leaves only that folder. Object stores
# cannot rename: there the graph is built in its place, and removed again if anything fails.

_HINT = "choose another place; `omnigraph load` adds to a graph that exists"


def create_graph(
    uri: str, schema: str, load: Mapping[str, Any], *, actor: str | None
) -> tuple[Graph, LoadReceipt]:
    """The graph at ``uri``, and the receipt of its first load; ``load`` are arguments of that."""
    root = Root.parse(uri)
    if root.path is None:
        return _built_in_place(root, schema, load, actor)
    target = root.path
    _require_vacant(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{Kernel.of(root).ids.ulid()}.importing")
    try:
        graph, receipt = _loaded(str(staged), schema, load, actor)
        graph.close()
        staged.replace(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    flush_directory(target.parent)
    return open_graph(uri), receipt


def _built_in_place(
    root: Root, schema: str, load: Mapping[str, Any], actor: str | None
) -> tuple[Graph, LoadReceipt]:
    store = Kernel.of(root).store
    if store.list():
        raise AlreadyInitialized(f"{root} holds objects already", hint=_HINT)
    try:
        return _loaded(root.uri, schema, load, actor)
    except BaseException:
        for name in store.list():
            store.delete(name)
        raise


def _loaded(
    uri: str, schema: str, load: Mapping[str, Any], actor: str | None
) -> tuple[Graph, LoadReceipt]:
    graph = init(uri, schema, actor=actor)
    return graph, graph.load(mode="append", actor=actor, **load)


def _require_vacant(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        open_graph(target, "read_only")
    except NotFound:
        raise InputError(
            f"{target} is there already, and is no graph", hint="choose another place"
        ) from None
    raise AlreadyInitialized(f"{target} already holds a graph", hint=_HINT)

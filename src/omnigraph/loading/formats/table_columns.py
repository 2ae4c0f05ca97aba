"""Mapping the columns of a table to properties, endpoints and id, by name and type.

Values are converted by `loading.records`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.loading.records.absence import is_needed, lackable
from omnigraph.loading.records.problems import closest, name_hint
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.arrow_columns import accepts, declared_type
from omnigraph.model.references import END_TYPES, RECORD_END_TYPES
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Catalog, EdgeType, TableType

ENDS = {"from": SRC, "to": DST, SRC: SRC, DST: DST}
"""Names that columns of endpoints may have."""
_END_TYPE_COLUMNS = {
    name: (shown, end)
    for end, shown in END_TYPES.items()
    for name in (shown, RECORD_END_TYPES[end])
}
"""Names of columns that give the node type at an end that is an interface."""
UNKNOWN_LEFT_OUT = (
    "or leave out what is unknown with --ignore-unknown (ErrorOptions(ignore_unknown=True))"
)
_TEXT = ValueType(Scalar.STRING, nullable=True)


def mapped_columns(
    schema: pa.Schema,
    type: TableType,
    catalog: Catalog,
    source: str,
    *,
    texts: Collection[str] = (),
    ignore_unknown: bool,
    folder_values: Collection[str] = (),
    keeps_absent: bool = False,
) -> dict[str, int]:
    """The index of the column for each property, endpoint or id.

    ``folder_values`` are properties from partition folders, which need no column.
    ``keeps_absent``: required properties need none either, except the key. Columns in ``texts`` are
    cells of text, or lists of them, which may hold any value. Raises `InputError` naming the
    columns that are unknown, or the first that is missing or of an unsuitable type.
    """
    mapped: dict[str, int] = {}
    unknown = [] if ignore_unknown else [n for n in schema.names if target_of(n, type) is None]
    if unknown:
        first, *others = unknown
        also = f" (also {', '.join(repr(name) for name in others)})" if others else ""
        message = f"unknown column '{first}'{also}"
        raise refused_column(source, type, first, message, _unknown_hint(unknown, type))
    for index, column in enumerate(schema):
        name = target_of(column.name, type)
        if name is None:
            continue
        if name in mapped:
            raise refused_column(
                source, type, column.name, f"column '{name}' is there twice", "keep one of them"
            )
        mapped[name] = index
        if column.name not in texts:
            check_type(column, name, type, catalog, source)
        elif pa.types.is_list(column.type):
            _check_list(column, name, type, source)
    for name in missing_properties(type, [*mapped, *folder_values], keeps_absent=keeps_absent):
        raise refused_column(
            source,
            type,
            name,
            f"there is no column '{name}', which is required",
            f"its type is {type.properties[name].type}",
        )
    for name, shown in ((SRC, "from"), (DST, "to")):
        if isinstance(type, EdgeType) and name not in mapped:
            raise refused_column(
                source,
                type,
                shown,
                f"there is no column '{shown}'",
                "every edge names both its nodes",
            )
    return mapped


def target_of(column: str, type: TableType) -> str | None:
    """The property, endpoint or id that a column of this name holds; None for none."""
    if isinstance(type, EdgeType):
        if column in ENDS:
            return ENDS[column]
        name, end = _END_TYPE_COLUMNS.get(column, ("", ""))
        if end in type.end_types:
            return name
    return column if column in type.properties or column == ID else None


def known_columns(column: str, type: TableType) -> str:
    """A hint with the nearest name, or all names, that a column may have."""
    return name_hint(column, _column_names(type), f"columns of {type.name}")


def _column_names(type: TableType) -> list[str]:
    ends: tuple[str, ...] = ()
    if isinstance(type, EdgeType):
        ends = ("from", "to", *(RECORD_END_TYPES[end] for end in type.end_types))
    return [*type.properties, ID, *ends]


def _unknown_hint(columns: Sequence[str], type: TableType) -> str:
    """Properties that unknown columns may stand for, with the arguments that map them."""
    nearest = {name: closest(name, _column_names(type)) for name in columns}
    flags = " ".join(
        word
        for name, meant in nearest.items()
        if meant is not None and _PLAIN_NAME.fullmatch(name)
        for word in ("--map", shlex.quote(f"{type.name}:{name}={meant}"))
    )
    mapped = f" map it with {flags} (map= in Python)" if flags else ""
    return f"{known_columns(columns[0], type)}{mapped}; {UNKNOWN_LEFT_OUT}"


_PLAIN_NAME = re.compile(r"[\w ]+")
"""Column names that a mapping takes without backticks."""


def missing_properties(
    type: TableType, given: Collection[str], *, keeps_absent: bool
) -> Iterator[str]:
    """Required properties for which a table with the columns ``given`` has no column."""
    for name, prop in type.properties.items():
        may_lack = keeps_absent and name in lackable(type)
        if name not in given and not may_lack and is_needed(prop):
            yield name


def check_type(column: pa.Field, name: str, type: TableType, catalog: Catalog, source: str) -> None:
    """Raise `InputError` if a column cannot hold values of the property or endpoint ``name``."""
    given = declared_type(column)
    if name in type.properties:
        wanted: ValueType = type.properties[name].type
        fits = accepts(wanted, given)
    elif name == ID or name in END_TYPES.values():
        wanted, fits = _TEXT, accepts(_TEXT, given)
    else:
        wanted = end_type(type, name, catalog)
        fits = accepts(wanted, given) or accepts(_TEXT, given)
    if not fits:
        raise refused_column(
            source,
            type,
            column.name,
            f"column '{column.name}' has type {given}, which cannot hold {wanted}",
            "convert it where it comes from",
        )


def _check_list(column: pa.Field, name: str, type: TableType, source: str) -> None:
    prop = type.properties.get(name)
    if prop is None or not (prop.type.is_list or prop.type.is_vector):
        message = f"a list is mapped to '{name}', which holds single values"
        raise refused_column(source, type, name, message, "map it to a list, or do not split it")


def refused_column(
    source: str, type: TableType, column: str, message: str, hint: str | None
) -> InputError:
    """The error for a column of a file or frame."""
    return InputError(
        f"{source}: {type.name}: {message}",
        hint=hint,
        details={"file": source, "type": type.name, "property": column},
    )


def end_type(type: TableType, name: str, catalog: Catalog) -> ValueType:
    """The type of an endpoint: that of its node's key if it is one property, else text.

    For an interface, the type that the keys of all its node types share, else text.
    """
    assert isinstance(type, EdgeType)
    nodes = catalog.node_types(type.source if name == SRC else type.target)
    keys = {node.properties[node.key[0]].type if len(node.key) == 1 else _TEXT for node in nodes}
    return keys.pop() if len(keys) == 1 else _TEXT

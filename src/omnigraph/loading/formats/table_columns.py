"""Mapping the columns of a table to properties, endpoints and id, by name and type.

Values are converted by `loading.records`.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from omnigraph.errors import InputError
from omnigraph.loading.records.absence import is_needed, lackable
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.arrow_columns import accepts, declared_type
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType

ENDS = {"from": SRC, "to": DST, SRC: SRC, DST: DST}
"""What columns of endpoints may be called."""
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
    cells of text, or lists of them, which may hold any value. Raises `InputError` naming the first
    column that is unknown, missing or of an unsuitable type.
    """
    is_edge = isinstance(type, EdgeType)
    mapped: dict[str, int] = {}
    for index, column in enumerate(schema):
        name = ENDS.get(column.name, column.name) if is_edge else column.name
        if name not in type.properties and name != ID and not (is_edge and name in (SRC, DST)):
            if ignore_unknown:
                continue
            known = [*type.properties, ID, *(("from", "to") if is_edge else ())]
            raise refused_column(
                source,
                type,
                column.name,
                f"unknown column '{column.name}'",
                name_hint(column.name, known, f"columns of {type.name}") + f"; {UNKNOWN_LEFT_OUT}",
            )
        if name in mapped:
            raise refused_column(
                source, type, column.name, f"column '{name}' is there twice", "keep one of them"
            )
        mapped[name] = index
        if column.name not in texts:
            _check_type(column, name, type, catalog, source)
        elif pa.types.is_list(column.type):
            _check_list(column, name, type, source)
    for name, prop in type.properties.items():
        is_given = name in mapped or name in folder_values
        may_lack = keeps_absent and name in lackable(type)
        if not is_given and not may_lack and is_needed(prop):
            raise refused_column(
                source,
                type,
                name,
                f"there is no column '{name}', which is required",
                f"its type is {prop.type}",
            )
    for name, shown in ((SRC, "from"), (DST, "to")):
        if is_edge and name not in mapped:
            raise refused_column(
                source,
                type,
                shown,
                f"there is no column '{shown}'",
                "every edge names both its nodes",
            )
    return mapped


def _check_type(
    column: pa.Field, name: str, type: TableType, catalog: Catalog, source: str
) -> None:
    given = declared_type(column)
    if name in type.properties:
        wanted: ValueType = type.properties[name].type
        fits = accepts(wanted, given)
    elif name == ID:
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
    """The type of an endpoint: that of its node's key if it is one property, else text."""
    assert isinstance(type, EdgeType)
    node: NodeType = catalog.nodes[type.source if name == SRC else type.target]
    return node.properties[node.key[0]].type if len(node.key) == 1 else _TEXT

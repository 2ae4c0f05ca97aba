"""Nodes and edges as the arrays that libraries for graph learning take, and PyG's `HeteroData`.

The arrays are NumPy's and need no such library; `hetero_data` only hands them over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES
from omnigraph.syntax.suggest import did_you_mean

Features: TypeAlias = Mapping[str, Sequence[str] | str]
"""Properties by type."""
Triple: TypeAlias = tuple[str, str, str]
"""The type of the sources, of the edges and of the targets."""


@dataclass(frozen=True, slots=True)
class NodeArrays:
    """The nodes of one type, numbered by their place in ``ids``."""

    ids: list[str]
    x: npt.NDArray[np.float32] | None
    """A row of features for each node; None if none were chosen."""
    y: npt.NDArray[Any] | None
    """The label of each node: int64, or float32 if the property is a float."""
    label_names: list[str] | None
    """The texts that integers in ``y`` stand for, if the property is a text."""


@dataclass(frozen=True, slots=True)
class EdgeArrays:
    """The edges of one type between nodes of two types."""

    index: npt.NDArray[np.int64]
    """Two rows: the numbers of the sources and of the targets."""
    attr: npt.NDArray[np.float32] | None
    """A row of features for each edge; None if none were chosen."""


@dataclass(frozen=True, slots=True)
class HeteroArrays:
    """Nodes and edges of several types as arrays."""

    nodes: dict[str, NodeArrays]
    edges: dict[Triple, EdgeArrays]


def hetero_arrays(
    nodes: Mapping[str, pa.Table],
    edges: Mapping[str, pa.Table],
    end_types: Mapping[str, tuple[str, str]],
    features: Features,
    labels: Mapping[str, str],
) -> HeteroArrays:
    """The arrays of rows by type; raises `InputError` for properties that are no numbers."""
    for name in features:
        _require_known(name, [*nodes, *edges], "features")
    for name in labels:
        _require_known(name, [*nodes], "labels")
    made: dict[str, NodeArrays] = {}
    for name, rows in nodes.items():
        y, names = _labels(name, rows, labels[name]) if name in labels else (None, None)
        made[name] = NodeArrays(rows[ID].to_pylist(), _matrix(name, rows, features), y, names)
    linked: dict[Triple, EdgeArrays] = {}
    for name, rows in edges.items():
        matrix = _matrix(name, rows, features)
        for source, target in product(*(_types(rows, at, end_types[name]) for at in (0, 1))):
            chosen = np.flatnonzero(_are(rows, 0, source) & _are(rows, 1, target))
            if not len(chosen) and rows.num_rows:
                continue
            some = rows.take(pa.array(chosen))
            ends = zip((SRC, DST), (source, target), strict=True)
            index = np.stack([_numbers(some[column], nodes[of][ID]) for column, of in ends])
            attr = None if matrix is None else matrix[chosen]
            linked[source, name, target] = EdgeArrays(index, attr)
    return HeteroArrays(made, linked)


def hetero_data(arrays: HeteroArrays) -> Any:
    """The arrays as a `torch_geometric.data.HeteroData`."""
    try:
        torch, data = import_module("torch"), import_module("torch_geometric.data")
    except ModuleNotFoundError as error:
        missing = (error.name or "torch").partition(".")[0]
        raise InputError(
            f"{missing} is not installed", hint="pip install torch torch_geometric"
        ) from error
    made = data.HeteroData()
    for name, nodes in arrays.nodes.items():
        made[name].num_nodes = len(nodes.ids)
        made[name].ids = nodes.ids
        for key, values in (("x", nodes.x), ("y", nodes.y)):
            if values is not None:
                setattr(made[name], key, torch.from_numpy(values))
        if nodes.label_names is not None:
            made[name].label_names = nodes.label_names
    for triple, edges in arrays.edges.items():
        made[triple].edge_index = torch.from_numpy(edges.index)
        if edges.attr is not None:
            made[triple].edge_attr = torch.from_numpy(edges.attr)
    return made


def _require_known(name: str, known: Sequence[str], argument: str) -> None:
    if name not in known:
        raise InputError(
            f"`{argument}` name {name}, which is not among the types",
            hint=did_you_mean(name, known) or f"there are {', '.join(known)}",
        )


def _types(rows: pa.Table, at: int, ends: tuple[str, str]) -> list[str]:
    """The types of the nodes at one end; rows name them if that end is an interface."""
    column = END_TYPES[(SRC, DST)[at]]
    return sorted(rows[column].unique().to_pylist()) if column in rows.column_names else [ends[at]]


def _are(rows: pa.Table, at: int, type_name: str) -> npt.NDArray[np.bool_]:
    column = END_TYPES[(SRC, DST)[at]]
    if column not in rows.column_names:
        return np.ones(rows.num_rows, np.bool_)
    same: npt.NDArray[np.bool_] = pc.equal(rows[column], type_name).to_numpy()
    return same


def _numbers(ids: pa.ChunkedArray, nodes: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    found = pc.index_in(ids, value_set=nodes.combine_chunks())
    assert not found.null_count, "an edge ends at no node"
    numbers: npt.NDArray[np.int64] = found.to_numpy().astype(np.int64)
    return numbers


def _matrix(type_name: str, rows: pa.Table, features: Features) -> npt.NDArray[np.float32] | None:
    """The features of a type side by side, vectors with all their components."""
    given = features.get(type_name)
    if given is None:
        return None
    parts = []
    for name in [given] if isinstance(given, str) else given:
        column = _column(type_name, rows, name)
        if pa.types.is_fixed_size_list(column.type):
            flat = column.flatten().to_numpy(zero_copy_only=False)
            parts.append(flat.reshape(len(column), column.type.list_size))
        elif _is_number(column.type):
            parts.append(column.to_numpy(zero_copy_only=False)[:, None])
        else:
            raise InputError(
                f"{type_name}.{name} is {column.type}, and a feature is a number or a vector",
                hint="choose another property, or make it a number",
            )
    width = np.zeros((rows.num_rows, 0), np.float32)
    return np.concatenate([width, *(part.astype(np.float32) for part in parts)], axis=1)


def _labels(type_name: str, rows: pa.Table, name: str) -> tuple[npt.NDArray[Any], list[str] | None]:
    column = _column(type_name, rows, name)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        names = sorted(column.unique().to_pylist())
        codes = pc.index_in(column, value_set=pa.array(names, column.type))
        return codes.to_numpy(zero_copy_only=False).astype(np.int64), names
    if not _is_number(column.type):
        raise InputError(
            f"{type_name}.{name} is {column.type}, and a label is a number or a text",
            hint="choose another property",
        )
    dtype = np.float32 if pa.types.is_floating(column.type) else np.int64
    return column.to_numpy(zero_copy_only=False).astype(dtype), None


def _is_number(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_boolean(type)
    )


def _column(type_name: str, rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        raise InputError(
            f"{type_name} has no property '{name}'",
            hint=did_you_mean(name, rows.column_names),
        )
    column = rows[name].combine_chunks()
    if column.null_count:
        raise InputError(
            f"{column.null_count:,} of {rows.num_rows:,} {type_name} have no '{name}'",
            hint="set it, or choose another property: an array has a value for each",
        )
    return column

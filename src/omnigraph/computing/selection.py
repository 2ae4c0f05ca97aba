"""The selection of a computation: node types, edge types, direction and weight."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from omnigraph.computing.algorithms import Described, EdgeUse
from omnigraph.computing.blocks import Floats, Keys
from omnigraph.errors import InputError
from omnigraph.model.hashing import StringHash
from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.schema.catalog import Catalog, EdgeType
from omnigraph.syntax.suggest import did_you_mean

ComputeDirection = Literal["out", "in", "both"]
"""Edges in their direction, reversed, or in both directions."""


@dataclass(frozen=True, slots=True)
class SelectedEdges:
    """One edge type of a selection."""

    type_name: str
    source: str
    target: str
    weight_type: ValueType | None = None
    """The type of the weight property."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected part of a graph. Every end of a selected edge is a selected node."""

    nodes: tuple[str, ...]
    edges: tuple[SelectedEdges, ...]
    direction: ComputeDirection
    weight: str | None
    use: EdgeUse

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        algorithm: Described,
        *,
        nodes: Sequence[str] | str | None,
        edges: Sequence[str] | str | None,
        direction: ComputeDirection,
        weight: str | None,
    ) -> Selection:
        """The selection for an algorithm.

        Without ``nodes``, the ends of the edges; without ``edges``, all edges between the nodes;
        without both, the whole graph. Raises `InputError` for invalid combinations.
        """
        if direction not in get_args(ComputeDirection):
            raise InputError(f"there is no direction '{direction}'", hint="it is out, in or both")
        if weight is not None and not algorithm.is_weighted:
            raise InputError(
                f"{algorithm.name} counts edges and uses no weight", hint="leave `weight` out"
            )
        named = _known(nodes, catalog.nodes, "node")
        linked = _known(edges, catalog.edges, "edge")
        mixed = [name for name in catalog.edges if catalog.edges[name].end_types]
        for name in mixed if linked is None else (each for each in linked if each in mixed):
            of = catalog.edges[name]
            raise InputError(
                f"edge {name} goes from {of.source} to {of.target}; an end that is an "
                "interface is not computed over",
                hint="name other edge types in `edges`",
            )
        if named is None:
            ends = [catalog.edges[name] for name in linked or ()]
            covered = [each for edge in ends for each in (edge.source, edge.target)]
            named = sorted(set(covered)) if linked is not None else sorted(catalog.nodes)
        chosen = [
            SelectedEdges(name, edge.source, edge.target, _weight_type(edge, weight))
            for name, edge in sorted(catalog.edges.items())
            if (name in linked if linked is not None else {edge.source, edge.target} <= set(named))
        ]
        for edge in chosen:
            for end in (edge.source, edge.target):
                if end not in named:
                    raise InputError(
                        f"edge {edge.type_name} ends at {end}, which is not among the `nodes`",
                        hint=f"add {end} to `nodes`, or leave `nodes` out",
                    )
        return cls(tuple(named), tuple(chosen), direction, weight, algorithm.edge_use)

    @property
    def labels_have_types(self) -> bool:
        """Whether names of groups contain the type, because ids may repeat between types."""
        return len(self.nodes) > 1


def _known(
    given: Sequence[str] | str | None, known: object, kind: Literal["node", "edge"]
) -> list[str] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else list(given)
    assert hasattr(known, "__iter__")
    types = sorted(known)
    for name in names:
        if name not in types:
            raise InputError(
                f"there is no {kind} type '{name}'",
                hint=did_you_mean(name, types) or f"there are {', '.join(types) or 'none'}",
            )
    if not names:
        raise InputError(f"`{kind}s` names no type", hint=f"leave it out for all {kind} types")
    return sorted(set(names))


def _weight_type(edge: EdgeType, weight: str | None) -> ValueType | None:
    if weight is None:
        return None
    found = edge.properties.get(weight)
    if found is None:
        raise InputError(
            f"edge {edge.name} has no property '{weight}' to weigh it by",
            hint=did_you_mean(weight, edge.properties)
            or "name the edge types that have it in `edges`",
        )
    if not found.type.is_numeric:
        raise InputError(
            f"{edge.name}.{weight} is {found.type}, and a weight is a number",
            hint="choose a numeric property",
        )
    return found.type


def checked_weights(edge_type: str, weight: str, values: pa.Array) -> Floats:
    """Edge weights as floats; raises `InputError` for null, negative and non-finite weights."""
    numbers: Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    bad = int((~(np.isfinite(numbers) & (numbers >= 0))).sum())
    if bad:
        raise InputError(
            f"{bad:,} edges {edge_type} have no weight in '{weight}' that can be used:"
            " it is null, negative or not finite",
            hint="set it, or leave `weight` out",
        )
    return numbers


def node_keys(type_name: str, ids: pa.Array, attempt: int) -> Keys:
    """A hash of each node, equal in all processes; it depends on ``attempt``.

    On a collision, which is very unlikely, the caller retries with another ``attempt``.
    """
    seed = hashlib.sha256(f"{attempt}:{type_name}".encode()).digest()
    return StringHash(int.from_bytes(seed[:8], "little") | 1).many(ids)

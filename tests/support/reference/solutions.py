"""Solutions: what a match finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Entity: TypeAlias = Mapping[str, Any]
"""A stored row: `id`, the properties, and for an edge `src` and `dst`."""

Path: TypeAlias = tuple[str, ...]
"""The ids along a path, both ends included."""

Solution: TypeAlias = Mapping[str, Any]
"""What each variable stands for: an entity, a `Way`, or a value that a stage has handed on. None
where an optional match found nothing."""


@dataclass(frozen=True)
class Way:
    """What a path variable stands for."""

    nodes: Path
    edges: tuple[str, ...]
    cost: float | None = None


@dataclass(frozen=True)
class Answer:
    """The rows of a query, each with its values in the order of the columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def entity(solution: Solution, variable: str) -> Entity | None:
    """The node or edge a variable stands for."""
    found: Entity | None = solution[variable]
    assert not isinstance(found, Way)
    return found


def entity_id(solution: Solution, variable: str) -> str | None:
    """Its id."""
    found = entity(solution, variable)
    return None if found is None else str(found["id"])


def shown_id(solution: Solution, variable: str) -> tuple[str | None, str]:
    """Its id, and in an interface the type that tells it from others of this id.

    Of a path that is not the only one of its ends, its nodes.
    """
    way = solution[variable]
    if isinstance(way, Way):
        return "\0".join(way.nodes), ""
    found = entity(solution, variable)
    if found is None:
        return None, ""
    return str(found.get("@id", found["id"])), str(found["@type"]) if "@id" in found else ""


def stored(solution: Solution, variable: str, column: str) -> Any:
    """The value of one of its columns."""
    found = entity(solution, variable)
    return None if found is None else found[column]

"""Describes accesses: from the plan that ran, and from the result of the verb."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from omnigraph.audit.auditor import AccessLine, current, digest
from omnigraph.model.json_object import JsonObject
from omnigraph.model.result import Result
from omnigraph.model.tables import Table

_COUNTS = ("row_count", "total_entities", "rows")


class Plan(Protocol):
    """A compiled query."""

    @property
    def name(self) -> str:
        """The name of the query."""


# --- queries ------------------------------------------------------------------------------------


def note_plan(plan: Plan, source: object) -> None:
    """Add the query and the types it names to the line of the current access."""
    known = _TYPES_OF.get(id(plan))
    if known is None or known[0] is not plan:
        if len(_TYPES_OF) >= PLANS_KEPT_MAX:
            _TYPES_OF.clear()
        known = _TYPES_OF[id(plan)] = (plan, frozenset(_types_in(plan)))
    line = current()
    if line is None:
        return
    line.query = plan.name
    line.types = line.types | known[1] if line.types else known[1]
    if isinstance(source, str):
        line.digest = digest(source)


PLANS_KEPT_MAX = 256
_TYPES_OF: dict[int, tuple[Plan, frozenset[str]]] = {}


def _types_in(part: object) -> Iterator[str]:
    """The types that a plan names anywhere."""
    if isinstance(part, tuple | list | frozenset):
        for each in part:
            yield from _types_in(each)
    elif is_dataclass(part) and not isinstance(part, type):
        for each in fields(part):
            value = getattr(part, each.name)
            if each.name in ("type_name", "edge_type") and isinstance(value, str):
                yield value
            else:
                yield from _types_in(value)


# --- results of verbs -----------------------------------------------------------------------------


def describe(line: AccessLine, found: object) -> None:
    """Add the result of a verb to a line. Does not force lazy results."""
    if isinstance(found, Result):
        line.branch, line.commit = found.target.branch or line.branch, found.graph_commit_id
        line.rows = found.known_row_count
    elif isinstance(found, Table):
        line.commit = found.about.graph_commit_id
        line.types |= {found.about.type_name}
    elif isinstance(found, JsonObject):
        _describe_object(line, found)
    elif isinstance(found, list):
        line.rows = len(found)
    elif isinstance(found, dict):
        line.rows = 1


def _describe_object(line: AccessLine, found: JsonObject) -> None:
    commit = getattr(found, "commit", None)
    line.commit = (
        line.commit
        or getattr(commit, "graph_commit_id", None)
        or _text(getattr(found, "graph_commit_id", None))
        or _text(getattr(found, "commit_id", None))
    )
    if (nodes := getattr(found, "affected_nodes", None)) is not None:
        line.rows = nodes + getattr(found, "affected_edges", 0)
    for name in _COUNTS:
        count = getattr(found, name, None)
        if isinstance(count, int):
            line.rows = count
    line.types |= {each.name for each in (*_of(found, "nodes"), *_of(found, "edges"))}
    blocks = [found, *getattr(found, "blocks", ())]
    changes = [each for block in blocks for each in _sized(getattr(block, "changes", ()))]
    if changes:
        line.rows = len(changes)
        line.types |= {each.type_name for each in changes if hasattr(each, "type_name")}


def _of(found: JsonObject, name: str) -> Iterable[Any]:
    listed: Iterable[Any] = getattr(found, name, ())
    return listed


def _sized(found: object) -> Iterator[Any]:
    if isinstance(found, Sized) and isinstance(found, Iterable):
        yield from found


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def names_in(given: object) -> Iterator[str]:
    """Names of types, without their kind; ignores invalid arguments."""
    listed = [given] if isinstance(given, str) else given
    if isinstance(listed, list | tuple | set | frozenset):
        yield from (each.rpartition(":")[2] for each in listed if isinstance(each, str))

"""Every verb of a graph is one access, which the audit records if there is one.

Verbs are wrapped where their class is made, so a new one is recorded without being told so. What
an access was about is read from what it was called with and from what it returned.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.audit.auditor import AccessLine, Auditor, note
from omnigraph.model.json_object import JsonObject
from omnigraph.model.result import Result
from omnigraph.model.tables import Table

if TYPE_CHECKING:
    from omnigraph.graph.opened import Handle
    from omnigraph.query.plan import QueryPlan

NO_ACCESS: Mapping[str, str] = {
    "acting_as": "gives a handle",
    "auto_optimize": "says what this process did",
    "blocked_branches": "says what this process saw",
    "branch": "gives a handle, whose verbs are accesses",
    "check_head": "a server runs its own checks",
    "close": "ends what runs in the background",
    "compute": "gives verbs that are accesses",
    "follow": "a server looks after its own checks",
    "on_branch": "gives a handle",
    "reviews": "gives verbs that are accesses",
    "uri": "says what was opened",
}
"""Public names that touch no data of a graph, with the reason."""

_TYPE_ARGUMENTS = ("type", "types", "type_name", "type_key")
_COUNTS = ("row_count", "total_entities", "rows")

Recorded = TypeVar("Recorded", bound=type)


def audited(cls: Recorded) -> Recorded:
    """Record the verbs of a class: `Graph`, or what its properties give."""
    for name, found in list(vars(cls).items()):
        if name.startswith("_") or name in NO_ACCESS:
            continue
        if isinstance(found, property) and found.fget is not None:
            setattr(cls, name, property(_recorded(found.fget), doc=found.__doc__))
        elif inspect.isfunction(found):
            setattr(cls, name, _recorded(found, name))
    return cls


def _recorded(verb: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    called = name or verb.__name__
    places = [
        (place, parameter)
        for place, parameter in enumerate(inspect.signature(verb).parameters)
        if parameter in _TYPE_ARGUMENTS
    ]
    takes_params = "params" in inspect.signature(verb).parameters

    @wraps(verb)
    def run(self: Any, *args: Any, **options: Any) -> Any:
        handle = _handle(self)
        auditor = handle._opened.auditor
        if auditor is None or handle._access.is_system:
            return verb(self, *args, **options)
        line, outer = auditor.begin(called)
        for place, parameter in places:
            given = args[place - 1] if place - 1 < len(args) else options.get(parameter)
            line.types.update(_names(given))
        if takes_params and auditor.keeps_params:
            line.params = args[1] if len(args) > 1 else options.get("params")
        return _ended(auditor, line, outer, lambda: verb(self, *args, **options))

    return run


def _ended(
    auditor: Auditor, line: AccessLine, outer: AccessLine | None, run: Callable[[], Any]
) -> Any:
    try:
        found = run()
        _describe(line, found)
    except BaseException as failure:
        auditor.end(line, outer, failure)
        raise
    auditor.end(line, outer, None)
    return found


def _handle(self: Any) -> Handle:
    found: Handle = getattr(self, "_handle", None) or getattr(self, "_graph", None) or self
    return found


# --- queries ------------------------------------------------------------------------------------


def note_plan(plan: QueryPlan, source: object) -> None:
    """Add to the line of the access under way which query runs, and the types it names."""
    known = _TYPES_OF.get(id(plan))
    if known is None or known[0] is not plan:
        if len(_TYPES_OF) >= PLANS_KEPT_MAX:
            _TYPES_OF.clear()
        known = _TYPES_OF[id(plan)] = (plan, frozenset(_types_in(plan)))
    note(query=plan.name, source=source if isinstance(source, str) else None, types=known[1])


PLANS_KEPT_MAX = 256
_TYPES_OF: dict[int, tuple[QueryPlan, frozenset[str]]] = {}


def _types_in(part: object) -> Iterator[str]:
    """The types that a plan names, in any of its parts."""
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


# --- what an access was about ---------------------------------------------------------------------


def _describe(line: AccessLine, found: object) -> None:
    """Add to a line what a verb returned. Nothing that is computed later is computed for this."""
    if isinstance(found, Result):
        line.branch, line.commit = found.target.branch or line.branch, found.graph_commit_id
        line.rows = found.known_row_count
    elif isinstance(found, Table):
        line.commit = found.about.graph_commit_id
        line.types.add(found.about.type_name)
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
    for loaded in (*getattr(found, "nodes", ()), *getattr(found, "edges", ())):
        line.types.add(loaded.name)
    blocks = [found, *getattr(found, "blocks", ())]
    changes = [each for block in blocks for each in _sized(getattr(block, "changes", ()))]
    if changes:
        line.rows = len(changes)
        line.types.update(each.type_name for each in changes if hasattr(each, "type_name"))


def _sized(found: object) -> Iterator[Any]:
    if isinstance(found, Sized) and isinstance(found, Iterable):
        yield from found


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _names(given: object) -> Iterator[str]:
    """Names of types, without their kind; what a caller got wrong is no name."""
    listed = [given] if isinstance(given, str) else given
    if isinstance(listed, list | tuple | set | frozenset):
        yield from (each.rpartition(":")[2] for each in listed if isinstance(each, str))

"""A merge written as plainly as possible, on whole contents: the judge of the real one."""

from __future__ import annotations

from typing import Any, Literal

from tests.branching.histories import Content, Entity

Policy = Literal["fail", "source", "target"]
Conflict = tuple[str, Entity]

ENDS = {"edge:Knows": ("node:Person", "node:Person"), "edge:LivesIn": ("node:Person", "node:City")}


def exact(value: dict[str, Any] | None) -> str:
    """A text that tells apart what Python calls equal, such as the two zeros."""
    return repr(None if value is None else sorted(value.items()))


def reference_merge(
    base: Content,
    source: Content,
    target: Content,
    policy: Policy = "fail",
    granularity: Literal["entity", "property"] = "entity",
) -> tuple[Content, set[Conflict]]:
    """What the target becomes, or the conflicts that keep it as it is."""
    result = dict(target)
    conflicts: set[Conflict] = set()
    for entity in {*base, *source, *target}:
        old, mine, theirs = base.get(entity), source.get(entity), target.get(entity)
        merged, kind = merged_entity(old, mine, theirs, policy, granularity)
        if kind is not None:
            conflicts.add((kind, entity))
        elif merged is None:
            result.pop(entity, None)
        else:
            result[entity] = merged
    if not conflicts:
        conflicts = {("orphan_edge", entity) for entity in result if _is_orphan(entity, result)}
    return (target if conflicts else result), conflicts


def merged_entity(
    old: dict[str, Any] | None,
    mine: dict[str, Any] | None,
    theirs: dict[str, Any] | None,
    policy: Policy,
    granularity: str,
) -> tuple[dict[str, Any] | None, str | None]:
    """What becomes of one entity, None if it is deleted, or the kind of its conflict."""
    if exact(mine) == exact(old) or exact(mine) == exact(theirs):
        return theirs, None
    if exact(theirs) == exact(old):
        return mine, None
    if granularity == "property" and old and mine and theirs:
        return _by_property(old, mine, theirs, policy)
    if policy != "fail":
        return (mine if policy == "source" else theirs), None
    if old is None:
        return None, "divergent_insert"
    return None, "delete_vs_update" if mine is None or theirs is None else "divergent_update"


def _by_property(
    old: dict[str, Any], mine: dict[str, Any], theirs: dict[str, Any], policy: Policy
) -> tuple[dict[str, Any] | None, str | None]:
    merged = {}
    for name in old:
        values = [side[name] for side in (old, mine, theirs)]
        before, source, target = map(repr, values)
        if source in (before, target):
            merged[name] = values[2]
        elif target == before or policy == "source":
            merged[name] = values[1]
        elif policy == "target":
            merged[name] = values[2]
        else:
            return None, "divergent_update"
    return merged, None


def _is_orphan(entity: Entity, content: Content) -> bool:
    if entity[0] not in ENDS:
        return False
    ends = zip(ENDS[entity[0]], (content[entity]["from"], content[entity]["to"]), strict=True)
    return any(end not in content for end in ends)

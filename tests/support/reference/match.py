"""The match: from a pattern to its solutions, step by step and row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.support.reference.hops import (
    Weigh,
    cheapest,
    destinations,
    edges_along,
    steps_from,
)
from tests.support.reference.interfaces import Interfaces
from tests.support.reference.solutions import Answer, Solution, Way, entity, entity_id


@dataclass(frozen=True)
class Match:
    """Finds solutions over the tables of one snapshot."""

    interfaces: Interfaces
    holds: Callable[[Solution, ex.Expression], bool]
    rows: Callable[[plan.ReadPlan], Answer]
    """What a stage hands on."""
    block: Callable[[plan.Compute, list[Solution]], Any]
    """The value of a block, given its solutions."""
    value: Callable[[Solution, ex.Expression], Any]
    weights: dict[plan.ComputedWeight, dict[tuple[str, ...], Any]] = field(default_factory=dict)
    """What edges weigh, by their ids and the references of both ends."""

    def solutions(self, pattern: plan.Pattern, start: Solution | None = None) -> list[Solution]:
        """Every way to extend ``start`` by what the pattern asks for."""
        found: list[Solution] = [start or {}]
        for step in pattern.steps:
            found = [extended for solution in found for extended in self._step(step, solution)]
        return found

    def _step(self, step: plan.Step, solution: Solution) -> Iterable[Solution]:
        match step:
            case plan.Scan():
                rows = self.interfaces.nodes(step.type_name)
                return self._where(step.predicates, ({**solution, step.variable: r} for r in rows))
            case plan.Expand():
                return self._where(step.predicates, self._expand(step, solution))
            case plan.FilterRows():
                return self._where(step.predicates, [solution])
            case plan.Exclude():
                return [] if self.solutions(step.pattern, solution) else [solution]
            case plan.Exists():
                satisfied = any(self.solutions(one, solution) for one in step.alternatives)
                return [solution] if satisfied else []
            case plan.Extend():
                unmatched = {**solution, **dict.fromkeys(step.introduces)}
                return self.solutions(step.pattern, solution) or [unmatched]
            case plan.Compute():
                found = self.solutions(step.pattern, solution)
                return [{**solution, step.variable: self.block(step, found)}]
            case plan.Unnest():
                items = self.value(solution, step.list) or []
                return [{**solution, step.variable: item} for item in items]
            case plan.Stage():
                handed = self.rows(step.read)
                variables = {value.name: value.variable for value in step.values}
                names = [variables.get(name, name) for name in handed.columns]
                return [dict(zip(names, row, strict=True)) for row in handed.rows]
            case _:
                assert_never(step)

    def _where(
        self, predicates: Sequence[ex.Expression], candidates: Iterable[Solution]
    ) -> list[Solution]:
        return [one for one in candidates if all(self.holds(one, p) for p in predicates)]

    # --- hops -------------------------------------------------------------------------------------

    def _expand(self, hop: plan.Expand, solution: Solution) -> Iterator[Solution]:
        """Each destination of the source, or only the one that is bound already."""
        source = entity_id(solution, hop.source)
        if source is None:
            return
        source = self.interfaces.reference(hop.source_type, source)
        targets = self.interfaces.by_reference(hop.target_type)
        for target, bound in self._walk(hop, source):
            if target not in targets:
                continue
            if hop.target_is_bound:
                known = entity(solution, hop.target)
                if known is None or known["id"] != targets[target]["id"]:
                    continue
            yield {**solution, hop.target: targets[target], **bound}

    def _walk(self, hop: plan.Expand, source: str) -> Iterator[tuple[str, Solution]]:
        """The nodes a hop reaches, with the edge or the path it binds on the way."""
        interfaces = self.interfaces
        edges = interfaces.edges(hop)
        targets = set(interfaces.by_reference(hop.declared[1]))
        if hop.edge_variable is not None:
            for step in steps_from(source, edges, hop.direction):
                if step.to in targets:
                    yield step.to, {hop.edge_variable: interfaces.shown_edge(hop, step.edge)}
            return
        repeats, may_stay = interfaces.repeats(hop), interfaces.may_stay(hop)
        weigh = self._weights(hop)
        if weigh is None:
            found = destinations(hop, source, edges, targets, repeats, may_stay)
        else:
            found = cheapest(hop, source, edges, targets, repeats, may_stay, weigh)
        for path in found:
            way = Way(interfaces.shown_path(hop, path), *edges_along(hop, path, edges, weigh))
            yield path[-1], {hop.path_variable: way} if hop.path_variable is not None else {}

    def _weights(self, hop: plan.Expand) -> Weigh | None:
        """What the edges of a cheapest path weigh; a computed weight is that of all edges."""
        weight = hop.weight
        if weight is None:
            return None
        if isinstance(weight, ex.PropertyValue):
            name = weight.property
            return lambda edge, here, there: edge[name]
        known = self.weights.get(weight)
        if known is None:
            known = self.weights[weight] = {}
            near_type, far_type = hop.declared
            for solution in self.solutions(weight.pattern):
                ends = [
                    self.interfaces.reference(type_name, str(entity_id(solution, name)))
                    for name, type_name in ((weight.near, near_type), (weight.far, far_type))
                ]
                edge = entity(solution, weight.edge)
                assert edge is not None
                known[str(edge["id"]), *ends] = self.value(solution, weight.value)
        return lambda edge, here, there: known.get((str(edge["id"]), here, there))

"""Plans mean what their queries mean.

Two small interpreters run over small random graphs: one reads the clauses from top to bottom and
does what the language says about each, the other runs the steps of the plan. Both must find the
same bag of solutions. They share only the search of a single hop.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query import patterns as model
from tests.query.library import matching
from tests.support.budgets import MANY

Node: TypeAlias = tuple[str, int]
"""A type and a number: ids are scoped by type, so equal numbers of two types never join."""
Edge: TypeAlias = tuple[str, int]
Row: TypeAlias = dict[str, object]

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}
EDGE_TYPES = {word[0].upper() + word[1:]: word for word in model.EDGES}


@dataclass(frozen=True)
class Graph:
    numbers: dict[Node, int | None]
    keys: dict[Node, str]
    edges: dict[str, tuple[tuple[int, int], ...]]
    """Per edge word the numbers of both ends; parallel edges and self-loops are fine."""

    def nodes(self, type_name: str) -> Iterator[Node]:
        return (node for node in self.numbers if node[0] == type_name)

    def stored(self, word: str, node: Node, direction: str) -> Iterator[tuple[Edge, Node]]:
        """Edges at a node that can be walked in this direction, each once, with their far end."""
        source_type, target_type = model.EDGES[word]
        for at, (source, target) in enumerate(self.edges[word]):
            ends = []
            if direction in ("out", "both") and (source_type, source) == node:
                ends.append((target_type, target))
            if direction in ("in", "both") and (target_type, target) == node:
                ends.append((source_type, source))
            for end in dict.fromkeys(ends):
                yield (word, at), end

    def destinations(
        self, word: str, source: Node, direction: str, minimum: int, maximum: int
    ) -> dict[Node, int]:
        """The breadth-first search of the language: destinations with their number of hops."""
        one_type = model.EDGES[word][0] == model.EDGES[word][1]
        visited = {source} if one_type else set()
        level, emitted = [source], dict[Node, int]()
        if minimum == 0 and one_type:
            emitted[source] = 0
        for hop in range(1, (maximum if one_type else min(maximum, 1)) + 1):
            if not level:
                break
            following = []
            for node in level:
                for _, neighbour in self.stored(word, node, direction):
                    if one_type and neighbour == node:
                        if hop >= minimum:
                            emitted.setdefault(neighbour, hop)
                    elif neighbour not in visited:
                        visited.add(neighbour)
                        following.append(neighbour)
                        if hop >= minimum:
                            emitted.setdefault(neighbour, hop)
            level = following
        return emitted


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 3))
    nodes = [(type_name, n) for type_name in model.NUMBERS for n in range(size)]
    number = st.none() | st.integers(0, 9)
    end = st.integers(0, size - 1)
    return Graph(
        {node: draw(number) for node in nodes},
        {node: f"k{node[1]}" for node in nodes},
        {word: tuple(draw(st.lists(st.tuples(end, end), max_size=5))) for word in model.EDGES},
    )


# --- the language, clause by clause ---------------------------------------------------------------


class Reader:
    """Runs clauses in the order they are written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, clauses: Iterable[model.Clause], rows: Iterable[Row]) -> list[Row]:
        found = list(rows)
        for clause in clauses:
            found = [extended for row in found for extended in self.clause(clause, row)]
        return found

    def clause(self, clause: model.Clause, row: Row) -> Iterator[Row]:
        match clause:
            case model.Bind():
                for node in self.candidates(row, clause.variable, clause.type):
                    if clause.key is None or self.graph.keys[node] == clause.key:
                        yield row | {clause.variable: node}
            case model.Hop():
                yield from self.hop(clause, row)
            case model.Condition():
                if self.holds(clause, row):
                    yield row
            case model.Missing():
                if row[clause.variable] is None:
                    yield row
            case model.Not():
                if not self.run(clause.clauses, [row]):
                    yield row
            case model.AnyOf():
                if any(self.run(one, [row]) for one in clause.alternatives):
                    yield row
            case model.Optional():
                extended = self.run(clause.clauses, [row])
                yield from extended or [row | dict.fromkeys(introduced(clause.clauses) - set(row))]

    def candidates(self, row: Row, variable: str, type_name: str) -> Iterator[Node]:
        if variable in row and variable != model.ANONYMOUS:
            node = row[variable]
            if isinstance(node, tuple):
                yield node
        else:
            yield from self.graph.nodes(type_name)

    def hop(self, hop: model.Hop, row: Row) -> Iterator[Row]:
        for left in self.candidates(row, hop.left, hop.left_type):
            seen = row if hop.left == model.ANONYMOUS else row | {hop.left: left}
            wanted = None
            if hop.right != model.ANONYMOUS and hop.right in seen:
                wanted = seen[hop.right]
                if wanted is None:
                    continue
            for right, extra in self.walk(hop, left):
                if wanted in (None, right):
                    ends = {} if hop.right == model.ANONYMOUS else {hop.right: right}
                    yield seen | ends | extra

    def walk(self, hop: model.Hop, left: Node) -> Iterator[tuple[Node, Row]]:
        if hop.edge is not None:
            for edge, right in self.graph.stored(hop.word, left, hop.direction):
                yield right, {hop.edge: edge}
            return
        reached = self.graph.destinations(hop.word, left, hop.direction, hop.minimum, hop.maximum)
        for right, length in reached.items():
            yield right, {hop.path: length} if hop.path else {}

    def holds(self, condition: model.Condition, row: Row) -> bool:
        left = self.number(row, condition.variable)
        right: int | None = condition.number
        if condition.other is not None:
            other = self.number(row, condition.other[0])
            right = None if other is None else other + condition.number
        if left is None or right is None:
            return False
        return OPERATORS[condition.operator](left, right)

    def number(self, row: Row, variable: str) -> int | None:
        node = row[variable]
        return self.graph.numbers[node] if isinstance(node, tuple) else None


def introduced(clauses: Iterable[model.Clause]) -> set[str]:
    """Variables that have a value after these clauses."""
    found: set[str | None] = set()
    for clause in clauses:
        match clause:
            case model.Bind():
                found.add(clause.variable)
            case model.Hop():
                found |= {clause.left, clause.right, clause.edge, clause.path}
            case model.Optional():
                found |= introduced(clause.clauses)
    return {name for name in found if name not in (None, model.ANONYMOUS)}


# --- the plan, step by step -----------------------------------------------------------------------


class Runner:
    """Runs the steps of a plan in their order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, pattern: plan.Pattern, rows: Iterable[Row]) -> list[Row]:
        found = list(rows)
        for step in pattern.steps:
            found = [extended for row in found for extended in self.step(step, row)]
        return found

    def step(self, step: plan.Step, row: Row) -> Iterator[Row]:
        match step:
            case plan.Scan():
                for node in self.graph.nodes(step.type_name):
                    yield from self.keep(row | {step.variable: node}, step.predicates)
            case plan.Expand():
                for extended in self.expand(step, row):
                    yield from self.keep(extended, step.predicates)
            case plan.FilterRows():
                yield from self.keep(row, step.predicates)
            case plan.Exclude():
                if not self.run(step.pattern, [row]):
                    yield row
            case plan.Exists():
                if any(self.run(one, [row]) for one in step.alternatives):
                    yield row
            case plan.Extend():
                yield from self.run(step.pattern, [row]) or [row | dict.fromkeys(step.introduces)]

    def expand(self, step: plan.Expand, row: Row) -> Iterator[Row]:
        source = row[step.source]
        if not isinstance(source, tuple):
            return
        word = EDGE_TYPES[step.edge_type]
        reached: Iterator[tuple[Node, Row]]
        if step.edge_variable is not None:
            stored = self.graph.stored(word, source, step.direction)
            reached = ((target, {step.edge_variable: edge}) for edge, target in stored)
        else:
            found = self.graph.destinations(
                word, source, step.direction, step.minimum, step.maximum
            )
            path = step.path_variable
            reached = ((target, {path: hops} if path else {}) for target, hops in found.items())
        for target, extra in reached:
            if not step.target_is_bound or row[step.target] == target:
                yield row | {step.target: target} | extra

    def keep(self, row: Row, predicates: tuple[ex.Expression, ...]) -> Iterator[Row]:
        if all(self.value(predicate, row) for predicate in predicates):
            yield row

    def value(self, expression: ex.Expression, row: Row) -> object:
        match expression:
            case ex.Constant():
                return expression.value
            case ex.EntityId():
                return row[expression.variable]
            case ex.PropertyValue():
                node = row[expression.variable]
                if not isinstance(node, tuple):
                    return None
                is_number = expression.property in model.NUMBERS.values()
                return (self.graph.numbers if is_number else self.graph.keys)[node]
            case ex.ArithmeticValue():
                left, right = self.value(expression.left, row), self.value(expression.right, row)
                return left + right if isinstance(left, int) and isinstance(right, int) else None
            case ex.IsNull():
                return self.value(expression.operand, row) is None
            case ex.Compare():
                left, right = self.value(expression.left, row), self.value(expression.right, row)
                if left is None or right is None:
                    return False
                return OPERATORS[expression.operator](left, right)
        raise AssertionError(expression)


# --- both agree -----------------------------------------------------------------------------------


def bag(rows: Iterable[Row], names: Iterable[str]) -> Counter[tuple[object, ...]]:
    ordered = sorted(names)
    return Counter(tuple(row[name] for name in ordered) for row in rows)


CAPTURED = (
    model.Bind("a", "Author"),
    model.Not((model.Bind("b", "Book"), model.Hop("a", "Author", "wrote", "b", "Book"))),
    model.Bind("b", "Book", "k0"),
)
TWO_BOOKS = Graph(
    {("Author", 0): 1, ("Book", 0): 1, ("Book", 1): 1},
    {("Author", 0): "k0", ("Book", 0): "k0", ("Book", 1): "k1"},
    {"wrote": ((0, 1),), "cites": (), "contains": (), "knows": ()},
)


@given(model.patterns(reuse_names=True, clauses_max=3), graphs())
@example(CAPTURED, TWO_BOOKS)
@MANY
def test_plan_finds_the_solutions_of_its_query(clauses, graph):
    compiled = matching(model.text_of(clauses))
    names = introduced(clauses)
    assert {variable.name for variable in compiled.variables} <= names
    read = Reader(graph).run(clauses, [{}])
    assert bag(Runner(graph).run(compiled.pattern, [{}]), names) == bag(read, names)


@given(st.data(), graphs())
@MANY
def test_walking_a_reversible_hop_from_its_target_finds_the_same_pairs(data, graph):
    word = data.draw(st.sampled_from(sorted(model.EDGES)))
    source_type, target_type = model.EDGES[word]
    directions = ["out", "in"] + (["both"] if source_type == target_type else [])
    direction = data.draw(st.sampled_from(directions))
    maximum = data.draw(st.integers(1, 4))
    if direction == "in":
        source_type, target_type = target_type, source_type
    flipped = {"out": "in", "in": "out", "both": "both"}[direction]
    forwards = {
        (source, target)
        for source in graph.nodes(source_type)
        for target in graph.destinations(word, source, direction, 1, maximum)
    }
    backwards = {
        (source, target)
        for target in graph.nodes(target_type)
        for source in graph.destinations(word, target, flipped, 1, maximum)
    }
    assert forwards == backwards

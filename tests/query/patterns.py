"""Random match patterns that are valid by construction, for the properties of the planner.

A pattern is made of small values that know how they are written and what they mean, so that a test
can hold a plan against them without asking the checker. Every condition carries a number no other
condition of the pattern has, which identifies it in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import strategies as st

from omnigraph.query.plan import HOPS_MAX

EDGES = {
    "wrote": ("Author", "Book"),
    "cites": ("Book", "Book"),
    "contains": ("Book", "Book"),
    "knows": ("Author", "Author"),
}
"""Edge words with the types at their ends."""
NUMBERS = {"Author": "fame", "Book": "pages"}
"""A nullable number of each type."""
ANONYMOUS = "_"


@dataclass(frozen=True)
class Bind:
    variable: str
    type: str
    key: str | None = None

    def __str__(self) -> str:
        name = {"Author": "handle", "Book": "isbn"}[self.type]
        return f"${self.variable}: {self.type}" + (
            f' {{ {name}: "{self.key}" }}' if self.key else ""
        )


@dataclass(frozen=True)
class Hop:
    left: str
    left_type: str
    word: str
    right: str
    right_type: str
    bounds: tuple[int, int] | None = None
    undirected: bool = False
    edge: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        word = f"<{self.word}>" if self.undirected else self.word
        edge = f"${self.edge}:" if self.edge else ""
        bounds = ""
        if self.bounds is not None:
            low, high = self.bounds
            bounds = f"{{{low},{'' if high == HOPS_MAX else high}}}"
        via = f" via ${self.path}" if self.path else ""
        return f"${self.left} {edge}{word}{bounds} ${self.right}{via}"

    @property
    def minimum(self) -> int:
        return self.bounds[0] if self.bounds else 1

    @property
    def maximum(self) -> int:
        largest = self.bounds[1] if self.bounds else 1
        source, target = EDGES[self.word]
        return largest if source == target else min(largest, 1)

    @property
    def direction(self) -> Literal["out", "in", "both"]:
        if self.undirected:
            return "both"
        return "out" if self.left_type == EDGES[self.word][0] else "in"

    @property
    def one_way(self) -> bool:
        """Whether only a walk from the left end means the same."""
        return self.minimum > 1 or self.path is not None


@dataclass(frozen=True)
class Condition:
    """A comparison whose number identifies it; of one variable, or of two."""

    number: int
    variable: str
    type: str
    operator: str
    other: tuple[str, str] | None = None

    def __str__(self) -> str:
        left = f"${self.variable}.{NUMBERS[self.type]}"
        if self.other is None:
            return f"{left} {self.operator} {self.number}"
        other, other_type = self.other
        return f"{left} {self.operator} ${other}.{NUMBERS[other_type]} + {self.number}"

    @property
    def reads(self) -> set[str]:
        return {self.variable} | ({self.other[0]} if self.other else set())


@dataclass(frozen=True)
class Missing:
    """`$variable is null`."""

    variable: str

    def __str__(self) -> str:
        return f"${self.variable} is null"


@dataclass(frozen=True)
class Not:
    clauses: tuple[Clause, ...]

    def __str__(self) -> str:
        return f"not {{ {text_of(self.clauses)} }}"


@dataclass(frozen=True)
class AnyOf:
    alternatives: tuple[tuple[Clause, ...], ...]

    def __str__(self) -> str:
        inner = "  ".join(f"all {{ {text_of(one)} }}" for one in self.alternatives)
        return f"any {{ {inner} }}"


@dataclass(frozen=True)
class Optional:
    clauses: tuple[Clause, ...]

    def __str__(self) -> str:
        return f"optional {{ {text_of(self.clauses)} }}"


Clause: TypeAlias = Bind | Hop | Condition | Missing | Not | AnyOf | Optional


def text_of(clauses: tuple[Clause, ...]) -> str:
    return "  ".join(map(str, clauses))


def mentions(clause: Clause) -> set[str]:
    """Variables a clause names directly, in the sense of the rule for `not`."""
    match clause:
        case Bind() | Missing():
            return {clause.variable}
        case Hop():
            return {clause.left, clause.right}
        case Condition():
            return clause.reads
        case Optional():
            return {name for inner in clause.clauses for name in mentions(inner)}
        case AnyOf():
            return {
                name for one in clause.alternatives for inner in one for name in mentions(inner)
            }
        case Not():
            return set()


@dataclass
class _Scope:
    """Variables a clause may use: those that hops may bind to, and those that may be null."""

    solid: dict[str, str] = field(default_factory=dict)
    optional: dict[str, str] = field(default_factory=dict)
    other: set[str] = field(default_factory=set)
    """Edges and paths."""

    def inner(self) -> _Scope:
        """What a nested block sees: there, optional variables may be hopped from."""
        return _Scope(self.solid | self.optional, {}, set(self.other))

    def readable(self) -> dict[str, str]:
        return self.solid | self.optional

    def taken(self) -> set[str]:
        return {*self.solid, *self.optional, *self.other}


class _Writer:
    """Draws the clauses of one pattern."""

    def __init__(self, draw: st.DrawFn, *, reuse_names: bool) -> None:
        self._draw = draw
        self._reuse_names = reuse_names
        self._numbers = iter(range(1, 10_000))
        self._fresh = iter(range(1, 10_000))

    def block(self, scope: _Scope, depth: int, clauses_max: int) -> tuple[Clause, ...]:
        """Clauses that are valid one after the other; their variables end up in ``scope``."""
        found: list[Clause] = []
        if not scope.solid:
            found.append(self._bind(scope))
        for _ in range(self._draw(st.integers(1, clauses_max))):
            found.extend(self._clause(scope, depth))
        return tuple(found)

    def _clause(self, scope: _Scope, depth: int) -> Iterator[Clause]:
        kinds = ["bind", "hop", "hop", "hop", "condition", "condition"]
        if depth > 0:
            kinds += ["not", "any", "optional"]
        match self._draw(st.sampled_from(kinds)):
            case "bind":
                yield self._bind(scope)
            case "hop":
                yield from self._hop(scope)
            case "condition":
                yield self._condition(scope)
            case "not":
                inner = self.block(scope.inner(), depth - 1, 2)
                outer = set(scope.readable())
                if not any(mentions(clause) & outer for clause in inner):
                    variable = self._draw(st.sampled_from(sorted(outer)))
                    inner = (self._compare(variable, scope.readable()), *inner)
                yield Not(inner)
            case "any":
                count = self._draw(st.integers(1, 2))
                yield AnyOf(tuple(self.block(scope.inner(), depth - 1, 2) for _ in range(count)))
            case "optional":
                inside = scope.inner()
                inner = self.block(inside, depth - 1, 2)
                for name, type_name in (inside.solid | inside.optional).items():
                    if name not in scope.solid:
                        scope.optional[name] = type_name
                scope.other |= inside.other
                yield Optional(inner)

    def _name(self, scope: _Scope) -> str:
        if not self._reuse_names:
            return f"v{next(self._fresh)}"
        free = [name for name in "abcdefghijklmnop" if name not in scope.taken()]
        return self._draw(st.sampled_from(free[:3]))

    def _bind(self, scope: _Scope) -> Bind:
        key = self._draw(st.sampled_from([None, None, "k1", "k2"]))
        again = self._draw(st.booleans()) and sorted(scope.solid)
        if again:
            variable = self._draw(st.sampled_from(again))
            return Bind(variable, scope.solid[variable], key)
        variable = self._name(scope)
        scope.solid[variable] = self._draw(st.sampled_from(sorted(NUMBERS)))
        return Bind(variable, scope.solid[variable], key)

    def _hop(self, scope: _Scope) -> Iterator[Clause]:
        """A hop whose named ends are bound by their own clauses, here or before."""
        word = self._draw(st.sampled_from(sorted(EDGES)))
        ends = EDGES[word]
        if ends[0] != ends[1] and self._draw(st.booleans()):
            ends = (ends[1], ends[0])
        names = [ANONYMOUS, ANONYMOUS]
        for at in (0, 1):
            if self._draw(st.integers(0, 4)) == 0:
                continue
            known = sorted(name for name, type_name in scope.solid.items() if type_name == ends[at])
            if self._draw(st.booleans()) and known:
                names[at] = self._draw(st.sampled_from(known))
            else:
                names[at] = self._name(scope)
                scope.solid[names[at]] = ends[at]
                yield Bind(names[at], ends[at])
        if names == [ANONYMOUS, ANONYMOUS] and ends != EDGES[word]:
            ends = EDGES[word]  # with no typed end a hop goes out
        edge = path = bounds = None
        match self._draw(st.sampled_from(["plain", "plain", "bounds", "bounds", "edge", "path"])):
            case "bounds":
                bounds = self._bounds()
            case "edge":
                edge = self._name(scope)
                scope.other.add(edge)
            case "path":
                bounds = self._bounds()
                path = self._name(scope)
                scope.other.add(path)
        undirected = EDGES[word][0] == EDGES[word][1] and self._draw(st.booleans())
        yield Hop(names[0], ends[0], word, names[1], ends[1], bounds, undirected, edge, path)

    def _bounds(self) -> tuple[int, int]:
        low = self._draw(st.sampled_from([1, 2, 0]))
        return low, self._draw(st.integers(low, 3) | st.just(HOPS_MAX))

    def _condition(self, scope: _Scope) -> Condition | Missing:
        readable = scope.readable()
        variable = self._draw(st.sampled_from(sorted(readable)))
        if variable in scope.optional and self._draw(st.booleans()):
            return Missing(variable)
        return self._compare(variable, readable)

    def _compare(self, variable: str, readable: dict[str, str]) -> Condition:
        operator = self._draw(st.sampled_from(["=", "!=", "<", ">="]))
        other = None
        if self._draw(st.booleans()):
            name = self._draw(st.sampled_from(sorted(readable)))
            other = (name, readable[name])
        return Condition(next(self._numbers), variable, readable[variable], operator, other)


@st.composite
def patterns(
    draw: st.DrawFn, *, reuse_names: bool = False, depth: int = 2, clauses_max: int = 4
) -> tuple[Clause, ...]:
    """Clauses of a valid match.

    With ``reuse_names`` a name local to a block may come back outside of it with another meaning;
    without it every variable of the pattern has a name of its own.
    """
    return _Writer(draw, reuse_names=reuse_names).block(_Scope(), depth, clauses_max)

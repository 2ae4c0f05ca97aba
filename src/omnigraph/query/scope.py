"""What a name means at one place of a query: parameters, and variables bound so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from omnigraph.errors import QueryTypeError
from omnigraph.query import ast
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.syntax.source import Source, Span
from omnigraph.syntax.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class NodeVariable:
    """A variable bound to nodes of one type."""

    type: NodeType
    optional: bool = False
    """Bound only inside an `optional` block, so possibly null."""


@dataclass(frozen=True, slots=True)
class EdgeVariable:
    """A variable bound to stored edges of one type."""

    type: EdgeType
    optional: bool = False


@dataclass(frozen=True, slots=True)
class PathVariable:
    """A variable bound to the path of a hop."""

    optional: bool = False


BoundAs: TypeAlias = NodeVariable | EdgeVariable | PathVariable


@dataclass(frozen=True, slots=True)
class Context:
    """What stays the same while one query is checked."""

    source: Source
    catalog: Catalog
    parameters: dict[str, ast.Parameter]

    def error(
        self, code: str | None, message: str, span: Span, hint: str | None = None
    ) -> QueryTypeError:
        """A type error at ``span``; ``code`` is its T code, if the language gives it one."""
        return self.source.error(QueryTypeError, message, span, diagnostic=code, hint=hint)

    def parameter(self, variable: ast.Variable) -> ast.Parameter:
        """The declared parameter of this name, or T14."""
        declared = self.parameters.get(variable.name)
        if declared is None:
            raise self.error(
                "T14",
                f"`${variable.name}` is not a declared parameter",
                variable.span,
                did_you_mean(f"${variable.name}", [f"${name}" for name in self.parameters])
                or f"declare it: `query name(${variable.name}: String)`",
            )
        return declared


@dataclass(slots=True)
class Scope:
    """Variables of one block; those of the enclosing blocks are visible too."""

    outer: Scope | None = None
    own: dict[str, BoundAs] = field(default_factory=dict)

    def lookup(self, name: str) -> BoundAs | None:
        """What ``name`` is bound to here, innermost block first."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name]
            scope = scope.outer
        return None

    def names(self) -> Iterator[str]:
        """Every visible variable."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.own
            scope = scope.outer

    def adopt_optional(self, inner: Scope) -> None:
        """Make the variables of a finished `optional` block visible here, as possibly null."""
        for name, bound in inner.own.items():
            self.own[name] = replace(bound, optional=True)

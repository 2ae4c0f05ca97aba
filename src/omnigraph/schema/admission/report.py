"""Collects what is wrong with a schema, so that the first problem in the text is named first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omnigraph.errors import CatalogError, CompileError, IdentityError, SchemaParseError
from omnigraph.syntax.source import Source, Span

PROBLEMS_MAX = 100
"""Most problems of one text that are reported; the first ones are the useful ones."""

HINTS_SEARCHED_MAX = 20
"""How many of the reported problems may search for their hint."""

Hint = str | Callable[[], str | None] | None
"""A ready hint, or a way to search for one. Comparing names is slow, so that it is only done for
problems that are really reported, and only for the first of them."""


class _Problem(NamedTuple):
    kind: type[CompileError]
    message: str
    span: Span
    hint: Hint


class Report:
    """The problems found so far in one schema text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._problems: list[_Problem] = []

    def reject(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that a declaration breaks a rule (`SchemaParseError`)."""
        self._problems.append(_Problem(SchemaParseError, message, span, hint))

    def mismatch(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that declarations do not fit together (`CatalogError`)."""
        self._problems.append(_Problem(CatalogError, message, span, hint))

    def unresolved(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that a rename hint does not fit the accepted schema (`IdentityError`)."""
        self._problems.append(_Problem(IdentityError, message, span, hint))

    def raise_first(self) -> None:
        """Raise the first problem in source order, if there is one."""
        if self._problems:
            raise self.errors(limit=1)[0]

    def errors(self, limit: int = PROBLEMS_MAX) -> list[CompileError]:
        """The problems as errors, in source order, at most ``limit`` of them."""
        in_order = sorted(self._problems, key=lambda problem: problem.span.start)
        return [
            self._error(problem, searches=at < HINTS_SEARCHED_MAX)
            for at, problem in enumerate(in_order[:limit])
        ]

    def line_of(self, span: Span) -> int:
        """The line a span starts on, for hints."""
        return self.source.position(span).line

    def _error(self, problem: _Problem, *, searches: bool) -> CompileError:
        hint = problem.hint
        if callable(hint):
            hint = hint() if searches else None
        return self.source.error(problem.kind, problem.message, problem.span, hint=hint)

"""The offline linter: every rule of the language, without a graph and without raising."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.errors import CompileError
from omnigraph.schema.admission import find_problems
from omnigraph.schema.codes import Severity
from omnigraph.schema.parser import parse_schema
from omnigraph.syntax.source import Source


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """One problem of a schema text, ready to be printed or sent."""

    error: CompileError
    severity: Severity = "error"

    @property
    def line(self) -> int:
        """The line it points at, from 1."""
        return self.error.position.line if self.error.position is not None else 1

    def to_json(self) -> dict[str, Any]:
        """`severity`, `code`, `message`, and `hint` and `position` when there are any."""
        form = {
            "severity": self.severity,
            "code": self.error.code,
            "message": self.error.message,
        } | self.error.wire_detail()
        return form | ({"hint": self.error.hint} if self.error.hint else {})


def lint_schema(origin: str | bytes | Path | Source) -> tuple[SchemaFinding, ...]:
    """Everything that is wrong with a schema text, in source order; empty when it is admissible.

    A text that does not follow the grammar has one finding, the place where parsing stopped.

    >>> [finding.line for finding in lint_schema("node A { a: Vector(0) }\\nedge E: A -> B")]
    [1, 2]
    """
    try:
        problems = find_problems(parse_schema(origin))
    except CompileError as stopped:
        problems = [stopped]
    return tuple(map(SchemaFinding, problems))

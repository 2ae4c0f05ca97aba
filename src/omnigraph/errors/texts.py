"""A schema or a query was rejected, and where in its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from omnigraph.errors.request import InputError


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a source text an error points: 1-based line and column, plus the byte span."""

    path: str | None
    line: int
    column: int
    line_text: str
    width: int
    byte_start: int
    byte_end: int

    def to_dict(self) -> dict[str, Any]:
        """The machine-readable form used by ``--json`` output."""
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "byte_start": self.byte_start,
            "byte_end": self.byte_end,
        }


class CompileError(InputError):
    """A schema or query text was rejected; ``position`` points at the cause when it is known."""

    code = "compile_error"
    prefix: ClassVar[str] = "compile error"

    def __init__(
        self,
        message: str,
        *,
        position: Position | None = None,
        diagnostic: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        label = f"{self.prefix}: {diagnostic}: " if diagnostic else f"{self.prefix}: "
        super().__init__(label + message, hint=hint, details=details)
        self.reason = message
        self.position = position
        self.diagnostic = diagnostic

    def wire_detail(self) -> dict[str, Any]:
        """Position and diagnostic code, so that an editor can underline the cause."""
        out: dict[str, Any] = {}
        if self.diagnostic:
            out["diagnostic"] = self.diagnostic
        if self.position:
            out["position"] = self.position.to_dict()
        return out

    def render(self) -> str:
        """File, line and column, the sentence, the source line with a caret, and the hint."""
        if self.position is None:
            return super().render()
        at = self.position
        gutter = " " * len(str(at.line))
        # Tabs in front of the caret are repeated so that it stays under its character.
        indent = "".join("\t" if c == "\t" else " " for c in at.line_text[: at.column - 1])
        lines = [
            f"{at.path or '<input>'}:{at.line}:{at.column}: {self.message}",
            f"{gutter} |",
            f"{at.line} | {at.line_text}",
            f"{gutter} | {indent}{'^' * max(1, at.width)}",
        ]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class SchemaParseError(CompileError):
    """The schema text is not admissible: syntax, or a rule of one declaration."""

    code = "schema_parse_error"
    prefix = "parse error"


class CatalogError(CompileError):
    """The declarations of a schema do not fit together."""

    code = "schema_catalog_error"
    prefix = "catalog error"


class IdentityError(CompileError):
    """A rename hint cannot be resolved against the accepted schema."""

    code = "schema_identity_error"
    prefix = "identity error"


class QueryParseError(CompileError):
    """The query text does not follow the grammar."""

    code = "query_parse_error"
    prefix = "parse error"


class QueryTypeError(CompileError):
    """The query does not fit the schema; ``diagnostic`` is its T code when it has one."""

    code = "query_type_error"
    prefix = "type error"

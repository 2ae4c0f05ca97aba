"""The answers of the language service about a text: problems, completions, meanings and places."""

from __future__ import annotations

from typing import Annotated, Literal

from omnigraph.model.json_object import OPTIONAL, JsonObject
from omnigraph.model.records import dataclass

Language = Literal["gq", "pg"]
"""Queries, and schemas."""
CompletionKind = Literal["keyword", "type", "edge", "property", "variable", "function"]


@dataclass(frozen=True, slots=True)
class Place(JsonObject):
    """A range of a text: lines and columns from 1, in characters; the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Diagnostic(JsonObject):
    """One error in a text, or one suggestion."""

    severity: Literal["error", "warning", "info"]
    message: str
    place: Place
    code: Annotated[str | None, OPTIONAL] = None
    hint: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class Completion(JsonObject):
    """A word that may come next."""

    label: str
    kind: CompletionKind
    detail: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class Hover(JsonObject):
    """The meaning of a name, in a few lines."""

    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Definition(JsonObject):
    """Where a name is declared: in the text itself, or in the schema."""

    document: Literal["text", "schema"]
    place: Place


@dataclass(frozen=True, slots=True)
class LanguageAnswer(JsonObject):
    """All answers about a text, and about the position of the cursor if one was given."""

    diagnostics: tuple[Diagnostic, ...]
    completions: tuple[Completion, ...] = ()
    hover: Annotated[Hover | None, OPTIONAL] = None
    definition: Annotated[Definition | None, OPTIONAL] = None
    formatted: Annotated[str | None, OPTIONAL] = None
    """The formatted text; left out if it does not parse."""

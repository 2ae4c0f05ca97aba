"""Ways out of a misspelt name, and of a value that does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType

_LISTED_MAX = 10


def name_hint(word: str, known: Iterable[str], what: str) -> str:
    """The name a person most likely meant, or the names there are.

    >>> name_hint("persn", ["Person", "City"], "node types")
    "did you mean 'Person'?"
    >>> name_hint("x", ["Person", "City"], "node types")
    'the node types are City, Person'
    """
    return close_name(word, known) or _listing(sorted(known), what)


def close_name(word: str, known: Iterable[str]) -> str | None:
    """A question about the nearest known name, or None when nothing comes close."""
    by_folded = {name.lower(): name for name in sorted(known)}
    close = get_close_matches(word.lower()[:200], by_folded, n=1)
    return f"did you mean '{by_folded[close[0]]}'?" if close else None


def _listing(names: list[str], what: str) -> str:
    if not names:
        return f"there are no {what}"
    more = ", …" if len(names) > _LISTED_MAX else ""
    return f"the {what} are {', '.join(names[:_LISTED_MAX])}{more}"


_WRITTEN = {
    Scalar.STRING: "write a text",
    Scalar.BOOL: "write true or false",
    Scalar.F32: "write a number, such as 1.5",
    Scalar.F64: "write a number, such as 1.5",
    Scalar.DATE: "write it as YYYY-MM-DD",
    Scalar.DATETIME: "write it as YYYY-MM-DDThh:mm:ssZ, or as YYYY-MM-DD",
    Scalar.BLOB: "give the bytes as base64: data",
}
_ITEMS = {
    Scalar.STRING: '["a", "b"]',
    Scalar.BOOL: "[true, false]",
    Scalar.F32: "[1.5, 2]",
    Scalar.F64: "[1.5, 2]",
    Scalar.DATE: '["2026-01-31"]',
    Scalar.DATETIME: '["2026-01-31T10:00:00Z"]',
}


def value_hint(type: ValueType) -> str:
    """What a value of ``type`` may be written as.

    >>> value_hint(ValueType(Scalar.I32))
    'write a whole number from -2147483648 to 2147483647'
    """
    if type.is_vector:
        return f"write a JSON array of {type.vector_dim} numbers"
    if type.is_list:
        return f"write a JSON array, such as {_ITEMS.get(type.scalar, '[1, 2]')}"
    if type.scalar in INTEGER_BOUNDS:
        low, high = INTEGER_BOUNDS[type.scalar]
        return f"write a whole number from {low} to {high}"
    return _WRITTEN[type.scalar]

"""Ways out of a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

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

"""Did-you-mean suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to ``word``, or ``None`` if none is similar.

    >>> nearest_name("knws", ["knows", "likes"])
    'knows'
    >>> nearest_name("PERSON", ["Person"])
    'Person'
    """
    by_folded: dict[str, str] = {}
    for name in sorted(known):
        by_folded.setdefault(name.lower(), name)
    found = get_close_matches(word.lower()[:200], by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint, or ``None`` if no name is similar.

    >>> did_you_mean("Persn", ["Person"])
    'did you mean `Person`?'
    """
    name = nearest_name(word, known)
    return f"did you mean `{name}`?" if name is not None else None

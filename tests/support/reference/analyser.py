"""A plain English analyser, good for the words the tests use.

It splits, lowercases, folds accents, drops long words and stop words, and takes off the three most
common endings. Where English is more subtle than that, tests must not go.
"""

from __future__ import annotations

import re
import unicodedata

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LENGTH_MAX = 40


def tokens(text: str) -> list[str]:
    """The stemmed words of ``text``, in order, repetitions included."""
    words = (_folded(word.lower()) for word in re.findall(r"\w+", text))
    return [_stem(w) for w in words if len(w) <= LENGTH_MAX and w not in STOP_WORDS]


def _folded(word: str) -> str:
    decomposed = unicodedata.normalize("NFKD", word)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "s"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3 and not stem.endswith("s"):
            return stem
    return word

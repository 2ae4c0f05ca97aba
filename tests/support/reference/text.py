"""Text search: what the analysed words of a field say about those of a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Tokens: TypeAlias = Callable[[str], list[str]]
"""The analyser: a text in, its words out, stop words dropped and the rest stemmed."""

K1 = 1.2
B = 0.75


def matches(field: str | None, query: str | None, edits_max: int, tokens: Tokens) -> bool:
    """Whether some word of the query is within that many edits of some word of the field."""
    if field is None or query is None:
        return False
    words = tokens(field)
    return any(edits(wanted, word) <= edits_max for wanted in tokens(query) for word in words)


def edits(left: str, right: str) -> int:
    """The Levenshtein distance, from its definition by rows of the table."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        previous, row = row, [i]
        for j, b in enumerate(right, start=1):
            row.append(min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b)))
    return row[-1]


@dataclass(frozen=True)
class Corpus:
    """One text property over all nodes of its type, in the snapshot."""

    texts: Sequence[str | None]
    tokens: Tokens

    def score(self, field: str | None, query: str | None) -> float | None:
        """The BM25 score of a field; None when it shares no word with the query."""
        if field is None or query is None:
            return None
        documents = [self.tokens(text) for text in self.texts if text is not None]
        length_average = sum(map(len, documents)) / len(documents)
        words = self.tokens(field)
        wanted = self.tokens(query)
        if not set(words) & set(wanted):
            return None
        total = 0.0
        for word in wanted:
            having = sum(word in document for document in documents)
            rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            often = words.count(word)
            norm = K1 * (1 - B + B * len(words) / length_average)
            total += rarity * often * (K1 + 1) / (often + norm)
        return total

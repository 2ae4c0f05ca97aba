"""Text search: what the analysed words of a field say about those of a query."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from omnigraph.syntax.query_ast import TextQueryKind
from omnigraph.syntax.search_text import (
    Either,
    Every,
    Phrase,
    Prefix,
    SearchTerm,
    Words,
    search_term,
)

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

    def score_of(self, field: str | None, term: Sought) -> float | None:
        """The score of a field in which a term is found; None elsewhere. A prefix is one word."""
        if field is None or not found(field, term, self.tokens):
            return None
        documents = [text for text in self.texts if text is not None]
        length_average = sum(len(self.tokens(each)) for each in documents) / len(documents)
        norm = K1 * (1 - B + B * len(self.tokens(field)) / length_average)
        total = 0.0
        for often in self._occurrences(term):
            counts = [often(each) for each in documents]
            having = sum(count > 0 for count in counts)
            rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            here = often(field)
            total += rarity * here * (K1 + 1) / (here + norm)
        return total

    def _occurrences(self, term: Sought) -> list[Callable[[str], int]]:
        """For each word and each prefix how often it is in a text."""
        counters: list[Callable[[str], int]] = []
        for leaf in leaves(term):
            words = self.tokens(leaf.text)
            if isinstance(leaf, Prefix):
                *others, last = written(leaf.text) or [""]
                words = [token for other in others for token in self.tokens(other)]
                if last:
                    counters.append(partial(_begun, last, self.tokens))
            counters += [partial(_often, word, self.tokens) for word in words]
        return counters


def _begun(prefix: str, tokens: Tokens, text: str) -> int:
    return sum(word.startswith(prefix) for word in written(text) if tokens(word))


def _often(word: str, tokens: Tokens, text: str) -> int:
    return tokens(text).count(word)


# --- search texts with operators ------------------------------------------------------------------

Sought: TypeAlias = SearchTerm | None
"""What a search text looks for; None for a null."""


def sought(kind: TextQueryKind | None, query: str | None) -> Sought:
    """A search text as a term; a bag of words is one word or another."""
    if query is None:
        return None
    if kind is None:
        return Either(tuple(Words(word) for word in re.findall(r"\w+", query)))
    return search_term(kind, query)


def written(text: str) -> list[str]:
    """The words of a text in lower case and without accents."""
    folded = unicodedata.normalize("NFKD", text.lower())
    return re.findall(r"[^\W_]+", "".join(c for c in folded if not unicodedata.combining(c)))


def found(field: str | None, term: Sought, tokens: Tokens) -> bool | None:
    """Whether a term is found in a field; None if it has no word to look for."""
    if field is None or term is None:
        return False
    words = tokens(field)
    match term:
        case Words():
            wanted = tokens(term.text)
            return all(word in words for word in wanted) if wanted else None
        case Phrase():
            wanted = tokens(term.text)
            places = range(len(words) - len(wanted) + 1)
            return any(words[at : at + len(wanted)] == wanted for at in places) if wanted else None
        case Prefix():
            *others, last = written(term.text) or [""]
            if not last:
                return None
            begun = any(word.startswith(last) for word in written(field) if tokens(word))
            rest = [token for other in others for token in tokens(other)]
            return begun and all(token in words for token in rest)
        case Either():
            answers = [found(field, part, tokens) for part in term.parts]
            return any(answers) if any(each is not None for each in answers) else None
        case Every():
            wanted_answers = [found(field, part, tokens) for part in term.wanted]
            known = [each for each in wanted_answers if each is not None]
            if not known:
                return None
            return all(known) and not any(found(field, part, tokens) for part in term.unwanted)


def leaves(term: Sought) -> list[Words | Phrase | Prefix]:
    """The parts that are looked for."""
    match term:
        case None:
            return []
        case Either():
            return [leaf for part in term.parts for leaf in leaves(part)]
        case Every():
            return [leaf for part in term.wanted for leaf in leaves(part)]
        case _:
            return [term]


def highlighted(field: str | None, term: Sought, style: str, tokens: Tokens) -> list[str] | None:
    """The marked parts of a field that is short enough to be one part."""
    if field is None:
        return None
    assert len(field) < 160, "the naive evaluator does not cut texts"
    runs = [(run.start(), run.end()) for run in re.finditer(r"[^\W_]+", field)]
    stream = [(token, at) for at, (a, b) in enumerate(runs) for token in tokens(field[a:b])]
    marked: set[int] = set()
    for leaf in leaves(term):
        if isinstance(leaf, Phrase):
            wanted = tokens(leaf.text)
            for first in range(len(stream) - len(wanted) + 1):
                if wanted and [token for token, _ in stream[first : first + len(wanted)]] == wanted:
                    marked |= set(range(stream[first][1], stream[first + len(wanted) - 1][1] + 1))
            continue
        single = tokens(leaf.text)
        if isinstance(leaf, Prefix):
            *others, last = written(leaf.text) or [""]
            single = [token for other in others for token in tokens(other)]
            marked |= {
                at
                for at, (a, b) in enumerate(runs)
                if last and tokens(field[a:b]) and written(field[a:b])[0].startswith(last)
            }
        marked |= {at for token, at in stream if token in single}
    if not marked:
        return []
    open_mark, close_mark = ("<mark>", "</mark>") if style == "html" else ("**", "**")
    shown = ""
    for at, character in enumerate(field):
        inside = [run for run, (a, b) in enumerate(runs) if a <= at < b]
        is_marked = bool(inside) and inside[0] in marked
        if not is_marked and character.isspace():
            before = [run for run, (_, b) in enumerate(runs) if not field[b:at].strip() and b <= at]
            behind = [run for run, (a, _) in enumerate(runs) if not field[at:a].strip() and a > at]
            is_marked = bool(before and behind and {before[-1], behind[0]} <= marked)
        shown += (
            f"\0{character}\0"
            if is_marked
            else html.escape(character) * (style == "html") + (character * (style != "html"))
        )
    parts = re.split("(\0[^\0]\0(?:\0[^\0]\0)*)", shown)
    for at in range(1, len(parts), 2):
        inner = parts[at].replace("\0", "")
        inner = html.escape(inner) if style == "html" else inner
        parts[at] = f"{open_mark}{inner}{close_mark}"
    return ["".join(parts)]

"""Is this in that: elements in lists, and text in text."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.evaluate.comparison import Datum, compare, equal_members

_NEVER = pa.scalar(False)


def list_contains(lists: Datum, items: Datum) -> Datum:
    """Whether each list has an element equal to its item; nulls never match."""
    if isinstance(lists, pa.Scalar):
        if not lists.is_valid or (isinstance(items, pa.Scalar) and not items.is_valid):
            return _NEVER
        return pc.is_in(items, value_set=equal_members(lists.values, items.type))
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    owners = pc.list_parent_indices(lists)
    wanted = items if isinstance(items, pa.Scalar) else items.take(owners)
    hits = compare("=", pc.list_flatten(lists), wanted)
    found = np.zeros(len(lists), np.bool_)
    found[owners.filter(hits).to_numpy()] = True
    return pa.array(found)


def text_contains(texts: Datum, needles: Datum) -> Datum:
    """Whether each text contains its needle, character by character."""
    if not isinstance(needles, pa.Scalar):
        return _pairwise(texts, needles, lambda text, needle: needle in text)
    return pc.match_substring(texts, needles.as_py()) if needles.is_valid else _NEVER


def text_starts_with(texts: Datum, prefixes: Datum) -> Datum:
    """Whether each text starts with its prefix."""
    if not isinstance(prefixes, pa.Scalar):
        return _pairwise(texts, prefixes, str.startswith)
    return pc.starts_with(texts, prefixes.as_py()) if prefixes.is_valid else _NEVER


def _pairwise(texts: Datum, parts: Datum, test: Callable[[str, str], bool]) -> pa.Array:
    """Arrow looks for one text in a column only; a column of parts is looked for row by row."""
    whole = repeat(texts.as_py()) if isinstance(texts, pa.Scalar) else texts.to_pylist()
    return pa.array(
        [
            text is not None and part is not None and test(text, part)
            for text, part in zip(whole, parts.to_pylist(), strict=False)
        ],
        pa.bool_(),
    )

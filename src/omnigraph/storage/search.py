"""Searching one table with Lance, and the analyser used for all text search.

Properties of Lance 14, which `tests/storage/test_search.py` verifies:

- with an inverted index, a match query finds all rows that share a token with it, including rows
  the index does not cover, and no deleted rows;
- without an index it compares raw words and does not normalize case, accents, stems or stop words.
  So `matching_rows` requires an index; without one, text is searched in memory;
- fuzzy queries miss rows that the index does not cover and do not stem, so they are not used;
- scores depend on the coverage of the index and are comparable within one result only;
- `nearest` without an index is a scan, in single precision. It leaves out vectors with NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.errors import StorageError
from omnigraph.model.arrow import ID
from omnigraph.storage.failures import lance_errors

Doubles = NDArray[np.float64]
Singles = NDArray[np.float32]

DISTANCE = "_distance"
SCORE = "_score"

_ANALYSER = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": None,
    "ascii_folding": True,
}
"""The parameters of an index with the tokens of `analysed_words`."""


_EXTRA_ROWS = 16
_MORE_ROWS = 4
"""The number of rows fetched beyond ``k``, and the factor by which it grows if they are too few."""


def analysed_words(text: str) -> list[str]:
    """The tokens of a text by Lance's default English analyser, in the order of the text.

    Its steps: split into maximal runs of letters and digits, drop those of 40 or more bytes of
    UTF-8, lowercase, stem, drop stop words, fold to ASCII where possible. Stop words are dropped
    after stemming and before folding: `ands` is dropped, and `thé` becomes the token `the`.
    """
    return [token.text for token in lance.tokenize(text)]


def written_words(text: str) -> list[str]:
    """The words of a text without stop words: in lower case and folded to ASCII where possible, but
    not stemmed."""
    return [token.text for token in lance.tokenize(text, stem=False)]


def plain_words(text: str) -> list[str]:
    """The words of a search text in the form of `written_words`, stop words included."""
    return [token.text for token in lance.tokenize(text, stem=False, remove_stop_words=False)]


def has_text_index(handle: LanceDataset, column: str) -> bool:
    """Whether a column has an index that was built with the default analyser."""
    with lance_errors(handle):
        return any(
            index.index_type == "Inverted"
            and index.field_names == [column]
            and _ANALYSER.items() <= index.details.items()
            for index in handle.describe_indices()
        )


def matching_rows(
    handle: LanceDataset,
    column: str,
    text: str,
    columns: Sequence[str] = (ID,),
    *,
    where: str | pc.Expression | None = None,
    with_row_id: bool = False,
) -> pa.Table:
    """All rows whose ``column`` shares a token with the text, with their `_score`, in any order.

    Raises `StorageError` if the column has no text index.
    """
    if not has_text_index(handle, column):
        raise StorageError(
            f"{handle.uri} has no text index on {column}",
            hint="build the index, or search in memory",
        )
    with lance_errors(handle, "text_search"):
        return handle.to_table(
            columns=[*columns, SCORE],
            full_text_query=MatchQuery(text, column),
            filter=where,
            prefilter=where is not None,
            with_row_id=with_row_id,
        )


def nearest_rows(
    handle: LanceDataset,
    column: str,
    query: Sequence[float],
    k: int,
    columns: Sequence[str] = (ID,),
    *,
    where: str | pc.Expression | None = None,
    with_row_id: bool = False,
) -> pa.Table:
    """At least the ``k`` rows nearest to a vector, and all rows that tie with the last of them.

    Rows have a `_distance` in single precision, which is only close to the squared distance: the
    caller computes exact distances for the ranking. Null vectors and vectors with a NaN component
    are left out. The whole column is scanned, since a vector index is approximate.
    """
    assert k > 0
    target = np.asarray(query, np.float64)
    single = target.astype(np.float32)
    nearest = {"column": column, "q": pa.array(single), "metric": "l2", "use_index": False}
    rows_max = k + _EXTRA_ROWS
    while True:
        with lance_errors(handle, "vector_search"):
            found = handle.to_table(
                columns=[*columns, DISTANCE],
                nearest={**nearest, "k": rows_max},
                filter=where,
                prefilter=where is not None,
                with_row_id=with_row_id,
            )
        if found.num_rows < rows_max or _is_enough(found[DISTANCE], k, target, single):
            return found
        rows_max *= _MORE_ROWS


def _is_enough(distances: pa.ChunkedArray, k: int, target: Doubles, single: Singles) -> bool:
    """Whether rows that were not fetched are certainly farther away than ``k`` fetched ones."""
    ascending = np.sort(distances.to_numpy().astype(np.float64))
    kth, last = ascending[k - 1], min(ascending[-1], float(np.finfo(np.float32).max))
    # Bounds of the error: each operation rounds once or underflows, and the query is rounded too.
    relative = 1.01 * (len(target) + 3) * 2.0**-24
    lost = len(target) * 2.0**-125
    moved = float(np.linalg.norm(target - single))
    farthest = np.sqrt(kth * (1 + relative) + lost) + moved
    return bool(farthest < np.sqrt(max(0.0, last * (1 - relative) - lost)) - moved)

"""Spark structured streaming: micro-batches into a graph, and its change feed out of it.

Spark passes on only the text of an error of another process; `failure_of` restores its type.
"""

from __future__ import annotations

import re

from omnigraph import errors
from omnigraph.errors import OmnigraphError

_TOLD = re.compile(
    r"omnigraph\.errors\.(?P<name>\w+): (?P<message>.*?)"
    r"(?:\nhint: (?P<hint>[^\n]*).*|\n? SQLSTATE.*|\n\n.*|\Z)",
    re.DOTALL,
)


def failure_of(failure: BaseException | str) -> OmnigraphError | None:
    """The error of Omnigraph inside an error of Spark, with its message and its hint.

    None if there is none. Details are lost.

    >>> failure_of("omnigraph.errors.ChangeFeedGap: the feed is not readable\\nhint: start anew")
    ChangeFeedGap('the feed is not readable')
    """
    told = _TOLD.search(str(failure))
    kind = None if told is None else getattr(errors, told["name"], None)
    if told is None or not isinstance(kind, type) or not issubclass(kind, OmnigraphError):
        return None
    error = kind.__new__(kind)
    OmnigraphError.__init__(error, told["message"], hint=told["hint"])
    return error

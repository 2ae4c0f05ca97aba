"""Moments for people."""

from __future__ import annotations

import datetime as dt


def moment(microseconds: int) -> str:
    """A moment in UTC, to the second.

    >>> moment(0)
    '1970-01-01 00:00:00'
    """
    start = dt.datetime(1970, 1, 1)
    return (start + dt.timedelta(microseconds=microseconds)).strftime("%Y-%m-%d %H:%M:%S")

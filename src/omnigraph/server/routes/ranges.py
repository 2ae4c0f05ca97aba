"""Conditions and ranges of HTTP, as far as blobs have them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.errors import BlobRangeError

_TAG = re.compile(r'(?P<weak>W/)?(?P<tag>"[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"bytes=(?P<first>[0-9]*)-(?P<last>[0-9]*)", re.ASCII)
_DIGITS_MAX = 19
"""Longer numbers are beyond every blob."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from ``start`` up to but not including ``end``."""

    start: int
    end: int


def matches(headers: Sequence[str], etag: str, *, weak: bool) -> bool:
    """Whether a list of tags, or `*`, names this one; a malformed list names none.

    ``weak`` comparison ignores the `W/` of a tag, strong comparison refuses tags that have it.
    """
    text = ", ".join(headers).strip()
    if text == "*":
        return True
    found = False
    for item in _items(text):
        tag = _TAG.fullmatch(item)
        if tag is None:
            return False
        if tag["tag"] == etag and (weak or tag["weak"] is None):
            found = True
    return found


def if_range_holds(headers: Sequence[str], etag: str) -> bool:
    """Whether a range may be served: there is no condition, or it is this one strong tag."""
    return not headers or (len(headers) == 1 and headers[0].strip() == etag)


def requested_span(header: str, size: int) -> Span | None:
    """The bytes a `Range` header asks for; None if it is not one plain byte range.

    Raises `BlobRangeError` for a range that the value does not have.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not (asked["first"] or asked["last"]):
        return None
    if max(len(asked["first"]), len(asked["last"])) > _DIGITS_MAX:
        return None
    if not asked["first"]:
        wanted = int(asked["last"])
        if wanted == 0 or size == 0:
            raise BlobRangeError(size, size, size)
        return Span(max(0, size - wanted), size)
    first = int(asked["first"])
    last = int(asked["last"]) if asked["last"] else size - 1
    if asked["last"] and last < first:
        return None
    if first >= size:
        raise BlobRangeError(first, max(first, last) + 1, size)
    return Span(first, min(last, size - 1) + 1)


def _items(text: str) -> list[str]:
    """The items of a list; commas inside of quotes belong to their item."""
    return [item.strip() for item in re.findall(r'(?:[^,"]|"[^"]*"?)+', text) if item.strip()]

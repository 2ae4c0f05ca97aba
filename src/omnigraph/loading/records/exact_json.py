"""Lossless JSON decoding: integers are exact, and repeated members are detected.

The fast decoder (orjson) turns integers beyond 64 bits into floats and keeps only the last of two
members with the same name. A scan of the raw bytes detects buffers where that may have happened.
These, and texts that orjson refuses, go to the slow decoder (`json`), which defines validity:

- RFC 8259, UTF-8 without a byte order mark, no `NaN` or `Infinity`, no comments;
- no lone surrogates, which no Arrow column could hold;
- numbers of any size: `1e999` is valid JSON, whether or not a property can hold it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import orjson

from omnigraph.model.records import dataclass

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a text is refused."""

    reason: str
    line: int = 1
    """The line within the text, from 1."""
    column: int | None = None
    duplicate: str | None = None
    """The name of a repeated member, if the text is otherwise valid."""
    at_end: bool = False
    """Whether the text ended too early."""


class _NotDecoded(ValueError):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def decode_all(
    raw: bytes, texts: Sequence[bytes], *, unique_members: bool
) -> list[object | Refusal]:
    """The value of each text, or why it is refused.

    ``raw`` is a buffer with all of ``texts``: scanning it at once is much cheaper than scanning
    them one by one. With ``unique_members``, repeated members are refused at any depth; otherwise
    the last one wins.
    """
    values = decode_plain(raw, texts, unique_members=unique_members)
    if values is None:
        return [_decode(text, unique_members=unique_members) for text in texts]
    return values


def decode_plain(
    raw: bytes, texts: Sequence[bytes], *, unique_members: bool
) -> list[object | Refusal] | None:
    """`decode_all` by the fast decoder; None if it refuses one of the texts."""
    values: list[object | Refusal]
    try:
        values = list(map(orjson.loads, texts))
    except orjson.JSONDecodeError:
        return None
    if _may_be_lossy(raw, values, unique_members=unique_members):
        for i, text in enumerate(texts):
            if _may_be_lossy(text, values[i : i + 1], unique_members=unique_members):
                values[i] = decode_exact(text, unique_members=unique_members)
    return values


def _decode(text: bytes, *, unique_members: bool) -> object | Refusal:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return decode_exact(text, unique_members=unique_members)
    if _may_be_lossy(text, [value], unique_members=unique_members):
        return decode_exact(text, unique_members=unique_members)
    return value  # type: ignore[no-any-return]


# --- detecting losses -----------------------------------------------------------------------------

_BEFORE_NUMBER = b"-:,[ \t\n\r"
_NUMBER_SHAPE = bytes.maketrans(b"123456789" + _BEFORE_NUMBER, b"0" * 9 + b"," * 8)
"""Maps digits to one byte, and characters that may precede a number to another."""
_WIDE_NUMBER = b"0" * 19
"""The shortest integers outside the range of orjson: those below -2^63 have 19 digits."""

_BEFORE_COLON = bytes.maketrans(b" \t\n\r", b'""""')
"""Maps white space to a quote, which precedes the colon of a member."""


def _may_be_lossy(raw: bytes, values: Sequence[object], *, unique_members: bool) -> bool:
    """Whether decoding may have lost something; False means that it has not."""
    shape = raw.translate(_NUMBER_SHAPE)
    if b"," + _WIDE_NUMBER in shape or shape.startswith(_WIDE_NUMBER):
        return True
    # Every member has a colon after a quote or white space. Colons inside texts only raise the
    # count of colons; lost and nested members only lower the count of members. Equal counts mean
    # that no member was lost.
    return unique_members and raw.translate(_BEFORE_COLON).count(b'":') != _outer_members(values)


def _outer_members(values: Sequence[object]) -> int:
    """The number of members of the records and of their `data`; deeper ones are not counted."""
    records = [value for value in values if isinstance(value, dict)]
    data = [record.get("data") for record in records]
    return sum(map(len, records)) + sum([len(each) for each in data if isinstance(each, dict)])


# --- the slow decoder -----------------------------------------------------------------------------


def decode_exact(text: bytes, *, unique_members: bool) -> object | Refusal:
    """The value of ``text``, or why it is refused, by the slow decoder."""
    decoder = _UNIQUE_MEMBERS if unique_members else _LAST_MEMBER_WINS
    try:
        characters = text.decode()
        value: object = decoder.decode(characters)
        if "\\u" in characters:
            _refuse_lone_surrogates(value)
    except _NotDecoded as error:
        return error.refusal
    except UnicodeDecodeError as error:
        return Refusal("it is not UTF-8", column=error.start + 1)
    except json.JSONDecodeError as error:
        if text.startswith(BOM):
            return Refusal("it starts with a byte order mark", column=1)
        at_end = error.pos >= len(characters.rstrip()) or error.msg.startswith("Unterminated")
        reason = error.msg[0].lower() + error.msg[1:]
        return Refusal(reason, error.lineno, error.colno, at_end=at_end)
    except RecursionError:
        return Refusal("it is nested too deeply")
    except ValueError:
        # Python limits the digits of an integer.
        return Refusal("a number has thousands of digits")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _NotDecoded(Refusal(f"duplicate JSON member '{name}'", duplicate=name))
        seen.add(name)
    raise AssertionError("fewer members than pairs without a repeated name")


def _no_constant(word: str) -> NoReturn:
    raise _NotDecoded(Refusal(f"{word} is not a JSON number"))


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _NotDecoded(Refusal("a text has a lone surrogate")) from None


_UNIQUE_MEMBERS = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant)
_LAST_MEMBER_WINS = json.JSONDecoder(parse_constant=_no_constant)

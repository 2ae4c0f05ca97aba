"""JSON without losses: every integer exact, every repeated member seen.

The fast decoder turns integers beyond 64 bits into floats and keeps only the last of two members
with the same name. Both can be suspected from the raw bytes without decoding them, and only what is
suspected is decoded again by the slow decoder, which decides. The slow one also decides whatever
the fast one refuses, so that there is one meaning of valid:

- RFC 8259, UTF-8 without a byte order mark, no `NaN` or `Infinity`, no comments;
- no lone surrogates, which no Arrow column could hold;
- numbers of any size: `1e999` is a number, and which properties it fits is not decided here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a text is no JSON value, or not one to be taken."""

    reason: str
    line: int = 1
    """Within the text, as ``column``."""
    column: int | None = None
    duplicate: str | None = None
    """The member that is there twice, if the text is otherwise valid."""
    at_end: bool = False
    """Whether the text ended too early."""


class _Refused(ValueError):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


def decode_all(
    raw: bytes, texts: Sequence[bytes], *, unique_members: bool
) -> list[object | Refusal]:
    """The value of each text, or why it has none.

    ``raw`` is a buffer that holds all of ``texts``: checking it in one go is much cheaper than
    checking them one by one. With ``unique_members``, a member given twice is refused, at any
    depth; otherwise the last one counts.
    """
    values = decode_plain(raw, texts, unique_members=unique_members)
    if values is None:
        return [_decode(text, unique_members=unique_members) for text in texts]
    return values


def decode_plain(
    raw: bytes, texts: Sequence[bytes], *, unique_members: bool
) -> list[object | Refusal] | None:
    """`decode_all`, or None as soon as the fast decoder refuses one of the texts."""
    values: list[object | Refusal]
    try:
        values = list(map(orjson.loads, texts))
    except orjson.JSONDecodeError:
        return None
    if _suspicious(raw, values, unique_members=unique_members):
        for i, text in enumerate(texts):
            if _suspicious(text, values[i : i + 1], unique_members=unique_members):
                values[i] = decode_exact(text, unique_members=unique_members)
    return values


def _decode(text: bytes, *, unique_members: bool) -> object | Refusal:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return decode_exact(text, unique_members=unique_members)
    if _suspicious(text, [value], unique_members=unique_members):
        return decode_exact(text, unique_members=unique_members)
    return value  # type: ignore[no-any-return]


# --- suspicion ------------------------------------------------------------------------------------

_BEFORE_NUMBER = b"-:,[ \t\n\r"
_NUMBER_SHAPE = bytes.maketrans(b"123456789" + _BEFORE_NUMBER, b"0" * 9 + b"," * 8)
"""Maps digits to one byte, and whatever can stand before a number to another."""
_WIDE_NUMBER = b"0" * 19
"""The shortest integers that the fast decoder may not hold: those below -2^63 have 19 digits."""

_BEFORE_COLON = bytes.maketrans(b" \t\n\r", b'""""')
"""Maps white space to the quote: what stands in front of a member's colon."""


def _suspicious(raw: bytes, values: Sequence[object], *, unique_members: bool) -> bool:
    """Whether ``values`` may differ from what ``raw`` says; never a wrong no."""
    shape = raw.translate(_NUMBER_SHAPE)
    if b"," + _WIDE_NUMBER in shape or shape.startswith(_WIDE_NUMBER):
        return True
    # Each member has a colon of its own, behind a quote or white space. Colons in texts can only
    # add to their number, and members that were overwritten or nested only lack on the other side:
    # equal numbers leave no room for a member that was lost.
    return unique_members and raw.translate(_BEFORE_COLON).count(b'":') != _outer_members(values)


def _outer_members(values: Sequence[object]) -> int:
    """Members of records and of their `data`, where nearly all members are."""
    records = [value for value in values if isinstance(value, dict)]
    data = [record.get("data") for record in records]
    return sum(map(len, records)) + sum([len(each) for each in data if isinstance(each, dict)])


# --- the decoder that decides ---------------------------------------------------------------------


def decode_exact(text: bytes, *, unique_members: bool) -> object | Refusal:
    """The value of ``text``, or why it has none: slow, and right without help."""
    decoder = _UNIQUE_MEMBERS if unique_members else _LAST_MEMBER_WINS
    try:
        characters = text.decode()
        value: object = decoder.decode(characters)
        if "\\u" in characters:
            _refuse_lone_surrogates(value)
    except _Refused as error:
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
        # Python's own bound on the digits of an integer.
        return Refusal("a number has thousands of digits")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _Refused(Refusal(f"duplicate JSON member '{name}'", duplicate=name))
        seen.add(name)
    raise AssertionError("fewer members than pairs without a repeated name")


def _no_constant(word: str) -> NoReturn:
    raise _Refused(Refusal(f"{word} is not a JSON number"))


def _refuse_lone_surrogates(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _Refused(Refusal("a text has a lone surrogate")) from None


_UNIQUE_MEMBERS = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant)
_LAST_MEMBER_WINS = json.JSONDecoder(parse_constant=_no_constant)

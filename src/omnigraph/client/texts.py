"""Texts of queries and schemas, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omnigraph.errors import InputError


class HasText(Protocol):
    """A text that was read already, with the file it came from; `Source` is one."""

    text: str
    path: str | None


@dataclass(slots=True)
class Text:
    """One text to be sent."""

    text: str
    path: str | None = None

    @classmethod
    def of(cls, origin: str | Path | HasText) -> Text:
        """A text, or what is in a file; raises `InputError` for what is not UTF-8."""
        if isinstance(origin, Path):
            return cls(_decoded(origin.read_bytes(), str(origin)), str(origin))
        if isinstance(origin, str):
            return cls(origin.removeprefix("\ufeff"))
        return cls(origin.text, origin.path)


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as bad:
        raise InputError(f"`{name}` is not UTF-8, from byte {bad.start} on") from None

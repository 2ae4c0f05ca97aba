"""A source text with its name, and positions in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from omnigraph.errors import CompileError, Position

E = TypeVar("E", bound=CompileError)

FILE_SUFFIXES = (".gq", ".pg")
_EXCERPT_MAX = 240
_SPACE_OR_BRACE = re.compile(r"[\s{}]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Span(NamedTuple):
    """A half-open range of characters of one source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of ``other``."""
        return Span(self.start, other.end)


class Source:
    """One text to compile: its characters and, when it came from a file, its path."""

    __slots__ = ("path", "text")

    def __init__(self, text: str, path: str | None = None) -> None:
        self.text = text
        self.path = path

    @classmethod
    def of(cls, origin: str | bytes | Path | Source, error: type[CompileError]) -> Source:
        """Take a text, raw bytes, a file path or a ready source.

        Raises ``error`` with the offset when the text is not UTF-8, and for the name of a file that
        is given as a text; a missing file raises ``OSError`` as usual. A byte order mark in front
        of the text is dropped.
        """
        if isinstance(origin, Source):
            return origin
        if isinstance(origin, str):
            # A str can hold lone surrogates, which have no UTF-8 form: refuse them here, not when
            # something derived from the text is encoded.
            lone = _LONE_SURROGATE.search(origin)
            if lone is not None:
                shown = cls(_LONE_SURROGATE.sub("\ufffd", origin))
                raise shown.error(error, "the text is not valid UTF-8", Span(*lone.span()))
            if origin.endswith(FILE_SUFFIXES) and not _SPACE_OR_BRACE.search(origin):
                hint = f'pass Path("{origin}"), or `--query {origin}` on the command line'
                at = Span(0, len(origin))
                raise cls(origin).error(error, "this names a file and is no text", at, hint=hint)
            return cls(origin.removeprefix("\ufeff"))
        path = str(origin) if isinstance(origin, Path) else None
        raw = origin.read_bytes() if isinstance(origin, Path) else origin
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as bad:
            head = cls(raw[: bad.start].decode("utf-8") + "\ufffd", path)
            at = Span(len(head.text) - 1, len(head.text))
            raise head.error(error, "the text is not valid UTF-8", at) from None
        return cls(text.removeprefix("\ufeff"), path)

    def position(self, span: Span) -> Position:
        """Line, column and byte range of ``span``; never narrower than one byte."""
        text = self.text
        start = min(max(span.start, 0), len(text))
        end = min(max(span.end, start + 1), max(len(text), start))
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        byte_start = _byte_length(text[:start])
        byte_width = _byte_length(text[start:end])
        return Position(
            path=self.path,
            line=text.count("\n", 0, start) + 1,
            column=start - line_start + 1,
            line_text=_excerpt(text[line_start:line_end].rstrip("\r")),
            width=max(1, min(end, line_end, line_start + _EXCERPT_MAX) - start),
            byte_start=byte_start,
            byte_end=byte_start + max(1, byte_width),
        )

    def error(
        self,
        kind: type[E],
        message: str,
        span: Span | None,
        *,
        hint: str | None = None,
        diagnostic: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> E:
        """Build (not raise) an error of ``kind`` that points at ``span``."""
        position = self.position(span) if span is not None else None
        return kind(message, position=position, hint=hint, diagnostic=diagnostic, details=details)


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _excerpt(line: str) -> str:
    """A line short enough to print; minified input can put a megabyte on one line."""
    return line if len(line) <= _EXCERPT_MAX else line[:_EXCERPT_MAX] + " …"

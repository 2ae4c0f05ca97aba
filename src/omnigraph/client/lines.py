"""JSON lines that arrive in chunks cut anywhere."""

from __future__ import annotations


class LineBuffer:
    """Gives out whole lines only, in blocks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The whole lines there are with this chunk, possibly none.

        >>> buffer = LineBuffer()
        >>> buffer.feed(b"one"), buffer.feed(b" line" + b"\\n" + b"tw")
        (b'', b'one line\\n')
        """
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return b""
        block = self._rest + head + newline
        self._rest = tail
        return block

    def end(self) -> bytes:
        """A last line without its end."""
        rest, self._rest = self._rest, b""
        return rest

"""Former spellings: they still work, and say what to write instead."""

from __future__ import annotations

from omnigraph.cli.output import Output


def warn_deprecated(output: Output, old: str, new: str) -> None:
    """Warn once that a spelling is on its way out."""
    output.warning(f"`{old}` is deprecated; write `{new}`")

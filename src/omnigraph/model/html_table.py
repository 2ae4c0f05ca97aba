"""Tables as notebooks show them. Everything in them is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from omnigraph.model.text_table import ELLIPSIS, one_line

CELL_MAX = 200
"""Characters of a cell; a longer one is cut."""


def html_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str | int]],
    colours: Sequence[str | None] = (),
) -> str:
    """Rows under their headers; numbers to the right, and a row in its colour if it has one.

    >>> html_table(["type"], [["a<b"]])
    '<table><thead><tr><th>type</th></tr></thead><tbody><tr><td>a&lt;b</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join(
        f"<tr{_styled('color', colours[at] if at < len(colours) else None)}>"
        f"{''.join(map(_cell, row))}</tr>"
        for at, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_line(text: str) -> str:
    """A line of text above or below a table."""
    return f"<p>{escape(one_line(text))}</p>"


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f"<td{_styled('text-align', 'right')}>{value}</td>"
    text = one_line(value)
    return f"<td>{escape(text if len(text) <= CELL_MAX else text[:CELL_MAX] + ELLIPSIS)}</td>"


def _styled(property: str, value: str | None) -> str:
    return f' style="{property}: {value}"' if value else ""

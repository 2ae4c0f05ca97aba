"""Tables of texts: aligned columns for terminals, and escaped HTML for notebooks."""

from __future__ import annotations

import datetime as dt
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Literal, TypeAlias

from omnigraph.model.records import dataclass

CellLayout: TypeAlias = Literal["truncate", "wrap"]

ELLIPSIS = "…"

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_CONTROLS |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
# These break a line or reverse the reading direction, which would affect neighbouring cells.
_CONTROLS |= {
    code: f"\\u{code:04x}"
    for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def cell_text(value: Any) -> str:
    """A JSON value as text: a string as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def one_line(text: str) -> str:
    """A text without line breaks and other control characters, which are spelled out."""
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROLS)


def display_width(text: str) -> int:
    """The width of a text on a terminal: wide characters count two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


@dataclass(frozen=True, slots=True)
class TextTable:
    """The layout of cells in columns."""

    width_max: int = 80
    """Maximum width of a column; a longer cell is cut or wrapped."""
    layout: CellLayout = "truncate"

    def lines(
        self, headers: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]
    ) -> Iterator[str]:
        """The header, a rule and the rows; ``numeric`` columns are aligned to the right."""
        fitted = [[self._fitted(one_line(cell)) for cell in row] for row in (headers, *rows)]
        widths = [
            max(display_width(part) for row in fitted for part in row[at])
            for at in range(len(headers))
        ]
        for number, row in enumerate(fitted):
            for depth in range(max(len(parts) for parts in row)):
                yield " | ".join(
                    _padded(parts[depth] if depth < len(parts) else "", width, right=is_number)
                    for parts, width, is_number in zip(row, widths, numeric, strict=True)
                ).rstrip()
            if number == 0:
                yield "-+-".join("-" * width for width in widths)

    def _fitted(self, text: str) -> list[str]:
        """The lines of one cell."""
        if display_width(text) <= self.width_max:
            return [text]
        if self.layout == "truncate":
            return [_head(text, self.width_max - 1) + ELLIPSIS]
        parts = []
        while text:
            part = _head(text, self.width_max) or text[0]
            parts.append(part)
            text = text[len(part) :]
        return parts


def _head(text: str, width: int) -> str:
    """The longest beginning of a text that fits a width."""
    used = 0
    for at, character in enumerate(text):
        used += _character_width(character)
        if used > width:
            return text[:at]
    return text


def _padded(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - display_width(text))
    return padding + text if right else text + padding


# --- HTML -----------------------------------------------------------------------------------------

CELL_MAX = 200
"""Maximum number of characters of a cell; a longer one is cut."""
ROWS_MAX = 100
"""Maximum number of rows that a notebook lists of a member."""
TINTS = {
    "green": "rgba(46, 160, 67, 0.2)",
    "yellow": "rgba(210, 153, 34, 0.25)",
    "red": "rgba(248, 81, 73, 0.2)",
}
"""Translucent backgrounds of rows: text keeps the colour of the page, light or dark."""
_MOMENTS_MIN = 10**14
"""Larger integers are shown as times (microseconds; this is in 1973): no count is as large."""


def html_table(
    headers: Sequence[str], rows: Sequence[Sequence[str | int]], colours: Sequence[str | None] = ()
) -> str:
    """A table; numbers are aligned to the right, and rows coloured if they have a colour.

    >>> html_table(["type"], [["a<b"]])
    '<table><thead><tr><th>type</th></tr></thead><tbody><tr><td>a&lt;b</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in headers)
    body = "".join(
        f"<tr{_styled('background', TINTS[colour] if (colour := _at(colours, at)) else None)}>"
        f"{''.join(map(_cell, row))}</tr>"
        for at, row in enumerate(rows)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _at(colours: Sequence[str | None], at: int) -> str | None:
    return colours[at] if at < len(colours) else None


def html_facts(title: str, facts: Mapping[str, Any]) -> str:
    """The members of a JSON object: single values as one table, each list of objects as another.

    >>> html_facts("Tag", {"created_at": 1_900_000_000_000_000}).partition("<tbody>")[2]
    '<tr><td>created at</td><td>2030-03-17 17:46:40 UTC</td></tr></tbody></table>'
    """
    rows: list[tuple[str, str | int]] = []
    tables: list[str] = []
    for name, value in _leaves(facts):
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            listed = [dict(_leaves(each)) for each in value[:ROWS_MAX]]
            headers = list(dict.fromkeys(key for each in listed for key in each))
            cells = [[_fact(key, each.get(key)) for key in headers] for each in listed]
            tables.append(html_line(name.replace("_", " ")) + html_table(headers, cells))
        elif value is not None and value != []:
            rows.append((name.replace("_", " "), _fact(name, value)))
    return html_line(title) + html_table(("", ""), rows) + "".join(tables)


def _leaves(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _fact(name: str, value: Any) -> str | int:
    """A value as a cell; times in readable form."""
    if isinstance(value, bool) or value is None:
        return "" if value is None else str(value).lower()
    if isinstance(value, int):
        if value >= _MOMENTS_MIN and name.endswith(("_at", "_us")):
            at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
            return at.strftime("%Y-%m-%d %H:%M:%S UTC")
        return value
    if isinstance(value, list):
        return ", ".join(cell_text(each) for each in value)
    return cell_text(value)


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

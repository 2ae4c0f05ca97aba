"""Columns for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.cli.output import Line, Styled

Cell = str | int


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[Line]:
    """Aligned columns under their headers, two spaces apart; columns of numbers to the right."""
    numeric = [
        bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(headers))
    ]
    texts = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(headers))]
    for number, row in enumerate(texts):
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        yield (Styled(line, "bold"),) if number == 0 else (line,)

"""How the rows of a query are printed: `table`, `kv`, `csv`, `jsonl` or `json`.

The first two are for people and go out line by line. The others are for programs and go out byte by
byte, so that a value arrives as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import Line, Output, Styled
from omnigraph.model.text_table import TextTable, one_line

if TYPE_CHECKING:
    from omnigraph.model.result import Result

NO_ROWS = "(no rows)"

_MUST_BE_QUOTED = frozenset(',"\r\n')


def write_result(
    output: Output, result: Result, format: str, layout: TextTable | None = None
) -> None:
    """Print a result, and its explanation where there is one.

    ``layout`` is for tables. A CSV file has no place for an explanation, which goes to stderr then.
    """
    match format:
        case "table":
            output.lines(_table_lines(result, layout or TextTable()))
        case "kv":
            output.lines(_kv_lines(result))
        case "csv":
            output.verbatim(b"".join(_csv_lines(result)))
        case "jsonl":
            output.verbatim(b"".join(_jsonl_lines(result)))
        case "json":
            output.verbatim(_json_bytes(result.to_dict(), indented=True))
        case _:
            raise AssertionError(f"unknown format {format}")
    if result.explain is not None:
        lines: list[Line] = [(line,) for line in str(result.explain).split("\n")]
        if format in ("table", "kv"):
            output.lines([(), *lines])
        elif format == "csv":
            output.notes(lines)


# --- for people -----------------------------------------------------------------------------------


def _heading(result: Result) -> Line:
    caption = f"{result.row_count} rows from {result.target} via {result.query_name}"
    return (Styled(caption, "bold"),)


def _table_lines(result: Result, layout: TextTable) -> Iterator[Line]:
    yield _heading(result)
    if not result.row_count:
        yield (NO_ROWS,)
        return
    rows = result.text_rows()
    for number, line in enumerate(layout.lines(result.columns, rows, result.numeric_columns())):
        yield (Styled(line, "cyan"),) if number == 0 else (line,)


def _kv_lines(result: Result) -> Iterator[Line]:
    yield _heading(result)
    if not result.row_count:
        yield (NO_ROWS,)
    for number, row in enumerate(result.text_rows(), 1):
        yield ()
        yield (Styled(f"row {number}", "bold"),)
        for name, cell in zip(result.columns, row, strict=True):
            yield (Styled(f"{one_line(name)}:", "cyan"), f" {one_line(cell)}")


# --- for programs ---------------------------------------------------------------------------------


def _csv_lines(result: Result) -> Iterator[bytes]:
    for row in (result.columns, *result.text_rows()):
        yield (",".join(map(_csv_field, row)) + "\n").encode()


def _csv_field(text: str) -> str:
    if _MUST_BE_QUOTED.isdisjoint(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _jsonl_lines(result: Result) -> Iterator[bytes]:
    yield _json_bytes({"kind": "metadata", **result.metadata()})
    for row in result.to_dict()["rows"]:
        yield _json_bytes(row)


def _json_bytes(document: Any, *, indented: bool = False) -> bytes:
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if indented else 0)
    return orjson.dumps(document, option=options)

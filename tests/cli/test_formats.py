"""C-CLI-031: each read format, on results made by hand."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.cli.output import ColorMode, Output
from omnigraph.cli.query import write_result
from omnigraph.model.result import Explanation, ReadTarget, Result
from omnigraph.model.text_table import TextTable

COMMIT = "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"
PEOPLE = {
    "name": ["ada", 'bo, the "2nd"', "c\rd"],
    "age": pa.array([36, None, 7], pa.int32()),
    "tags": pa.array([["x", "y"], [], None], pa.list_(pa.string())),
}


def result_of(columns: dict[str, Any], **options: Any) -> Result:
    settings: dict[str, Any] = {"query_name": "q", "target": ReadTarget("main")}
    return Result(pa.table(columns), **(settings | options))


def printed(
    result: Result, format: str, layout: TextTable | None = None, color: bool = False
) -> tuple[str, str]:
    """What goes to stdout and to stderr, as bytes would arrive there."""
    out, err = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(out, encoding="utf-8", newline="")
    output = Output(stdout, err, color=ColorMode.ALWAYS if color else ColorMode.NEVER)
    write_result(output, result, format, layout)
    stdout.flush()
    return out.getvalue().decode(), err.getvalue()


def test_c_cli_031_table():
    out, err = printed(result_of(PEOPLE), "table")
    assert out == (
        "3 rows from branch main via q\n"
        "name          |  age | tags\n"
        "--------------+------+-----------\n"
        'ada           |   36 | ["x", "y"]\n'
        'bo, the "2nd" | null | []\n'
        "c\\rd          |    7 | null\n"
    )
    assert err == ""


def test_c_cli_031_table_shows_newlines_and_control_characters():
    out, _ = printed(result_of({"t": ["a\nb", "\x1b[2J"]}), "table")
    assert out.splitlines()[2:] == ["-------", "a\\nb", "\\x1b[2J"]


def test_c_cli_031_a_cell_over_the_width_is_cut_or_wrapped():
    result = result_of({"t": ["abcdefgh"], "n": [1]})
    cut, _ = printed(result, "table", TextTable(4))
    assert cut.splitlines()[1:] == ["t    | n", "-----+--", "abc… | 1"]
    wrapped, _ = printed(result, "table", TextTable(4, "wrap"))
    assert wrapped.splitlines()[1:] == ["t    | n", "-----+--", "abcd | 1", "efgh |"]


def test_c_cli_031_widths_count_display_cells():
    out, _ = printed(result_of({"t": ["你好", "abc"], "n": [1, 2]}), "table")
    assert out.splitlines()[1:] == ["t    | n", "-----+--", "你好 | 1", "abc  | 2"]


def test_c_cli_031_kv():
    columns = {"name": ["ada", "b\no"], "age": pa.array([36, None], pa.int32())}
    out, _ = printed(result_of(columns, target=ReadTarget(None, COMMIT)), "kv")
    assert out == (
        f"2 rows from snapshot {COMMIT} via q\n"
        "\nrow 1\nname: ada\nage: 36\n"
        "\nrow 2\nname: b\\no\nage: null\n"
    )


def test_c_cli_031_csv_quotes_what_has_to_be_quoted():
    columns = {"a,b": ['x"y', "c\rd", "e\nf", "plain", "tab\t"], "n": [1, 2, 3, 4, 5]}
    out, _ = printed(result_of(columns), "csv")
    expected = '"a,b",n\n"x""y",1\n"c\rd",2\n"e\nf",3\nplain,4\ntab\t,5\n'
    assert out == expected
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert rows[1:] == [['x"y', "1"], ["c\rd", "2"], ["e\nf", "3"], ["plain", "4"], ["tab\t", "5"]]


def test_c_cli_031_csv_spells_null_and_nested_values_as_json():
    out, _ = printed(result_of(PEOPLE), "csv")
    rows = list(csv.reader(io.StringIO(out, newline="")))
    assert rows == [
        ["name", "age", "tags"],
        ["ada", "36", '["x", "y"]'],
        ['bo, the "2nd"', "null", "[]"],
        ["c\rd", "7", "null"],
    ]


def test_c_cli_031_jsonl_starts_with_metadata():
    result = result_of(PEOPLE, graph_commit_id=COMMIT)
    lines = [json.loads(line) for line in printed(result, "jsonl")[0].split("\n")[:-1]]
    assert lines[0] == {
        "kind": "metadata",
        "query_name": "q",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 3,
        "columns": ["name", "age", "tags"],
        "graph_commit_id": COMMIT,
    }
    assert lines[1:] == result.to_dict()["rows"]


def test_c_cli_031_json_is_the_read_object_indented():
    columns = {"when": pa.array([dt.datetime(2031, 4, 9)], pa.timestamp("ms", tz="UTC"))}
    result = result_of({**columns, "n": pa.array([2**63 - 1])}, graph_commit_id=COMMIT)
    out, _ = printed(result, "json")
    assert json.loads(out) == result.to_dict()
    assert '\n      "n": 9223372036854775807\n' in out
    assert "2031-04-09T00:00:00.000Z" in out


@pytest.mark.parametrize("format", ["table", "kv"])
def test_c_cli_031_no_rows_are_said_to_be_none(format: str):
    out, _ = printed(result_of({"n": pa.array([], pa.int64())}), format)
    assert out == "0 rows from branch main via q\n(no rows)\n"


def test_c_cli_031_no_rows_for_programs_keep_their_columns():
    empty = result_of({"n": pa.array([], pa.int64())})
    assert printed(empty, "csv")[0] == "n\n"
    assert json.loads(printed(empty, "jsonl")[0])["columns"] == ["n"]
    assert json.loads(printed(empty, "json")[0])["rows"] == []


@pytest.mark.parametrize("format", ["table", "kv"])
def test_styles_never_alter_the_text(format: str):
    import re

    colored, _ = printed(result_of(PEOPLE), format, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == printed(result_of(PEOPLE), format)[0]


@pytest.mark.parametrize("format", ["csv", "jsonl", "json"])
def test_formats_for_programs_are_never_coloured(format: str):
    assert "\x1b" not in printed(result_of(PEOPLE), format, color=True)[0]


def test_an_explanation_never_gets_between_the_rows():
    explained = result_of({"n": [1]}, explain=Explanation(("read q", "  Return n")))
    for format in ("table", "kv"):
        out, err = printed(explained, format)
        assert out.endswith("\n\nread q\n  Return n\n")
        assert err == ""
    assert printed(explained, "csv") == ("n\n1\n", "read q\n  Return n\n")
    for format in ("json", "jsonl"):
        out, err = printed(explained, format)
        assert "Return n" in out
        assert err == ""
    first = json.loads(printed(explained, "jsonl")[0].splitlines()[0])
    assert first["explain"] == {"plan": ["read q", "  Return n"]}


@pytest.mark.parametrize("format", ["csv", "jsonl", "json"])
def test_a_terminal_is_shown_control_characters_instead_of_sent_them(format: str):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    output = Output(out, io.StringIO(), color=ColorMode.NEVER)
    write_result(output, result_of({"t": ["\x1b[2J\x9b"]}), format)
    assert "\x1b" not in out.getvalue()
    assert "\x9b" not in out.getvalue()

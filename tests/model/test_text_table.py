"""Cells of text tables: what they say and how wide they are."""

from __future__ import annotations

import pytest

from omnigraph.model.receipts import CommitInfo, LoadedType, LoadReceipt
from omnigraph.model.text_table import (
    TINTS,
    TextTable,
    cell_text,
    display_width,
    html_table,
    one_line,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "null"),
        (True, "true"),
        (12, "12"),
        (0.5, "0.5"),
        ([1, None, "ü"], '[1, null, "ü"]'),
        ({"a": [1.5]}, '{"a": [1.5]}'),
    ],
)
def test_a_cell_is_a_string_as_it_is_or_json(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_what_would_break_a_line_or_a_terminal_is_spelled_out() -> None:
    assert one_line("a\nb\r\tc\x1b[2J\x85\u2028\u202e") == r"a\nb\r\tc\x1b[2J\x85\u2028\u202e"
    assert one_line("äöü → 你好") == "äöü → 你好"


@pytest.mark.parametrize(
    ("text", "width"), [("", 0), ("abc", 3), ("你好", 4), ("e\u0301", 1), ("ｱ", 1), ("Ａ", 2)]
)
def test_widths_count_display_cells(text: str, width: int) -> None:
    assert display_width(text) == width


def lines(table: TextTable, *rows: list[str], numeric: tuple[bool, ...] = (False, False)) -> str:
    return "\n".join(table.lines(["name", "n"], rows, numeric))


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    shown = lines(TextTable(), ["ada", "7"], ["你好", "1234"], numeric=(False, True))
    assert shown == "name |    n\n-----+-----\nada  |    7\n你好 | 1234"


def test_a_long_cell_is_cut_with_an_ellipsis() -> None:
    shown = lines(TextTable(5), ["abcdef", "x"], ["abcde", "y"], ["你好吗", "z"])
    assert shown.split("\n")[2:] == ["abcd… | x", "abcde | y", "你好… | z"]


def test_a_long_cell_is_wrapped() -> None:
    shown = lines(TextTable(4, "wrap"), ["abcdefghi", "x"], ["你好吗", "yy"])
    assert shown.split("\n")[2:] == ["abcd | x", "efgh |", "i    |", "你好 | yy", "吗   |"]


@pytest.mark.parametrize("layout", ["truncate", "wrap"])
def test_a_character_wider_than_its_column_does_not_hold_things_up(layout) -> None:
    assert list(TextTable(1, layout).lines(["你"], [["好"]], [False]))


def test_rows_are_tinted_and_their_text_keeps_the_colour_of_the_page():
    page = html_table(["a"], [["x"], ["y"]], ["yellow", None])
    assert page.count("background: rgba(") == 1 and "color:" not in page
    assert all(float(tint.rstrip(")").split(",")[-1]) < 0.5 for tint in TINTS.values())


def test_an_answer_shows_its_members_and_readable_times():
    commit = CommitInfo(
        "01C", "review", 7, "01B", None, "<b>ana</b>", 1_900_000_000_000_000, "load"
    )
    page = commit._repr_html_()
    assert "2030-03-17 17:46:40 UTC" in page and "&lt;b&gt;ana&lt;/b&gt;" in page
    assert "merged parent" not in page and "<b>" not in page
    load = LoadReceipt(
        branch="main",
        base_branch=None,
        branch_created=False,
        mode="append",
        nodes=(LoadedType("Person", 5, 2, 1, 1),),
        edges=(),
        actor_id=None,
        commit=commit,
    )
    page = load._repr_html_()
    assert "<td>commit.graph commit id</td><td>01C</td>" in page
    assert page.count("<table>") == 2 and "<th>records_read</th>" in page

"""What a read query returns."""

from __future__ import annotations

import datetime as dt
import json
import sys
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from omnigraph.errors import InputError, QueryCancelled
from omnigraph.model.governor import Governor
from omnigraph.model.result import (
    NODES_MAX,
    ExplainedRun,
    ExplainedStep,
    Explanation,
    ReadTarget,
    Result,
    graph_picture,
)

MOMENT = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)
COMMIT = "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"
UTC_MS = pa.timestamp("ms", tz="UTC")


def result_of(columns: dict[str, Any], **options: Any) -> Result:
    settings: dict[str, Any] = {
        "query_name": "q",
        "target": ReadTarget("main"),
        "graph_commit_id": COMMIT,
    }
    return Result(pa.table(columns), **(settings | options))


def people(count: int = 2) -> Result:
    return result_of(
        {
            "name": [f"p{n}" for n in range(count)],
            "age": pa.array([n or None for n in range(count)], pa.int64()),
        }
    )


# --- rows -----------------------------------------------------------------------------------------


def test_a_result_is_a_sequence_of_dicts() -> None:
    result = people(3)
    assert (len(result), result.row_count, result.columns) == (3, 3, ["name", "age"])
    expected = [{"name": "p0", "age": None}, {"name": "p1", "age": 1}, {"name": "p2", "age": 2}]
    assert list(result) == result.to_pylist() == expected


def test_rows_have_places_and_slices() -> None:
    rows = people(5)
    every = rows.to_pylist()
    assert (rows[0], rows[-1], rows[True]) == (every[0], every[-1], every[1])
    for cut in (slice(2), slice(-2, None), slice(None, None, -1), slice(1, 9, 2), slice(7, 9)):
        assert rows[cut] == every[cut], cut
    assert list(reversed(rows)) == every[::-1]
    with pytest.raises(IndexError, match="row 5 of 5"):
        rows[5]
    with pytest.raises(TypeError, match=r"`to_arrow\(\)\['age'\]` is the column"):
        rows["age"]  # type: ignore[call-overload]


def test_rows_become_python_values_in_blocks_that_a_governor_stops() -> None:
    result = people(5_000)
    looks = 0

    class Cancelling(Governor):
        def check(self) -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                self.cancel("enough")
            super().check()

    with pytest.raises(QueryCancelled, match="enough"), Cancelling():
        result.to_pylist()
    assert looks == 3
    assert result.to_pylist() == list(result)


def test_rows_have_python_values() -> None:
    struct = pa.struct([("id", pa.string()), ("seen", pa.list_(UTC_MS))])
    result = result_of(
        {
            "day": pa.array([dt.date(2031, 4, 9)]),
            "moment": pa.array([MOMENT], UTC_MS),
            "vector": pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)),
            "entity": pa.array([{"id": "a", "seen": [MOMENT, None]}], struct),
        }
    )
    (row,) = result
    assert row == {
        "day": dt.date(2031, 4, 9),
        "moment": MOMENT,
        "vector": [0.5, 1.5],
        "entity": {"id": "a", "seen": [MOMENT, None]},
    }
    assert row["moment"].tzinfo is dt.UTC
    assert row["entity"]["seen"][0].tzinfo is dt.UTC


def test_many_rows_and_chunks_are_read_in_order() -> None:
    chunks = pa.chunked_array([list(range(1500)), [], list(range(1500, 4000))])
    result = result_of({"n": chunks})
    assert [row["n"] for row in result] == list(range(4000))
    assert result.to_pylist() == list(result)


def test_c_qry_051_no_rows_still_have_columns() -> None:
    result = people(0)
    assert (list(result), result.to_pylist(), result.columns) == ([], [], ["name", "age"])
    assert result.to_arrow().schema.field("age").type == pa.int64()


def test_the_arrow_table_is_the_one_the_engine_gave() -> None:
    table = pa.table({"n": [1]})
    assert Result(table, query_name="q", target=ReadTarget("main")).to_arrow() is table


def test_other_libraries_read_a_result_through_the_c_interface() -> None:
    assert pa.table(people()).to_pylist() == people().to_pylist()


def test_pandas_columns_do_not_depend_on_nulls_and_stay_exact() -> None:
    huge = 2**63 - 1
    columns = {
        "n": pa.array([huge, None], pa.int64()),
        "u": pa.array([2**64 - 1, 0], pa.uint64()),
        "b": pa.array([True, None]),
        "moment": pa.array([MOMENT, None], UTC_MS),
    }
    frame = result_of(columns).to_pandas()
    assert [str(dtype) for dtype in frame.dtypes] == [
        *("Int64", "UInt64", "boolean", "datetime64[ms, UTC]")
    ]
    assert frame["n"][0] == huge
    assert frame["u"][0] == 2**64 - 1
    assert frame["moment"][0].to_pydatetime() == MOMENT


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=f"`to_{library}` needs {library}") as caught:
        getattr(people(), f"to_{library}")()
    assert caught.value.hint == f"install it with `pip install {library}`"


# --- JSON -----------------------------------------------------------------------------------------


def test_c_qry_062_the_read_object_names_query_target_and_commit() -> None:
    result = people()
    document = result.to_dict()
    assert document == {
        "query_name": "q",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "p0", "age": None}, {"name": "p1", "age": 1}],
        "graph_commit_id": COMMIT,
    }
    assert json.loads(result.to_json_bytes()) == document
    assert result.metadata() == {key: document[key] for key in document if key != "rows"}


def test_c_qry_061_what_is_unknown_or_empty_is_left_out() -> None:
    table = pa.table({})
    document = Result(table, query_name="q", target=ReadTarget(None, COMMIT)).to_dict()
    assert document == {
        "query_name": "q",
        "target": {"branch": None, "snapshot": COMMIT},
        "row_count": 0,
        "rows": [],
    }


def test_c_qry_061_safe_integers_are_strings() -> None:
    result = result_of({"n": [2**53, 1]})
    assert result.to_dict()["rows"] == [{"n": 2**53}, {"n": 1}]
    safe = json.loads(result.to_json_bytes(safe_integers=True))
    assert safe["rows"] == [{"n": str(2**53)}, {"n": 1}]


# --- to look at -----------------------------------------------------------------------------------


def test_a_result_shows_itself_as_a_small_table() -> None:
    assert repr(people()) == (
        "2 rows from branch main via q\nname |  age\n-----+-----\np0   | null\np1   |    1"
    )
    assert repr(people(0)) == "0 rows from branch main via q"


def test_a_long_result_shows_its_beginning_and_says_how_much_is_left() -> None:
    lines = repr(people(1000)).split("\n")
    assert (len(lines), lines[-2], lines[-1]) == (24, "p19  |   19", "… and 980 more rows")
    page = people(1000)._repr_html_()
    assert page.count("<tr>") == 21
    assert page.endswith("<p>… and 980 more rows</p>")
    assert "more rows" not in people(20)._repr_html_() + repr(people(20))


def test_html_is_escaped_and_long_cells_are_cut() -> None:
    result = result_of({"<b>": ["<script>", "x" * 500]}, query_name="a&b")
    page = result._repr_html_()
    assert "<th>&lt;b&gt;</th>" in page
    assert "<td>&lt;script&gt;</td>" in page
    assert "via a&amp;b" in page
    assert f"<td>{'x' * 200}…</td>" in page


def test_a_snapshot_is_named_by_its_commit() -> None:
    result = result_of({"n": [1]}, target=ReadTarget(None, COMMIT))
    assert repr(result).startswith(f"1 rows from snapshot {COMMIT} via q\n")


# --- explanations ---------------------------------------------------------------------------------

STORAGE = {"requests": 3, "round_trips": 2, "calls": {"lance": {"open": 1, "scan": 2}}}
RUN = ExplainedRun(
    "local",
    1.5,
    (ExplainedStep("Scan $p: Person", "lance scan", 12, 0.00123),),
    STORAGE,
)


def test_an_explanation_is_the_plan_and_how_it_ran() -> None:
    explanation = Explanation(("read q", "  Scan $p: Person"), RUN)
    assert str(explanation) == (
        "read q\n"
        "  Scan $p: Person\n"
        "\n"
        "ran on the local engine in 1.50 s\n"
        "  step             strategy    rows     time\n"
        "  Scan $p: Person  lance scan    12  1.23 ms\n"
        "storage: 3 requests in 2 round trips (1 lance open, 2 lance scan)"
    )
    guessed = replace(RUN, steps=(replace(RUN.steps[0], expected_rows=1_000),))
    assert str(Explanation((), guessed)).splitlines()[2:4] == [
        "  step             strategy    expected  rows     time",
        "  Scan $p: Person  lance scan      1000    12  1.23 ms",
    ]
    result = result_of({"n": [1]}, explain=explanation)
    assert result.to_dict()["explain"] == {
        "plan": ["read q", "  Scan $p: Person"],
        "engine": "local",
        "seconds": 1.5,
        "steps": [
            {"step": "Scan $p: Person", "strategy": "lance scan", "rows": 12, "seconds": 0.00123}
        ],
        "storage": STORAGE,
    }


def test_a_plan_that_did_not_run_has_no_numbers() -> None:
    explanation = Explanation(("read q", "  Return n = <1>"))
    assert str(explanation) == "read q\n  Return n = <1>"
    assert explanation.to_dict() == {"plan": ["read q", "  Return n = <1>"]}
    assert explanation._repr_html_() == "<pre>read q\n  Return n = &lt;1&gt;</pre>"


# --- pictures -------------------------------------------------------------------------------------


def test_entities_and_paths_are_drawn_as_a_graph_without_script_or_network():
    rows = [
        {"a": {"id": "1", "name": "<Ada>"}, "k": {"id": "e", "src": "1", "dst": "2"}, "n": 3},
        {"a": {"id": "2", "name": "Bo"}, "x.nodes": ["2", "3", "1"], "n": 4},
        {"a": {"id": "2", "name": "Bo"}, "k": {"id": "f", "src": "2", "dst": "2"}, "n": 5},
    ]
    picture = graph_picture(rows)
    assert picture is not None
    assert picture.count("<title>") == 3 and picture.count("<line") == 3
    assert "&lt;Ada&gt;" in picture and "<Ada>" not in picture
    assert "script" not in picture and picture.count("http") == 1  # the name of the format
    ElementTree.fromstring(picture)
    assert graph_picture([{"a": {"id": "1", "name": "Ada"}, "n": 1}]) is None
    many = [{"x.nodes": [str(n), str(n + 1)]} for n in range(NODES_MAX + 9)]
    crowded = graph_picture(many)
    assert crowded is not None and "… and 10 more nodes" in crowded


def test_a_result_with_paths_shows_table_and_graph():
    table = pa.table({"x.nodes": [["a", "b"], ["a", "c"]], "n": [1, 2]})
    page = Result(table, query_name="q", target=ReadTarget("main"))._repr_html_()
    assert page.count("<table>") == 1 and page.count("<svg") == 1 and page.count("<line") == 2
    plain = Result(table.select(["n"]), query_name="q", target=ReadTarget("main"))
    assert "<svg" not in plain._repr_html_()

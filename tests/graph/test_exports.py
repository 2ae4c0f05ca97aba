"""Exports as directories: what they hold, that a load gives it back, and when they appear."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import InputError, NotFound
from omnigraph.graph.facade import Graph
from omnigraph.model import exports, tables
from omnigraph.model.exports import EXPORT_FILE
from omnigraph.model.receipts import EXPORT_FORMATS
from omnigraph.model.types import INTEGER_BOUNDS, Scalar
from omnigraph.model.values import DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN
from tests.support.budgets import FEW

each_format = pytest.mark.parametrize("format", EXPORT_FORMATS)

# --- every type there is --------------------------------------------------------------------------

_COLUMNS = """
    text: String?  flag: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  moment: DateTime?  scan: Blob?  place: Vector(2)?  kind: enum(a, b)?
    texts: [String]?  flags: [Bool]?  numbers: [I64]?  large: [U64]?  floats: [F32]?
    days: [Date]?  moments: [DateTime]?
"""
SCHEMA = f"""
node Thing {{ key: String @key {_COLUMNS} }}
node Loose {{ {_COLUMNS} }}
node Dated {{ on: Date @key }}
node Pair {{ x: I64  y: String  @key(x, y) }}
edge Link: Thing -> Loose {{ {_COLUMNS} }}
edge Meets: Dated -> Pair
"""

_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_f32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
_f64 = st.floats(allow_nan=False, allow_infinity=False)
_days = st.integers(DAYS_MIN, DAYS_MAX)
_moments = st.integers(MS_MIN, MS_MAX)
_blobs = st.binary(max_size=20).map(lambda raw: "base64:" + base64.b64encode(raw).decode())
_i64, _u64 = (st.integers(*INTEGER_BOUNDS[each]) for each in (Scalar.I64, Scalar.U64))


def _list(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=3)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": _texts,
    "flag": st.booleans(),
    "i64": _i64,
    "u64": _u64,
    "f32": _f32,
    "f64": _f64,
    "i32": st.integers(*INTEGER_BOUNDS[Scalar.I32]),
    "u32": st.integers(*INTEGER_BOUNDS[Scalar.U32]),
    "day": _days,
    "moment": _moments,
    "scan": _blobs,
    "kind": st.sampled_from(["a", "b"]),
    "place": st.lists(_f32, min_size=2, max_size=2),
    "texts": _list(_texts),
    "flags": _list(st.booleans()),
    "numbers": _list(_i64),
    "large": _list(_u64),
    "floats": _list(_f32),
    "days": _list(_days),
    "moments": _list(_moments),
}
_data = st.fixed_dictionaries(
    {}, optional={name: st.none() | values for name, values in _VALUES.items()}
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A small graph as lines: nodes with and without keys, and edges between them."""
    keys = draw(st.lists(_texts.filter(bool), min_size=1, max_size=3, unique=True))
    lines: list[Any] = [{"type": "Thing", "data": {**draw(_data), "key": key}} for key in keys]
    lines += [{"type": "Loose", "data": {**draw(_data), "id": name}} for name in ("l1", "l2")]
    for number in range(draw(st.integers(0, 2))):
        ends = {"from": draw(st.sampled_from(keys)), "to": "l1"}
        lines.append({"edge": "Link", **ends, "data": {**draw(_data), "id": f"e{number}"}})
    day = draw(_days)
    pair = {"x": draw(_i64), "y": draw(_texts)}
    lines.append({"type": "Dated", "data": {"on": day}})
    lines.append({"type": "Pair", "data": pair})
    pair_id = json.dumps([str(pair["x"]), pair["y"]], ensure_ascii=False, separators=(",", ":"))
    lines.append({"edge": "Meets", "from": str(day), "to": pair_id, "data": {"id": "m"}})
    return b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Graph]:
    """Two graphs of one schema with every kind of property."""
    folder = tmp_path_factory.mktemp("round-trip")
    first, second = (og.init(folder / name, schema=SCHEMA) for name in ("a.omni", "b.omni"))
    return first, second


_numbers = itertools.count()


@each_format
@FEW
@given(lines=records())
def test_c_pip_041_a_load_of_an_export_gives_the_same_graph(
    pair: tuple[Graph, Graph], format: Any, lines: bytes
) -> None:
    """C-SCH-055: ids, values, nulls and ends, of every type of property."""
    source, target = pair
    every = ("Thing", "Loose", "Dated", "Pair", "Link", "Meets")
    source.load(data=lines, mode="overwrite", replace_types=every, engine="local")
    place = Path(source.uri).parent / f"export-{next(_numbers)}"
    receipt = source.export_to(place, format=format)
    assert receipt.entities == lines.count(b"\n")
    target.load(place, mode="overwrite", engine="local")
    assert b"".join(target.export()) == b"".join(source.export())


# --- a graph to look at ---------------------------------------------------------------------------

AIR = """
node Airport { code: String @key  city: String?  opened: Date?  tags: [String]?  plan: Blob? }
node Unused { name: String @key }
edge Route: Airport -> Airport { km: F32? }
"""
AIRPORTS = """\
{"type": "Airport", "data": {"code": "OSL", "city": "", "opened": "1998-10-08", "tags": ["a", "b"]}}
{"type": "Airport", "data": {"code": "AMS", "tags": [], "plan": "base64:aGk="}}
{"edge": "Route", "from": "OSL", "to": "AMS", "data": {"id": "r1", "km": 0.1}}
"""


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = og.init(tmp_path_factory.mktemp("air") / "air.omni", schema=AIR)
    made.load(data=AIRPORTS, mode="append", engine="local")
    return made


@pytest.fixture
def new(tmp_path: Path) -> Callable[[], Graph]:
    return lambda: og.init(tmp_path / "new.omni", schema=AIR)


def names(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*.*")}


@each_format
def test_there_are_files_for_each_type_and_a_description(
    air: Graph, tmp_path: Path, format: Any
) -> None:
    heard: list[int] = []
    receipt = air.export_to(tmp_path / "out", format=format, progress=heard.append)
    files = {f"{kind}/part-00000.{format}" for kind in ("nodes/Airport", "nodes/Unused")}
    assert names(tmp_path / "out") == {*files, f"edges/Route/part-00000.{format}", EXPORT_FILE}
    assert json.loads((tmp_path / "out" / EXPORT_FILE).read_text()) == receipt.to_dict()
    assert [(each.type_name, each.rows) for each in receipt.types] == [
        ("Route", 1),
        ("Airport", 2),
        ("Unused", 0),
    ]
    assert receipt.graph_commit_id == air.list_commits()[0].graph_commit_id
    assert sum(heard) == receipt.entities == 3
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_the_files_are_tables_that_others_read(air: Graph, tmp_path: Path) -> None:
    air.export_to(tmp_path / "p")
    air.export_to(tmp_path / "c", format="csv")
    table = pq.read_table(tmp_path / "p" / "nodes" / "Airport")
    assert table.schema.names == ["id", "city", "code", "opened", "plan", "tags"]
    assert table["opened"].to_pylist() == [dt.date(1998, 10, 8), None]
    csv = (tmp_path / "c" / "nodes" / "Airport" / "part-00000.csv").read_text()
    assert csv.splitlines()[1:] == [
        '"OSL","","OSL",1998-10-08,,"[""a"",""b""]"',
        '"AMS",,"AMS",,"base64:aGk=","[]"',
    ]
    found = duckdb.execute(f"select km from '{tmp_path}/p/edges/Route/*.parquet'").fetchall()
    assert found == [(pytest.approx(0.1),)]


def test_c_pip_041_only_some_types_and_an_older_commit(air: Graph, tmp_path: Path) -> None:
    then = air.list_commits()[0].graph_commit_id
    air.create_branch("review")
    air.mutate('query q { insert Airport { code: "NEW" } }', branch="review")
    receipt = air.export_to(tmp_path / "one", types=["Airport"], branch="review")
    assert [(each.type_name, each.rows) for each in receipt.types] == [("Airport", 3)]
    old = air.export_to(tmp_path / "two", types=["Airport"], branch="review", snapshot=then)
    assert (old.entities, old.graph_commit_id) == (2, then)
    air.delete_branch("review")
    with pytest.raises(NotFound, match="there is no type 'Airprt'"):
        air.export_to(tmp_path / "three", types=["Airprt"])
    assert not (tmp_path / "three").exists()


@each_format
def test_a_large_type_has_several_files_and_groups(
    air: Graph, new: Callable[[], Graph], tmp_path: Path, monkeypatch: Any, format: Any
) -> None:
    monkeypatch.setattr(exports, "FILE_ROWS", 1)
    monkeypatch.setattr(exports, "GROUP_ROWS", 1)
    monkeypatch.setattr(tables, "BATCH_ROWS", 1)
    monkeypatch.setattr("omnigraph.branching.table_rows.ROWS_PER_READ", 1)
    receipt = air.export_to(tmp_path / "out", format=format)
    (airports,) = (each for each in receipt.types if each.type_name == "Airport")
    assert len(airports.files) == 2
    target = new()
    target.load(tmp_path / "out", mode="append")
    assert b"".join(target.export()) == b"".join(air.export())


# --- when it appears ------------------------------------------------------------------------------


def test_an_earlier_export_is_replaced_only_if_asked_to(air: Graph, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "out"
    air.export_to(place, types=["Airport"])
    with pytest.raises(InputError, match="holds an export") as caught:
        air.export_to(place)
    assert "overwrite" in (caught.value.hint or "")
    air.export_to(place, format="csv", overwrite=True)
    assert not list(place.rglob("*.parquet"))
    assert len(list(place.rglob("*.csv"))) == 3


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_export_is_never_replaced(air: Graph, tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    with pytest.raises(InputError, match="is not empty, and no export"):
        air.export_to(tmp_path / "photos", overwrite=overwrite)
    with pytest.raises(InputError, match="is a file"):
        air.export_to(tmp_path / "photos" / "one.jpg", overwrite=overwrite)
    with pytest.raises(InputError, match="lies in the graph"):
        air.export_to(Path(air.uri) / "out", overwrite=overwrite)
    with pytest.raises(InputError, match="no export format 'xlsx'"):
        air.export_to(tmp_path / "new", format="xlsx")  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    assert air.export_to(tmp_path / "empty", overwrite=overwrite).entities == 3


@pytest.mark.parametrize("before", ["nothing", "export"])
def test_an_export_that_fails_leaves_what_was_there(
    air: Graph, tmp_path: Path, monkeypatch: Any, before: str
) -> None:
    place = tmp_path / "out"
    if before == "export":
        air.export_to(place, types=["Airport"])
    held = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}

    def fail(rows: int) -> None:
        assert any(".partial-" in path.name for path in tmp_path.iterdir())
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        air.export_to(place, overwrite=True, progress=fail)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == held
    monkeypatch.setattr(Path, "rename", _failing_second(Path.rename))
    if before == "export":
        with pytest.raises(OSError, match="rename"):
            air.export_to(place, overwrite=True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == held


def _failing_second(rename: Any) -> Any:
    calls = itertools.count()

    def renamed(self: Path, target: Path) -> Any:
        if next(calls) == 1:
            raise OSError("rename")
        return rename(self, target)

    return renamed


# --- loading it -----------------------------------------------------------------------------------


@each_format
def test_an_overwrite_empties_the_types_that_an_export_has_without_entities(
    air: Graph, new: Callable[[], Graph], tmp_path: Path, format: Any
) -> None:
    air.export_to(tmp_path / "out", format=format)
    target = new()
    target.mutate('query q { insert Unused { name: "x" } insert Airport { code: "OLD" } }')
    target.load(tmp_path / "out", mode="overwrite")
    assert b"".join(target.export()) == b"".join(air.export())


@pytest.mark.parametrize("harm", ["interrupted", "gone", "cut", "newer", "garbled"])
def test_an_export_that_is_not_complete_is_refused(
    air: Graph, new: Callable[[], Graph], tmp_path: Path, harm: str
) -> None:
    place = tmp_path / "out"
    air.export_to(place, format="jsonl")
    described = json.loads((place / EXPORT_FILE).read_text())
    file = place / "nodes" / "Airport" / "part-00000.jsonl"
    match harm:
        case "interrupted":
            (place / EXPORT_FILE).write_text(json.dumps({**described, "complete": False}))
        case "gone":
            file.unlink()
        case "cut":
            os.truncate(file, file.stat().st_size // 2)
        case "newer":
            (place / EXPORT_FILE).write_text(json.dumps({"omnigraph_export": 2}))
        case "garbled":
            (place / EXPORT_FILE).write_text("{")
    target = new()
    with pytest.raises(InputError, match="is not complete"):
        target.load(place, mode="append")
    assert target.table("Airport").to_arrow().num_rows == 0


def test_an_interrupted_export_says_so_in_its_own_folder(
    air: Graph, new: Callable[[], Graph], tmp_path: Path
) -> None:
    def killed(rows: int) -> None:
        (staged,) = tmp_path.glob(".out.partial-*")
        staged.rename(tmp_path / "left")  # as if the process had died here
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        air.export_to(tmp_path / "out", format="jsonl", progress=killed)
    with pytest.raises(InputError, match="it was interrupted"):
        new().load(tmp_path / "left", mode="append")


def test_a_null_in_a_list_is_refused_where_a_load_would_refuse_it(
    new: Callable[[], Graph], tmp_path: Path
) -> None:
    graph = new()
    graph.load(
        data='{"type": "Airport", "data": {"code": "OSL", "tags": ["a", null]}}', mode="append"
    )
    for format in EXPORT_FORMATS:
        if format == "jsonl":
            graph.export_to(tmp_path / format, format=format)
        else:
            with pytest.raises(InputError, match=r"Airport\.tags of 'OSL' is a list"):
                graph.export_to(tmp_path / format, format=format)
    again = og.init(tmp_path / "again.omni", schema=AIR)
    again.load(tmp_path / "jsonl", mode="append")
    assert b"".join(again.export()) == b"".join(graph.export())


def test_vectors_of_an_export_keep_their_bits(tmp_path: Path) -> None:
    schema = "node V { key: String @key  v: Vector(64) }"
    vector = np.random.default_rng(7).normal(size=64).astype(np.float32)
    source = og.init(tmp_path / "a.omni", schema=schema)
    source.mutate(
        "query q($k: String, $v: Vector(64)) { insert V { key: $k, v: $v } }",
        {"k": "x", "v": vector},
    )
    for format in EXPORT_FORMATS:
        source.export_to(tmp_path / format, format=format)
        target = og.init(tmp_path / f"{format}.omni", schema=schema)
        target.load(tmp_path / format, mode="append")
        (found,) = target.table("V").to_arrow()["v"].to_pylist()
        assert np.array_equal(np.array(found, np.float32), vector)

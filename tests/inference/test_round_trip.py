"""The main promise: the inferred schema and load take the very same input, and keep every value."""

from __future__ import annotations

import datetime as dt
import json
import math
import shlex
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.model.types import Scalar, ValueType
from tests.support.budgets import FEW

_NAMES = st.one_of(
    st.sampled_from(["id", "ID", "from", "to", "src", "_rowid", "IMDB Rating", "a=b", "lower(x)"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)
_DATES = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)).map(dt.date.isoformat)
_CELLS = [
    st.integers(-(2**70), 2**70).map(str),
    st.integers(0, 3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.booleans().map(lambda value: str(value).lower()),
    _DATES,
    st.one_of(_DATES, _DATES.map(lambda day: f"{day}T10:00:00Z")),
    st.sampled_from(["low", "high"]),
    st.lists(st.integers(0, 9), max_size=3).map(json.dumps),
    _TEXTS,
    st.one_of(st.integers(0, 9).map(str), _TEXTS),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """A header, which may repeat names, and rows of cells, which may be empty."""
    names = draw(st.lists(_NAMES, min_size=2, max_size=5))
    columns = [
        st.one_of(st.just(""), cells) if draw(st.booleans()) else cells
        for cells in (draw(st.sampled_from(_CELLS)) for _ in names)
    ]
    rows = draw(st.lists(st.tuples(*columns).map(list), max_size=12))
    return names, rows


def plain(value: Any) -> Any:
    """A value of the graph, or the cell it was loaded from, in a form in which both are equal."""
    if value is None or value == "":
        return None
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, str):
        return value if isinstance(value, bool | dt.datetime) else float(value)
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for read in (float, _moment, json.loads):
        with suppress(ValueError):
            found = read(value)
            return plain(found) if isinstance(found, list) else found
    return value


def _moment(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def stored(value: Any, type: ValueType) -> Any:
    """`plain` of a value that was exported, where days and milliseconds are numbers."""
    if value is not None and type.scalar in (Scalar.DATE, Scalar.DATETIME):
        unit = "days" if type.scalar is Scalar.DATE else "milliseconds"
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(**{unit: value})
    return plain(value)


def in_quotes(cell: str) -> str:
    """A cell in quotes; without them, if it is empty and so null."""
    return f'"{cell.replace(chr(34), chr(34) * 2)}"' if cell else ""


def loaded_rows(paths: dict[str, Path], folder: str) -> dict[str, Counter[str]]:
    """Each file inferred by itself, all loaded into one graph, and what that has then."""
    inferred = {name: og.infer_schema({name: path}) for name, path in paths.items()}
    arguments: dict[str, Any] = {}
    for each in inferred.values():
        for argument, value in each.load_arguments.items():
            arguments.setdefault(argument, {}).update(value)
    graph = og.init(f"{folder}/graph.omni", "".join(each.text for each in inferred.values()))
    graph.load(mode="append", **arguments)
    found: dict[str, Counter[str]] = {name: Counter() for name in paths}
    for line in b"".join(graph.export()).splitlines():
        record = json.loads(line)
        (type,) = inferred[record["type"]].types
        values = {
            each: stored(record["data"].get(each.name), each.type) for each in type.properties
        }
        by_column = sorted(
            (each.key if isinstance(each.key, int) else 0, each.column, value)
            for each, value in values.items()
        )
        found[type.name][repr(by_column)] += 1
    return found


@settings(FEW, suppress_health_check=list(HealthCheck))
@given(st.lists(tables(), min_size=1, max_size=6))
def test_c_pip_039_random_csv_files_are_inferred_loaded_and_exported_equal(given):
    with TemporaryDirectory() as folder:
        paths, expected = {}, {}
        for number, (names, rows) in enumerate(given):
            path = paths[f"T{number}"] = Path(folder) / f"{number}.csv"
            lines = [",".join(map(in_quotes, row)) for row in (names, *rows)]
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
            expected[f"T{number}"] = Counter(
                repr([(at, names[at], plain(cell)) for at, cell in enumerate(row)]) for row in rows
            )
        assert loaded_rows(paths, folder) == expected


JSON_VALUES = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    _DATES,
    st.lists(_TEXTS, max_size=3),
    _TEXTS,
]


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some objects with the same members; one that cannot be named is refused elsewhere."""
    members = _NAMES.filter(lambda name: "`" not in name)
    names = draw(st.lists(members, min_size=2, max_size=4, unique=True))
    kinds = {name: st.one_of(st.none(), draw(st.sampled_from(JSON_VALUES))) for name in names}
    return draw(st.lists(st.fixed_dictionaries(kinds), min_size=1, max_size=8))


@settings(FEW, suppress_health_check=list(HealthCheck))
@given(st.lists(objects(), min_size=1, max_size=6))
def test_c_pip_039_random_typed_rows_are_inferred_loaded_and_exported_equal(given):
    with TemporaryDirectory() as folder:
        paths, expected = {}, {}
        for number, rows in enumerate(given):
            suffix = ("jsonl", "parquet")[number % 2]
            path = paths[f"T{number}"] = Path(folder) / f"{number}.{suffix}"
            if suffix == "jsonl":
                path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            else:
                pq.write_table(pa.Table.from_pylist(rows), path)
            places = (
                dict.fromkeys(rows[0], 0)
                if suffix == "jsonl"
                else {name: at for at, name in enumerate(rows[0])}
            )
            expected[f"T{number}"] = Counter(
                repr(sorted((places[name], name, plain(row[name])) for name in row)) for row in rows
            )
        assert loaded_rows(paths, folder) == expected


def test_c_pip_039_the_printed_commands_create_the_graph_and_load_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    examples = Path(__file__).parents[2] / "examples" / "airports"
    monkeypatch.chdir(tmp_path)
    for path in examples.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert main(["infer", "airports.csv", "countries.csv", "flights.csv"]) == 0
    text = capsys.readouterr().out
    Path("schema.pg").write_text(text, encoding="utf-8")
    commands = [
        line.removeprefix("// ") for line in text.splitlines() if line.startswith("// omni")
    ]
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    counts = {
        each.type_name: each.entity_count for each in og.open("graph.omni").snapshot().datasets
    }
    assert counts == {"Airport": 12, "Country": 5, "Flight": 18, "AirportCountry": 12}


def test_vectors_keep_their_components_as_f32(tmp_path: Path):
    rows = [[math.pi * i / 7 for i in range(8)], [1.5] * 8]
    inferred = og.infer_schema({"Word": pa.table({"word": ["a", "b"], "vector": rows})})
    graph, _ = inferred.create_graph(str(tmp_path / "graph.omni"))
    found = [json.loads(line)["data"] for line in b"".join(graph.export()).splitlines()]
    by_word = {each["word"]: each["vector"] for each in found}
    assert by_word["b"] == rows[1]
    assert by_word["a"] == pytest.approx(rows[0], rel=1e-6)

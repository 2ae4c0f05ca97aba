"""Queries on Spark: frames, types, errors, limits, explanations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.engines.spark import tail
from omnigraph.errors import InputError, QueryTimeout
from omnigraph.model.governor import Governor
from omnigraph.model.result import Result
from tests.support.pages import ROOT, run_page

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark_queries"),
    pytest.mark.usefixtures("spark"),
]

SCHEMA = """
node Thing {
    name: String @key
    small: U32?
    large: U64?
    count: I64?
    ratio: F64?
    at: DateTime?
    on: Date?
    tags: [String]?
    moments: [DateTime]?
    vec: Vector(2)?
}
edge Linked: Thing -> Thing { weight: F64? }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("spark") / "things.omni", schema=SCHEMA)
    full = {
        "name": "a",
        "small": 2**32 - 1,
        "large": 2**64 - 1,
        "count": 2**63 - 1,
        "ratio": 0.5,
        "at": "2026-01-02T03:04:05.678Z",
        "on": "0001-01-01",
        "tags": ["x", "y"],
        "moments": ["1969-12-31T23:59:59.999Z"],
        "vec": [1.5, 2.5],
    }
    things = [full, {"name": "b", "count": 1}, {"name": "c", "count": 2, "large": 3}]
    records: list[dict[str, Any]] = [{"type": "Thing", "data": thing} for thing in things]
    records += [{"edge": "Linked", "from": one, "to": other} for one, other in ("ab", "bc", "ca")]
    graph.load(data=b"\n".join(map(orjson.dumps, records)), mode="append")
    return graph


def both(graph: og.Graph, text: str, **more: Any) -> Iterator[Result]:
    for engine in ("local", "spark"):
        yield graph.query(text, engine=engine, **more)


def test_c_pip_024_every_type_has_the_same_values_and_arrow_type(graph: og.Graph):
    text = """query q() {
      match { $t: Thing } return { $t.*, $t.large as l, $t.at as at } order { $t.name }
    }"""
    local, spark = both(graph, text)
    assert spark.to_arrow().schema == local.to_arrow().schema
    assert spark.to_arrow().equals(local.to_arrow())
    assert spark.to_dict() == local.to_dict()


def test_a_frame_has_the_types_of_spark_and_is_computed_by_spark(graph: og.Graph):
    text = """query q() {
      match { $t: Thing  $t.large is not null }
      return { $t.large as large, $t.at as at, $t.moments as moments, $t.vec as vec, $t.* }
      order { $t.name }
    }"""
    result = graph.query(text, engine="spark")
    frame = result.to_spark()
    types = dict(frame.dtypes)
    assert types["large"] == "decimal(20,0)"
    assert types["at"] == "timestamp"
    assert types["moments"] == "array<timestamp>"
    assert types["vec"] == "array<float>"
    assert result._rows._collected is None  # type: ignore[union-attr]
    first, second = frame.collect()
    assert first["large"] == Decimal(2**64 - 1)
    assert first["at"].astimezone(dt.UTC).microsecond == 678_000
    assert first["t"]["name"] == "a" and second["t"]["large"] == Decimal(3)
    assert frame.where("vec is null").count() == 1


def test_rows_of_this_process_are_no_frame(graph: og.Graph):
    result = graph.query("query q() { match { $t: Thing } return { $t.name } }")
    with pytest.raises(InputError, match="not computed by Spark"):
        result.to_spark()


def test_an_integer_that_does_not_fit_is_the_error_of_the_local_engine(graph: og.Graph):
    text = "query q() { match { $t: Thing } return { $t.count + 1 as n } order { n } }"
    raised = []
    for engine in ("local", "spark"):
        with pytest.raises(InputError) as caught:
            graph.query(text, engine=engine).to_pylist()
        raised.append(str(caught.value))
    assert raised[0] == raised[1]


def test_a_condition_that_can_fail_is_not_evaluated_for_nodes_that_no_hop_reaches(
    graph: og.Graph,
):
    text = """query q() {
      match { $t: Thing { name: "a" }  $t linked $u  $u.count + 1 < 10 }
      return { $u.name }
    }"""
    local, spark = both(graph, text)
    assert spark.to_pylist() == local.to_pylist() == [{"u.name": "b"}]


def test_a_query_is_cancelled_at_its_deadline(graph: og.Graph):
    text = "query q() { match { $a: Thing  $b: Thing } return { count(*) as n } }"
    governor = Governor(timeout_s=0.000_001)
    with pytest.raises(QueryTimeout):
        graph.query(text, engine="spark", governor=governor).to_pylist()


def test_explain_says_how_each_step_ran(graph: og.Graph):
    text = "query q() { match { $a: Thing  $a linked{1,3} $b } return { count(*) as n } }"
    result = graph.query(text, engine="spark", explain=True)
    assert result.explain is not None and result.explain.run is not None
    run = result.explain.run
    assert run.engine == "spark"
    assert [(step.strategy, step.rows) for step in run.steps] == [
        ("scan by workers", 3),
        ("breadth-first joins", 6),
        ("one Spark job", 1),
    ]


def test_a_limit_beyond_what_spark_counts_is_no_limit(graph: og.Graph):
    text = f"query q() {{ match {{ $t: Thing }} return {{ $t.name }} limit {2**63} offset 1 }}"
    assert len(graph.query(text, engine="spark")) == 2
    beyond = f"query q() {{ match {{ $t: Thing }} return {{ $t.name }} limit 1 offset {2**40} }}"
    assert len(graph.query(beyond, engine="spark")) == 0


def test_what_spark_cannot_do_is_refused_by_name(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    assert set(tail.REFUSED) == {"rows_beyond_an_int"}
    page = (ROOT / "docs" / "design" / "spark-engine.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in tail.REFUSED)
    monkeypatch.setattr(tail, "ROWS_MAX", 2)
    text = "query q() { match { $t: Thing } return { $t.name } limit 5 }"
    with pytest.raises(InputError, match="rows_beyond_an_int") as caught:
        graph.query(text, engine="spark").to_pylist()
    assert caught.value.details["refused"] == "rows_beyond_an_int"


def test_an_older_commit_has_the_columns_of_today(tmp_path: Path):
    graph = og.init(tmp_path / "old.omni", schema="node P { name: String @key  age: I32? }")
    graph.mutate('query q() { insert P { name: "a", age: 3 } }')
    then = graph.snapshot().graph_commit_id
    graph.apply_schema("node P { name: String @key  age: I32?  more: String? }")
    graph.mutate('query q() { insert P { name: "b", more: "x" } }')
    text = "query q() { match { $p: P } return { $p.name as n, $p.age as a, $p.more as m } }"
    local, spark = both(graph, text, snapshot=then)
    assert spark.to_pylist() == local.to_pylist() == [{"n": "a", "a": 3, "m": None}]


def test_the_page_about_queries_on_spark_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = ROOT / "docs" / "guide" / "spark-queries.md"
    run_page(page, tmp_path, monkeypatch, capsys)

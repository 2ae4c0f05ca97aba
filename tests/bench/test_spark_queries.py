"""The Spark suite asks one question in several forms, which have one answer."""

from __future__ import annotations

import pytest

import omnigraph as og
from bench import spark_child, spark_queries
from bench.scale import Scale
from bench.trips import write_parquet

PLACES, TRIPS = 30, 400


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    directory = tmp_path_factory.mktemp("spark-bench")
    write_parquet(directory / "parquet", PLACES, TRIPS)
    made = spark_child.build(str(directory / "parquet"), str(directory / "g.omni"))
    assert made == {"rows": PLACES + TRIPS}
    return og.open(directory / "g.omni", "read_only")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
def test_frames_by_hand_answer_the_question(graph: og.Graph, spark: object):
    wanted = graph.query(spark_child.QUESTION).to_pylist()
    assert len(wanted) > 1
    assert graph.query(spark_child.QUESTION, engine="spark").to_pylist() == wanted
    assert spark_child.joins(graph) == wanted
    assert spark_child.counted(graph) == wanted


def test_the_better_form_by_hand_is_the_other_side():
    found = {"query": 2.0, "joins": 9.0, "counted": 1.6}
    figure = spark_queries.beside_frames(found, 100, spark_queries.FRAMES_RATIO)
    assert figure.ratio == pytest.approx(1.25)
    assert figure.is_met


def test_scaling_is_against_one_core():
    found = {"one core": 4.0, "two cores": 2.5, "two executors": 5.0}
    figures = spark_queries.scaling(found, 100)
    assert [figure.ratio for figure in figures] == [1.6, 0.8]


def test_a_part_of_the_suite_is_measured_alone(monkeypatch: pytest.MonkeyPatch):
    figure = spark_queries.beside_frames({"query": 2.0, "counted": 1.0}, 100, None)
    monkeypatch.setattr(spark_queries, "PARTS", {"frames": lambda _: [figure], "cores": None})
    assert list(spark_queries.run(Scale.SMALL, ["frames"])) == [figure]
    with pytest.raises(ValueError, match="no part 'core'; there is frames, cores"):
        list(spark_queries.run(Scale.SMALL, ["core"]))

"""Suites that need a session of Spark: each runs, and says what it compares."""

from __future__ import annotations

from typing import Any

import pytest

from bench import compute, pipeline_files
from bench.figure import Figure
from bench.scale import Scale

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def require_comparison(figures: list[Figure]) -> None:
    assert all(figure.value > 0 for figure in figures)
    assert any(figure.target is not None and figure.versus is not None for figure in figures)


def test_pagerank_on_spark_stands_beside_frames_by_hand(spark: Any) -> None:
    figures = list(compute.on_spark(compute.Sizes(2_000, 2), spark))
    require_comparison(figures)
    assert figures[0].name == "PageRank, 2 rounds, 2,000 edges, on Spark"


def test_a_pipeline_run_stands_beside_plain_loads(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_files, "ROUNDS", 1)
    figures = list(pipeline_files.measure_all(pipeline_files.Sizes(40, 20, 60), spark))
    require_comparison(figures)
    assert figures[0].name.startswith("pipeline run of 120 rows")
    assert pipeline_files.SIZES[Scale.SMALL].rows < pipeline_files.SIZES[Scale.FULL].rows

"""The benchmark measures what it says, on input that is what it says, and leaves a full record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import kernel, languages, measure, merge, queries, upkeep
from bench.contest import Effort
from bench.questions import POINT
from bench.record import Figure, SuiteRecord, Target, document
from bench.social import SIZES, Size
from bench.suites import SUITES, run_suite
from bench.texts import query_texts, schema_text
from omnigraph.query.compile import compile_query
from omnigraph.schema.compile import compile_schema


@pytest.mark.parametrize("lines", [4, 16, 100, 600])
def test_schema_text_has_the_lines_it_was_asked_for_and_compiles(lines: int):
    text = schema_text(lines)
    assert len(text.splitlines()) == lines
    compile_schema(text)


def test_query_texts_are_ten_lines_distinct_and_compile():
    catalog = compile_schema(schema_text(100)).catalog
    texts = list(query_texts(20))
    assert len(set(texts)) == 20
    for text in texts:
        assert len(text.splitlines()) == 10
        compile_query(text, catalog)


def test_target_decides_in_its_direction():
    assert Target(5, "at least").is_met(5) and not Target(5, "at least").is_met(4)
    assert Target(5, "at most").is_met(5) and not Target(5, "at most").is_met(6)
    assert Figure("free", 1.0, "s").is_met is None


def test_record_names_machine_and_python_and_keeps_ratios_apart():
    figures = [Figure("time", 0.5, "s", Target(1, "at most")), Figure("ratio", 2.0, "×")]
    record = document([SuiteRecord("demo", figures)])
    assert {"system", "architecture", "processor", "cores", "load"} <= record["machine"].keys()
    assert record["python"].count(".") == 2
    (suite,) = record["suites"]
    assert [figure["name"] for figure in suite["figures"]] == ["time"]
    assert [ratio["name"] for ratio in suite["ratios"]] == ["ratio"]
    assert suite["figures"][0]["met"] is True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measure as little as possible: the figures are not what these tests are about."""
    monkeypatch.setattr(languages, "QUERIES", 3)
    monkeypatch.setattr(languages, "SCHEMA_LINES", 20)
    monkeypatch.setattr(languages, "process_seconds", lambda arguments: 0.1)
    monkeypatch.setattr(languages, "seconds_per_call", measure.best_seconds)
    monkeypatch.setattr(upkeep, "FULL", upkeep.Sizes(110, 1, 2, 2))
    monkeypatch.setattr(kernel, "FULL", kernel.Sizes(2, 2, 2, 3, 1, 2, 1, 2, 2, 1, 1))
    monkeypatch.setattr(merge, "FULL", merge.Sizes(200, 400, 200, 100, 50, 1, 1))
    monkeypatch.setattr(queries, "FULL", Effort(parameters=1, rounds=1, seconds_max=0))
    monkeypatch.setitem(SIZES, queries.FULL_SIZE, Size("tiny", 300, 3_000))
    monkeypatch.setattr(queries, "QUESTIONS", {POINT.name: POINT})
    monkeypatch.setattr(queries, "CACHE", tmp_path)
    monkeypatch.setattr(queries, "measure_processes", lambda files: [])


def test_every_suite_is_registered_under_its_name(quick):
    # One starts Spark a dozen times, the other counts what must not happen: both are tested apart.
    for name in SUITES.keys() - {"load", "server"}:
        record = run_suite(name)
        assert record.suite == name
        assert record.figures
        assert all(figure.value > 0 for figure in record.figures)


def test_report_is_a_table_or_json(quick, capsys: pytest.CaptureFixture[str]):
    assert bench.main(["languages"]) == 0
    table = capsys.readouterr().out
    assert "cold query compile" in table and "at least 500" in table
    assert bench.main(["languages", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suites"][0]["suite"] == "languages"


def test_check_turns_a_missed_target_into_a_failure(
    quick, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(languages, "SCHEMA_MS", Target(0, "at most"))
    assert bench.main(["languages"]) == 0
    assert "MISS" in capsys.readouterr().out
    assert bench.main(["languages", "--check"]) == 1


def test_quick_measures_the_kernel_at_smaller_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sizes: list[kernel.Sizes] = []

    def measured(asked: kernel.Sizes) -> list[Figure]:
        sizes.append(asked)
        return [Figure("insert", 1.0, "ms")]

    monkeypatch.setattr(kernel, "measure_all", measured)
    assert bench.main(["kernel", "--quick"]) == bench.main(["kernel"]) == 0
    assert sizes == [kernel.QUICK, kernel.FULL]
    assert kernel.QUICK.many_commits < kernel.FULL.many_commits
    assert "insert" in capsys.readouterr().out


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as refused:
        bench.main(["nothing"])
    assert refused.value.code == 2
    assert "there is no suite 'nothing'" in capsys.readouterr().err


def test_timing_takes_the_fastest_round_and_a_real_process():
    waits = iter([0, 0, 0])
    assert measure.best_seconds(lambda: next(waits), rounds=3) < 1
    assert measure.seconds_per_call(lambda: None, seconds_min=0.001) < 0.001
    assert measure.process_seconds(["-c", "pass"], rounds=1) > 0

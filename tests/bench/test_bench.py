"""The benchmark measures what it says, on input that is what it says, and a failure is reported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import (
    aggregates,
    clusters,
    compute,
    digests,
    export,
    infer,
    kernel,
    languages,
    measure,
    merge,
    queries,
    query_processes,
    spark_queries,
    streams,
    suites,
    upkeep,
)
from bench.contest import Effort
from bench.figure import Figure, Target
from bench.ldbc import suite as ldbc
from bench.ldbc.generator import Size as LdbcSize
from bench.questions import POINT, Wording
from bench.record import Record
from bench.scale import Scale
from bench.social import SIZES, Size
from bench.suites import SUITES, run_suite
from bench.texts import query_texts, schema_text
from omnigraph.graph import open_graph
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


# --- suites ---------------------------------------------------------------------------------------


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measure as little as possible: the figures are not what these tests are about."""
    monkeypatch.setattr(languages, "QUERIES", 3)
    monkeypatch.setattr(languages, "SCHEMA_LINES", 20)
    monkeypatch.setattr(languages, "process_seconds", lambda arguments: 0.1)
    monkeypatch.setattr(languages, "shell_answer_ms", lambda graph: 5.0)
    monkeypatch.setattr(languages, "seconds_per_call", measure.seconds_of)
    monkeypatch.setattr(languages, "best_seconds", measure.seconds_of)
    monkeypatch.setattr(upkeep, "SMALL", upkeep.Sizes(12, 1, 2, 2))
    monkeypatch.setattr(upkeep, "INDEXED_AT", 6)
    few = kernel.Sizes(2, 2, 2, 3, 1, 2, 1, 2, 2, 1, 1, 2, 0.1, 3, 10)
    monkeypatch.setattr(kernel, "SMALL", few)
    monkeypatch.setattr(digests, "SMALL", digests.Sizes(2, 1, 10))
    monkeypatch.setattr(export, "SMALL", export.Sizes(500, 1))
    monkeypatch.setattr(export, "NODES", 50)
    monkeypatch.setattr(infer, "SMALL", 100)
    monkeypatch.setattr(clusters, "SMALL", 2)
    monkeypatch.setattr(clusters, "command", lambda verb, directory: None)
    monkeypatch.setattr(merge, "SMALL", merge.Sizes(200, 400, 200, 100, 50, 1, 1))
    monkeypatch.setitem(queries.EFFORT, Scale.SMALL, Effort(parameters=1, rounds=1, seconds_max=0))
    monkeypatch.setitem(SIZES, queries.SIZE[Scale.SMALL], Size("tiny", 300, 3_000))
    monkeypatch.setattr(queries, "QUESTIONS", {POINT.name: POINT})
    monkeypatch.setattr(queries, "CACHE", tmp_path)
    monkeypatch.setitem(aggregates.EFFORT, Scale.SMALL, Effort(1, rounds=1, seconds_max=0))
    monkeypatch.setitem(aggregates.SIZES, Scale.SMALL, Size("tiny-followers", 300, 3_000))
    monkeypatch.setattr(aggregates, "CACHE", tmp_path)
    monkeypatch.setitem(aggregates.MEMORY_SIZES, Scale.SMALL, Size("tiny-edges", 400, 3_000))
    monkeypatch.setattr(aggregates, "COMMITS", 1)
    monkeypatch.setattr(aggregates, "memory", lambda weighted: [])  # in `test_aggregates`
    monkeypatch.setattr(aggregates, "EDGE_QUESTIONS", aggregates.EDGE_QUESTIONS[:1])
    monkeypatch.setattr(query_processes, "FIRST_ROUNDS", 1)
    monkeypatch.setattr(queries, "measure_processes", lambda files: [])
    monkeypatch.setitem(ldbc.SIZES, Scale.SMALL, LdbcSize("tiny", 60, 600))
    monkeypatch.setattr(ldbc, "measure", ldbc_times)
    monkeypatch.setattr(ldbc, "measure_updates", lambda files, rounds: [])


def ldbc_times(files: object, reads: Sequence[Wording], effort: Effort) -> list[ldbc.Timed]:
    """Made up: building three databases takes long, and the suite has tests of its own."""
    return [ldbc.Timed(read, dict.fromkeys((*ldbc.PEERS, "Omnigraph"), 0.1)) for read in reads]


def test_every_suite_runs_and_says_what_it_compares(tiny):
    # Some start sessions of Spark, one counts what must not happen, one starts a browser: they are
    # tested apart.
    apart = {"compute", "load", "pipeline", "reviews", "server", "spark", "streams", "studio"}
    for name in SUITES.keys() - apart:
        record = run_suite(name, Scale.SMALL)
        assert record.failure is None
        assert record.suite == name
        assert all(figure.value > 0 for figure in record.figures)
        assert any(figure.versus for figure in record.figures)
        assert any(figure.target for figure in record.figures)


def test_c_ver_010_digests_are_within_their_target_and_left_out_on_one_side(tmp_path: Path):
    figures = [*digests.measure_on(tmp_path, digests.Sizes(2, 1, 10))]
    assert open_graph(tmp_path / "with").scrub().files_undigested == 0
    unverified = open_graph(tmp_path / "without").scrub()
    assert unverified.files_undigested > unverified.files_checked / 2
    kept = Record.kept_in(bench.RECORDS, Scale.SMALL).suites["digests"].figures
    for measured, known in zip(figures, kept, strict=True):
        assert measured.name == known.name
        assert measured.target == known.target == Target(1.05, "at most")
        assert known.is_met


def test_ranks_stand_beside_the_fastest_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compute, "ROUNDS", 1)
    first, ranked, sampled = compute.in_process(compute.Sizes(2_000, 20))
    assert ranked.name == "PageRank, 20 rounds, 2,000 edges, in process"
    assert ranked.versus is not None and ranked.target == Target(1.5, "at most")
    assert f"{ranked.versus.name} " in ranked.note and "igraph" in ranked.note
    assert first.value > 0 and sampled.value > 0


@pytest.mark.slow
def test_an_answer_of_the_shell_is_timed_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(languages, "SHELL_ANSWERS", 1)
    assert languages.shell_answer_ms(languages.people(tmp_path / "team.omni")) > 0


def test_small_measures_less_than_full():
    for module in (compute, digests, export, infer, kernel, merge, spark_queries, streams, upkeep):
        assert module.SMALL != module.FULL
    persons = [SIZES[queries.SIZE[scale]].persons for scale in Scale]
    assert persons == sorted(set(persons))


# --- the command ----------------------------------------------------------------------------------


class Suite:
    """A suite that gives some figures, then perhaps fails."""

    SEED = 5

    def __init__(self, *figures: Figure, failure: Exception | None = None) -> None:
        self.figures = figures
        self.failure = failure
        self.asked: list[object] = []

    def run(self, *arguments: object) -> Iterator[Figure]:
        self.asked += arguments
        yield from self.figures
        if self.failure is not None:
            raise self.failure


GOOD = Figure("open", 2.0, "ms", Target(3, "at most"))
SLOW = Figure("close", 9.0, "ms", Target(3, "at most"))


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, Suite]:
    """Suites that measure nothing, by the names of real ones."""
    found = {name: Suite(GOOD) for name in SUITES}
    by_module = {path: found[name] for name, path in SUITES.items()}
    monkeypatch.setattr(suites, "import_module", by_module.__getitem__)
    return found


def run(into: Path, *arguments: str) -> int:
    return bench.main([*arguments, "--into", str(into)])


def kept(into: Path, scale: str = "small") -> Record:
    return Record.from_json((into / f"{scale}.json").read_text("utf-8"))


def test_all_suites_run_and_leave_one_record_and_one_page(
    stand_ins: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tmp_path) == 0
    assert list(kept(tmp_path).suites) == list(SUITES)
    assert all(suite.asked == [Scale.SMALL] for suite in stand_ins.values())
    page = (tmp_path / "small.md").read_text("utf-8")
    assert all(f"## {name}\n" in page for name in SUITES)
    shown = capsys.readouterr()
    assert "kernel: 1 of 1 targets met" in shown.out
    assert f"[1/{len(SUITES)}] languages at small scale" in shown.err


def test_one_suite_updates_its_part_of_the_record_of_its_scale(
    stand_ins: dict[str, Suite], tmp_path: Path
):
    assert run(tmp_path, "server", "merge") == 0
    assert run(tmp_path) == 0
    stand_ins["merge"].figures = (SLOW,)
    assert run(tmp_path, "merge") == 0
    assert run(tmp_path, "merge", "--scale", "full") == 0
    small = kept(tmp_path).suites
    assert list(small) == list(SUITES)
    assert small["merge"].figures == (SLOW,)
    assert small["kernel"].figures == (GOOD,)
    assert list(kept(tmp_path, "full").suites) == ["merge"]


def test_a_suite_that_fails_is_reported_keeps_its_figures_and_stops_no_other(
    stand_ins: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_ins["kernel"].failure = RuntimeError("the disk is full")
    assert run(tmp_path) == 1
    record = kept(tmp_path)
    assert record.suites["kernel"].failure == "RuntimeError: the disk is full"
    assert record.suites["kernel"].figures == (GOOD,)
    assert record.suites["server"].failure is None
    assert "FAILED (RuntimeError: the disk is full)" in (tmp_path / "small.md").read_text("utf-8")
    assert "kernel: FAILED" in capsys.readouterr().out


def test_check_turns_a_missed_target_into_a_failure(
    stand_ins: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_ins["merge"].figures = (GOOD, SLOW)
    assert run(tmp_path, "merge") == 0
    assert "MISSED" in capsys.readouterr().out
    assert run(tmp_path, "merge", "--check") == 1
    assert run(tmp_path, "kernel", "--check") == 0


def test_record_is_printed_as_json(
    stand_ins: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tmp_path, "kernel", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["suites"]["kernel"]["figures"][0]["name"] == "open"
    assert printed["suites"]["kernel"]["seed"] == 5


def test_some_questions_alone_are_a_look_and_leave_no_record(
    stand_ins: dict[str, Suite], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(tmp_path, "queries", "--only", "point", "1-hop") == 0
    assert stand_ins["queries"].asked == [Scale.SMALL, ["point", "1-hop"]]
    assert list(tmp_path.iterdir()) == []
    assert "open" in capsys.readouterr().out


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as refused:
        bench.main(["nothing"])
    assert refused.value.code == 2
    assert "there is no suite 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["kernel", "--only", "point"])
    assert "--only is for one of the suites queries, ldbc and spark" in capsys.readouterr().err


# --- taking the time ------------------------------------------------------------------------------


def test_timing_takes_the_fastest_round_and_a_real_process():
    waits = iter([0, 0, 0])
    assert measure.best_seconds(lambda: next(waits), rounds=3) < 1
    assert measure.seconds_per_call(lambda: None, seconds_min=0.001) < 0.001
    assert measure.process_seconds(["-c", "pass"], rounds=1) > 0


def test_actions_take_turns():
    calls: list[str] = []
    taken = measure.in_turns(
        2, lambda n: calls.append(f"one {n}"), lambda n: calls.append(f"two {n}")
    )
    assert calls == ["one 0", "two 0", "one 1", "two 1"]
    assert len(taken) == 2


def test_a_failing_thread_fails_the_measurement():
    def fails(call: int) -> None:
        raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        measure.calls_per_second([lambda call: None, fails], 0.01)
    assert measure.calls_per_second([lambda call: None] * 2, 0.01) > 0

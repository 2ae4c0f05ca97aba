"""Records hold everything, tables say what records hold, and the README shows the kept one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.__main__ import README, README_SCALE, RECORDS
from bench.circumstances import PACKAGES, circumstances
from bench.figure import ENGINES, Figure, Target, Versus
from bench.peer_duckdb import DuckDb
from bench.peer_kuzu import Kuzu
from bench.peer_lance import BareLance
from bench.readme import END, START, comparison, updated
from bench.record import Record, SuiteRecord
from bench.report import cells, markdown_page
from bench.scale import Scale
from bench.suites import SUITES

FASTER = Figure("point", 2.0, "ms", Target(5, "at least"), "by key", Versus("Kuzu", 8.0))
FASTER = replace(FASTER, versus=Versus("Kuzu", 8.0, "theirs to ours"))
LOAD = Figure("load", 3.0, "s", Target(1.8, "at most"), versus=Versus("Spark → Parquet", 2.0))


def record(*figures: Figure, failure: str | None = None) -> Record:
    around = circumstances(seed=7, seconds=1.25)
    return Record(Scale.SMALL).with_suite(SuiteRecord("demo", figures, around, failure))


# --- figures --------------------------------------------------------------------------------------


def test_target_decides_in_its_direction():
    assert Target(5, "at least").is_met(5) and not Target(5, "at least").is_met(4)
    assert Target(5, "at most").is_met(5) and not Target(5, "at most").is_met(6)
    assert Figure("free", 1.0, "s").is_met is None


def test_a_target_is_for_the_ratio_where_there_is_one_else_for_the_value():
    assert FASTER.ratio == 4 and FASTER.is_met is False
    assert LOAD.ratio == 1.5 and LOAD.is_met is True
    alone = Figure("start", 3.0, "s", Target(1.8, "at most"))
    assert alone.ratio is None and alone.is_met is False


def test_names_of_engines_are_those_the_peers_go_by():
    assert {Kuzu.name, DuckDb.name, BareLance.name} < set(ENGINES)
    assert Versus(Kuzu.name, 1.0).is_engine
    assert not Versus("loaded at once", 1.0).is_engine


# --- records --------------------------------------------------------------------------------------


def test_record_names_machine_versions_seed_commit_and_date():
    found = json.loads(record(FASTER).to_json())["suites"]["demo"]
    machine = {"processor", "cores", "memory_gib", "os", "architecture", "load_before"}
    assert found["machine"].keys() == machine
    assert found["versions"].keys() == {"python", *PACKAGES}
    assert all(found["versions"].values())
    assert found["seed"] == 7
    assert len(found["date"].split("-")) == 3
    assert "commit" in found and found["seconds"] == 1.2


def test_record_says_of_every_figure_what_follows_from_it():
    (figure,) = json.loads(record(FASTER).to_json())["suites"]["demo"]["figures"]
    assert figure == {
        "name": "point",
        "value": 2.0,
        "unit": "ms",
        "versus": {"name": "Kuzu", "value": 8.0},
        "ratio": {"of": "theirs to ours", "value": 4.0},
        "target": {"direction": "at least", "bound": 5},
        "met": False,
        "note": "by key",
    }


def test_record_comes_back_as_it_was_kept():
    kept = record(FASTER, LOAD, Figure("count", 0.0, ""), failure="Mismatch: no")
    assert Record.from_json(kept.to_json()) == kept


def test_rounding_changes_no_verdict_between_screen_and_file():
    close = Figure("merge", 1.500001, "s", Target(1.5, "at most"), versus=Versus("none", 1.0))
    kept = record(close.rounded())
    (figure,) = Record.from_json(kept.to_json()).suites["demo"].figures
    assert figure.is_met is close.rounded().is_met


# --- tables ---------------------------------------------------------------------------------------


def test_cells_say_which_way_a_ratio_goes_and_whether_it_suffices():
    assert cells(FASTER)[1:] == ("2 ms", "Kuzu: 8 ms", "4× as fast", "at least 5×: MISSED")
    assert cells(LOAD)[1:] == ("3 s", "Spark → Parquet: 2 s", "1.5× as long", "at most 1.8×: met")
    rate = Figure("served", 50.0, "queries/s", versus=Versus("embedded", 100.0))
    assert cells(rate)[1:] == ("50 queries/s", "embedded: 100 queries/s", "0.5× as much", "")
    alone = Figure("start", 3.0, "s", Target(8, "at most"))
    assert cells(alone)[1:] == ("3 s", "", "", "at most 8 s: met")


def test_readme_shows_peers_misses_and_failures_but_not_ourselves():
    rivals = [
        FASTER,
        replace(FASTER, target=None, versus=Versus("DuckDB", 1.0, "theirs to ours")),
        replace(FASTER, target=None, versus=Versus("bare Lance", 6.0, "theirs to ours")),
        Figure("scan", 1.0, "ms", Target(2, "at most"), versus=Versus("loaded at once", 1.0)),
    ]
    text = comparison(record(*rivals, failure="Mismatch: no"))
    assert "| demo: point | 2 ms | Kuzu: 8 ms | 4× as fast | at least 5×: MISSED |" in text
    assert "DuckDB: 1 ms | 0.5× as fast" in text, "the peer that is hardest to beat"
    assert "bare Lance: 6 ms" not in text
    assert "loaded at once" not in text
    assert "Of 2 targets in all suites 1 are met." in text
    assert "Missed: demo: point." in text
    assert "The suite demo failed: Mismatch: no." in text


def test_a_busy_machine_is_told_of():
    quiet = record(LOAD).suites["demo"]
    for load, is_told in ((0.2, False), (3.5, True), (None, False)):
        machine = {**quiet.circumstances.machine, "load_before": load}
        measured = replace(quiet, circumstances=replace(quiet.circumstances, machine=machine))
        text = comparison(Record(Scale.SMALL).with_suite(measured))
        assert ("In demo, the machine was busy" in text) is is_told


def test_only_what_lies_between_the_marks_is_rewritten():
    page = f"before\n{START}\nold\n{END}\nafter\n"
    again = updated(page, record(LOAD))
    assert again.startswith(f"before\n{START}\nMeasured ") and again.endswith(f"{END}\nafter\n")
    assert "old" not in again
    assert updated(again, record(LOAD)) == again
    with pytest.raises(ValueError, match="figures:start"):
        updated("no marks", record(LOAD))


# --- what is kept ---------------------------------------------------------------------------------

KEPT = [
    Record.from_json(path.read_text("utf-8"))
    for path in (RECORDS / f"{scale}.json" for scale in Scale)
    if path.exists()
]


def test_readme_shows_the_kept_record():
    kept = Record.kept_in(RECORDS, README_SCALE)
    text = README.read_text("utf-8")
    assert updated(text, kept) == text, "run `make bench ARGS=--render` and commit the result"


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.scale.value)
def test_pages_of_kept_records_are_current(kept: Record):
    page = (RECORDS / f"{kept.scale}.md").read_text("utf-8")
    assert page == markdown_page(kept), "run `make bench ARGS=--render` and commit the result"


def test_the_record_in_the_readme_has_every_suite_with_peers():
    suites = Record.kept_in(RECORDS, README_SCALE).suites
    assert suites.keys() == SUITES.keys()
    peers = {
        figure.versus.name
        for suite in suites.values()
        for figure in suite.figures
        if figure.versus is not None and figure.versus.is_engine
    }
    assert peers == set(ENGINES)

"""Every case of every file, on every engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cases.coverage import all_forms, answered, representative
from tests.cases.format import DIRECTORY, Case, all_cases
from tests.cases.runner import ENVIRONMENT, CaseGraph, Graphs, check_case, engines
from tests.support.budgets import IS_LONG
from tests.support.spread import small_files, spread_over_tasks
from tests.support.tables import check_all

CASES = all_cases()
ON_SPARK = [case for case in CASES if "spark" in engines() and case.only in (None, "local")]
PLANNED_ON_SPARK = answered(ON_SPARK)
TESTS = DIRECTORY.parent


def tried_on_spark() -> list[Case]:
    """The long run has every case; the short one, cases that have every form of all parts of plans.

    What Spark's own code does depends on these forms and on what is special about values; each
    case runs in process in every run, and random queries are compared beside these.
    """
    if IS_LONG:
        return ON_SPARK
    chosen = {str(case) for case, _ in representative(PLANNED_ON_SPARK, all_forms)}
    return [case for case in ON_SPARK if str(case) in chosen]


@pytest.fixture(scope="session")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    return Graphs(tmp_path_factory.mktemp("cases"))


@pytest.fixture
def environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the case that a test runs."""
    use_settings(request.getfixturevalue("case"), monkeypatch)


def use_settings(case: Case, patch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        patch.delenv(name, raising=False)
    for name, value in (case.environment or {}).items():
        patch.setenv(name, value)


@pytest.mark.parametrize("engine", [engine for engine in engines() if engine != "spark"])
@pytest.mark.parametrize("file", dict.fromkeys(case.file for case in CASES))
def test_cases(file: str, engine: str, graphs: Graphs):
    def check(case: Case) -> None:
        with pytest.MonkeyPatch.context() as patch:
            use_settings(case, patch)
            check_case(case, engine, graphs)

    of_file = (case for case in CASES if case.file == file and case.only in (None, engine))
    check_all(of_file, check)


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{case} [spark]") for case in tried_on_spark()]
)
@pytest.mark.usefixtures("environment", "spark")
def test_c_pip_024_case_gives_the_same_on_spark(case: Case, graphs: Graphs):
    check_case(case, "spark", graphs)


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
@pytest.mark.skipif(not ON_SPARK, reason="Spark is none of the engines to run")
def test_c_pip_024_every_node_of_a_plan_gives_the_same_spread_over_tasks(
    spark: Any, tmp_path: Path
):
    """As on a large graph: many files, no broadcast. The long run has every case."""
    graphs = Graphs(tmp_path)
    several = 0
    with spread_over_tasks(spark):
        for case, _ in PLANNED_ON_SPARK if IS_LONG else representative(PLANNED_ON_SPARK):
            with small_files(rows=5):
                made = graphs.of(case.setup)
            several += files_max(made) > 1
            with pytest.MonkeyPatch.context() as patch:
                use_settings(case, patch)
                try:
                    check_case(case, "spark", graphs)
                except Exception as error:
                    raise AssertionError(f"{case}, spread over tasks: {error}") from error
    assert several >= 15, "most graphs have a table of several files"


def files_max(made: CaseGraph) -> int:
    reader = made.graph._opened.reader()
    return max(len(reader.handle(table).get_fragments()) for table in reader.snapshot.tables)


def test_every_check_of_the_checklists_is_covered():
    """By a case, or by a test that names it."""
    wanted = {f"C-QRY-{n:03}" for n in range(15, 63)} | {f"C-SRCH-{n:03}" for n in range(1, 21)}
    wanted |= {"C-QRY-081", "C-QRY-088", "C-SRCH-022"}
    covered = {id for case in CASES for id in case.ids}
    for path in TESTS.rglob("test_*.py"):
        for area, number in re.findall(r"def test_c_(qry|srch)_(\d{3})_", path.read_text()):
            covered.add(f"C-{area.upper()}-{number}")
    assert wanted - covered == set()


def test_cases_name_checks_that_exist():
    checks = (TESTS.parent / "docs" / "conformance" / "checks.toml").read_text()
    known = set(re.findall(r"^(C-[A-Z]+-\d{3}) =", checks, re.MULTILINE))
    assert {id for case in CASES for id in case.ids} <= known


def test_every_diagnostic_of_the_language_has_a_case():
    given = {getattr(case.expected, "diagnostic", None) for case in CASES}
    assert {f"T{n}" for n in range(1, 29)} <= given


def test_every_file_is_listed_in_the_overview():
    overview = (DIRECTORY / "README.md").read_text()
    for path in DIRECTORY.glob("*.yaml"):
        assert f"`{path.name}`" in overview


def test_a_key_written_twice_is_refused(tmp_path: Path):
    from ruamel.yaml.constructor import DuplicateKeyError

    from tests.cases.format import read_cases

    path = tmp_path / "twice.yaml"
    path.write_text("about: x\nabout: y\nschema: ''\ncases: []\n")
    with pytest.raises(DuplicateKeyError):
        read_cases(path)

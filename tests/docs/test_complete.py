"""Nothing is left out: every command, route, setting, error, verb and check is in the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup

import omnigraph as og
from docs.generators import conformance, sdk, settings
from omnigraph.cli.main import root_command
from omnigraph.errors import OmnigraphError
from omnigraph.wire.operations import OPERATIONS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
VARIABLE = re.compile(r"\bOMNIGRAPH_[A-Z0-9_]*[A-Z0-9]\b")
NOT_SETTINGS = {
    "OMNIGRAPH_LISTEN_ADDR": "what the server prints when it listens",
    "OMNIGRAPH_TOKEN_PROD_EU": "an example of `OMNIGRAPH_TOKEN_NAME`",
    "OMNIGRAPH_SPARK_CONF": "the beginning of `OMNIGRAPH_SPARK_CONF_NAME`",
    "OMNIGRAPH_TOKEN": "the beginning of `OMNIGRAPH_TOKEN_NAME`",
    "OMNIGRAPH_QUERY": "a mistake that a comment tells about",
    "OMNIGRAPH_TOKEN_FILE": "a mistake that a comment tells about",
}


def headings(page: str) -> set[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return {heading.strip("`") for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def commands(command: TyperGroup | TyperCommand, name: str) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for word, each in command.commands.items():
            assert isinstance(each, TyperGroup | TyperCommand)
            yield from commands(each, f"{name} {word}")
    elif not command.hidden:
        yield name


def errors(kind: type[OmnigraphError]) -> Iterator[type[OmnigraphError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("omnigraph.errors"):
            yield child
            yield from errors(child)


def variables() -> set[str]:
    """What the sources and the files of the deployment read or tell people to set."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "deploy").iterdir()]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return {name for text in texts for name in VARIABLE.findall(text)} - set(NOT_SETTINGS)


def test_every_command_has_a_section():
    known = set(commands(root_command(), "omnigraph"))
    assert len(known) > 30
    assert known - headings("cli.md") == set()


def test_every_route_has_a_section():
    routes = {f"{operation.method} {operation.path}" for operation in OPERATIONS}
    assert routes == headings("http.md") - {"HTTP"}


def test_every_setting_is_described_and_every_description_is_of_a_setting():
    described = {
        name
        for section in settings.SECTIONS
        for setting in section.settings
        for name in setting.name.split(", ")
        if name.startswith("OMNIGRAPH_")
    }
    patterns = {name for name in described if name.endswith("_NAME")}
    assert patterns == {"OMNIGRAPH_SPARK_CONF_NAME", "OMNIGRAPH_TOKEN_NAME"}
    assert variables() == described - patterns, "describe it in docs/generators/settings.py"


def test_every_error_has_a_row():
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    missing = [
        error.__name__
        for error in errors(OmnigraphError)
        if f"| `{error.code}` | `{error.__name__}` |" not in page
    ]
    assert missing == []


@pytest.mark.parametrize("graph", [og.Graph, og.RemoteGraph], ids=lambda graph: graph.__name__)
def test_every_verb_has_a_section(graph: type):
    known = {f"{graph.__name__}.{name}" for name in dir(graph) if not name.startswith("_")}
    assert known - headings("python.md") == set()


def test_every_public_name_of_the_package_is_explained():
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    named = headings("python.md")
    for name in set(og.__all__) - {"__version__", "errors"}:
        assert name in named or f"og.{name}" in named, name
    assert "(errors.md)" in page


def test_every_value_a_verb_returns_has_a_section():
    returned = {
        kind.__name__
        for graph in (og.Graph, og.RemoteGraph)
        for name in sdk.public_names(graph)
        for kind in sdk.classes_in(sdk.function_of(graph, name))
        if not kind.__module__.startswith(sdk.NOT_SHOWN)
    }
    assert {"Result", "LoadReceipt", "MergePlan"} <= returned
    assert returned - headings("values.md") == set()


def test_every_check_that_a_test_cites_is_on_the_list_and_no_number_is_left_out():
    listed = [check for chapter in conformance.chapters() for check in chapter.checks]
    proved = set(conformance.proofs())
    assert len(listed) == len(set(listed))
    assert proved - set(listed) == set()
    for chapter in conformance.chapters():
        (area,) = {check.rpartition("-")[0] for check in chapter.checks}
        expected = [f"{area}-{number:03}" for number in range(1, len(chapter.checks) + 1)]
        assert list(chapter.checks) == expected
        assert set(chapter.same) <= set(chapter.checks)
        assert set(chapter.same.values()) <= proved


def test_a_check_is_proved_by_a_name_a_case_or_a_whole_file_and_open_otherwise(tmp_path: Path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_one.py").write_text(
        '"""C-STO-003: about all of it."""\n'
        "def test_c_sto_001_and_002_hold():\n    ...\n"
        "def test_c_sto_004_to_006_each_have_a_test():\n    ...\n"
    )
    (tests / "cases.yaml").write_text("cases:\n  - {name: a case, ids: [C-STO-001]}\n")
    assert {check: dict(places) for check, places in conformance.proofs(tests).items()} == {
        "C-STO-001": {"tests/cases.yaml": ["a case"], "tests/test_one.py": ["hold"]},
        "C-STO-002": {"tests/test_one.py": ["hold"]},
        "C-STO-003": {"tests/test_one.py": [conformance.WHOLE_FILE]},
    }

"""The page that follows requests through the code names modules that are really on the way."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.trace_requests import REQUESTS
from tests.test_architecture import FACADE, PACKAGE, imports_of, module_name

PAGE = Path(__file__).parents[2] / "docs" / "design" / "architecture.md"
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")


def roads() -> list[list[str]]:
    """The tables of the page: every module of each, from top to bottom."""
    found: list[list[str]] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| Step |"):
            found.append([])
        elif re.match(r"\| \d+ \|", line):
            found[-1] += MODULE.findall(line)
    return found


@cache
def imported_by(path: Path) -> tuple[str, ...]:
    """The names a module imports; it is parsed once, however many roads lead to it."""
    return tuple(imported for _, imported in imports_of(PACKAGE, path))


@cache
def reached_from(module: str) -> frozenset[str]:
    """Every module that imports lead to, itself included, as paths."""
    by_name = {module_name(PACKAGE, path): path for path in PACKAGE.rglob("*.py")}
    del by_name[FACADE]  # it leads everywhere
    seen: set[str] = set()
    left = [module_name(PACKAGE, PACKAGE / module)]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        for imported in imported_by(by_name[name]):
            inner = imported.removeprefix("omnigraph.")
            left += [each for each in (inner, inner.rpartition(".")[0]) if each in by_name]
    return frozenset(by_name[name].relative_to(PACKAGE).as_posix() for name in seen)


def test_every_module_on_the_page_exists() -> None:
    named = MODULE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 50
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


@pytest.mark.parametrize("road", roads(), ids=lambda road: road[0])
def test_every_module_of_a_table_is_reached_from_its_first(road: list[str]) -> None:
    assert len(road) > 5
    assert [module for module in road if module not in reached_from(road[0])] == []


def test_every_road_of_a_write_ends_in_the_one_publish() -> None:
    writes = [road for road in roads() if road[0] != "graph/reading.py"]
    assert len(writes) == 5
    assert all("storage/publisher.py" in reached_from(road[0]) for road in writes)
    reader = reached_from("engines/local/engine.py")
    assert "storage/publisher.py" not in reader


@pytest.mark.parametrize(
    ("request_name", "files_max", "room_changes_max"), [("write", 45, 120), ("query", 25, 60)]
)
def test_a_traced_request_visits_few_files_and_rooms(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_name: str,
    files_max: int,
    room_changes_max: int,
) -> None:
    monkeypatch.delenv("OMNIGRAPH_DURABILITY", raising=False)  # as users have it
    found = REQUESTS[request_name](tmp_path)
    assert len(found.files) <= files_max, list(found.files)
    assert found.room_changes <= room_changes_max, found.changes


# Rooms of whole new capabilities. They have their own size, so that adding one does not make its
# author squeeze the others.
NEWER_ROOMS = {
    *(
        "access",
        "audit",
        "cluster",
        "computing",
        "copies",
        "policy",
        "review",
        "translate",
        "views",
    ),
}


def test_the_package_has_at_most_400_modules_beside_its_newer_rooms() -> None:
    modules = [module.relative_to(PACKAGE) for module in PACKAGE.rglob("*.py")]
    assert len([module for module in modules if module.parts[0] not in NEWER_ROOMS]) <= 400

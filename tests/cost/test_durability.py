"""C-STO-050: what an acknowledged commit needs is on disk with `disk`, and unflushed otherwise."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from omnigraph.effects.local_disk import configured_durability, files_below
from omnigraph.effects.requests import IoEvent, measure
from omnigraph.effects.uri import HIDDEN_PREFIX
from omnigraph.graph import Graph, init

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person
"""
PHOTO = b64encode(Random(7).randbytes(200_000)).decode()

VERBS: dict[str, Callable[[Graph], object]] = {
    "insert": lambda graph: graph.mutate('query q { insert Person { name: "new" } }'),
    "two types": lambda graph: graph.mutate(
        'query q { insert Person { name: "new" } insert City { name: "Rome" } }'
    ),
    "update": lambda graph: graph.mutate(
        'query q { update Person set { age: 7 } where name = "ana" }'
    ),
    "edge": lambda graph: graph.mutate('query q { insert Knows { from: "ana", to: "ben" } }'),
    "delete": lambda graph: graph.mutate('query q { delete Person where name = "ben" }'),
    "blob": lambda graph: graph.load(
        mode="merge",
        data=f'{{"type": "Person", "data": {{"name": "cleo", "photo": "base64:{PHOTO}"}}}}',
    ),
    "overwrite": lambda graph: graph.load(
        mode="overwrite", data='{"type": "City", "data": {"name": "Bonn"}}'
    ),
    "branch": lambda graph: graph.create_branch("another"),
    "first write of a branch": lambda graph: graph.mutate(
        'query q { insert Person { name: "new" } }', branch="side"
    ),
    "branch deletion": lambda graph: graph.delete_branch("side"),
}


@pytest.fixture(params=["disk", "process"])
def durability(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The setting of the process, which is read once."""
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", request.param)
    configured_durability.cache_clear()
    yield request.param
    configured_durability.cache_clear()


@pytest.fixture
def graph(durability: str, tmp_path: Path) -> Graph:
    graph = init(tmp_path / "graph.omni", SCHEMA)
    graph.mutate('query q { insert Person { name: "ana" } insert Person { name: "ben" } }')
    graph.create_branch("side")
    return graph


def is_needed(file: Path) -> bool:
    """Lance can do without its hint at the newest version, and locks are about living processes.

    Digests of the manifest are listed best effort: without them a file is unverified, not lost.
    """
    if "__digests" in file.parts:
        return False
    return file.name != "latest_version_hint.json" and not file.name.startswith(HIDDEN_PREFIX)


def new_files(root: Path, work: Callable[[], object]) -> tuple[set[Path], list[IoEvent]]:
    """The files below ``root`` that some work leaves behind, and all its calls in order."""
    before = {file: file.stat().st_ino for file in files_below(root)}
    with measure(tracing=True) as io:
        work()
    new = {file for file in files_below(root) if before.get(file) != file.stat().st_ino}
    return set(filter(is_needed, new)), list(io.report().events)


def flushed(events: list[IoEvent], verb: str) -> set[Path]:
    return {Path(event.target) for event in events if (event.kind, event.verb) == ("disk", verb)}


def assert_all_flushed(root: Path, new: set[Path], events: list[IoEvent]) -> None:
    assert new
    files, directories = flushed(events, "flush_file"), flushed(events, "flush_directory")
    # A text object is flushed under the hidden name it is staged by, beside its own.
    staged = {file.parent for file in files if file.name.startswith(HIDDEN_PREFIX)}
    for file in new:
        assert file in files or file.parent in staged, f"{file.relative_to(root)} was not flushed"
        assert file.parent in directories, f"the entry of {file.relative_to(root)} was not flushed"


@pytest.mark.parametrize("verb", VERBS)
def test_c_sto_050_every_file_a_commit_needs_is_flushed_or_none(
    graph: Graph, durability: str, verb: str
):
    root = Path(graph.uri)
    new, events = new_files(root, lambda: VERBS[verb](graph))
    if durability == "process":
        assert not [event for event in events if event.kind == "disk"]
    else:
        assert_all_flushed(root, new, events)


def test_c_sto_050_init_is_flushed_or_not(durability: str, tmp_path: Path):
    root = tmp_path / "other.omni"
    new, events = new_files(root, lambda: init(root, SCHEMA))
    if durability == "process":
        assert not [event for event in events if event.kind == "disk"]
    else:
        assert_all_flushed(root, new, events)


def _merge(graph: Graph) -> object:
    VERBS["first write of a branch"](graph)
    return graph.merge_branch("side")


LARGER: dict[str, Callable[[Graph], object]] = {
    **VERBS,
    "merge": _merge,
    "schema apply": lambda graph: graph.apply_schema(
        SCHEMA.replace("age: I32?", "age: I64? @default(1)") + "node Pet { name: String @key }"
    ),
    "index": lambda graph: graph.ensure_indices(),
    "optimize": lambda graph: graph.optimize(),
    "revert": lambda graph: graph.revert(graph.list_commits()[0].graph_commit_id),
}
LISTED = {"data", "_deletions", "_indices"}


@pytest.mark.parametrize("durability", ["disk"], indirect=True)
@pytest.mark.parametrize("verb", LARGER)
def test_c_sto_050_no_version_is_made_before_its_data_is_on_disk(graph: Graph, verb: str):
    root = Path(graph.uri)
    for _ in range(2):
        VERBS["two types"](graph)
    new, events = new_files(root, lambda: LARGER[verb](graph))
    made = {
        event.target: at
        for at, event in enumerate(events)
        if event.kind == "lance" and event.verb in ("commit", "create")
    }
    listed = {
        Path(event.target): at
        for at, event in enumerate(events)
        if event.verb == "flush_file" and not LISTED.isdisjoint(Path(event.target).parts)
    }
    # Every commit of these verbs is the last of its dataset, or has data that was flushed with it.
    for file, at in listed.items():
        dataset = max((each for each in made if str(file).startswith(f"{each}/")), key=len)
        assert at < made[dataset], file.relative_to(root)
    assert {file for file in new if not LISTED.isdisjoint(file.parts)} <= set(listed)


@pytest.mark.parametrize("durability", ["disk"], indirect=True)
def test_c_sto_050_tables_are_on_disk_before_the_publish_that_shows_them(graph: Graph):
    _, events = new_files(Path(graph.uri), lambda: VERBS["two types"](graph))
    commits = [at for at, event in enumerate(events) if event.verb == "commit"]
    publish = commits[-1]
    assert events[publish].target.endswith("__manifest")
    late = [
        event.target
        for event in events[publish:]
        if event.verb == "flush_file" and "/nodes/" in event.target
    ]
    assert late == []
    tables = [event for event in events[:publish] if "/_versions/" in event.target]
    assert len(tables) >= 2

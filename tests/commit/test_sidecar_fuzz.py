"""Every field of a real sidecar of every kind, changed in every way: it converges or is refused.

Most changes are refused by the decoder, which is asked about all of them. Those that it lets pass
are settled for real: the graph is then the old or the new one, or nothing of it was touched.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.sidecar_decoding import read_sidecar
from omnigraph.errors import UnreadableSidecar
from omnigraph.graph import Graph, open_graph
from tests.support.sidecars import KINDS, Interrupted, contents, interrupted, names

ULID = "01M7000000000000000000000Z"
WRONG: tuple[object, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**63, 1.5, "", "x", [], [None], {}, {"x": 1}),
    *("../x", "/etc/passwd", "nodes", "../other.omni/nodes/x", "s3://bucket/x", "main", "review"),
    *(ULID, "node:City", "node:Other", "a\x00b", "Mutation", "SchemaApply", "Recovery"),
)
SETTLED = 5
"""Fields of a kind that are settled for real. All kinds together come to every field."""

CONVERGED = {"finished", "rolled_forward", "rolled_back", "discarded"}

Path_ = tuple[str | int, ...]


@pytest.fixture(scope="module", params=KINDS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    return interrupted(tmp_path_factory.mktemp("fuzz"), request.param)


def test_a_changed_sidecar_converges_or_is_refused_and_touches_nothing(real: Interrupted) -> None:
    passed: dict[Path_, list[dict[str, Any]]] = {}
    refused = 0
    for path, record in changed(real.record):
        try:
            read_sidecar(real.name, orjson.dumps(record))
        except UnreadableSidecar:
            refused += 1
            continue
        passed.setdefault(path, []).append(record)
    assert refused > 10 * sum(map(len, passed.values()))
    paths, turn = list(passed), list(KINDS).index(real.kind)
    for path in paths[turn % SETTLED :: max(1, len(paths) // SETTLED)]:
        records = passed[path]
        settle(real, path, records[turn % len(records)])


def settle(real: Interrupted, path: Path_, record: dict[str, Any]) -> None:
    """Recover the graph with such a sidecar, and look at every byte."""
    root = real.fresh(record)
    before, content = contents(root), (root / real.name).read_bytes()
    graph = open_graph(root, settle=False)
    shown = {branch: state(graph, branch) for branch in graph.list_branches()}
    kernel = graph._kernel
    outcomes = [found.outcome for found in Recoverer(kernel).run("forward")]
    if outcomes == ["set_aside"]:
        assert contents(root) == before, path
        kept = [file.read_bytes() for file in (root / "__recovery_refused").glob("*.json")]
        assert kept == [content], path
    else:
        outcomes += [found.outcome for found in Recoverer(kernel).run("full")]
        assert outcomes[-1] in CONVERGED or outcomes[-1] == "blocked", (path, outcomes)
    for branch, old in shown.items():
        assert state(graph, branch) in (old, sorted([*old, *KINDS[real.kind].adds])), path


def state(graph: Graph, branch: str) -> list[str]:
    """What a branch shows; a person and a city of one name came with one write."""
    persons, cities = names(graph, branch=branch), names(graph, "City", branch)
    assert persons == cities
    return persons


def changed(record: dict[str, Any]) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """The record with one thing wrong in it, over and over."""
    for path in places(record):
        value = at(record, path)
        for wrong in WRONG:
            if type(wrong) is not type(value) or wrong != value:
                yield path, with_value(record, path, wrong)
        for other in others(record, path):
            if other != value:
                yield path, with_value(record, path, other)
        yield path, without(record, path)
        if isinstance(value, dict) and path[-1:] != ("receipt",):
            yield path, with_value(record, path, {**value, "extra": 1})
        if isinstance(value, list) and value:
            yield path, with_value(record, path, [*value, value[0]])
            yield path, with_value(record, path, value[:-1])


def places(value: object, path: Path_ = ()) -> Iterator[Path_]:
    """Every member and element, at any depth; the caller's own receipt has no shape."""
    if path:
        yield path
    if path[-1:] == ("receipt",):
        return
    members: Any = value.items() if isinstance(value, dict) else ()
    members = enumerate(value) if isinstance(value, list) else members
    for key, inner in members:
        yield from places(inner, (*path, key))


def others(record: dict[str, Any], path: Path_) -> Iterator[object]:
    """What the same field says elsewhere: another table's location, another transaction's uuid."""
    for other in places(record):
        if other[-1] == path[-1] or {other[-1], path[-1]} <= {"uuid", "restore_uuid"}:
            yield at(record, other)


def at(record: dict[str, Any], path: Path_) -> Any:
    value: Any = record
    for key in path:
        value = value[key]
    return value


def with_value(record: dict[str, Any], path: Path_, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    at(changed, path[:-1])[path[-1]] = value
    return changed


def without(record: dict[str, Any], path: Path_) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    del at(changed, path[:-1])[path[-1]]
    return changed

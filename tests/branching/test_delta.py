"""Which rows differ between two versions of a table, found by where they lie and compared by value.

The judge knows nothing of fragments: it compares whole exports.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.branching.delta import DELETE, INSERT, UPDATE, TableDelta, table_delta
from omnigraph.branching.diff import GraphDiff, ListedChanges
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows
from omnigraph.effects.requests import measure
from omnigraph.model.changes import EntityChange
from tests.branching.histories import (
    Content,
    city,
    content,
    delete,
    load,
    person,
    seeded,
    step,
)
from tests.support.budgets import FEW


def delta(graph: og.Graph, before: str, after: str, key: str = "node:Person") -> TableDelta:
    """Of one type, between branches or commits."""
    diff = graph.diff(before, after, direct=True)
    for found in diff.deltas:
        if found.after.key == key:
            return found
    type = graph._opened.accepted().catalog.nodes[key.partition(":")[2]]
    first, second = (
        TableRows(graph._opened.reader_of(end), type) for end in (diff.before, diff.after)
    )
    return table_delta(first, second, Spill())


def ids(found: TableDelta) -> tuple[list[str], list[str], list[str]]:
    inserted, updated, deleted = (
        found.changes.chosen(found.changes.ops == op).ids.to_pylist()
        for op in (INSERT, UPDATE, DELETE)
    )
    return inserted, updated, deleted


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def with_payloads(diff: GraphDiff) -> list[EntityChange]:
    """Every change with all its values; `GraphDiff.changes` shows digests of blobs."""
    lists = (ListedChanges.of(delta, diff.wanted) for delta in diff.deltas)
    return [change for listed in lists for change in listed.read(images=True)]


def applied(changes: list[EntityChange], to: Content) -> Content:
    """What a diff makes of a content; fails if it does not fit."""
    result = dict(to)
    for change in changes:
        entity = f"{change.kind}:{change.type_name}", change.id
        if change.op == "insert":
            assert entity not in result
        else:
            assert change.before is not None
            assert exact(flat(change.before.to_dict())) == exact(result.pop(entity))
        if change.op != "delete":
            assert change.after is not None
            result[entity] = flat(change.after.to_dict())
    return result


def flat(image: dict[str, Any]) -> dict[str, Any]:
    """An image in the form of an export, where dates are numbers."""
    out: dict[str, Any] = image["properties"] | image.get("endpoints", {})
    if isinstance(out.get("since"), str):
        out["since"] = dt.date.fromisoformat(out["since"]).toordinal() - 719_163
    return out


def exact(value: Any) -> str:
    """A text that tells apart what Python calls equal, such as the two zeros."""
    return repr(sorted(value.items()))


@FEW
@given(seed=st.integers(0, 2**32))
def test_a_diff_applied_to_one_side_gives_the_other(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    graph = seeded(tmp_path_factory.mktemp("history") / "graph.omni")
    places = ["main"]
    for name in ("one", "two"):
        for _ in range(dice.randrange(4)):
            step(graph, dice, dice.choice(places))
        graph.create_branch(name, dice.choice(places))
        places.append(name)
    for _ in range(6):
        step(graph, dice, dice.choice(places))
        if dice.random() < 0.2:
            graph.optimize()
    places += [commit.graph_commit_id for commit in graph.list_commits("main")[:3]]
    for _ in range(5):
        before, after = dice.choice(places), dice.choice(places)
        left, right = content(graph, before), content(graph, after)
        diff = graph.diff(before, after, direct=True)
        changes = with_payloads(diff)
        result = applied(changes, left)
        assert {e: exact(v) for e, v in result.items()} == {e: exact(v) for e, v in right.items()}
        differing = [
            e for e in {*left, *right} if exact(left.get(e, {})) != exact(right.get(e, {}))
        ]
        assert len(changes) == len(diff) == len(differing), "a change that changes nothing"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def test_c_bra_021_null_and_empty_separators_and_signs_are_told_apart(graph: og.Graph) -> None:
    values: list[dict[str, Any]] = [
        {"tags": None},
        {"tags": []},
        {"tags": ["a, b"]},
        {"tags": ["a", "b"]},
        {"tags": [""]},
        {"score": 0.0},
        {"score": -0.0},
        {"photo": "base64:"},
    ]
    names = [f"v{n}" for n in range(len(values))]
    commits = []
    for at in range(len(values)):
        records = [person(name, **values[(at + n) % len(values)]) for n, name in enumerate(names)]
        load(graph, *records)
        commits.append(head(graph))
    # Between any two of them, every value has become another one.
    for before, after in itertools.combinations(commits, 2):
        assert ids(delta(graph, before, after)) == ([], names, [])


def test_c_bra_022_blobs_of_the_same_length_are_compared_by_content(graph: og.Graph) -> None:
    load(graph, person("a", photo="base64:QUE="), person("b", photo="base64:QkI="))
    before = head(graph)
    load(graph, person("a", photo="base64:QUI="), person("b", photo="base64:QkI="))
    assert ids(delta(graph, before, head(graph))) == ([], ["a"], [])


def test_c_bra_035_compaction_and_rewrites_of_equal_values_show_nothing(graph: og.Graph) -> None:
    for n in range(3):
        load(graph, person(f"x{n}", photo="base64:QUE="))
    before = head(graph)
    everyone = graph.export(types=["Person"])
    graph.load(data=b"".join(everyone), mode="overwrite")
    rewritten = head(graph)
    assert rewritten != before
    assert ids(delta(graph, before, rewritten)) == ([], [], [])
    graph.optimize()
    assert head(graph) != rewritten
    assert not graph.diff(rewritten, "main").types
    assert not graph.diff("main", rewritten).types


def test_after_a_compaction_only_rows_written_since_are_compared(graph: og.Graph) -> None:
    for n in range(4):
        load(graph, city(f"x{n}"))
    before = head(graph)
    load(graph, city("x1", size=9))
    graph.optimize()
    found = delta(graph, before, head(graph), "node:City")
    assert ids(found) == ([], ["x1"], [])
    assert found.places.num_rows == 6, "the fragments were not rewritten"


def test_the_cost_of_a_delta_follows_the_change(graph: og.Graph) -> None:
    """A point change of a wide table reads no more rows than it has changed."""
    load(graph, *(city(f"c{n:04}", size=n) for n in range(3_000)))
    graph.create_branch("review")
    load(graph, city("c0007", size=-1), branch="review")
    delete(graph, "City", "c0009", "review")
    load(graph, city("c0011", size=-1))
    found = delta(graph, "main", "review", "node:City")
    assert ids(found) == ([], ["c0007", "c0011"], ["c0009"])
    assert found.places.num_rows == 2
    with measure(tracing=True) as storage:
        graph.diff("main", "review")
    opened = {event.target for event in storage.report().events if event.verb == "open"}
    assert [place for place in opened if "/edges/" in place] == [], "an untouched type was opened"
    assert [place for place in opened if "/nodes/" in place], "nothing was measured"


def test_where_an_unchanged_row_lies_now_is_found_without_looking_for_its_id(
    graph: og.Graph,
) -> None:
    before = head(graph)
    delete(graph, "Person", "p1")
    load(graph, person("p2", age=9))
    for compacted in (False, True):
        if compacted:
            graph.optimize()
        found = delta(graph, before, head(graph))
        old = found.before.reader.ids("node:Person")
        kept = [at for at, id in enumerate(old.to_pylist()) if id not in ("p1", "p2")]
        now = found.where_now(old.take(kept), np.array(kept, np.int64))
        assert found.after.plain(now)["id"].to_pylist() == old.take(kept).to_pylist()

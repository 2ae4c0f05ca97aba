"""Baselines, and feeds that go on from them while others write."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import (
    ChangeCursorRejected,
    HistoricalVersionReclaimed,
    MergeConflicts,
    NotFound,
)
from tests.branching.feeds import Replica, head, listed, polled
from tests.branching.histories import (
    SCHEMA,
    city,
    content,
    delete,
    edge,
    load,
    person,
    seeded,
    step,
    write_at_random,
)
from tests.support.forked import FORK_SERVER


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def resume(baseline: object) -> str:
    handshake = baseline.handshake  # type: ignore[attr-defined]
    assert handshake is not None
    cursor: str = handshake.resume_cursor
    return cursor


def test_a_baseline_is_every_entity_and_then_one_handshake(graph: og.Graph) -> None:
    load(graph, person("p1", age=7, photo="base64:QUE=", tags=["x", "y"]))
    load(graph, edge("Knows", "k9", "p1", "p2", since="2024-05-01"))
    text = b"".join(graph.change_baseline().blocks())
    assert text.endswith(b"\n")
    *records, last = [orjson.loads(line) for line in text.splitlines()]
    assert set(last) == {"baseline"}
    assert set(last["baseline"]) == {"snapshot_commit_id", "resume_cursor"}
    assert last["baseline"]["snapshot_commit_id"] == head(graph)
    assert [set(record) for record in records if record["kind"] == "node"] == [
        {"kind", "type", "id", "properties"}
    ] * 7
    order = [(r["kind"] == "edge", r["type"]["id"], r["id"]) for r in records]
    assert order == sorted(order)
    (found,) = (record for record in records if record["id"] == "p1")
    assert found["type"]["name"] == "Person"
    assert found["properties"] == {
        "age": 7,
        "name": "p1",
        "photo": "base64:QUE=",
        "score": None,
        "tags": ["x", "y"],
    }
    (known,) = (record for record in records if record["id"] == "k9")
    assert known["endpoints"] == {"from": "p1", "to": "p2"}
    assert known["properties"] == {"since": "2024-05-01"}


def test_a_baseline_is_the_graph_and_the_feed_goes_on_from_there(graph: og.Graph) -> None:
    replica = Replica()
    baseline = graph.change_baseline()
    assert baseline.entity_count == 9
    replica.take(baseline)
    assert replica.content == content(graph, "main")
    blocks, _ = polled(graph, cursor=resume(baseline))
    assert blocks == []


def test_a_commit_that_lands_meanwhile_is_the_first_block(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    baseline = graph.change_baseline()
    load(other, person("between"))  # after the head was looked at, before anything is read
    records = iter(baseline)
    first = next(records)
    load(
        other, person(first.id, age=77) if first.type_name == "Person" else city(first.id, size=77)
    )
    delete(other, "Person", "p4")
    rest = list(records)
    replica = Replica()
    replica.take([first, *rest])
    assert ("node:Person", "between") not in replica.content
    assert ("node:Person", "p4") in replica.content
    blocks, _ = polled(graph, cursor=resume(baseline))
    assert len(blocks) == 3
    assert listed(blocks[0].changes) == [("insert", "Person", "between")]
    replica.apply(blocks)
    assert replica.content == content(graph, "main")


def test_c_bra_047_an_interrupted_baseline_yields_no_cursor(graph: og.Graph) -> None:
    baseline = graph.change_baseline()
    records = iter(baseline)
    for _ in range(baseline.entity_count):
        next(records)
        assert baseline.handshake is None
    assert next(records, None) is None
    assert baseline.handshake is not None
    given_up = graph.change_baseline()
    next(iter(given_up))
    del records
    assert given_up.handshake is None


def test_c_bra_047_a_version_reclaimed_under_a_baseline_fails_it(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    baseline = graph.change_baseline()
    for n in range(4):
        load(other, person("p0", age=n), city("bern", size=n))
    other.cleanup(keep=1, confirm=True)
    lines: list[bytes] = []
    with pytest.raises(HistoricalVersionReclaimed):
        for block in baseline.blocks():
            lines += block.splitlines()
    assert not any(b"resume_cursor" in line for line in lines)
    assert baseline.handshake is None


def test_kinds_and_types_filter_the_snapshot_and_operations_only_the_cursor(
    graph: og.Graph,
) -> None:
    wanted: dict[str, Any] = {"kinds": ["node"], "types": ["Person"], "ops": ["delete"]}
    baseline = graph.change_baseline(**wanted)
    assert [record.id for record in baseline] == ["p0", "p1", "p2", "p3", "p4"]
    load(graph, person("new"))
    delete(graph, "Person", "p1")
    blocks, _ = polled(graph, cursor=resume(baseline), **wanted)
    assert [listed(block.changes) for block in blocks] == [[], [("delete", "Person", "p1")]]
    with pytest.raises(ChangeCursorRejected, match="another filter"):
        graph.poll_changes(cursor=resume(baseline))
    with pytest.raises(NotFound, match="Persn"):
        graph.change_baseline(types=["Persn"])
    with pytest.raises(NotFound, match="nowhere"):
        graph.change_baseline("nowhere")


def test_a_baseline_of_a_branch_continues_with_that_branch(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("mine"), branch="review")
    baseline = graph.change_baseline("review")
    assert "mine" in {record.id for record in baseline}
    load(graph, person("later"), branch="review")
    load(graph, person("on-main"))
    (block,) = graph.poll_changes("review", cursor=resume(baseline)).blocks
    assert listed(block.changes) == [("insert", "Person", "later")]


def test_a_baseline_of_an_empty_graph_is_its_handshake_alone(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "empty.omni", schema=SCHEMA)
    (line,) = b"".join(graph.change_baseline().blocks()).splitlines()
    assert set(orjson.loads(line)) == {"baseline"}


# --- others write meanwhile -----------------------------------------------------------------------


def test_baseline_and_feed_miss_and_repeat_nothing_while_processes_write(graph: og.Graph) -> None:
    writers: list[Any] = [
        FORK_SERVER.Process(target=write_at_random, args=(graph.uri, seed, 10)) for seed in (1, 2)
    ]
    for writer in writers:
        writer.start()
    replicas: list[tuple[Replica, str]] = []
    seen: dict[str, list[dict[str, Any]]] = {}
    while any(writer.is_alive() for writer in writers):
        if len(replicas) < 4:
            replica, baseline = Replica(), graph.change_baseline()
            replica.take(baseline)
            replicas.append((replica, resume(baseline)))
        # Everybody goes on by what came since, and each block has to fit.
        for at, (known, cursor) in enumerate(replicas):
            blocks, following = polled(graph, cursor=cursor, limit=2)
            known.apply(blocks)
            replicas[at] = known, following
            for block in blocks:
                changes = [change.to_dict() for change in block.changes]
                assert seen.setdefault(block.cause.graph_commit_id, changes) == changes
    assert [writer.exitcode for writer in writers] == [0, 0]
    expected = content(graph, "main")
    for replica, cursor in replicas:
        blocks, _ = polled(graph, cursor=cursor)
        replica.apply(blocks)
        assert replica.content == expected
    assert replicas


def test_cleanup_in_the_same_process_waits_for_a_baseline(graph: og.Graph) -> None:
    baseline = graph.change_baseline()
    records = iter(baseline)
    first = next(records)
    for n in range(3):
        load(graph, person("p0", age=n), city("bern", size=n))
    cleaning = threading.Thread(target=lambda: graph.cleanup(keep=1, confirm=True))
    cleaning.start()
    replica = Replica()
    replica.take([first, *records])
    cleaning.join()
    assert replica.content["node:City", "bern"]["size"] == 1
    blocks, _ = polled(graph, start=f"after:{head(graph)}")
    assert blocks == []


# --- random histories -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_feed_from_the_beginning_makes_the_graph_and_a_baseline_goes_on_to_its_head(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    graph.create_branch("review")
    whole, joined = Replica(), Replica()
    cursor: str | None = None
    for n in range(24):
        branch = dice.choice(["main", "main", "review"])
        step(graph, dice, branch)
        if n % 7 == 6:
            with suppress(MergeConflicts):  # an edge of one side whose node the other deleted
                graph.merge_branch("review", on_conflict="source")
        if n % 9 == 4:
            graph.optimize()
        if n == 12:
            baseline = graph.change_baseline()
            joined.take(baseline)
            cursor = resume(baseline)
        if n > 12 and dice.random() < 0.3:
            blocks, cursor = polled(graph, cursor=cursor, limit=dice.randint(1, 4))
            joined.apply(blocks)
    blocks, _ = polled(graph, start="beginning", limit=dice.randint(1, 5))
    whole.apply(blocks)
    rest, _ = polled(graph, cursor=cursor)
    joined.apply(rest)
    expected = content(graph, "main")
    assert whole.content == expected
    assert joined.content == expected
    on_review = Replica()
    on_review.apply(polled(graph, "review", start="beginning")[0])
    assert on_review.content == content(graph, "review")

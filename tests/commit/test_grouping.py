"""Writers that wait for one branch share a publish: each has its commit, or its own error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.commit.recovery import Recoverer
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    KeyConflict,
    OmnigraphError,
    PreconditionFailed,
    RecoveryRequired,
    WriterBusy,
)
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage.manifest_rows import CommitRow
from tests.support.groups import in_group
from tests.support.sidecars import names

SCHEMA = """
node Person { name: String @key  mail: String?  age: I32?  @unique(mail) }
node City { name: String @key }
edge LivesIn: Person -> City @card(0..1)
"""
PERSON = """query add($n: String, $mail: String?) { insert Person { name: $n, mail: $mail } }"""
CITY = "query add($n: String) { insert City { name: $n } }"
LIVES = "query add($p: String, $c: String) { insert LivesIn { from: $p, to: $c } }"
BOTH = """query add($n: String) {
    insert Person { name: $n }  insert City { name: $n }  insert LivesIn { from: $n, to: $n }
}"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = init(tmp_path / "graph.omni", SCHEMA)
    graph.mutate(PERSON, {"n": "ana", "mail": "ana@x"})
    graph.mutate(CITY, {"n": "rome"})
    return graph


def person(graph: Graph, name: str, mail: str | None = None, **more: Any) -> Callable[[], Any]:
    return partial(graph.mutate, PERSON, {"n": name, "mail": mail}, **more)


def line(graph: Graph) -> list[CommitRow]:
    """The commits of main, oldest first."""
    return list(reversed(graph._kernel.manifest.main.refresh().lineage()))


def since(graph: Graph, before: list[CommitRow]) -> list[CommitRow]:
    return line(graph)[len(before) :]


def load(graph: Graph, mode: Any, *persons: str, **more: Any) -> Callable[[], Any]:
    rows = [{"type": "Person", "data": {"name": name}} for name in persons]
    return partial(graph.load, data=b"\n".join(map(orjson.dumps, rows)), mode=mode, **more)


# --- what all of them get -------------------------------------------------------------------------


def test_each_has_a_commit_of_its_own_on_top_of_the_one_before(graph: Graph) -> None:
    before = line(graph)
    receipts = in_group(
        graph,
        [
            person(graph, "bea", actor="act-b", message="first", operation_id="key-b"),
            partial(graph.mutate, BOTH, {"n": "cleo"}, actor="act-c"),
            load(graph, "append", "dora", "emil", actor="act-d", message="third"),
            load(graph, "merge", "fred"),
        ],
    )
    commits = since(graph, before)
    assert [each.commit.graph_commit_id for each in receipts] == [row.commit_id for row in commits]
    parents = [before[-1].commit_id, *(row.commit_id for row in commits[:-1])]
    assert [row.parent_commit_id for row in commits] == parents
    assert [row.commit_seq for row in commits] == [before[-1].commit_seq + n for n in (1, 2, 3, 4)]
    assert len({row.manifest_version for row in commits}) == 1
    assert [row.actor_id for row in commits] == ["act-b", "act-c", "act-d", None]
    assert [row.message for row in commits] == ["first", None, "third", None]
    assert [row.operation_id for row in commits] == ["key-b", None, None, None]
    assert [row.kind for row in commits] == ["mutation", "mutation", "load", "load"]
    assert [row.affected("node") for row in commits] == [1, 2, 2, 1]
    assert names(graph) == ["ana", "bea", "cleo", "dora", "emil", "fred"]


def test_each_commit_shows_its_own_rows_to_snapshots_diffs_and_reverts(graph: Graph) -> None:
    before = line(graph)[-1].commit_id
    in_group(graph, [person(graph, name) for name in ("bea", "cleo", "dora")])
    first, second, third = (row.commit_id for row in line(graph)[-3:])
    for commit, shown in ((first, ["bea"]), (second, ["bea", "cleo"])):
        found = graph.query(
            "query all { match { $p: Person } return { $p.name } }", snapshot=commit
        )
        assert sorted(row["p.name"] for row in found.to_pylist()) == ["ana", *shown]
    for old, new, name in (
        (before, first, "bea"),
        (first, second, "cleo"),
        (second, third, "dora"),
    ):
        (change,) = graph.diff(old, new).changes()
        assert change.id == name
    graph.revert(second)
    assert names(graph) == ["ana", "bea", "dora"]


def test_the_feed_delivers_each_commit(graph: Graph) -> None:
    start = graph.poll_changes().cursor
    receipts = in_group(graph, [person(graph, name) for name in ("bea", "cleo", "dora")])
    blocks = graph.poll_changes(cursor=start).blocks
    commits = [each.commit.graph_commit_id for each in receipts]
    assert [each.cause.graph_commit_id for each in blocks] == commits
    assert [[change.id for change in each.changes] for each in blocks] == [
        ["bea"],
        ["cleo"],
        ["dora"],
    ]


def test_readers_of_another_handle_see_the_group_at_once(graph: Graph) -> None:
    other = open_graph(graph.uri, "read_only")
    assert names(other) == ["ana"]
    seen: list[list[str]] = []

    def look(point: Failpoint) -> None:
        seen.append(names(other))

    with armed({Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER: look}):
        in_group(graph, [person(graph, name) for name in ("bea", "cleo")])
    assert seen == [["ana"]]
    assert names(other) == ["ana", "bea", "cleo"]


def test_a_lone_member_is_written_in_the_form_of_a_single_commit(graph: Graph) -> None:
    found: list[dict[str, Any]] = []
    root = Path(graph.uri.removeprefix("file://"))

    def look(point: Failpoint) -> None:
        (sidecar,) = (root / "__recovery").glob("*.json")
        found.append(orjson.loads(sidecar.read_bytes()))

    with armed({Failpoint.MUTATION_POST_SIDECAR_PRE_FORK: look}):
        (receipt,) = in_group(graph, [person(graph, "bea")])
        in_group(graph, [person(graph, "cleo"), person(graph, "dora")])
    alone, together = found
    assert receipt.commit.graph_commit_id == alone["lineage"]["commit_id"]
    assert alone["schema_version"] == 2
    assert "following" not in alone
    assert together["schema_version"] == 3
    assert len(together["following"]) == 1


def test_all_writers_that_wait_share_one_publish(graph: Graph) -> None:
    receipts = in_group(graph, [person(graph, f"p{n:02}") for n in range(16)])
    assert all(each.commit is not None for each in receipts)
    assert len({row.manifest_version for row in line(graph)[-16:]}) == 1


# --- who does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unfit", "error"),
    [
        pytest.param(lambda g: person(g, "x", "ana@x"), ConstraintViolation, id="unique"),
        pytest.param(lambda g: person(g, "x", "bea@x"), ConstraintViolation, id="unique in group"),
        pytest.param(
            lambda g: partial(g.mutate, LIVES, {"p": "ana", "c": "nowhere"}),
            InputError,
            id="missing end",
        ),
        pytest.param(
            lambda g: partial(g.mutate, LIVES, {"p": "lea", "c": "rome"}),
            InputError,
            id="cardinality",
        ),
        pytest.param(lambda g: load(g, "append", "bea"), KeyConflict, id="key in group"),
        pytest.param(lambda g: load(g, "append", "ana"), KeyConflict, id="key"),
        pytest.param(
            lambda g: person(g, "x", expected_head=g.list_commits()[0].graph_commit_id),
            None,
            id="condition that holds",
        ),
        pytest.param(
            lambda g: person(g, "x", expected_head=g.list_commits()[1].graph_commit_id),
            PreconditionFailed,
            id="condition",
        ),
    ],
)
def test_a_member_that_fails_is_told_alone_and_the_others_land(
    graph: Graph, unfit: Callable[[Graph], Callable[[], Any]], error: type[Exception] | None
) -> None:
    graph.mutate(BOTH, {"n": "lea"})
    before = line(graph)
    first, other, last = in_group(
        graph, [person(graph, "bea", "bea@x"), unfit(graph), person(graph, "cleo", "cleo@x")]
    )
    if error is None:
        assert other.commit is not None
    else:
        assert isinstance(other, error)
    landed = {row.commit_id for row in since(graph, before)}
    assert {first.commit.graph_commit_id, last.commit.graph_commit_id} <= landed
    assert len(landed) == (3 if error is None else 2)
    assert {"bea", "cleo"} <= set(names(graph))
    assert graph.recover() == []


def test_edges_of_two_members_that_are_too_many_together_do_not_share(graph: Graph) -> None:
    """Each is right alone; together they break the cardinality, so the second is refused."""
    graph.mutate(CITY, {"n": "oslo"})
    first, second = in_group(
        graph,
        [partial(graph.mutate, LIVES, {"p": "ana", "c": city}) for city in ("rome", "oslo")],
    )
    assert first.commit is not None
    assert isinstance(second, InputError)


def test_of_two_members_with_one_key_the_second_meets_the_first(graph: Graph) -> None:
    """A keyed insert replaces the row that is there by then; a strict one is refused."""
    before = line(graph)
    first, second, third = in_group(
        graph,
        [
            person(graph, "bea", "one@x"),
            person(graph, "bea", "two@x"),
            load(graph, "append", "bea"),
        ],
    )
    assert [row.commit_id for row in since(graph, before)] == [
        first.commit.graph_commit_id,
        second.commit.graph_commit_id,
    ]
    assert isinstance(third, KeyConflict)
    rows = graph.query("query all { match { $p: Person } return { $p.name, $p.mail } }").to_pylist()
    assert {"p.name": "bea", "p.mail": "two@x"} in rows


def test_one_idempotency_key_in_a_group_makes_one_commit(graph: Graph) -> None:
    before = line(graph)
    ours, again, theirs = in_group(
        graph,
        [
            person(graph, "bea", operation_id="key", actor="act-a"),
            person(graph, "bea", operation_id="key", actor="act-a"),
            person(graph, "cleo", operation_id="key", actor="act-b"),
        ],
    )
    assert ours.commit == again.commit
    assert theirs.commit != ours.commit
    assert len(since(graph, before)) == 2
    assert person(graph, "bea", operation_id="key", actor="act-a")().commit == ours.commit


def test_what_another_process_wrote_meanwhile_is_what_members_are_checked_against(
    graph: Graph,
) -> None:
    """They were prepared on an older state: a key that is taken by now is met all the same."""
    other = open_graph(graph.uri)

    def overtake(point: Failpoint) -> None:
        person(other, "bea", "taken@x")()

    def first_only(point: Failpoint) -> None:
        if not done:
            done.append(True)
            overtake(point)

    done: list[bool] = []
    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: first_only}):
        strict, unique, fine = in_group(
            graph,
            [load(graph, "append", "bea"), person(graph, "x", "taken@x"), person(graph, "cleo")],
        )
    assert isinstance(strict, KeyConflict)
    assert isinstance(unique, ConstraintViolation)
    assert fine.commit is not None
    assert names(graph) == ["ana", "bea", "cleo"]


def test_the_first_write_to_a_table_of_a_branch_goes_alone(graph: Graph) -> None:
    graph.create_branch("review")
    writes = [person(graph, name, branch="review") for name in ("bea", "cleo", "dora")]
    receipts = in_group(graph, writes, "review")
    assert all(each.commit is not None for each in receipts)
    assert names(graph, branch="review") == ["ana", "bea", "cleo", "dora"]
    assert names(graph) == ["ana"]


# --- when something breaks ------------------------------------------------------------------------


def test_before_its_sidecar_a_group_leaves_nothing_and_its_members_go_alone(graph: Graph) -> None:
    before = line(graph)
    with armed("recovery.sidecar_write=error*1"):
        receipts = in_group(graph, [person(graph, name) for name in ("bea", "cleo")])
    assert all(each.commit is not None for each in receipts)
    assert len(since(graph, before)) == 2
    assert graph.recover() == []


@pytest.mark.parametrize(
    ("at", "is_forward"),
    [
        ("mutation.post_sidecar_pre_fork=error*1", False),
        ("group.between_members=error*1", False),
        ("mutation.post_table_commit=error*1", False),
        ("mutation.post_finalize_pre_publisher=error*1", True),
    ],
)
def test_recovery_settles_a_group_as_a_whole(graph: Graph, at: str, is_forward: bool) -> None:
    before = line(graph)
    writes = [
        partial(graph.mutate, BOTH, {"n": name}, actor=f"act-{name}", operation_id=name)
        for name in ("bea", "cleo", "dora")
    ]
    with armed(at):
        told = in_group(graph, writes)
    assert all(isinstance(each, RecoveryRequired) for each in told)
    assert {each.details["outcome"] for each in told} == {"unknown"}
    assert names(graph) == ["ana"]
    (sidecar,) = graph._kernel.sidecars.pending()
    (settled,) = Recoverer(graph._kernel).run("full")
    kind = "rolled_forward" if is_forward else None
    assert settled.outcome == (kind or settled.outcome)
    audit = graph.list_recoveries()
    assert {row.operation_id for row in audit} == {each.attempt_id for each in sidecar.commits}
    assert {row.recovery_for_actor for row in audit} == {"act-bea", "act-cleo", "act-dora"}
    if is_forward:
        commits = since(graph, before)
        assert [row.actor_id for row in commits] == ["act-bea", "act-cleo", "act-dora"]
        assert {row.recovered_by for row in commits} == {"omnigraph:recovery"}
        assert names(graph) == ["ana", "bea", "cleo", "dora"]
    else:
        assert names(graph) == ["ana"]
        assert all(row.kind == "recovery" for row in since(graph, before))
    # Asked again with its key, each is there once.
    for write in writes:
        assert write().commit is not None
    assert names(graph) == ["ana", "bea", "cleo", "dora"]
    assert graph.recover() == []


def test_a_group_whose_publish_was_not_answered_is_found_by_its_commits(graph: Graph) -> None:
    before = line(graph)
    with armed("graph_publish.after_manifest_commit=error*1"):
        receipts = in_group(graph, [person(graph, name) for name in ("bea", "cleo")])
    commits = since(graph, before)
    assert [each.commit.graph_commit_id for each in receipts] == [row.commit_id for row in commits]


def test_a_published_group_whose_sidecar_stayed_is_finished_once(graph: Graph) -> None:
    with armed("recovery.sidecar_delete=error*1"):
        receipts = in_group(graph, [person(graph, name) for name in ("bea", "cleo")])
    assert all(each.commit is not None for each in receipts)
    before = line(graph)
    (settled,) = graph.recover()
    assert settled.outcome == "finished"
    assert line(graph) == before
    assert len(graph.list_recoveries()) == 2


def test_a_missing_version_between_those_of_a_group_is_no_stranger(graph: Graph) -> None:
    """Loss of power may take one of several versions that were to be flushed together."""
    root = Path(graph.uri.removeprefix("file://"))
    with armed("mutation.post_finalize_pre_publisher=error*1"):
        in_group(graph, [person(graph, name) for name in ("bea", "cleo", "dora")])
    (plan,) = graph._kernel.sidecars.pending()
    (table,) = plan.tables
    versions = root / table.location / "_versions"
    lost = table.expected_version + 2
    (file,) = (
        each for each in versions.glob("*.manifest") if int(each.stem) in (lost, 2**64 - 1 - lost)
    )
    file.unlink()
    reopened = open_graph(root)
    assert names(reopened) == ["ana"]
    assert person(reopened, "bea")().commit is not None
    assert reopened.recover() == []


def test_what_keeps_the_leader_out_keeps_all_that_wait_out(graph: Graph) -> None:
    def busy(point: Failpoint) -> None:
        raise WriterBusy("branch/main", "another", 1)

    with armed({Failpoint.RECOVERY_SIDECAR_LIST: busy}):
        told = in_group(graph, [person(graph, name) for name in ("bea", "cleo")])
    assert all(isinstance(each, OmnigraphError) for each in told)
    assert names(graph) == ["ana"]

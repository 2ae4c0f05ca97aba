"""Branches keep their schema while main gets another one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    ChangeDiffRefused,
    CompileError,
    Conflict,
    ConstraintViolation,
    ExpectedVersionMismatch,
    InputError,
    NotFound,
    OmnigraphError,
    ReadSetChanged,
)
from omnigraph.storage.layout import PAST_SCHEMAS
from omnigraph.storage.transactions import DatasetRef
from tests.commit.test_schema_apply import nodes, records

BASE = """
node Person { name: String @key  age: I32?  mood: enum(calm, cross)? }
node City { name: String @key  size: I32? }
edge LivesIn: Person -> City { since: Date? }
"""
ADDED = (
    BASE.replace("age: I32?", "age: I32?  mail: String?") + "node Planet { name: String @key }\n"
)
RENAMED = BASE.replace("node Person {", 'node Human @rename_from("Person") {').replace(
    ": Person ->", ": Human ->"
)
PEOPLE = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "mood": "calm"}},
    {"type": "Person", "data": {"name": "bo", "age": None, "mood": None}},
    {"type": "City", "data": {"name": "rome", "size": 3}},
    {"edge": "LivesIn", "from": "ada", "to": "rome", "data": {"since": "2024-05-01"}},
]
AGES = "query q { match { $p: Person } return { $p.name as n, $p.age as a } order { n } }"
MAILS = "query q { match { $p: Person } return { $p.name as n, $p.mail as m } order { n } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with the branch `work`, made before the schema changes."""
    graph = og.init(tmp_path / "graph.omni", BASE)
    graph.load(data=lines(PEOPLE), mode="append")
    graph.create_branch("work")
    return graph


def lines(found: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(orjson.dumps, found))


def person(name: str, **values: Any) -> bytes:
    return orjson.dumps({"type": "Person", "data": {"name": name, **values}})


# --- apply ----------------------------------------------------------------------------------------


def test_c_sch_062_a_schema_is_applied_to_main_while_branches_keep_theirs(graph: og.Graph) -> None:
    before = records(graph, branch="work")
    receipt = graph.apply_schema(ADDED)
    assert receipt.applied
    assert graph.list_commits()[0].kind == "schema"
    assert len(graph.list_commits("work")) == 2
    assert records(graph, branch="work") == before
    assert graph.schema_source == ADDED
    assert graph.on_branch("work").schema_source == BASE
    assert graph.query(MAILS).to_pylist()[0] == {"n": "ada", "m": None}
    assert graph.query(AGES, branch="work").to_pylist()[0] == {"n": "ada", "a": 36}


def test_c_sch_062_dropping_data_for_good_is_refused_with_branches(graph: og.Graph) -> None:
    without = BASE.replace("age: I32?", "")
    before = graph.snapshot()
    with pytest.raises(Conflict, match=r"requires a graph with only main; found non-main .*: work"):
        graph.apply_schema(without, allow_data_loss=True)
    assert graph.snapshot() == before
    assert graph.apply_schema(ADDED, allow_data_loss=True).applied, "nothing is dropped here"
    assert graph.apply_schema(without).applied
    assert nodes(graph, "Person", branch="work")[0]["age"] == 36


def test_what_a_branch_does_not_have_is_unknown_on_it(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    with pytest.raises(CompileError, match="mail"):
        graph.query(MAILS, branch="work")
    with pytest.raises(CompileError, match="Planet"):
        graph.mutate('query q { insert Planet { name: "x" } }', branch="work")
    with pytest.raises(InputError, match="mail"):
        graph.load(data=person("cy", mail="x"), mode="merge", branch="work", grammar="strict")
    with pytest.raises(NotFound):
        graph.table("Planet", branch="work")


@pytest.mark.parametrize("desired", [ADDED, RENAMED], ids=["added", "renamed"])
def test_every_way_to_read_and_write_a_branch_uses_its_own_schema(
    graph: og.Graph, desired: str, tmp_path: Path
) -> None:
    graph.apply_schema(desired)
    work = graph.on_branch("work")
    work.mutate('query q { insert Person { name: "cy", age: 3 } }')
    work.mutate('query q { update Person set { age: 4 } where name = "cy" }')
    work.load(data=person("di", age=5), mode="merge")
    work.load(nodes={"Person": _csv(tmp_path)}, mode="append")
    assert [(r["n"], r["a"]) for r in work.query(AGES).to_pylist()] == [
        ("ada", 36), ("bo", None), ("cy", 4), ("di", 5), ("eva", 6),
    ]  # fmt: skip
    assert work.table("Person").to_arrow().column_names == ["id", "age", "mood", "name"]
    assert {each.type_name for each in work.snapshot().datasets} == {"Person", "City", "LivesIn"}
    assert {t.type_key for t in work.stats().tables} == {"node:Person", "node:City", "edge:LivesIn"}
    assert work.entity_at("node:Person", "cy") == {"id": "cy", "name": "cy", "age": 4, "mood": None}
    assert [each.change.op for each in work.entity_history("Person", "cy")] == ["update", "insert"]
    assert work.describe_queries(AGES)[0].name == "q"
    assert work.explain(AGES).plan
    work.ensure_indices()
    assert graph.examine().is_healthy
    assert len(records(work, types=["Person"])) == 5
    commit = work.list_commits()[-4].graph_commit_id
    assert work.query(AGES, snapshot=commit).to_pylist()[0] == {"n": "ada", "a": 36}


def _csv(folder: Path) -> str:
    file = folder / "more.csv"
    file.write_text("name,age\neva,6\n")
    return str(file)


def test_a_branch_checks_the_constraints_of_its_own_schema(graph: og.Graph) -> None:
    graph.mutate('query q { update Person set { age: 7 } where name = "bo" }')
    graph.apply_schema(BASE.replace("age: I32?", "age: I32? @unique"))
    same = 'query q { update Person set { age: 7 } where name = "ada" }'
    with pytest.raises(ConstraintViolation):
        graph.mutate(same)
    graph.mutate(same, branch="work")
    graph.mutate('query q { update Person set { age: 7 } where name = "bo" }', branch="work")


def test_an_open_handle_sees_what_another_one_applied(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    assert other.query(AGES, branch="work").to_pylist() == other.query(AGES).to_pylist()
    graph.apply_schema(RENAMED)
    with pytest.raises(CompileError):
        other.query(AGES)
    assert len(other.query(AGES, branch="work").to_pylist()) == 2
    assert len(other.query(AGES.replace("Person", "Human")).to_pylist()) == 2
    other.mutate('query q { insert Person { name: "cy" } }', branch="work")
    other.mutate('query q { insert Human { name: "cy" } }')


def test_a_branch_of_a_branch_begins_with_its_schema(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    graph.create_branch("child", "work")
    graph.load(data=person("cy", age=1), mode="append", branch="other", from_="work")
    for name in ("child", "other"):
        assert graph.on_branch(name).schema_source == BASE
    assert len(nodes(graph, "Person", branch="other")) == 3


def test_a_commit_is_shown_with_the_schema_of_its_branch(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    graph.mutate('query q { insert Person { name: "cy" } }', branch="work")
    commit = graph.list_commits("work")[0].graph_commit_id
    assert len(graph.query(AGES, snapshot=commit).to_pylist()) == 3
    with pytest.raises(CompileError, match="mail"):
        graph.query(MAILS, snapshot=commit)
    shared = graph.list_commits("work")[1].graph_commit_id
    assert len(graph.query(MAILS, snapshot=shared).to_pylist()) == 2, "main has it, too"


def test_cleanup_keeps_what_a_branch_with_an_older_schema_reads(graph: og.Graph) -> None:
    for rank in range(3):
        graph.apply_schema(BASE.replace("age: I32?", f"age: I32?  rank{rank}: I32? @default(1)"))
        graph.mutate('query q { update Person set { age: 9 } where name = "bo" }')
    before = records(graph, branch="work")
    graph.cleanup(keep=1, confirm=True)
    fresh = og.open(graph.uri)
    assert records(fresh, branch="work") == before
    assert fresh.on_branch("work").schema_source == BASE
    fresh.mutate('query q { insert Person { name: "cy" } }', branch="work")


def test_a_lost_schema_of_a_branch_is_named_and_main_goes_on(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    for file in (Path(graph.uri) / PAST_SCHEMAS).iterdir():
        file.unlink()
    fresh = og.open(graph.uri)
    assert len(fresh.query(MAILS).to_pylist()) == 2
    with pytest.raises(OmnigraphError, match="schema of branch work is missing"):
        fresh.query(AGES, branch="work")
    assert not fresh.examine().is_healthy


def test_differences_across_schemas_are_told_in_the_words_of_the_newer_one(
    graph: og.Graph,
) -> None:
    graph.apply_schema(RENAMED.replace("age: I32?", "age: I32?  mail: String?"))
    for at in range(3):  # the line of the branch becomes longer than that of main
        graph.mutate(f'query q {{ insert Person {{ name: "p{at}" }} }}', branch="work")
    found = graph.diff("main", "work")
    assert [(each.type_name, each.inserted) for each in found.types] == [("Human", 3)]
    back = graph.diff("work", "main", direct=True)
    assert [(each.type_name, each.deleted) for each in back.types] == [("Human", 3)]


def test_differences_between_branches_are_those_that_a_merge_would_bring(graph: og.Graph) -> None:
    """Defaults and wider types of main are none; what main dropped cannot be told."""
    graph.mutate('query q { update Person set { age: 37 } where name = "ada" }', branch="work")
    untouched = graph.list_commits("work")[1].graph_commit_id
    graph.apply_schema(EVERYTHING)
    (change,) = graph.diff("main", "work").changes(images=True)
    assert (change.op, change.type_name, change.id) == ("update", "Human", "ada")
    assert change.before is not None and change.after is not None
    years = [image.properties["years"] for image in (change.before, change.after)]
    assert years == [36, 37] and change.after.properties["level"] == 3
    assert len(graph.diff_page("work", "main", direct=True, images=True).changes) == 1
    with pytest.raises(ChangeDiffRefused):
        graph.diff(untouched, "main", direct=True)
    graph.apply_schema(EVERYTHING.replace("mood: enum(calm, cross)?", ""))
    with pytest.raises(ChangeDiffRefused):
        graph.diff("main", "work")


def test_writers_and_rebases_of_branches_do_not_wait_for_an_apply(graph: og.Graph) -> None:
    graph.create_branch("other")
    graph.apply_schema(ADDED)
    handles, done = (graph, og.open(graph.uri)), list[object]()

    def write(_: Failpoint) -> None:
        def run() -> None:
            for handle in handles:
                handle.mutate('query q { insert Person { name: "cy" } }', branch="work")
            done.append(graph.rebase_schema("other"))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)

    with armed({Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE: write}):
        graph.apply_schema(ADDED.replace("mail: String?", "mail: String?  rank: I32?"))
    assert len(done) == 1, "it was done while the apply had staged its contract"
    assert graph.on_branch("other").schema_source == ADDED
    assert len(nodes(graph, "Person", branch="work")) == 3


def brought_forward(graph: og.Graph) -> dict[Failpoint, Any]:
    """Another process rebases the branch after a write to it was staged."""

    def overtake(_: Failpoint) -> None:
        if not done:
            done.append(True)
            og.open(graph.uri).rebase_schema("work")

    done: list[bool] = []
    return {Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: overtake}


def test_a_write_that_was_staged_before_a_rebase_is_prepared_again_or_refused(
    graph: og.Graph,
) -> None:
    graph.apply_schema(ADDED)
    with (
        armed(brought_forward(graph)),
        pytest.raises((ReadSetChanged, ExpectedVersionMismatch)),
    ):
        graph.mutate('query q { update Person set { age: 1 } where name = "bo" }', branch="work")
    graph.apply_schema(ADDED.replace("mail: String?", "mail: String?  rank: I32 @default(4)"))
    with armed(brought_forward(graph)):
        graph.mutate('query q { insert Person { name: "cy" } }', branch="work")
    assert [row["rank"] for row in nodes(graph, "Person", branch="work")] == [4, 4, 4]
    assert graph.examine().is_healthy


def test_a_branch_with_an_older_schema_is_served_by_a_handle_that_only_reads(
    graph: og.Graph,
) -> None:
    graph.apply_schema(RENAMED)
    reader = og.open(graph.uri, "read_only")
    assert reader.query(AGES, branch="work").to_pylist()[0] == {"n": "ada", "a": 36}
    assert reader.on_branch("work").schema_source == BASE
    assert reader.rebase_schema("work", dry_run=True).step_count == 1
    with pytest.raises(InputError, match="opened for writing"):
        reader.rebase_schema("work")


# --- rebase ---------------------------------------------------------------------------------------


def test_a_rebased_branch_has_the_schema_of_main_and_its_own_data(graph: og.Graph) -> None:
    graph.mutate('query q { insert Person { name: "cy", age: 3 } }', branch="work")
    graph.apply_schema(EVERYTHING)
    graph.mutate('query q { insert Human { name: "on-main" } insert Planet { name: "mars" } }')
    commits = len(graph.list_commits("work"))
    receipt = graph.rebase_schema("work", actor="act-ana")
    assert (receipt.branch, receipt.applied, receipt.dropped) == ("work", True, ())
    assert {step["kind"] for step in receipt.steps} >= {"rename_type", "add_type", "add_property"}
    newest = graph.list_commits("work")[0]
    assert len(graph.list_commits("work")) == commits + 1
    assert (newest.kind, newest.actor_id, newest.graph_branch) == ("schema", "act-ana", "work")
    assert receipt.commit == newest
    work = graph.on_branch("work")
    assert work.schema_source == EVERYTHING
    assert records(work) == [
        {"edge": "LivesIn", "from": "ada", "to": "rome", "data": {"from_day": 19844}},
        {
            "type": "Human",
            "data": {"level": 3, "mood": "calm", "name": "ada", "tags": None, "years": 36},
        },
        {
            "type": "Human",
            "data": {"level": 3, "mood": None, "name": "bo", "tags": None, "years": None},
        },
        {
            "type": "Human",
            "data": {"level": 3, "mood": None, "name": "cy", "tags": None, "years": 3},
        },
        {"type": "Town", "data": {"name": "rome", "size": 3}},
    ]
    work.mutate('query q { insert Planet { name: "pluto" } update Human set { tags: ["x"] } '
                'where name = "cy" }')  # fmt: skip
    assert [row["name"] for row in nodes(work, "Planet")] == ["pluto"]
    assert [row["name"] for row in nodes(graph, "Planet")] == ["mars"]
    assert len(nodes(graph, "Human")) == 3
    assert graph.examine().is_healthy
    assert not graph.rebase_schema("work").applied, "there is nothing left to do"
    assert len(work.list_commits()) == commits + 2


def human(name: str, **values: Any) -> dict[str, Any]:
    data = {"level": 3, "mood": None, "name": name, "tags": None, "years": None, **values}
    return {"type": "Human", "data": data}


EVERYTHING = """
node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    mood: enum(calm, cross)?
    level: I32 @default(3)
    tags: [String]?
}
node Town @rename_from("City") { name: String @key  size: I32? @index }
node Planet { name: String @key }
edge LivesIn: Human -> Town { from_day: Date? @rename_from("since") }
"""


def test_a_rebase_is_flushed_to_disk_with_files_that_the_branch_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "disk")
    graph = og.init(tmp_path / "durable.omni", BASE)
    graph.load(data=lines(PEOPLE), mode="append")
    graph.create_branch("work")
    graph.mutate('query q { insert Person { name: "cy", age: 3 } }', branch="work")
    graph.apply_schema(EVERYTHING)
    assert graph.rebase_schema("work").applied
    assert [row["level"] for row in nodes(graph, "Human", branch="work")] == [3, 3, 3]
    graph.merge_branch("work")
    assert graph.examine().is_healthy


def test_a_dry_run_says_what_a_rebase_would_do_and_changes_nothing(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    before = graph.snapshot("work")
    receipt = graph.rebase_schema("work", dry_run=True)
    assert (receipt.applied, receipt.dry_run, receipt.step_count) == (False, True, 2)
    assert graph.snapshot("work") == before
    assert graph.rebase_schema("work").applied


def test_a_rebase_goes_through_every_schema_that_main_had(graph: og.Graph) -> None:
    """A property keeps the default it came with, though that was taken away since."""
    with_rank = BASE.replace("age: I32?", "age: I32?  rank: F32 @default(0.1)")
    planets = "node Planet { name: String @key }\n"
    graph.apply_schema(with_rank + planets)
    graph.mutate('query q { insert Planet { name: "mars" } }')
    final = BASE.replace("age: I32?", "age: I32?  rank: F64")
    final += "node Planet { name: String @key  moons: I32 @default(2) }\n"
    graph.apply_schema(final)
    graph.cleanup(keep=1, confirm=True)
    assert graph.rebase_schema("work").applied
    ranks = [row["rank"] for row in nodes(graph, "Person", branch="work")]
    assert ranks == [row["rank"] for row in nodes(graph, "Person")]
    assert nodes(graph, "Planet", branch="work") == []
    graph.mutate('query q { insert Planet { name: "x" } }', branch="work")
    assert nodes(graph, "Planet", branch="work") == [{"moons": 2, "name": "x"}]
    assert nodes(graph, "Planet") == [{"moons": 2, "name": "mars"}]


def test_schemas_that_come_back_to_where_they_began_are_no_obstacle(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    graph.apply_schema(BASE)
    receipt = graph.rebase_schema("work")
    assert (receipt.applied, receipt.steps) == (True, ())
    assert len(graph.query(AGES, branch="work").to_pylist()) == 2


def test_a_schema_that_main_had_before_is_reached_through_those_in_between(
    graph: og.Graph,
) -> None:
    described = BASE.replace("node City {", 'node City @description("a place") {')
    graph.apply_schema(described)
    graph.create_branch("late")
    for desired in (BASE, described.replace("a place", "a town"), BASE):
        graph.apply_schema(desired)
    assert graph.rebase_schema("late").applied
    assert graph.on_branch("late").schema_source == BASE
    assert not graph.rebase_schema("work").applied, "it has the schema that main has again"


@pytest.mark.parametrize("dropped", ["node:Person.age", "node:City"])
def test_what_main_dropped_is_dropped_on_a_branch_that_wrote_to_it_only_if_told(
    graph: og.Graph, dropped: str
) -> None:
    desired = BASE.replace("age: I32?", "") if "age" in dropped else BASE.splitlines()[1]
    graph.mutate('query q { insert Person { name: "cy", age: 3 } }', branch="work")
    graph.mutate('query q { insert City { name: "oslo" } }', branch="work")
    graph.create_branch("untouched")
    graph.apply_schema(desired)
    before = graph.snapshot("work")
    with pytest.raises(Conflict, match=f"main has dropped what branch work has .*: {dropped}"):
        graph.rebase_schema("work")
    assert graph.snapshot("work") == before
    assert graph.rebase_schema("work", dry_run=True).dropped == (dropped,)
    assert graph.rebase_schema("untouched").dropped == ()
    old = graph.list_commits("work")[0].graph_commit_id
    assert graph.rebase_schema("work", allow_data_loss=True).dropped == (dropped,)
    assert graph.on_branch("work").schema_source == desired
    shown = graph.entity_at("node:Person", "cy", branch="work", snapshot=old)
    assert shown is not None and shown["age"] == 3, "an older commit still shows it"


def test_entities_of_a_branch_that_break_a_new_constraint_are_named(graph: og.Graph) -> None:
    graph.mutate('query q { update Person set { age: 36 } where name = "bo" }', branch="work")
    graph.apply_schema(BASE.replace("age: I32?", "age: I32? @unique"))
    before = graph.snapshot("work")
    for dry_run in (True, False):
        with pytest.raises(ConstraintViolation, match="'bo'") as refused:
            graph.rebase_schema("work", dry_run=dry_run)
        assert "rebase the branch again" in str(refused.value.hint)
    assert graph.snapshot("work") == before
    graph.mutate('query q { update Person set { age: 1 } where name = "bo" }', branch="work")
    assert graph.rebase_schema("work").applied


def test_a_rebase_names_a_branch_that_can_be_brought_forward(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="main always has the newest schema"):
        graph.rebase_schema("main")
    with pytest.raises(NotFound):
        graph.rebase_schema("nowhere")
    assert not graph.on_branch("work").rebase_schema().applied


def test_a_copy_that_was_made_too_late_is_not_in_the_way_of_a_rebase(graph: og.Graph) -> None:
    """Of a type that has changed since it was made, by an owner whose rebase was undone."""
    graph.apply_schema(BASE + "node Planet { name: String @key }\n")
    graph.apply_schema(BASE + "node Planet { name: String @key  moons: I32? }\n")
    kernel = graph._kernel
    table = kernel.manifest.main.state.head_snapshot().table("node:Planet")
    ref = kernel.manifest.registration("work").ref
    where = DatasetRef(kernel.table_uri(table.location), ref)
    late = kernel.forks.make(where, None, 1)
    late.delete("true")
    assert graph.rebase_schema("work").applied
    graph.mutate('query q { insert Planet { name: "x", moons: 1 } }', branch="work")
    assert nodes(graph, "Planet", branch="work") == [{"moons": 1, "name": "x"}]
    assert graph.examine().is_healthy

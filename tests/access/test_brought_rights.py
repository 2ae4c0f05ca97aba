"""Loads, merges, reverts, cherry-picks and pulls of an actor whose rules are limited to types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import Conflict, Denied, MergeConflicts, OmnigraphError
from omnigraph.graph import Graph, open_graph
from omnigraph.policy import load_policy
from tests.access.test_write_rights import BUNDLE, ROWS, SCHEMA, notes, told, written
from tests.support.budgets import FEW
from tests.support.tables import check_all

ANA, BO = "act-ana", "act-bo"
POLICY = load_policy(BUNDLE)


def graph_at(path: Path) -> Graph:
    graph = og.init(path, SCHEMA)
    graph.load(data=ROWS, mode="append")
    return graph


def ana_of(whole: Graph) -> Graph:
    return open_graph(whole.uri, policy=POLICY).acting_as(ANA)


@pytest.fixture
def whole(tmp_path: Path) -> Graph:
    return graph_at(tmp_path / "graph.omni")


def node(type: str, **data: Any) -> dict[str, Any]:
    return {"type": type, "data": data}


def about(source: str, target: str = "ada") -> dict[str, Any]:
    return {"edge": "About", "from": source, "to": target, "data": {"id": f"About-{source}"}}


def lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def mine(slug: str, text: str = "b") -> dict[str, Any]:
    return node("Note", slug=slug, text=text, author=ANA)


# --- what is granted ------------------------------------------------------------------------------


def test_c_acc_007_records_tables_and_frames_are_loaded_within_the_rules(
    whole: Graph, tmp_path: Path
):
    ana = ana_of(whole)
    rows = pa.table({"slug": ["c"], "text": ["t"], "author": [ANA]})
    pa.csv.write_csv(rows.set_column(0, "slug", pa.array(["csv"])), tmp_path / "notes.csv")
    pa.parquet.write_table(rows.set_column(0, "slug", pa.array(["pq"])), tmp_path / "n.parquet")
    (tmp_path / "notes.jsonl").write_text(lines([mine("json"), about("json")]))
    for named in (
        {"paths": [tmp_path / "notes.jsonl"]},
        {"nodes": {"Note": tmp_path / "notes.csv"}},
        {"nodes": {"Note": tmp_path / "n.parquet"}},
        {"frames": {"Note": rows.set_column(0, "slug", pa.array(["frame"]))}},
    ):
        receipt = ana.load(*named.pop("paths", ()), **named, mode="append")
        assert receipt.nodes[0].inserted == 1
        assert receipt.engine == "local"
    assert ana.load(data=lines([mine("json", "new"), mine("more")]), mode="merge").commit
    found = {each["slug"]: each["text"] for each in notes(whole)}
    assert found == {
        "mine": "a",
        "theirs": "hush",
        "json": "new",
        "csv": "t",
        "pq": "t",
        "frame": "t",
        "more": "b",
    }
    # what a record lacks keeps its value, whether the actor can name it or not
    ana.load(data=lines([mine("mine", "new")]), mode="merge")
    assert next(each for each in notes(whole) if each["slug"] == "mine")["grade"] == 1


def test_c_acc_007_an_overwrite_replaces_what_the_actor_sees(whole: Graph):
    whole.load(data=lines([mine("old")]), mode="append")
    ana = ana_of(whole)
    ana.load(data=lines([mine("old", "again"), mine("new")]), mode="overwrite")
    found = {each["slug"]: each["text"] for each in notes(whole)}
    # `mine` was seen and is not among the records; `theirs` was not seen
    assert found == {"theirs": "hush", "old": "again", "new": "b"}
    assert {each["slug"] for each in notes(ana)} == {"old", "new"}
    ana.load(data=lines([about("new")]), mode="overwrite")
    ends = "query q { match { $n: Note  $n about $p } return { $n.slug as slug } order { slug } }"
    assert whole.query(ends).to_pylist() == [{"slug": "new"}, {"slug": "theirs"}]
    ana.load(data="", mode="overwrite", replace_types=["About", "Note"])
    assert [each["slug"] for each in notes(whole)] == ["theirs"]
    assert whole.query(ends).to_pylist() == [{"slug": "theirs"}]


# --- what is not ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refused:
    records: list[dict[str, Any]]
    kind: str
    mode: str = "merge"
    type: str = "Note"


VIOLATIONS = {
    "a new row": Refused([node("Note", slug="n", author=BO)], "row"),
    "a new row without what the condition reads": Refused([node("Note", slug="n")], "row"),
    "a row as it becomes": Refused([node("Note", slug="mine", author=BO)], "row"),
    "a property of a new row": Refused([node("Note", slug="n", author=ANA, grade=3)], "property"),
    "a property of a stored row": Refused([node("Note", slug="mine", grade=3)], "property"),
    "a property of an overwritten row": Refused([mine("mine")], "property", mode="overwrite"),
    "a type": Refused([node("Person", name="new")], "type", type="Person"),
    "a property that cannot be named": Refused([node("Visit", at="n")], "property", type="Visit"),
    "the same in an append": Refused([node("Visit", at="n")], "property", "append", "Visit"),
}


def test_c_acc_007_a_load_against_the_rules_names_their_kind_and_the_type(whole: Graph):
    ana = ana_of(whole)
    before = notes(whole), whole.list_commits()[0].graph_commit_id

    def refused(case: Refused) -> None:
        with pytest.raises(Denied) as raised:
            ana.load(data=lines(case.records), mode=case.mode)  # type: ignore[arg-type]
        assert raised.value.details == {"rule_kind": case.kind, "type": case.type}
        assert (notes(whole), whole.list_commits()[0].graph_commit_id) == before

    check_all(VIOLATIONS, refused)


def failure(run: Callable[[], object]) -> OmnigraphError:
    with pytest.raises(OmnigraphError) as raised:
        run()
    return raised.value


def test_c_acc_007_a_load_tells_hidden_from_absent_by_nothing(whole: Graph, tmp_path: Path):
    ana = ana_of(whole)
    pairs: dict[str, tuple[list[dict[str, Any]], str, str]] = {
        "type": ([node("HERE", name="x")], "Secret", "Absent"),
        "edge type": ([{"edge": "HERE", "from": "a", "to": "ada", "data": {}}], "Guards", "Absent"),
        "end": ([about("HERE")], "theirs", "nowher"),
        "property": ([node("Visit", at="v", HERE="x")], "doctor", "nowher"),
    }

    def same(case: tuple[list[dict[str, Any]], str, str]) -> None:
        records, *names = case
        for grammar in ("strict", "compatible"):
            told_of = []
            for name in names:
                data = lines(records).replace("HERE", name)
                error = failure(
                    lambda data=data, grammar=grammar: ana.load(  # type: ignore[misc]
                        data=data, mode="merge", grammar=grammar
                    )
                )
                told_of.append((type(error), error.render().replace(name, "X")))
            assert told_of[0] == told_of[1]

    check_all(pairs, same)
    columns = []
    for name in ("doctor", "nowher"):
        rows = pa.table({"at": ["v"], name: ["x"]})
        pa.csv.write_csv(rows, tmp_path / "v.csv")
        for named in ({"frames": {"Visit": rows}}, {"nodes": {"Visit": tmp_path / "v.csv"}}):
            error = failure(lambda named=named: ana.load(**named, mode="append"))  # type: ignore[misc]
            columns.append((type(error), error.render().replace(name, "X")))
    assert columns[:2] == columns[2:]
    assert "doctor" not in str(columns)


def test_c_acc_007_a_key_of_a_hidden_row_is_a_conflict_in_every_mode(whole: Graph):
    ana = ana_of(whole)
    # also where the record is the hidden row, so that a load does not find out what it holds
    same = node("Note", slug="theirs", text="hush", author=BO, grade=2)
    found = set()
    for mode in ("append", "merge", "overwrite"):
        for record in (mine("theirs"), same):
            error = failure(lambda: ana.load(data=lines([record]), mode=mode))  # noqa: B023
            assert type(error) is Conflict
            found.add(told(error)[:3])
            assert error.details == {}
    assert len(found) == 1
    assert "theirs" not in str(found)
    assert notes(whole)[1]["text"] == "hush"


def test_c_acc_007_an_overwrite_does_not_leave_hidden_edges_without_ends(whole: Graph):
    bundle = BUNDLE.replace("      About: all\n", "      Person: all\n      About: all\n", 2)
    bundle = bundle.replace("      Person: {properties: [name]}\n", "")
    ana = open_graph(whole.uri, policy=load_policy(bundle)).acting_as(ANA)
    error = failure(lambda: ana.load(data="", mode="overwrite", replace_types=["Person", "About"]))
    assert type(error) is Conflict
    assert "Guards" not in error.render()
    assert "Secret" not in error.render()


# --- random loads ---------------------------------------------------------------------------------

SLUGS = ("a", "b", "c", "d")
RECORD = st.tuples(st.sampled_from(SLUGS), st.sampled_from([ANA, BO]), st.sampled_from("xy"))


@given(
    st.lists(RECORD, max_size=4, unique_by=lambda each: each[0]),
    st.lists(RECORD, min_size=1, max_size=3, unique_by=lambda each: each[0]),
    st.sampled_from(["append", "merge", "overwrite"]),
)
@settings(FEW, suppress_health_check=[*FEW.suppress_health_check, HealthCheck.too_slow])
def test_c_acc_007_loads_do_what_they_do_without_hidden_rows_or_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    stored: list[tuple[str, str, str]],
    loaded: list[tuple[str, str, str]],
    mode: str,
):
    whole = og.init(tmp_path_factory.mktemp("random") / "graph.omni", SCHEMA)

    def records(rows: Iterable[tuple[str, str, str]]) -> str:
        return lines(node("Note", slug=slug, author=who, text=text) for slug, who, text in rows)

    if stored:
        whole.load(data=records(stored), mode="append")
    before = {slug: (who, text) for slug, who, text in stored}
    given = {slug: (who, text) for slug, who, text in loaded}
    hidden = {slug: row for slug, row in before.items() if row[0] != ANA}
    seen = {slug: row for slug, row in before.items() if row[0] == ANA}
    expected: dict[str, tuple[str, str]] | None = {**hidden, **seen, **given}
    if mode == "overwrite":
        expected = {**hidden, **given}
    if any(who != ANA for who, _ in given.values()) or hidden.keys() & given.keys():
        expected = None
    if mode == "append" and seen.keys() & given.keys():
        expected = None
    ana = ana_of(whole)
    if expected is None:
        with pytest.raises(OmnigraphError):
            ana.load(data=records(loaded), mode=mode)  # type: ignore[arg-type]
        expected = before
    else:
        ana.load(data=records(loaded), mode=mode)  # type: ignore[arg-type]
    assert {each["slug"]: (each["author"], each["text"]) for each in notes(whole)} == expected


# --- merges, reverts and cherry-picks -------------------------------------------------------------


CHANGES = {
    "rows of the actor": ([mine("new"), about("new"), node("Note", slug="mine", text="c")], None),
    "a row of somebody else": ([node("Note", slug="x", author=BO)], "row Note"),
    "a hidden row as it was": ([node("Note", slug="theirs", text="loud")], "row Note"),
    "a row that gets hidden": ([node("Note", slug="mine", author=BO)], "row Note"),
    "an edge at a hidden node": ([about("theirs")], "row About"),
    "a hidden property": ([node("Person", name="ada", salary=10)], "property Person"),
    "a hidden property of a new row": ([node("Person", name="new", salary=1)], "property Person"),
    "a hidden type": ([node("Secret", name="t")], "view"),
}


def commit_of(whole: Graph, records: list[dict[str, Any]], branch: str) -> str:
    whole.load(data=lines(records), mode="merge", branch=branch)
    return whole.list_commits(branch=branch)[0].graph_commit_id


def denied_as(error: OmnigraphError) -> str:
    assert isinstance(error, Denied)
    for name in ("Secret", "Guards", "salary", "theirs", "hush", BO):
        assert name not in error.render()
    return " ".join(error.details[name] for name in ("rule_kind", "type") if name in error.details)


def test_c_acc_007_a_merge_brings_what_the_actor_may_change_and_sees(whole: Graph):
    ana = ana_of(whole)

    def merged(case: tuple[str, tuple[list[dict[str, Any]], str | None]]) -> None:
        name, (records, refused) = case
        source, target = (f"{end}/{name.replace(' ', '-')}" for end in ("from", "to"))
        for branch in (source, target):
            whole.create_branch(branch)
        commit_of(whole, records, source)
        # the target has gone on as well, by hidden rows: that is no change of the source
        whole.load(data=lines([node("Secret", name="other")]), mode="append", branch=target)
        head = whole.list_commits(branch=target)[0].graph_commit_id
        if refused is not None:
            assert denied_as(failure(lambda: ana.merge_branch(source, target))) == refused
            assert whole.list_commits(branch=target)[0].graph_commit_id == head
            return
        assert ana.merge_branch(source, target).commit is not None
        found = notes(whole.on_branch(target))
        assert [each["slug"] for each in found] == ["mine", "new", "theirs"]
        assert found[0]["text"] == "c"

    check_all({name: (name, case) for name, case in CHANGES.items()}, merged)


def test_c_acc_007_commits_are_reverted_and_picked_within_the_rules(whole: Graph):
    ana = ana_of(whole)
    # a replay needs the rules about changes, which know no `Person`
    kinds = {"a hidden property": "type Person", "a hidden property of a new row": "type Person"}

    def replayed(case: tuple[str, tuple[list[dict[str, Any]], str | None]]) -> None:
        name, (records, refused) = case
        refused = kinds.get(name, refused)
        branch, other = (f"{end}/{name.replace(' ', '-')}" for end in ("on", "off"))
        for each in (branch, other):
            whole.create_branch(each)
        commit = commit_of(whole, records, branch)
        if refused is None:
            assert ana.cherry_pick(commit, other).commit is not None
            assert ana.revert(commit, branch=branch).commit is not None
            assert [each["slug"] for each in notes(whole.on_branch(branch))] == ["mine", "theirs"]
            assert len(notes(whole.on_branch(other))) == 3
            return
        for write in (
            lambda: ana.cherry_pick(commit, other),
            lambda: ana.revert(commit, branch=branch),
        ):
            assert denied_as(failure(write)) == refused
        assert len(whole.list_commits(branch=other)) == len(whole.list_commits())

    check_all({name: (name, case) for name, case in CHANGES.items()}, replayed)


def test_c_acc_007_conflicts_of_a_merge_are_told_as_far_as_they_are_seen(whole: Graph):
    ana = ana_of(whole)
    for name, slug in (("seen", "mine"), ("unseen", "theirs")):
        whole.create_branch(name)
        for branch, text in ((name, "one"), ("main", "two")):
            whole.mutate(
                written(f'update Note set {{ text: "{text}" }} where slug = "{slug}"'),
                branch=branch,
            )
    shown = failure(lambda: ana.merge_branch("seen"))
    assert isinstance(shown, MergeConflicts)
    assert [each["entity_id"] for each in shown.details["merge_conflicts"]] == ["mine"]
    hidden = failure(lambda: ana.merge_branch("unseen"))
    assert isinstance(hidden, MergeConflicts)
    assert hidden.details["merge_conflicts"] == []
    assert "theirs" not in hidden.render()


def test_c_acc_007_blobs_that_are_not_granted_are_not_brought(tmp_path: Path):
    schema = "node Note { slug: String @key  text: String?  file: Blob? }"
    whole = og.init(tmp_path / "blobs.omni", schema)
    whole.load(data=lines([node("Note", slug="a", file="base64:AAAA")]), mode="append")
    bundle = """\
version: 2
groups: {agents: [act-ana]}
rules:
  - id: read
    allow: {actors: {group: agents}, actions: [read], branch_scope: any}
  - id: merge
    allow: {actors: {group: agents}, actions: [branch_merge], target_branch_scope: any}
    types: {Note: {properties: [slug, text]}}
"""
    ana = open_graph(whole.uri, policy=load_policy(bundle)).acting_as(ANA)
    for branch, data, allowed in (
        ("text", node("Note", slug="a", text="t"), True),
        ("blob", node("Note", slug="a", file="base64:BBBB"), False),
        ("new", node("Note", slug="n", file="base64:BBBB"), False),
        ("empty", node("Note", slug="e"), True),
    ):
        whole.create_branch(branch)
        whole.load(data=lines([data]), mode="merge", branch=branch)
        if allowed:
            assert ana.merge_branch(branch).commit is not None
        else:
            error = failure(lambda branch=branch: ana.merge_branch(branch))  # type: ignore[misc]
            assert denied_as(error) == "property Note"
    assert whole.blob("node", "Note", "a", "file").read() == b"\x00\x00\x00"


def test_c_acc_007_change_requests_are_merged_within_the_rules(whole: Graph):
    ana = ana_of(whole)
    for name, records in (("good", [mine("new")]), ("bad", [node("Note", slug="x", author=BO)])):
        whole.create_branch(name)
        commit_of(whole, records, name)
        whole.reviews.open(name, title=name)
    opened = {each.title: each.id for each in whole.reviews.list()}
    assert ana.reviews.merge(opened["good"]).merge.commit is not None
    assert denied_as(failure(lambda: ana.reviews.merge(opened["bad"]))) == "row Note"
    assert "x" not in {each["slug"] for each in notes(whole)}


def test_c_acc_007_a_pull_stops_at_the_first_commit_that_is_not_granted(
    whole: Graph, tmp_path: Path
):
    whole.clone(tmp_path / "clone.omni")
    commits = [commit_of(whole, [mine("new")], "main")]
    commit_of(whole, [node("Secret", name="t")], "main")
    clone = og.open(tmp_path / "clone.omni")
    ana = ana_of(clone)
    assert denied_as(failure(lambda: ana.pull(whole.uri))) == "view"
    assert clone.list_commits()[0].graph_commit_id == commits[0]
    assert "new" in {each["slug"] for each in notes(clone)}

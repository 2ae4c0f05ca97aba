"""Every verb of a remote graph gives what the graph itself gives."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.client import NOT_SERVED, AsyncRemoteGraph, RemoteGraph
from omnigraph.errors import (
    AlreadyExists,
    BlobRangeError,
    ChangeCursorRejected,
    ConstraintViolation,
    InputError,
    KeyConflict,
    LimitExceeded,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    ParameterError,
    PreconditionFailed,
    QueryParseError,
    QueryTypeError,
    SchemaParseError,
    UnresolvedRevision,
    UnsupportedSchemaChange,
    WrongVerb,
)
from omnigraph.graph import Graph
from omnigraph.graph.facade import in_place
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import Result
from tests.server.live import ADD, NOTHING, PEOPLE, RECORDS, SCHEMA

NOTES = {"__notes__"}
NOWHERE = '{"edge": "Knows", "from": "ada", "to": "nobody", "data": {}}'
STRICTER = SCHEMA.replace("age: I32?", "age: I32? @range(age, 0..40)")
NARROWER = SCHEMA.replace("age: I32?", "age: Bool?")
KINDS = """
query kinds($p: String) {
    match { $p: Person { name: "ada" }  $k: Knows }
    return { $p.name, $p.age, $k.since }
}
"""


def test_a_query_gives_the_same_rows_types_and_commit(remote: RemoteGraph, local: Graph):
    here, there = local.query(PEOPLE), remote.query(PEOPLE)
    assert there.to_arrow().equals(here.to_arrow(), check_metadata=True)
    assert there.to_dict() == here.to_dict()
    assert there.to_pylist() == [{"p.name": "ada", "p.age": 36}, {"p.name": "bo", "p.age": 41}]
    assert repr(there) == repr(here)


def test_a_query_without_rows_keeps_its_columns(remote: RemoteGraph, local: Graph):
    nobody = "query q { match { $p: Person  $p.age > 100 } return { $p.name, $p.age } }"
    here, there = local.query(nobody), remote.query(nobody)
    assert there.to_arrow().equals(here.to_arrow())
    assert there.to_dict() == here.to_dict()


def test_rows_travel_as_json_when_that_is_asked_for(url: str, local: Graph):
    with og.connect(url, rows="json") as remote:
        there = remote.query(PEOPLE)
    assert there.to_dict() == local.query(PEOPLE).to_dict()
    assert there.to_arrow().schema.field("p.age").type == pa.int64()


def test_c_qry_090_a_mutation_loops_over_records(remote: RemoteGraph, local: Graph):
    loop = """
query arrive($people: [{ name: String, age: I32?, knows: [String], since: Date? }]) {
    for $p in $people {
        insert Person { name: $p.name, age: $p.age + 1 }
        for $other in $p.knows { insert Knows { from: $p.name, to: $other, since: $p.since } }
    }
}
"""
    day = dt.date(2031, 4, 9)
    people = [
        {"name": "cy", "age": np.int32(7), "knows": ["ada", "bo"], "since": day},
        {"name": "di", "knows": []},
    ]
    receipt = remote.mutate(loop, {"people": people})
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 2)
    assert local.mutate(loop, {"people": people}).affected_nodes == 2
    read = (
        "query q { match { $p: Person $p.age = 8 $p $k: knows $o } return { $o.name, $k.since } }"
    )
    rows = local.query(read).to_pylist()
    assert sorted(row["o.name"] for row in rows) == ["ada", "ada", "bo", "bo"]
    assert {row["k.since"] for row in rows} == {day}
    for graph in (remote, local):
        with pytest.raises(ParameterError, match=r"'people\[0\].age' expects I32"):
            graph.mutate(loop, {"people": [{"name": "x", "age": 1.5, "knows": []}]})


def test_a_query_reads_a_branch_or_a_snapshot(remote: RemoteGraph):
    before = remote.list_commits()[0].graph_commit_id
    remote.create_branch("review")
    remote.mutate(ADD, {"name": "cy"}, branch="review")
    assert len(remote.query(PEOPLE)) == 2
    assert len(remote.query(PEOPLE, branch="review")) == 3
    old = remote.query(PEOPLE, snapshot=before)
    assert (old.target.snapshot, old.target.branch, len(old)) == (before, None, 2)
    with pytest.raises(InputError, match="exclude each other"):
        remote.query(PEOPLE, branch="main", snapshot=before)


def test_one_query_of_a_file_is_picked_by_name(remote: RemoteGraph, tmp_path: Path):
    file = tmp_path / "two.gq"
    file.write_text(PEOPLE + "\nquery cities { match { $c: City } return { $c.name } }")
    assert remote.query(file, name="cities").to_pylist() == [{"c.name": "Rome"}]
    with pytest.raises(NotFound):
        remote.query(file, name="none")


def test_a_mutation_gives_the_receipt_of_its_commit(remote: RemoteGraph, local: Graph):
    receipt = remote.mutate(ADD, {"name": "cy"})
    assert (receipt.affected_nodes, receipt.query_name, receipt.branch) == (1, "add", "main")
    assert receipt.commit is not None
    assert receipt.commit == remote.show_commit(receipt.commit.graph_commit_id)
    assert receipt.commit == remote.list_commits()[0]
    assert receipt.commit.to_dict() == local.list_commits()[0].to_dict()
    assert remote.mutate(NOTHING).commit is None


def test_c_cli_026_a_conditional_mutation_uses_the_conditional_route(remote: RemoteGraph):
    head = remote.query(PEOPLE).graph_commit_id
    assert remote.mutate(ADD, {"name": "cy"}, expected_head=head).commit is not None
    with pytest.raises(PreconditionFailed) as lost:
        remote.mutate(ADD, {"name": "di"}, expected_head=head)
    assert lost.value.details["expected"] == head
    assert len(remote.query(PEOPLE)) == 3
    with pytest.raises(InputError, match="one commit id"):
        remote.mutate(ADD, {"name": "di"}, expected_head="*")


def test_parameters_of_every_kind_arrive(remote: RemoteGraph):
    insert = """query q($n: String, $a: I32?, $d: Blob) {
        insert Person { name: $n, age: $a, photo: $d } }"""
    remote.mutate(insert, {"n": "cy", "a": None, "d": b"\x00\x01"})
    assert remote.blob("node", "Person", "cy", "photo").read() == b"\x00\x01"
    with pytest.raises(InputError, match="cannot be sent as JSON"):
        remote.query(PEOPLE, {"x": object()})


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_a_load_gives_the_same_receipt(remote: RemoteGraph, tmp_path: Path, grammar: str):
    twin = og.init(str(tmp_path / "twin.omni"), SCHEMA)
    twin.load(data=RECORDS, mode="append", engine="local")
    records = '{"type": "Person", "data": {"name": "ada"}}\n{"type": "City", "data": {"name": "A"}}'
    options: Any = {"mode": "merge", "branch": "new", "from_": "main", "grammar": grammar}
    here = twin.load(data=records, engine="local", **options).to_dict()
    there = remote.load(data=records, **options).to_dict()
    for receipt in (here, there):
        assert receipt.pop("commit") is not None
        for stage in receipt["stages"]:
            del stage["seconds"]
    assert there == here


def test_files_are_loaded_plain_and_compressed(remote: RemoteGraph, tmp_path: Path):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_text('{"type": "Person", "data": {"name": "x"}}')
    packed.write_bytes(gzip.compress(b'{"type": "Person", "data": {"name": "y"}}\n'))
    seen: list[int] = []
    receipt = remote.load(plain, packed, mode="append", progress=seen.append)
    assert receipt.nodes[0].inserted == 2
    assert seen == [41, 42]
    with pytest.raises(NotFound, match="no file"):
        remote.load(tmp_path / "none.jsonl", mode="append")


def test_directories_and_patterns_name_the_same_files_as_on_the_storage(
    remote: RemoteGraph, local: Graph, tmp_path: Path
):
    for name in ("a.jsonl", "sub/b.ndjson", "sub/c.json", "_notes/d.jsonl", ".e.jsonl", "f.txt"):
        file = tmp_path / "lake" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{{"type": "Person", "data": {{"name": "{name}"}}}}\n')
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "lake" / "sub")
    (tmp_path / "lake" / "loop").symlink_to(tmp_path / "lake")
    (tmp_path / "lake" / "g[1].JSONL.GZ").write_bytes(
        gzip.compress(b'{"type": "Person", "data": {"name": "g"}}\n')
    )
    for path in ("lake", "lake/*.jsonl", "lake/**/*.jso*", "lake/sub", "lake/g[1].JSONL.GZ"):
        branches: list[set[str]] = []
        for graph in (local, remote):
            name = f"{len(branches)}-{path.count(chr(42))}-{len(path)}"
            graph.load(tmp_path / path, mode="merge", branch=name, from_="main")
            branches.append({row["p.name"] for row in graph.query(PEOPLE, branch=name).to_pylist()})
        assert branches[0] == branches[1] and len(branches[0]) > 2, path
    for path in ("lake/*.csv", "lake/_notes/none"):
        for graph in (local, remote):
            with pytest.raises(NotFound):
                graph.load(tmp_path / path, mode="merge")
    for graph in (local, remote):
        with pytest.raises(InputError, match=r"a\.jsonl is given twice"):
            graph.load(tmp_path / "lake/a.jsonl", tmp_path / "lake", mode="merge")


def test_an_error_has_the_class_it_has_in_process(remote: RemoteGraph, local: Graph):
    wrong: list[tuple[type[OmnigraphError], Callable[[Any], object]]] = [
        (WrongVerb, lambda graph: graph.query(ADD, {"name": "cy"})),
        (WrongVerb, lambda graph: graph.mutate(PEOPLE)),
        (ParameterError, lambda graph: graph.mutate(ADD)),
        (ParameterError, lambda graph: graph.mutate(ADD, {"name": 7})),
        (NotFound, lambda graph: graph.query(PEOPLE, branch="none")),
        (AlreadyExists, lambda graph: graph.create_branch("main")),
        (KeyConflict, lambda graph: graph.load(data=RECORDS, mode="append")),
        (ConstraintViolation, lambda graph: graph.load(data=NOWHERE, mode="append")),
        (UnsupportedSchemaChange, lambda graph: graph.apply_schema(NARROWER)),
        (ConstraintViolation, lambda graph: graph.apply_schema(STRICTER)),
    ]
    for kind, call in wrong:
        found = []
        for graph in (local, remote):
            with pytest.raises(OmnigraphError) as caught:
                call(graph)
            found.append(caught.value)
        here, there = found
        assert type(here) is kind, here
        assert type(there) is type(here), there
        assert (there.message, there.code) == (here.message, here.code)
        if kind is WrongVerb:
            assert there.hint == here.hint
        assert vars(there).keys() - NOTES == vars(here).keys() - NOTES


def test_a_load_that_is_too_large_is_refused_before_it_is_sent(remote: RemoteGraph):
    with pytest.raises(LimitExceeded) as refused:
        remote.load(data=b" " * (32 * 1024 * 1024 + 1), mode="append")
    assert refused.value.details["resource"] == "graph_batch_request_bytes"


def test_an_export_is_the_same_bytes(remote: RemoteGraph, local: Graph):
    assert b"".join(remote.export()) == b"".join(local.export())
    assert b"".join(remote.export(types=["City"])) == b"".join(local.export(types=["City"]))
    assert all(block.endswith(b"\n") for block in remote.export())


def test_branches_are_made_listed_merged_and_deleted(remote: RemoteGraph, local: Graph):
    created = remote.create_branch("etl/run-1", "main")
    assert (created.source, created.name, created.uri) == ("main", "etl/run-1", local.uri)
    assert remote.list_branches() == ["etl/run-1", "main"]
    remote.mutate(ADD, {"name": "cy"}, branch="etl/run-1")
    merged = remote.merge_branch("etl/run-1", delete_branch=True)
    assert (merged.outcome, merged.branch_deleted) == ("fast_forward", True)
    assert merged.commit == remote.list_commits()[0]
    remote.create_branch("gone")
    assert remote.delete_branch("gone").name == "gone"
    assert remote.list_branches() == ["main"]


def test_conflicts_of_a_merge_come_with_their_entities(remote: RemoteGraph):
    remote.create_branch("review")
    age = 'query q($a: I32) { update Person set { age: $a } where name = "ada" }'
    remote.mutate(age, {"a": 1})
    remote.mutate(age, {"a": 2}, branch="review")
    with pytest.raises(MergeConflicts) as refused:
        remote.merge_branch("review")
    (conflict,) = refused.value.details["merge_conflicts"]
    assert (conflict["kind"], conflict["entity_id"]) == ("divergent_update", "ada")


def test_history_is_the_same(remote: RemoteGraph, local: Graph):
    remote.mutate(ADD, {"name": "cy"})
    here = [commit.to_dict() for commit in local.list_commits()]
    assert [commit.to_dict() for commit in remote.list_commits()] == here
    assert remote.list_commits(actor="nobody") == []
    with pytest.raises(NotFound):
        remote.show_commit("01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


def test_changes_are_the_same_values(remote: RemoteGraph, local: Graph):
    knows = 'query q { insert Knows { from: "bo", to: "ada" } }'
    commit = remote.mutate(knows).commit
    assert commit is not None
    page = remote.commit_changes_page(commit.graph_commit_id)
    assert page == local.commit_changes_page(commit.graph_commit_id)
    assert page.changes[0].endpoints is not None
    feed = remote.poll_changes(start="beginning", limit=2)
    assert (
        feed.to_dict()["blocks"]
        == local.poll_changes(start="beginning", limit=2).to_dict()["blocks"]
    )
    rest = remote.poll_changes(page_token=feed.next_page_token)
    assert rest.blocks
    only = remote.poll_changes(start="beginning", kinds=["edge"], ops=["insert"])
    assert {change.kind for block in only.blocks for change in block.changes} == {"edge"}


def test_a_baseline_ends_with_the_cursor_to_poll_with(remote: RemoteGraph, local: Graph):
    found, here = remote.change_baseline(), local.change_baseline()
    records = iter(found)
    first = next(records)
    before = found.handshake
    assert before is None
    assert [first, *records] == list(here)
    there = found.handshake
    assert there is not None and here.handshake is not None
    assert there.snapshot_commit_id == here.handshake.snapshot_commit_id
    remote.mutate(ADD, {"name": "cy"})
    feed = remote.poll_changes(cursor=there.resume_cursor)
    assert [change.id for block in feed.blocks for change in block.changes] == ["cy"]
    assert feed.caught_up


def test_schema_and_snapshot_are_the_same(remote: RemoteGraph, local: Graph):
    assert remote.schema_source == local.schema_source
    assert remote.snapshot() == local.snapshot()
    with pytest.raises(NotFound):
        remote.snapshot("none")


def test_a_schema_is_applied(remote: RemoteGraph):
    wider = SCHEMA + "node Pet { name: String @key }\n"
    receipt = remote.apply_schema(wider)
    assert receipt.applied and len(receipt.steps) == 1
    assert not remote.apply_schema(wider).applied
    assert remote.schema_source == wider


def test_blobs_are_read_in_parts(remote: RemoteGraph, local: Graph):
    payload = bytes(range(256)) * 40
    data = base64.b64encode(payload).decode()
    remote.load(
        data=f'{{"type": "Person", "data": {{"name": "cy", "photo": "base64:{data}"}}}}',
        mode="append",
    )
    there, here = (g.blob("node", "Person", "cy", "photo") for g in (remote, local))
    assert there.stat == here.stat
    assert there.read() == payload
    assert there.read(10, 5) == payload[10:15]
    assert [len(piece) for piece in there.chunks(chunk_bytes=4096)] == [
        len(piece) for piece in here.chunks(chunk_bytes=4096)
    ]
    with pytest.raises(BlobRangeError):
        there.read(len(payload))
    with pytest.raises(NotFound):
        remote.blob("node", "Person", "ada", "photo")
    with pytest.raises(InputError):
        remote.blob("node", "Person", "ada", "age")


def test_a_blob_stays_what_it_was_when_it_was_found(remote: RemoteGraph):
    put = 'query q($d: Blob) { update Person set { photo: $d } where name = "ada" }'
    remote.mutate(put, {"d": b"before"})
    found = remote.blob("node", "Person", "ada", "photo")
    remote.mutate(put, {"d": b"behind"})
    assert found.read(2, 3) == b"for"


def test_c_cli_035_an_external_blob_is_only_told_about(
    remote: RemoteGraph, local: Graph, tmp_path: Path
):
    place = tmp_path / "photos"
    place.mkdir()
    (place / "ada.png").write_bytes(b"elsewhere")
    uri = (place / "ada.png").as_uri()
    writer = og.open(local.uri, external_blobs=[place.as_uri()])
    record = f'{{"type": "Person", "data": {{"name": "ada", "photo": "{uri}"}}}}'
    writer.load(data=record, mode="overwrite", replace_types=["edge:Knows"], engine="local")
    there, here = (g.blob("node", "Person", "ada", "photo") for g in (remote, local))
    assert there.stat == here.stat
    assert (there.kind, there.uri, there.size) == ("external", uri, None)
    with pytest.raises(InputError, match="is kept elsewhere"):
        there.read()


def test_stored_queries_are_listed_and_run(remote: RemoteGraph):
    entries = {entry.name: entry for entry in remote.list_queries()}
    assert entries["sign_up"].mutation and not entries["everybody"].mutation
    rows = remote.invoke("everybody", expect_mutation=False)
    assert isinstance(rows, Result)
    assert rows.to_pylist() == [{"p.name": "ada"}, {"p.name": "bo"}]
    receipt = remote.invoke("sign_up", {"name": "cy"})
    assert isinstance(receipt, MutationReceipt) and receipt.commit is not None
    head = receipt.commit.graph_commit_id
    remote.invoke("sign_up", {"name": "di"}, expected_head=head)
    with pytest.raises(PreconditionFailed):
        remote.invoke("sign_up", {"name": "ed"}, expected_head=head)
    with pytest.raises(InputError, match="writes"):
        remote.invoke("sign_up", {"name": "ed"}, expect_mutation=False)
    with pytest.raises(NotFound):
        remote.invoke("none")


def test_mistakes_in_a_text_are_shown_where_they_are(remote: RemoteGraph, local: Graph):
    for text, kind in (
        ("query q { match { $p: Persom } return { $p.name } }", QueryTypeError),
        ("query q {\n  match { $p: } }", QueryParseError),
    ):
        errors = []
        for graph in (local, remote):
            with pytest.raises(kind) as wrong:
                graph.query(text)
            errors.append(wrong.value)
        here, there = errors
        assert there.render() == here.render()
        assert there.envelope() == here.envelope()
        assert there.code == here.code
    with pytest.raises(SchemaParseError):
        remote.apply_schema("node {")


def test_a_write_that_meets_an_id_says_which(remote: RemoteGraph):
    with pytest.raises(KeyConflict) as taken:
        remote.load(data='{"type": "Person", "data": {"name": "ada"}}', mode="append")
    assert taken.value.details["entity_id"] == "ada"


def test_an_actor_is_refused_because_the_token_says_it(remote: RemoteGraph):
    with pytest.raises(InputError, match="its token belongs to"):
        remote.mutate(ADD, {"name": "cy"}, actor="act-ana")


def public(kind: type) -> dict[str, object]:
    in_place(kind)
    return {
        name: inspect.getattr_static(kind, name)
        for each in kind.__mro__
        for name in vars(each)
        if not name.startswith("_")
    }


def parameters(member: object) -> list[tuple[str, object, object]] | None:
    """Names, kinds and defaults of what a verb takes; None for a property."""
    if isinstance(member, property):
        return None
    assert callable(member)
    return [(p.name, p.kind, p.default) for p in inspect.signature(member).parameters.values()]


def test_types_and_queries_are_described_alike(remote: RemoteGraph, local: Graph):
    first = local.list_commits()[-1].graph_commit_id
    for options in ({}, {"branch": "main"}, {"snapshot": first}):
        here = local.describe_schema(**options)
        assert remote.describe_schema(**options) == here
        counts = {each.name: each.entity_count for each in here.types}
        people = 0 if "snapshot" in options else 2
        assert (counts["Person"], counts["LivesIn"]) == (people, 0)
    person = next(each for each in local.describe_schema().types if each.name == "Person")
    assert [each.name for each in person.properties] == ["age", "name", "photo"]
    name = person.properties[1]
    assert (name.type, name.rules, name.indexes) == ("String", ("@key",), ("btree", "inverted"))
    text = f"{PEOPLE}\n{ADD}"
    assert remote.describe_queries(text) == local.describe_queries(text)
    assert [each.is_mutation for each in remote.describe_queries(text)] == [False, True]
    for graph in (remote, local):
        with pytest.raises(QueryTypeError, match="Persn"):
            graph.describe_queries("query q { match { $p: Persn } return { $p } }")
        with pytest.raises(NotFound, match="gone"):
            graph.describe_schema(branch="gone")


def test_every_verb_of_a_graph_is_served_with_the_same_signature_or_has_a_reason():
    embedded, own = public(Graph), {"health", "invoke", "list_queries"}
    for client in (RemoteGraph, AsyncRemoteGraph):
        served = public(client)
        assert served.keys() - own == embedded.keys() - NOT_SERVED.keys()
        for name in served.keys() - own:
            expected = parameters(embedded[name])
            if expected is not None:
                expected = [each for each in expected if f"{name}.{each[0]}" not in NOT_SERVED]
            assert parameters(served[name]) == expected, name
    assert parameters(RemoteGraph.invoke) == parameters(AsyncRemoteGraph.invoke)


def test_every_reason_is_about_a_verb_or_an_option_there_is():
    embedded = public(Graph)
    for name in NOT_SERVED:
        verb, _, option = name.partition(".")
        taken = [each[0] for each in parameters(embedded[verb]) or ()]
        assert not option or option in taken, name


def reviewed(graph: Graph) -> str:
    """A branch that differs from main, and the commit that made it differ."""
    graph.create_branch("review")
    change = """query q {
        update Person set { age: 37 } where name = "ada"
        insert Person { name: "cy" }
        insert Knows { from: "cy", to: "ada" } }"""
    commit = graph.mutate(change, branch="review").commit
    assert commit is not None
    return commit.graph_commit_id


def test_c_rev_002_a_diff_is_the_same_and_turns_pages(remote: RemoteGraph, local: Graph):
    reviewed(local)
    local.mutate('query q { insert Person { name: "meanwhile" } }')
    direct = local.diff("main", "review", direct=True)
    assert remote.diff("main", "review", direct=True).to_dict() == direct.to_dict()
    here, there = local.diff("main", "review"), remote.diff("main", "review")
    assert len(direct) == len(here) + 1
    assert (repr(there), len(there), there._repr_html_()) == (
        repr(here),
        len(here),
        here._repr_html_(),
    )
    for images in (False, True):
        assert there.to_dict(images=images) == here.to_dict(images=images)
    assert list(there.changes(images=True)) == list(here.changes(images=True))
    edges = remote.diff("main", "review", kinds=["edge"], ops=["insert"])
    assert [change.kind for change in edges.changes()] == ["edge"]
    seen, page = [], remote.diff_page("main", "review", limit=1)
    while True:
        assert page.types == here.types
        seen += [entry.id for entry in page.changes]
        if page.next_page_token is None:
            break
        ends = page.before.graph_commit_id, page.after.graph_commit_id
        page = remote.diff_page(*ends, page_token=page.next_page_token, limit=1)
    assert seen == [change.id for change in here.changes()]
    with pytest.raises(ChangeCursorRejected):
        remote.diff_page("review", "main", page_token="bad")


def test_c_rev_002_plans_and_their_pages_are_the_same_values(remote: RemoteGraph, local: Graph):
    commit_id = reviewed(local)
    assert remote.plan_merge("review") == local.plan_merge("review")
    local.mutate('query q { update Person set { age: 1 } where name = "ada" }')
    plan = remote.plan_merge("review")
    assert plan.conflicts and plan == local.plan_merge("review")
    assert repr(plan) == repr(local.plan_merge("review"))
    settled = remote.plan_merge("review", on_conflict="source", granularity="property")
    assert not settled.conflicts
    pages = [
        (
            graph.plan_merge("review", limit=1),
            graph.plan_revert(commit_id, branch="review", limit=1),
        )
        for graph in (remote, local)
    ]
    assert pages[0] == pages[1] and pages[0][0].next_page_token is not None
    rest = remote.plan_merge("review", limit=9, page_token=pages[0][0].next_page_token)
    assert (*pages[0][0].changes, *rest.changes) == plan.changes
    assert remote.plan_cherry_pick(commit_id) == local.plan_cherry_pick(commit_id)
    there = remote.plan_revert(commit_id, branch="review")
    assert there == local.plan_revert(commit_id, branch="review")


def test_c_rev_002_merges_follow_rules_and_commits_are_replayed(remote: RemoteGraph, local: Graph):
    commit_id = reviewed(local)
    remote.create_branch("early", "main")
    local.mutate('query q { update Person set { age: 1 } where name = "ada" }')
    merged = remote.merge_branch("review", on_conflict_of={"Person": "source"})
    assert merged.outcome == "merged"
    assert remote.query(PEOPLE).to_pylist()[0]["p.age"] == 37
    undone = remote.revert(commit_id, branch="review")
    assert (undone.verb, undone.branch, undone.deleted) == ("revert", "review", 2)
    assert undone.commit == remote.list_commits("review")[0]
    again = remote.cherry_pick(commit_id, "early")
    assert (again.verb, again.branch, again.inserted) == ("cherry-pick", "early", 2)
    with pytest.raises(NotFound):
        remote.revert("01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


def test_c_rev_002_the_history_of_an_entity_and_a_commit_is_the_same(
    remote: RemoteGraph, local: Graph
):
    commit_id = reviewed(local)
    here = list(local.entity_history("Person", "ada", branch="review"))
    assert len(here) == 2
    assert list(remote.entity_history("Person", "ada", branch="review")) == here
    changes = remote.commit_changes(commit_id)
    assert list(changes) == list(local.commit_changes(commit_id))
    assert changes.to_dict() == local.commit_changes(commit_id).to_dict()
    with pytest.raises(NotFound):
        remote.entity_history("None", "ada")


def test_stats_plans_and_explanations_are_the_same(remote: RemoteGraph, local: Graph):
    # Findings of a server name the graph by its id, and not where it is stored.
    named = [
        replace(found, command=found.command.replace(local.uri, "default"))
        for found in local.stats().findings
    ]
    assert remote.stats() == replace(local.stats(), findings=tuple(named))
    assert remote.explain(PEOPLE) == local.explain(PEOPLE)
    explained = remote.query(PEOPLE, explain=True).explain
    assert explained is not None and explained.run is not None and explained.run.steps
    planned = remote.plan_schema(SCHEMA + "node Pet { name: String @key }")
    assert planned.supported and planned.step_count == 1
    assert not remote.plan_schema(NARROWER).supported
    with pytest.raises(SchemaParseError):
        remote.plan_schema("node {")


def test_writes_keep_their_message_and_are_done_once(remote: RemoteGraph):
    options: Any = {"operation_id": "daily-1", "message": "the daily load"}
    first = remote.mutate(ADD, {"name": "cy"}, **options)
    assert first.commit is not None and first.commit.message == "the daily load"
    assert remote.mutate(ADD, {"name": "cy"}, **options) == first
    record = '{"type": "Person", "data": {"name": "di"}}'
    for grammar in ("strict", "compatible"):
        rules: Any = {"mode": "append", "grammar": grammar, "dry_run": True}
        tried = remote.load(data=record, errors=og.ErrorOptions(3, ignore_unknown=True), **rules)
        assert tried.dry_run and tried.commit is None
    before = remote.query(PEOPLE).graph_commit_id
    remote.mutate(ADD, {"name": "ed"})
    assert b'"ed"' not in b"".join(remote.export(snapshot=before))


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_c_pip_036_a_merge_keeps_what_a_record_lacks(remote: RemoteGraph, grammar: Any):
    one = '{"type": "Person", "data": {"name": "ada"}}'
    kept = remote.load(data=one, mode="merge", grammar=grammar)
    assert (kept.unchanged, kept.kept, kept.nodes[0].kept) == (1, 1, 1)
    replaced = remote.load(data=one, mode="merge", grammar=grammar, absent="null")
    assert (replaced.updated, replaced.kept) == (1, 0)
    with pytest.raises(InputError, match="is an option of the mode merge, not of append"):
        remote.load(data=one, mode="append", grammar=grammar, absent="null")


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_c_pip_040_bad_records_are_skipped(remote: RemoteGraph, grammar: Any):
    data = '{"type": "Person", "data": {"name": "eve"}}\n{"type": "Person", "data": {}}\n'
    options: Any = {"data": data, "mode": "append", "grammar": grammar}
    with pytest.raises(InputError, match="more than the allowed share of 0"):
        remote.load(errors=og.ErrorOptions(on_error="skip", max_error_share=0), **options)
    receipt = remote.load(errors=og.ErrorOptions(on_error="skip"), **options)
    assert (receipt.inserted, receipt.skipped, receipt.nodes[0].skipped) == (1, 1, 1)
    assert receipt.problems[0]["input"] == {"type": "Person", "data": {}}


def test_c_pip_017_the_data_of_records_is_mapped_by_the_server(remote: RemoteGraph, local: Graph):
    record = '{"type": "Person", "data": {"Full Name": " Eve "}}'
    for grammar in ("strict", "compatible"):
        rules: Any = {"mode": "merge", "grammar": grammar}
        remote.load(data=record, map={"Person": {"trim(`Full Name`)": "name"}}, **rules)
        remote.load(data=record, map=["Person:Full Name=name"], **rules)
        with pytest.raises(InputError, match="is mapped to 'nme', which Person does not have"):
            remote.load(data=record, map={"Person": {"Full Name": "nme"}}, **rules)
    exported = b"".join(local.export())
    assert b'"Eve"' in exported and b'" Eve "' in exported


def test_a_branch_for_one_piece_of_work(remote: RemoteGraph, local: Graph):
    with remote.branch("agent/42") as b:
        b.mutate(ADD, {"name": "cy"})
        assert len(b.query(PEOPLE)) == len(remote.query(PEOPLE)) + 1
        assert b.snapshot().graph_branch == "agent/42"
    assert local.list_branches() == remote.list_branches()
    assert "agent/42" not in local.list_branches()
    assert local.entity_at("node:Person", "cy") is not None
    with pytest.raises(ZeroDivisionError), remote.branch("agent/42") as b:
        b.mutate(ADD, {"name": "di"})
        raise ZeroDivisionError
    with pytest.raises(AlreadyExists) as caught, remote.branch("agent/42"):
        raise AssertionError("the block ran")
    assert "resume=True" in str(caught.value.hint)
    with remote.branch("agent/42", resume=True) as b:
        assert b.list_commits()[0] != remote.list_commits()[0]
    assert local.entity_at("node:Person", "di") is not None
    with pytest.raises(InputError, match="file of errors"):
        remote.load(data="", mode="append", errors=og.ErrorOptions(errors_out="x"))


def test_messages_kinds_and_counts_of_commits_are_the_same(remote: RemoteGraph, local: Graph):
    add = 'query q { insert Person { name: "eva" } }'
    mutated = remote.mutate(add, message="a guest").commit
    assert mutated is not None and mutated.message == "a guest"
    remote.create_branch("review")
    remote.mutate('query q { insert Person { name: "fay" } }', branch="review")
    merged = remote.merge_branch("review", message="more guests").commit
    assert merged is not None
    remote.revert(merged.graph_commit_id, message="not yet")
    remote.cherry_pick(merged.merged_parent_commit_id or "", message="now")
    remote.apply_schema(
        f"{remote.schema_source}\nnode Club {{ name: String @key }}", message="clubs"
    )
    invoked = remote.invoke("sign_up", {"name": "gus"}, message="by a stored query")
    assert isinstance(invoked, MutationReceipt)
    listed = remote.list_commits()
    assert listed == local.list_commits()
    said = ["by a stored query", "clubs", "now", "not yet", "more guests", "a guest"]
    assert [each.message for each in listed[:6]] == said
    assert [each.affected_nodes for each in listed[:6]] == [1, None, 1, 1, 1, 1]
    with pytest.raises(InputError, match="only commits keep a `message`"):
        remote.invoke("everybody", message="why read")


def test_revisions_and_tags_are_the_same(remote: RemoteGraph, local: Graph):
    reviewed(local)
    made = remote.create_tag("v1", "HEAD~1")
    assert remote.create_tag("v1", "HEAD~1") == made
    assert remote.list_tags() == local.list_tags() == [made]
    review = remote.on_branch("review"), local.on_branch("review")
    now = "2100-01-01T00:00:00Z"
    for revision in ("HEAD", "HEAD~1", "v1", "review~1", now, f"review@{now}~1", "main"):
        shown = local.show_commit(revision)
        assert remote.show_commit(revision) == shown
        assert remote.show_commit(shown.graph_commit_id[:25]) == shown
        assert review[0].show_commit(revision) == review[1].show_commit(revision)
        rows = remote.query(PEOPLE, snapshot=revision)
        assert rows.graph_commit_id == shown.graph_commit_id
        assert rows.target == local.query(PEOPLE, snapshot=revision).target
        assert rows.to_pylist() == local.query(PEOPLE, snapshot=revision).to_pylist()
        there = review[0].query(PEOPLE, snapshot=revision).graph_commit_id
        assert there == review[1].query(PEOPLE, snapshot=revision).graph_commit_id
    older = remote.table("Person", snapshot="review~1").to_arrow()
    assert older == local.table("Person", snapshot="review~1").to_arrow() and len(older)
    assert b"".join(remote.export(snapshot="HEAD~1")) == b"".join(local.export(snapshot="HEAD~1"))
    assert b"".join(review[0].export(snapshot="HEAD~1")) == b"".join(
        review[1].export(snapshot="HEAD~1")
    )
    assert remote.diff("v1", "review").to_dict() == local.diff("v1", "review").to_dict()
    assert remote.plan_cherry_pick("review~1") == local.plan_cherry_pick("review~1")
    started = remote.create_branch("again", "review~1")
    assert started.source == "review~1"
    assert remote.list_commits("again") == local.list_commits("review")[1:]
    for revision in ("nobody", made.graph_commit_id[:4], "main~99", "main~x"):
        with pytest.raises(UnresolvedRevision) as here:
            local.show_commit(revision)
        with pytest.raises(UnresolvedRevision) as served:
            remote.show_commit(revision)
        assert served.value.details == here.value.details
        assert (str(served.value), served.value.hint) == (str(here.value), here.value.hint)
    assert remote.delete_tag("v1") == made
    with pytest.raises(NotFound):
        remote.delete_tag("v1")
    with pytest.raises(InputError):
        remote.create_tag("2026")

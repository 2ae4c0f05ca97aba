"""Diffs and the changes of commits, as callers see them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.branching.diff import GraphDiff
from omnigraph.errors import ChangeDiffRefused, InputError, NotFound, UnresolvedRevision
from omnigraph.model.text_table import TINTS
from tests.branching.histories import SCHEMA, city, delete, edge, load, person, seeded

Change = tuple[str, str, str]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def changes(diff: GraphDiff) -> list[Change]:
    return [(c.op, c.type_name, c.id) for c in diff.changes()]


def test_c_bra_034_inserts_updates_and_deletes_with_their_cascade(graph: og.Graph) -> None:
    before = head(graph)
    load(graph, person("new"), person("p1", age=99))
    delete(graph, "Person", "p0")
    assert changes(graph.diff(before, "main")) == [
        ("insert", "Person", "new"),
        ("delete", "Person", "p0"),
        ("update", "Person", "p1"),
        ("delete", "Knows", "k0"),
        ("delete", "LivesIn", "l0"),
    ]
    assert changes(graph.diff("main", before, direct=True)) == [
        ("delete", "Person", "new"),
        ("insert", "Person", "p0"),
        ("update", "Person", "p1"),
        ("insert", "Knows", "k0"),
        ("insert", "LivesIn", "l0"),
    ]


def test_c_bra_034_edges_show_their_ends_with_and_without_images(graph: og.Graph) -> None:
    before = head(graph)
    load(graph, edge("Knows", "k1", "p2", "p3", since="2024-05-01"))
    delete(graph, "Person", "p0")
    diff = graph.diff(before, "main", types=["Knows"])
    changes = diff.to_dict()["changes"]
    assert len({change.pop("type_id") for change in changes}) == 1
    assert changes == [
        {
            "kind": "edge",
            "type_name": "Knows",
            "id": "k0",
            "op": "delete",
            "endpoints": {"from": "p0", "to": "p1"},
        },
        {
            "kind": "edge",
            "type_name": "Knows",
            "id": "k1",
            "op": "insert",
            "endpoints": {"from": "p2", "to": "p3"},
        },
    ]
    (_, inserted) = diff.to_dict(images=True)["changes"]
    assert inserted["after"] == {
        "properties": {"since": "2024-05-01"},
        "endpoints": {"from": "p2", "to": "p3"},
    }
    assert "before" not in inserted


def test_c_bra_034_filters_by_kind_type_and_operation(graph: og.Graph) -> None:
    before = head(graph)
    load(graph, person("new"), city("bern", size=5), edge("Knows", "k1", "p2", "p3"))
    assert changes(graph.diff(before, "main", kinds=["edge"])) == [("insert", "Knows", "k1")]
    assert changes(graph.diff(before, "main", types=["City"])) == [("update", "City", "bern")]
    inserts = graph.diff(before, "main", ops=["insert"])
    assert changes(inserts) == [("insert", "Person", "new"), ("insert", "Knows", "k1")]
    assert inserts.to_dict()["stats"]["updated"] == 0
    with pytest.raises(NotFound, match="no type 'Persn'") as unknown:
        graph.diff(before, "main", types=["Persn"])
    assert "Person" in str(unknown.value.hint)
    with pytest.raises(InputError, match="'upsert' is not one of insert, update, delete"):
        graph.diff(before, "main", ops=["upsert"])


def test_c_bra_034_across_branches_from_any_handle_and_on_the_first_fork(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.create_branch("deep", "review")
    assert changes(graph.diff("main", "deep")) == []
    load(graph, person("p0", age=7), branch="deep")
    load(graph, person("main-only"))
    other = og.open(graph.uri, mode="read_only")
    for handle in (graph, other):
        assert changes(handle.diff("review", "deep")) == [("update", "Person", "p0")]
        assert changes(handle.diff("main", "deep", direct=True)) == [
            ("delete", "Person", "main-only"),
            ("update", "Person", "p0"),
        ]


def test_c_rev_001_a_diff_shows_what_the_source_changed_since_the_merge_base(
    graph: og.Graph,
) -> None:
    base = head(graph)
    graph.create_branch("review")
    load(graph, person("theirs"), person("p1", age=50))
    load(graph, person("mine"), person("p0", age=60), branch="review")
    found = graph.diff("main", "review")
    assert changes(found) == [("insert", "Person", "mine"), ("update", "Person", "p0")]
    assert str(found).splitlines()[0] == (
        f"review {head(graph, 'review')} since {base}, the merge base"
    )
    direct = graph.diff("main", "review", direct=True)
    assert changes(direct) == [
        ("insert", "Person", "mine"),
        ("update", "Person", "p0"),
        ("update", "Person", "p1"),
        ("delete", "Person", "theirs"),
    ]
    assert str(direct).splitlines()[0] == (
        f"main {head(graph)} → review {head(graph, 'review')}, compared directly"
    )
    assert found.to_dict()["compared"] == "merge_base"
    assert direct.to_dict()["compared"] == "direct"
    assert changes(graph.diff("review", "main")) == [
        ("update", "Person", "p1"),
        ("insert", "Person", "theirs"),
    ]


def test_c_rev_001_a_merge_moves_the_merge_base(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("first"), branch="review")
    graph.merge_branch("review")
    load(graph, person("theirs"))
    load(graph, person("second"), branch="review")
    assert changes(graph.diff("main", "review")) == [("insert", "Person", "second")]
    graph.merge_branch("main", "review")
    assert changes(graph.diff("main", "review")) == [("insert", "Person", "second")]
    graph.create_branch("deep", "review")
    graph.merge_branch("deep")
    assert changes(graph.diff("main", "review")) == []
    page = graph.diff_page("main", "review")
    assert page.compared == "merge_base" and not page.types


def test_a_diff_prints_how_much_of_each_type_differs(graph: og.Graph) -> None:
    before = head(graph)
    base = f"main {before} since {before}, the merge base"
    assert str(graph.diff(before, "main")).splitlines() == [base, "no differences"]
    load(graph, person("new"), city("bern", size=5))
    assert str(graph.diff(before, "main")).splitlines() == [
        f"main {head(graph)} since {before}, the merge base",
        "type        | inserted | updated | deleted",
        "------------+----------+---------+--------",
        "node City   |        0 |       1 |       0",
        "node Person |        1 |       0 |       0",
    ]


def test_a_diff_shows_itself_as_tables_in_a_notebook(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("p0", age=41), person("<i>new</i>"), branch="review")
    delete(graph, "Person", "p4", "review")
    html = graph.diff("main", "review")._repr_html_()
    assert "<th>inserted</th><th>updated</th><th>deleted</th>" in html
    assert html.count('<td style="text-align: right">1</td>') == 3
    tinted = f'<tr style="background: {TINTS["yellow"]}"><td>~</td><td>node Person p0</td>'
    assert f"{tinted}<td>age 0 → 41" in html
    assert "&lt;i&gt;new&lt;/i&gt;" in html and "<i>" not in html, "names are not escaped"
    assert f'<tr style="background: {TINTS["red"]}"><td>-</td><td>node Person p4</td>' in html
    assert graph.diff("main", "main")._repr_html_().endswith("<p>no differences</p>")
    load(graph, *(person(f"many{n:02}") for n in range(30)), branch="review")
    assert graph.diff("main", "review")._repr_html_().endswith("<p>… and 13 more</p>")


def test_unknown_names_are_told(graph: og.Graph) -> None:
    with pytest.raises(UnresolvedRevision, match="no branch, tag or commit id `nowhere`"):
        graph.diff("main", "nowhere")
    with pytest.raises(UnresolvedRevision, match="no commit"):
        graph.diff("01K3Z7M0Q8W4R6T2Y5V9B1N3XC", "main")


# --- the changes of one commit --------------------------------------------------------------------


def test_c_bra_036_a_commit_lists_exactly_its_changes_in_order(graph: og.Graph) -> None:
    parent = head(graph)
    load(
        graph,
        person("p0", age=50, tags=[]),
        person("a"),
        city("rome"),
        edge("Knows", "k0", "a", "a"),
    )
    document = graph.commit_changes(head(graph)).to_dict()
    assert document["cause"]["parent_commit_id"] == parent
    assert document["cause"]["authored_branch"] == "main"
    assert "merged_parent_commit_id" not in document["cause"]
    shown = [(c["kind"], c["type"]["name"], c["id"], c["op"]) for c in document["changes"]]
    assert shown == [
        ("node", "City", "rome", "insert"),
        ("node", "Person", "a", "insert"),
        ("node", "Person", "p0", "update"),
        ("edge", "Knows", "k0", "update"),
    ]
    update = document["changes"][2]
    assert (update["before"]["properties"]["age"], update["after"]["properties"]["age"]) == (0, 50)
    assert (update["before"]["properties"]["tags"], update["after"]["properties"]["tags"]) == (
        ["a"],
        [],
    )
    assert document["changes"][3]["before"]["endpoints"] == {"from": "p0", "to": "p1"}


def test_c_bra_036_more_changes_than_are_read_at_once(graph: og.Graph) -> None:
    load(graph, *(city(f"c{n:05}", size=n) for n in range(5_000)))
    found = [change.id for change in graph.commit_changes(head(graph))]
    assert found == [f"c{n:05}" for n in range(5_000)]


def test_c_bra_037_overwrite_and_delete_with_reinsert_are_reported_by_content(
    graph: og.Graph,
) -> None:
    load(graph, city("bern", size=1), city("rome", size=3), mode="overwrite")
    document = graph.commit_changes(head(graph)).to_dict()
    assert [(c["op"], c["id"]) for c in document["changes"]] == [
        ("delete", "oslo"),
        ("insert", "rome"),
    ]
    before = head(graph)
    delete(graph, "City", "rome")
    load(graph, city("rome", size=3))
    assert changes(graph.diff(before, "main", types=["City"])) == []


def test_c_bra_038_the_first_commit_of_a_graph_is_refused(graph: og.Graph) -> None:
    genesis = graph.list_commits()[-1].graph_commit_id
    with pytest.raises(ChangeDiffRefused) as refused:
        graph.commit_changes(genesis)
    assert refused.value.details["reason"] == "parentless_commit"
    with pytest.raises(NotFound):
        graph.commit_changes("01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


def test_c_bra_039_types_are_listed_by_their_published_id(graph: og.Graph) -> None:
    load(
        graph, person("n"), city("n"), edge("LivesIn", "e", "n", "n"), edge("Knows", "e", "n", "n")
    )
    document = graph.commit_changes(head(graph)).to_dict()
    order = [(c["kind"] == "edge", c["type"]["id"]) for c in document["changes"]]
    assert order == sorted(order)
    assert len(set(order)) == 4


def test_a_commit_that_only_moves_rows_is_an_empty_block(graph: og.Graph) -> None:
    load(graph, person("a"))
    load(graph, person("b"))
    commit = graph.optimize().graph_commit_id
    assert commit is not None
    assert graph.commit_changes(commit).to_dict()["changes"] == []


def test_a_commit_of_a_branch_is_found_from_main(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("mine"), branch="review")
    block = graph.commit_changes(head(graph, "review"))
    assert block.cause.authored_branch == "review"
    assert [change.id for change in block] == ["mine"]


def test_a_branch_made_after_a_change_of_schema_is_merged(graph: og.Graph) -> None:
    graph.apply_schema(SCHEMA.replace("size: I32?", "size: I32?  country: String?"))
    graph.create_branch("review")
    load(graph, city("rome", country="Italy"), city("bern", size=9), branch="review")
    load(graph, city("paris", country="France"))
    assert graph.merge_branch("review").outcome == "merged"
    assert changes(graph.diff("review", "main")) == [("insert", "City", "paris")]

"""Edges whose ends are interfaces, through every way into and out of a graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InputError

SCHEMA = """
interface Message { content: String? }
node Person { name: String @key }
node Post implements Message { number: I64 @key }
node Comment implements Message { number: I64 @key }
edge HasCreator: Message -> Person @card(0..1) { since: I64?  @key(src, dst) }
edge Linked: Message -> Message
"""
NODES: list[dict[str, Any]] = [
    {"type": "Person", "data": {"name": "ann"}},
    {"type": "Person", "data": {"name": "bob"}},
    {"type": "Post", "data": {"number": 1}},
    {"type": "Post", "data": {"number": 2}},
    {"type": "Comment", "data": {"number": 2}},
    {"type": "Comment", "data": {"number": 3}},
]
CREATORS = """
query q() { match { $m hasCreator $p } return { $m, $m.@type as type, $p } order { $m.@type } }
"""


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def creator(of: str, by: str, **more: Any) -> dict[str, Any]:
    return {"edge": "HasCreator", "from": of, "to": by, **more}


def creators(graph: og.Graph, branch: str | None = None) -> list[tuple[str, str, str]]:
    rows = graph.query(CREATORS, branch=branch).to_pylist()
    return sorted((row["type"], row["m"], row["p"]) for row in rows)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(str(tmp_path / "g.omni"), schema=SCHEMA)
    made.load(data=lines(*NODES), mode="append")
    return made


def write_csv(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def load_edges(graph: og.Graph, way: str, path: Path, *edges: dict[str, Any], **more: Any) -> Any:
    """Load edges as records in process, or as a table by threads."""
    if way == "records":
        return graph.load(data=lines(*edges), **more)
    header = ["from", "to", *sorted({name for edge in edges for name in edge} & {"from_type"})]
    rows = [",".join(str(edge.get(name, "")) for name in header) for edge in edges]
    text = "\n".join([",".join(header), *rows]) + "\n"
    return graph.load(edges={"HasCreator": write_csv(path / "edges.csv", text)}, **more)


WAYS = pytest.mark.parametrize("way", ["records", "table"])


@WAYS
def test_c_qry_081_the_type_at_an_end_is_looked_up(graph: og.Graph, way: str, tmp_path: Path):
    load_edges(graph, way, tmp_path, creator("1", "ann"), creator("3", "bob"), mode="append")
    assert creators(graph) == [("Comment", "3", "bob"), ("Post", "1", "ann")]


def test_c_qry_081_nodes_and_edges_of_one_load_find_each_other(tmp_path: Path):
    graph = og.init(str(tmp_path / "g.omni"), schema=SCHEMA)
    graph.load(data=lines(creator("3", "bob"), *NODES), mode="append")
    assert creators(graph) == [("Comment", "3", "bob")]
    tables = og.init(str(tmp_path / "h.omni"), schema=SCHEMA)
    tables.load(
        nodes={
            "Person": write_csv(tmp_path / "person.csv", "name\nann\n"),
            "Post": write_csv(tmp_path / "post.csv", "number\n1\n2\n"),
            "Comment": write_csv(tmp_path / "comment.csv", "number\n2\n3\n"),
        },
        edges={"HasCreator": write_csv(tmp_path / "a.csv", "from,to\n1,ann\n3,ann\n")},
        mode="append",
    )
    assert creators(tables) == [("Comment", "3", "ann"), ("Post", "1", "ann")]


@WAYS
def test_c_qry_081_an_id_of_two_types_needs_its_type(graph: og.Graph, way: str, tmp_path: Path):
    with pytest.raises(ConstraintViolation, match="'2' is the id of a Comment and of a Post"):
        load_edges(graph, way, tmp_path, creator("2", "ann"), mode="append")
    typed = [creator("2", "ann", from_type="Post"), creator("2", "bob", from_type="Comment")]
    load_edges(graph, way, tmp_path, *typed, mode="append")
    assert creators(graph) == [("Comment", "2", "bob"), ("Post", "2", "ann")]


@WAYS
def test_c_qry_081_bad_ends_are_named_and_nothing_is_written(
    graph: og.Graph, way: str, tmp_path: Path
):
    head = graph.query(CREATORS).graph_commit_id
    with pytest.raises(ConstraintViolation, match="src '9' not found in Message"):
        load_edges(graph, way, tmp_path, creator("9", "ann"), mode="append")
    with pytest.raises(ConstraintViolation, match="src '1' not found in Comment"):
        load_edges(graph, way, tmp_path, creator("1", "ann", from_type="Comment"), mode="append")
    with pytest.raises(InputError, match="no type that implements Message"):
        load_edges(graph, way, tmp_path, creator("1", "ann", from_type="Person"), mode="append")
    assert graph.query(CREATORS).graph_commit_id == head


@WAYS
def test_c_qry_081_bad_edges_are_skipped_with_their_reason(
    graph: og.Graph, way: str, tmp_path: Path
):
    receipt = load_edges(
        graph,
        way,
        tmp_path,
        creator("1", "ann"),
        creator("2", "ann"),
        creator("9", "ann"),
        mode="append",
        errors=og.ErrorOptions(on_error="skip"),
    )
    assert receipt.edges[0].skipped == 2
    assert creators(graph) == [("Post", "1", "ann")]


@WAYS
def test_c_qry_081_keys_and_cardinality_are_of_nodes_not_of_ids(
    graph: og.Graph, way: str, tmp_path: Path
):
    typed = [creator("2", "ann", from_type="Post"), creator("2", "ann", from_type="Comment")]
    load_edges(graph, way, tmp_path, *typed, mode="merge")
    again = load_edges(graph, way, tmp_path, *typed, mode="merge")
    assert (again.edges[0].inserted, again.edges[0].unchanged) == (0, 2)
    with pytest.raises(ConstraintViolation, match=r"source '2' has 2 edges \(max 1\)"):
        load_edges(graph, way, tmp_path, creator("2", "bob", from_type="Post"), mode="merge")


def test_c_qry_081_mutations_look_up_and_take_types(graph: og.Graph):
    graph.mutate(
        'query q { insert HasCreator { from: "7", to: "ann" }  insert Post { number: 7 } }'
    )
    with pytest.raises(ConstraintViolation, match="a Comment and of a Post"):
        graph.mutate('query q { insert HasCreator { from: "2", to: "ann" } }')
    graph.mutate('query q { insert HasCreator { from: "2", from_type: "Comment", to: "ann" } }')
    where = 'from = "2" and from_type = "Comment"'
    changed = graph.mutate(f"query q {{ update HasCreator set {{ since: 5 }} where {where} }}")
    assert changed.affected_edges == 1
    assert creators(graph) == [("Comment", "2", "ann"), ("Post", "7", "ann")]


def test_c_qry_081_a_deleted_node_takes_its_own_edges_along(graph: og.Graph):
    typed = [creator("2", "ann", from_type="Post"), creator("2", "bob", from_type="Comment")]
    link = {"edge": "Linked", "from": "1", "to": "2", "to_type": "Comment"}
    graph.load(data=lines(*typed, link), mode="append")
    receipt = graph.mutate("query q { delete Comment where number = 2 }")
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 2)
    assert creators(graph) == [("Post", "2", "ann")]


def test_c_qry_081_exports_reload_equal(graph: og.Graph, tmp_path: Path):
    typed = [creator("2", "ann", from_type="Post"), creator("2", "bob", from_type="Comment")]
    link = {"edge": "Linked", "from": "1", "to": "2", "to_type": "Comment"}
    graph.load(data=lines(*typed, link), mode="append")
    records = b"".join(graph.export())
    assert b'"from":"2","from_type":"Post","to":"ann"' in records
    copy = og.init(str(tmp_path / "records.omni"), schema=SCHEMA)
    copy.load(data=records, mode="overwrite", grammar="strict")
    assert b"".join(copy.export()) == records
    graph.export_to(str(tmp_path / "out"), format="parquet")
    copy = og.init(str(tmp_path / "tables.omni"), schema=SCHEMA)
    copy.load(str(tmp_path / "out"), mode="overwrite")
    assert b"".join(copy.export()) == records


def test_c_qry_081_tables_show_ids_and_types(graph: og.Graph):
    graph.load(data=lines(creator("2", "bob", from_type="Comment")), mode="append")
    columns = ["src", "src_type", "dst"]
    shown = [{"src": "2", "src_type": "Comment", "dst": "bob"}]
    assert graph.table("HasCreator", columns=columns).to_arrow().to_pylist() == shown
    for where in ({"src": "2", "src_type": "Comment"}, 'src_type = "Comment"'):
        found = graph.table("HasCreator", columns=columns, where=where).to_arrow()
        assert found.to_pylist() == shown
    assert graph.table("HasCreator", where={"src_type": "Post"}).to_arrow().num_rows == 0


def test_c_qry_081_branches_merge_edges_of_both_types(graph: og.Graph):
    graph.create_branch("side")
    graph.load(data=lines(creator("2", "ann", from_type="Post")), mode="append")
    graph.load(data=lines(creator("2", "bob", from_type="Comment")), mode="append", branch="side")
    graph.merge_branch("side")
    assert creators(graph) == [("Comment", "2", "bob"), ("Post", "2", "ann")]


def test_c_qry_081_a_merge_refuses_an_edge_whose_node_is_gone(graph: og.Graph):
    graph.create_branch("side")
    graph.load(data=lines(creator("2", "bob", from_type="Comment")), mode="append", branch="side")
    graph.mutate("query q { delete Comment where number = 2 }")
    with pytest.raises(og.errors.OmnigraphError) as refused:
        graph.merge_branch("side")
    assert "not found in Comment" in json.dumps(refused.value.details)


def test_c_qry_081_changes_name_the_types_at_ends(graph: og.Graph):
    receipt = graph.load(data=lines(creator("2", "bob", from_type="Comment")), mode="append")
    assert receipt.commit is not None
    changes = graph.commit_changes(receipt.commit.graph_commit_id).to_dict()
    assert '"from": "2", "to": "bob", "from_type": "Comment"' in json.dumps(changes)


def test_c_qry_081_computing_names_the_edges_it_leaves_out(graph: og.Graph):
    with pytest.raises(InputError, match="interface"):
        graph.compute.pagerank(edges=["HasCreator"])


def test_c_qry_081_a_type_that_edges_refer_to_is_not_dropped(graph: og.Graph):
    dropped = SCHEMA.replace("node Comment implements Message { number: I64 @key }\n", "")
    graph.load(data=lines(creator("3", "bob")), mode="append")
    with pytest.raises(ConstraintViolation, match=r"edge HasCreator .* refers to Comment '3'"):
        graph.apply_schema(dropped)
    graph.mutate('query q { delete HasCreator where from = "3" }')
    graph.apply_schema(dropped)
    assert creators(graph) == []


def test_c_qry_081_other_ends_are_refused(graph: og.Graph):
    with pytest.raises(og.errors.UnsupportedSchemaChange, match="changing edge endpoints"):
        graph.apply_schema(SCHEMA.replace("HasCreator: Message", "HasCreator: Post"))


def test_c_qry_081_a_rename_of_a_type_keeps_its_edges(graph: og.Graph):
    graph.load(data=lines(creator("2", "bob", from_type="Comment")), mode="append")
    graph.apply_schema(SCHEMA.replace("node Comment", 'node Remark @rename_from("Comment")'))
    assert creators(graph) == [("Remark", "2", "bob")]

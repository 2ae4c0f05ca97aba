"""Edges that end at interfaces, loaded by Spark workers and through the data source."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import ConstraintViolation
from omnigraph.graph import Graph

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = """
interface Message { content: String? }
node Person { name: String @key }
node Post implements Message { number: I64 @key }
node Comment implements Message { number: I64 @key }
edge HasCreator: Message -> Person @card(0..1) { @key(src, dst) }
"""
BY_TYPE = """
query q() { match { $m hasCreator $p } return { $m.@type as type, count(*) as n } order { type } }
"""


def csv(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def counts(graph: Graph) -> list[tuple[str, int]]:
    return [(row["type"], row["n"]) for row in graph.query(BY_TYPE).to_pylist()]


@pytest.fixture
def forum(tmp_path: Path, spark) -> Graph:
    graph = omnigraph.init(tmp_path / "forum.omni", SCHEMA)
    numbers = "".join(f"{n}\n" for n in range(20, 40))
    graph.load(
        nodes={
            "Person": csv(tmp_path / "person.csv", "name\nann\nbob\n"),
            "Post": csv(tmp_path / "post.csv", "number\n" + "".join(f"{n}\n" for n in range(21))),
            "Comment": csv(tmp_path / "comment.csv", "number\n" + numbers),
        },
        edges={
            "HasCreator": csv(
                tmp_path / "made.csv",
                "from,to\n" + "".join(f"{n},ann\n" for n in range(5, 30) if n != 20),
            )
        },
        mode="append",
        engine="spark",
        spark=omnigraph.SparkOptions(session=spark),
    )
    return graph


def test_c_qry_081_workers_look_up_the_types_at_ends(forum: Graph, tmp_path: Path, spark):
    assert counts(forum) == [("Comment", 9), ("Post", 15)]
    options = omnigraph.SparkOptions(session=spark)

    def merge(text: str):
        edges = {"HasCreator": csv(tmp_path / "more.csv", text)}
        return forum.load(edges=edges, mode="merge", engine="spark", spark=options)

    again = merge("from,to\n7,ann\n31,ann\n").edges[0]
    assert (again.inserted, again.unchanged) == (1, 1)
    with pytest.raises(ConstraintViolation, match="'20' is the id of a Comment and of a Post"):
        merge("from,to\n20,ann\n")
    with pytest.raises(ConstraintViolation, match="src '99' not found in Message"):
        merge("from,to\n99,ann\n")
    merge("from,to,from_type\n20,ann,Post\n20,bob,Comment\n")
    assert counts(forum) == [("Comment", 11), ("Post", 16)]


def test_c_qry_081_the_data_source_shows_and_takes_types(forum: Graph, tmp_path: Path, spark):
    rows = (
        spark.read.format("omnigraph")
        .option("type", "edge:HasCreator")
        .load(str(tmp_path / "forum.omni"))
    )
    assert rows.columns == ["id", "src", "src_type", "dst"]
    found = {(row.src, row.src_type) for row in rows.collect()}
    assert ("6", "Post") in found
    assert ("21", "Comment") in found
    (
        spark.createDataFrame([("20", "Comment", "bob")], "src string, src_type string, dst string")
        .write.format("omnigraph")
        .option("type", "edge:HasCreator")
        .mode("append")
        .save(str(tmp_path / "forum.omni"))
    )
    assert counts(forum) == [("Comment", 10), ("Post", 15)]

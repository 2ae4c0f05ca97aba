"""`omnigraph translate`: what it prints, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph import Graph, init
from tests.cli.conftest import SCHEMA, Run

CYPHER = """\
// names
MATCH (p:Person)-[:KNOWS]->(f:Person) WHERE p.age > $least RETURN DISTINCT f.name;
MATCH (n) RETURN n
"""
TRANSLATED = """\
query names($least: I32) {
    match {
        $p: Person
        $p knows $f
        $p.age > $least
    }
    return distinct { $f.name }
}
"""


@pytest.fixture
def cypher(tmp_path: Path) -> Path:
    path = tmp_path / "queries.cypher"
    path.write_text(CYPHER)
    return path


def test_a_file_is_translated_against_a_schema_or_a_graph(
    run: Run, tmp_path: Path, cypher: Path, schema_file: Path
) -> None:
    graph: Graph = init(tmp_path / "team.omni", SCHEMA)
    for place in (["--schema", schema_file], ["--store", graph.uri]):
        done = run("translate", "--from", "cypher", cypher, *place)
        assert done.code == 1
        assert done.out == TRANSLATED
        assert done.err.startswith(f"{cypher}:3:7: translation error: a node without a label")
    cypher.write_text(CYPHER.partition(";")[0])
    done = run("translate", "--from", "cypher", cypher, "--schema", schema_file)
    assert (done.code, done.out, done.err) == (0, TRANSLATED, "")
    guessed = run("translate", "--from", "cypher", cypher)
    assert guessed.code == 0
    assert guessed.out.startswith("// Line 2: the type of `$least` is a guess.\nquery names")


def test_as_json_it_has_queries_and_errors_with_places(
    run: Run, cypher: Path, schema_file: Path
) -> None:
    done = run("translate", "--from", "kuzu", cypher, "--schema", schema_file, "--json")
    document = json.loads(done.out)
    assert done.code == 1
    assert [query["name"] for query in document["queries"]] == ["names"]
    assert document["queries"][0] | {"text": ""} == {
        "name": "names",
        "line": 2,
        "text": "",
        "notes": [],
    }
    (error,) = document["errors"]
    assert "a node without a label" in error["error"]
    assert (error["position"]["line"], error["position"]["column"]) == (3, 7)


def test_mistakes_of_the_command_line_are_told(run: Run, tmp_path: Path, cypher: Path) -> None:
    unknown = run("translate", "--from", "gremlin", cypher)
    assert unknown.code == 2 and "`--from` takes cypher, kuzu, not `gremlin`" in unknown.err
    missing = run("translate", "--from", "cypher", tmp_path / "querys.cypher")
    assert missing.code != 0 and "queries.cypher" in missing.err

"""The page for users of Cypher: each pair is what the translation says, or what it refuses."""

from __future__ import annotations

from itertools import pairwise

import pytest

from omnigraph.graph import init
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.translate.queries import translate_cypher
from tests.support.pages import EXAMPLE_SCHEMA, ROOT, blocks_of

PAGE = ROOT / "docs" / "guide" / "cypher.md"
PAIRS = [
    (one.text, other.text)
    for one, other in pairwise(blocks_of(PAGE))
    if (one.language, other.language) == ("cypher", "gq")
]
WRITES = ("insert", "update", "delete")


def test_each_pair_of_reads_is_a_translation() -> None:
    catalog = compile_schema(EXAMPLE_SCHEMA).catalog
    reads = [(cypher, gq) for cypher, gq in PAIRS if not any(f"{w} " in gq for w in WRITES)]
    assert len(reads) >= 12
    for cypher, gq in reads:
        found = translate_cypher(cypher, catalog)
        assert found.errors == ()
        assert found.text == gq


def test_each_pair_of_writes_is_refused_by_name_and_runs_here(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    writes = [(cypher, gq) for cypher, gq in PAIRS if any(f"{w} " in gq for w in WRITES)]
    assert len(writes) == 5
    graph = init(tmp_path_factory.mktemp("page") / "social.omni", EXAMPLE_SCHEMA)
    for handle in ("ada", "bruno"):
        person = '{"type": "Person", "data": {"handle": "%s", "name": "x", "joined": "2020-01-01"}}'
        graph.load(data=person % handle, mode="append", engine="local")
    given = {
        "name": "climbing", "topic": "sport", "who": "ada", "whom": "bruno", "home": "Graz",
    }  # fmt: skip
    for cypher, gq in writes:
        (error,) = translate_cypher(cypher, graph_catalog()).errors
        assert "only reads are translated" in error.reason
        receipt = graph.mutate(gq, given)
        assert receipt.affected_nodes + receipt.affected_edges >= 1
    people = graph.query("query q { match { $p: Person } return { $p.handle } }")
    assert people.to_pylist() == [{"p.handle": "bruno"}]


def graph_catalog() -> Catalog:
    return compile_schema(EXAMPLE_SCHEMA).catalog


def test_the_table_of_words_is_true() -> None:
    """Each short form on the right compiles in a query."""
    catalog = compile_schema(EXAMPLE_SCHEMA).catalog
    for clauses, returned in (
        ("$p: Person { handle: $who }  $p follows $f", "$f.name"),
        ("$p: Person  $p <knows> $f  $p $k:knows $f", "$k.since"),
        ("$p: Person  any { $p.verified = true  $p.home is null }", "$p"),
        ("$p: Person  not { $p knows $f }", "$p.* as p"),
        ("$p: Person  unnest $i in $p.interests", "$i as i"),
        ("$a: Person  $b: Person  $a <knows>{1,} $b via $path", "$path.length as n"),
        ("$p: Person", "if($p.verified, 1, 2) as a, case { $p.verified: 1, else: 2 } as b"),
    ):
        text = f"query q($who: String) {{ match {{ {clauses} }} return {{ {returned} }} }}"
        compile_query(text, catalog)

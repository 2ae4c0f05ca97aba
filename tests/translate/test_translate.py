"""Translations of Cypher: their answers beside Kuzu's, what they say, and what they refuse."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import kuzu
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.peer_kuzu import kuzu_rows
from omnigraph.errors import TranslationError
from omnigraph.graph import Graph, init
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.translate.queries import TranslatedQuery, translate_cypher
from tests.support.tables import check_all

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    city: String?
    flag: Bool?
    score: F64?
}
node Company { name: String @key  size: I32? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { role: String? }
edge Owns: Person -> Company { share: F64  @key(src, dst) }
"""
PEOPLE: list[tuple[str, int | None, str | None, bool | None, float | None]] = [
    ("ada", 36, "graz", True, 1.5),
    ("bo", None, "linz", False, None),
    ("cy", 19, None, None, 0.5),
    ("di", 36, "graz", False, -2.0),
    ("eve", 54, "wien", True, 1.5),
    ("fay", None, None, None, None),
]
COMPANIES = [("acme", 10), ("beta", None), ("core", 3)]
KNOWS = [
    *(("ada", "bo", 2001), ("ada", "bo", 2002), ("bo", "ada", None), ("bo", "cy", 2010)),
    *(("cy", "di", 2011), ("di", "di", 2012), ("di", "ada", None), ("eve", "ada", 2013)),
]
"""Parallel edges, one each way, a loop and a cycle."""
WORKS = [
    *(("ada", "acme", "boss"), ("bo", "acme", None), ("cy", "acme", "clerk")),
    *(("ada", "beta", "clerk"), ("ada", "beta", "clerk")),
]
OWNS = [("ada", "acme", 0.5), ("eve", "acme", 0.25), ("eve", "core", 1.0)]


@pytest.fixture(scope="module")
def peer() -> Iterator[kuzu.Connection]:
    with kuzu.Database() as database, kuzu.Connection(database, num_threads=1) as connection:
        for statement in (
            (
                "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING,"
                " flag BOOL, score DOUBLE)"
            ),
            "CREATE NODE TABLE Company(name STRING PRIMARY KEY, size INT32)",
            "CREATE REL TABLE Knows(FROM Person TO Person, since INT32)",
            "CREATE REL TABLE WorksAt(FROM Person TO Company, role STRING)",
            "CREATE REL TABLE Owns(FROM Person TO Company, share DOUBLE)",
        ):
            kuzu_rows(connection, statement)
        for name, age, city, flag, score in PEOPLE:
            kuzu_rows(
                connection,
                "CREATE (:Person {name: $n, age: CAST($a AS INT32), city: $c, flag: $f,"
                " score: CAST($s AS DOUBLE)})",
                {"n": name, "a": age, "c": city, "f": flag, "s": score},
            )
        for company, size in COMPANIES:
            kuzu_rows(
                connection,
                "CREATE (:Company {name: $n, size: CAST($s AS INT32)})",
                {"n": company, "s": size},
            )
        for kind, rows, target, column in (
            ("Knows", KNOWS, "Person", "since: CAST($v AS INT32)"),
            ("WorksAt", WORKS, "Company", "role: $v"),
            ("Owns", OWNS, "Company", "share: $v"),
        ):
            for source, end, value in rows:
                kuzu_rows(
                    connection,
                    f"MATCH (a:Person {{name: $a}}), (b:{target} {{name: $b}})"
                    f" CREATE (a)-[:{kind} {{{column}}}]->(b)",
                    {"a": source, "b": end, "v": value},
                )
        yield connection


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = init(tmp_path_factory.mktemp("people") / "people.omni", SCHEMA)
    columns = ("name", "age", "city", "flag", "score")
    records: list[dict[str, Any]] = [
        {"type": "Person", "data": dict(zip(columns, row, strict=True))} for row in PEOPLE
    ]
    records += [{"type": "Company", "data": {"name": n, "size": s}} for n, s in COMPANIES]
    for kind, column, rows in (
        ("Knows", "since", KNOWS),
        ("WorksAt", "role", WORKS),
        ("Owns", "share", OWNS),
    ):
        records += [
            {"edge": kind, "from": a, "to": b, "data": {column: value}} for a, b, value in rows
        ]
    made.load(data="\n".join(map(json.dumps, records)), mode="append", engine="local")
    return made


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA).catalog


def one(text: str, catalog: Catalog | None, dialect: Any = "cypher") -> TranslatedQuery:
    """The translation of a text that has one query."""
    found = translate_cypher(text, catalog, dialect)
    for error in found.errors:
        raise error
    (query,) = found.queries
    return query


def rows(graph: Graph, text: str, params: dict[str, Any] | None = None) -> list[Any]:
    return [tuple(row.values()) for row in graph.query(text, params or {}).to_pylist()]


def counted(found: list[Any]) -> Counter[str]:
    """Rows in no order; numbers by their value, lists by what is in them."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return sorted(map(plain, value), key=str)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        return float(value) if is_number else value

    return Counter(str([plain(value) for value in row]) for row in found)


SAME = [
    "MATCH (p:Person {name: 'ada'})-[:Knows]->(f:Person) RETURN f.name, f.age",
    "MATCH (p:Person {name: 'ada'})-[:Knows]->(f:Person) RETURN DISTINCT f.name",
    "MATCH (p:Person)-[:Knows]-(f:Person {name: 'bo'}) RETURN p.name",
    "MATCH (p:Person)<-[k:Knows]-(f:Person) WHERE k.since > 2005 RETURN p.name, f.name, k.since",
    "MATCH (p:Person)-[k:Knows {since: 2001}]->(f:Person) RETURN f.name",
    "MATCH (p:Person)-[:Knows]->(f:Person)-[:Knows]->(g:Person) RETURN p.name, g.name",
    "MATCH (p:Person)-[:Knows]->(f:Person)<-[:Knows]-(g:Person) RETURN p.name, g.name",
    "MATCH (p:Person)-[:WorksAt]->(c:Company)<-[:WorksAt]-(q:Person) RETURN p.name, q.name",
    "MATCH (p:Person)-[:Owns]->(c:Company)<-[:Owns]-(q:Person) RETURN p.name, q.name, c.name",
    "MATCH (p:Person), (c:Company) WHERE p.age > c.size RETURN p.name, c.name",
    "MATCH (p:Person)-[:WorksAt]->(c:Company), (p)-[:Owns]->(c) RETURN p.name, c.name",
    "MATCH (p:Person) MATCH (p)-[:WorksAt]->(c:Company) WHERE c.size IS NULL RETURN p.name",
    "MATCH (p:Person) OPTIONAL MATCH (p)-[:WorksAt]->(c:Company) RETURN p.name, c.name",
    (
        "MATCH (p:Person) OPTIONAL MATCH (p)-[:Knows]->(f:Person) WHERE f.age > 20"
        " RETURN p.name, f.name"
    ),
    (
        "MATCH (p:Person) OPTIONAL MATCH (p)-[:Knows]->(f:Person)"
        " OPTIONAL MATCH (f)-[:WorksAt]->(c:Company) RETURN p.name, f.name, c.name"
    ),
    (
        "MATCH (p:Person) OPTIONAL MATCH (p)-[w:WorksAt]->(c:Company) WITH p, c WHERE c IS NULL"
        " RETURN p.name"
    ),
    "MATCH (p:Person) WHERE NOT (p)-[:Knows]->(:Person) RETURN p.name",
    (
        "MATCH (p:Person) WHERE EXISTS { MATCH (p)-[:WorksAt]->(c:Company) WHERE c.size > 5 }"
        " RETURN p.name"
    ),
    (
        "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:Knows]->(f:Person) WHERE f.age = 36 }"
        " AND p.age > 1 RETURN p.name"
    ),
    "MATCH (p:Person) RETURN p.name, COUNT { MATCH (p)-[:Knows]->(:Person) } AS n",
    (
        "MATCH (p:Person)-[:Knows*1..2]->(f:Person) WHERE id(f) <> id(p)"
        " WITH DISTINCT p, f RETURN p.name, f.name"
    ),
    (
        "MATCH (p:Person)-[:Knows*1..3]-(f:Person) WHERE p.name <> f.name"
        " RETURN DISTINCT p.name, f.name"
    ),
    "MATCH (p:Person {name: 'eve'})-[:Knows*0..2]->(f:Person) RETURN DISTINCT f.name",
    "MATCH (p:Person {name: 'eve'})-[:Knows*2..2]->(f:Person) RETURN f.name",
    "MATCH (p:Person {name: 'eve'})-[:Knows*3]->(f:Person) RETURN count(*) AS n",
    (
        "MATCH q = (p:Person {name: 'eve'})-[:Knows* SHORTEST 1..4]->(f:Person)"
        " WHERE f.name <> 'eve' RETURN f.name, length(q)"
    ),
    (
        "MATCH (p:Person) RETURN p.city, count(*), count(p.age), sum(p.age), avg(p.score),"
        " min(p.age), max(p.name)"
    ),
    "MATCH (p:Person) WHERE p.age > 1000 RETURN count(*), sum(p.age), min(p.age)",
    "MATCH (p:Person)-[:Knows]->(f:Person) RETURN p.name, collect(f.name)",
    "MATCH (p:Person) WITH p.city AS city, count(*) AS n WHERE n > 1 RETURN city, n",
    (
        "MATCH (p:Person)-[:Knows]->(f:Person) WITH f, count(*) AS n WHERE n > 1 AND f.age > 1"
        " RETURN f.name, n"
    ),
    "MATCH (p:Person) WITH p ORDER BY p.name LIMIT 4 WHERE p.age > 20 RETURN p.name",
    (
        "MATCH (p:Person)-[:Knows]->(f:Person) WITH f, count(*) AS n ORDER BY n DESC, f.name"
        " LIMIT 2 RETURN f.name, n"
    ),
    "MATCH (p:Person) RETURN p.name AS name ORDER BY name DESC SKIP 1 LIMIT 3",
    (
        "MATCH (p:Person) WHERE p.age IS NOT NULL RETURN p.name, p.age + 1 AS a, p.age * 2 - 1"
        " AS b, p.age % 5 AS c, (p.age + 1) * 2 AS d, -p.age AS e, 1 - (p.age - 2) AS f"
    ),
    "MATCH (p:Person) RETURN p.name, p.score / 2.0 AS half",
    (
        "MATCH (p:Person) RETURN p.name, CASE WHEN p.age > 30 THEN 'old' WHEN p.age > 10 THEN"
        " 'young' ELSE 'unknown' END AS kind"
    ),
    (
        "MATCH (p:Person) RETURN p.name, CASE p.city WHEN 'graz' THEN 1 WHEN 'linz' THEN 2"
        " ELSE 0 END AS n"
    ),
    (
        "MATCH (p:Person) RETURN p.name, p.age IS NULL AS unknown, p.age > 20 AS old,"
        " NOT p.flag AS off, p.flag AND p.age > 40 AS both"
    ),
    (
        "MATCH (p:Person) RETURN p.name, coalesce(p.age, -1) AS age, upper(p.city) AS city,"
        " size(p.name) AS length, concat(p.name, '!') AS shout"
    ),
    "MATCH (p:Person) WHERE p.name STARTS WITH 'a' OR p.name ENDS WITH 'e' RETURN p.name",
    "MATCH (p:Person) WHERE NOT p.city CONTAINS 'z' RETURN p.name",
    "MATCH (p:Person) WHERE p.city =~ '[gl].*' RETURN p.name",
    "MATCH (p:Person) WHERE p.age IN [19, 36] RETURN p.name",
    "MATCH (p:Person) WHERE NOT p.age IN [19, 36] RETURN p.name",
    "MATCH (p:Person)-[:Knows]->(f:Person) RETURN p.name, count(DISTINCT f.name)",
    "MATCH (a:Person), (b:Person) WHERE a.city = b.city AND id(a) <> id(b) RETURN a.name, b.name",
    (
        "MATCH (p:Person) WITH collect(p.name) AS names UNWIND names AS n MATCH (q:Person"
        " {name: n}) RETURN q.name, q.age"
    ),
    "MATCH (p:Person)-[:WorksAt]->(c:Company) WITH DISTINCT p, c RETURN c.name, count(*) AS n",
]
"""What Kuzu and the translation answer alike, in its dialect."""


def test_translations_answer_what_kuzu_answers(
    graph: Graph, peer: kuzu.Connection, catalog: Catalog
) -> None:
    def check(text: str) -> None:
        query = one(text, catalog, "kuzu")
        theirs = [tuple(row) for row in kuzu_rows(peer, text)]
        ours = rows(graph, query.text)
        assert counted(ours) == counted(theirs), query.text
        if "ORDER BY name DESC" in text:
            assert ours == theirs

    check_all(SAME, check)


ATOMS = st.sampled_from(
    [
        "p.age > 20", "p.age = 36", "p.city = 'graz'", "p.city <> 'linz'", "p.flag",
        "p.score < 1.0", "p.age IS NULL", "p.city IS NOT NULL", "p.name STARTS WITH 'd'",
        "p.city CONTAINS 'z'", "p.age IN [19, 54]",
        "EXISTS { MATCH (p)-[:Knows]->(q:Person) WHERE q.age > 20 }",
        "EXISTS { MATCH (p)<-[:Knows]-(q:Person) }",
    ]
)  # fmt: skip
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("NOT ({})".format),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: "({} {} {})".format(*parts)
        ),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_conditions_keep_the_rows_that_kuzu_keeps(
    graph: Graph, peer: kuzu.Connection, catalog: Catalog, condition: str
) -> None:
    """Three truth values, whatever is negated."""
    text = f"MATCH (p:Person) WHERE {condition} RETURN p.name"
    theirs = [tuple(row) for row in kuzu_rows(peer, text)]
    assert counted(rows(graph, one(text, catalog, "kuzu").text)) == counted(theirs)


def test_in_opencypher_a_match_takes_no_relationship_twice(graph: Graph, catalog: Catalog) -> None:
    # A company with three people who work there: six pairs, and none of someone with themselves.
    text = "MATCH (a:Person)-[:WorksAt]->(c:Company {name: 'acme'})<-[:WorksAt]-(b:Person)"
    for returned, count in ((" RETURN a.name, b.name", 6), (" RETURN DISTINCT a.name", 3)):
        assert len(rows(graph, one(text + returned, catalog).text)) == count
        assert len(rows(graph, one(text + returned, catalog, "kuzu").text)) == (
            9 if count == 6 else 3
        )
    # Two `MATCH` clauses may take it twice.
    apart = text.replace("<-[", " MATCH (c)<-[") + " RETURN a.name, b.name"
    assert len(rows(graph, one(apart, catalog).text)) == 9
    # Where an edge type has a key of both ends, the far nodes are compared instead.
    owns = one("MATCH (a:Person)-[:Owns]->(c:Company)<-[:Owns]-(b:Person) RETURN a.name", catalog)
    assert "$a != $b" in owns.text
    assert sorted(rows(graph, owns.text)) == [("ada",), ("eve",)]
    chained = one("MATCH (p:Person) WHERE 20 < p.age <= 36 RETURN p.name", catalog)
    assert sorted(rows(graph, chained.text)) == [("ada",), ("di",)]
    joined = one(
        "MATCH (p:Person) WITH p.age AS age MATCH (q:Person) WHERE q.age = age RETURN q.name",
        catalog,
    )
    names = ["ada", "ada", "cy", "di", "di", "eve"]
    assert sorted(name for (name,) in rows(graph, joined.text)) == names
    # di knows itself: one edge, which two hops may not share.
    loop = "MATCH (a:Person {name: 'di'})-[:Knows]->(b:Person)-[:Knows]->(c:Person) RETURN c.name"
    assert sorted(rows(graph, one(loop, catalog).text)) == [("ada",), ("bo",), ("bo",)]


def test_in_opencypher_the_sum_of_nothing_is_zero(graph: Graph, catalog: Catalog) -> None:
    text = "MATCH (p:Person) WHERE p.age > 1000 RETURN sum(p.age) AS n"
    assert rows(graph, one(text, catalog).text) == [(0,)]
    assert rows(graph, one(text, catalog, "kuzu").text) == [(None,)]


def test_parameters_have_the_types_of_what_they_are_compared_with(catalog: Catalog) -> None:
    text = (
        "MATCH (p:Person {name: $name})-[k:Knows {since: $since}]->(f:Person)"
        " WHERE f.age > $age AND f.city IN $cities AND f.score * 2 < $score AND f.flag = $flag"
        " RETURN f.name SKIP $skip LIMIT $limit"
    )
    head = one(text, catalog).text.partition("{")[0]
    for declared in (
        "$name: String", "$since: I32", "$age: I32", "$cities: [String]", "$score: F64",
        "$flag: Bool", "$skip: I64", "$limit: I64",
    ):  # fmt: skip
        assert declared in head
    assert one(text, catalog).notes == ()
    guessed = one("MATCH (p:Person) WHERE p.age > $age RETURN p.name", None)
    assert "$age: String" in guessed.text
    assert [message for message, _ in guessed.notes] == ["the type of `$age` is a guess"]


def test_names_become_those_of_the_schema_or_of_the_language(catalog: Catalog) -> None:
    text = "MATCH (P:PERSON)-[:WORKS_AT]->(c:Company) WHERE P.NAME = $Who RETURN c.name AS Company"
    assert one(text, catalog).text == (
        "query query1($who: String) {\n"
        "    match {\n"
        "        $p: Person\n"
        "        $p $worksAt:worksAt $c\n"
        "        $p.name = $who\n"
        "    }\n"
        "    return { $c.name as company }\n"
        "}\n"
    )
    assert "$c: Company" in one(text, None).text and "worksAt $c" in one(text, None).text
    # A bare `$x` means the parameter, so a node of that name is called something else.
    clash = one("MATCH (p:Person {name: $p}) RETURN count(p) AS n", catalog).text
    assert "$p2: Person { name: $p }" in clash and "count($p2)" in clash
    two = translate_cypher("// first\nMATCH (p:Person) RETURN p;\nMATCH (p:Person) RETURN p.age;")
    assert [query.name for query in two.queries] == ["first", "query2"]


def test_notes_tell_where_an_answer_may_differ(catalog: Catalog) -> None:
    text = (
        "MATCH (p:Person)-[:Knows*1..2]->(f:Person) WITH DISTINCT f\n"
        "RETURN f.city AS city, collect(f.name) AS names ORDER BY city"
    )
    query = one(text, catalog)
    assert [(message.partition(",")[0], at.line, at.column) for message, at in query.notes] == [
        ("the start of the path", 1, 25),
        ("`collect` gives its values in ascending order", 2, 24),
        ("null is the smallest value in an order", 2, 58),
    ]
    found = translate_cypher(text, catalog)
    assert found.text.startswith("// Line 1: the start of the path")


REFUSED = [
    ("CREATE (p:Person)", 1, 1, "`CREATE` writes"),
    ("MATCH (p:Person)\nSET p.age = 1", 2, 1, "`SET` writes"),
    ("MATCH (p:Person) DETACH DELETE p", 1, 18, "`DETACH` writes"),
    ("MATCH (p:Person) RETURN p.age UNION MATCH (q:Person) RETURN q.age", 1, 31, "`UNION` has no"),
    ("CALL db.labels()", 1, 1, "`CALL` has no counterpart"),
    ("MATCH (n) RETURN n", 1, 7, "a node without a label"),
    ("MATCH (p:Person:Admin) RETURN p", 1, 16, "a node with several labels"),
    ("MATCH (p:Person)-[]->(q:Person) RETURN p", 1, 17, "a relationship without a type"),
    ("MATCH (p:Person)-[:Knows|Owns]->(q) RETURN p", 1, 25, "a relationship of several types"),
    ("MATCH (p:Person)-[:Knows*1..2]->(f:Person) RETURN f", 1, 25, "a row for every path"),
    ("MATCH (p:Person)-[:Knows*2..3]->(f:Person) RETURN DISTINCT f", 1, 25, "paths of at least"),
    ("MATCH (p:Person)-[k:Knows*1..2]->(f:Person) RETURN DISTINCT k", 1, 17, "the relationships"),
    ("MATCH q = (p:Person)-[:Knows]->(f:Person) RETURN length(q)", 1, 7, "the path of a pattern"),
    ("MATCH (p:Person) RETURN [x IN p.tags | x]", 1, 25, "a list comprehension"),
    ("MATCH (p:Person) RETURN {name: p.name}", 1, 25, "a map has no counterpart"),
    ("MATCH (p:Person) RETURN p.age / 2", 1, 25, "a division of integers"),
    ("MATCH (p:Person) WHERE p.flag XOR p.age > 1 RETURN p", 1, 24, "`XOR` has no counterpart"),
    ("MATCH (p:Person) WHERE p.age = null RETURN p", 1, 32, "a comparison with `null`"),
    ("MATCH (p:Person) RETURN labels(p)", 1, 25, "the function `labels` has no counterpart"),
    ("MATCH (p:Person) RETURN p.name ORDER BY p.age + 1", 1, 41, "an order by a computed value"),
    ("MATCH (p:Person) RETURN q.name", 1, 25, "`q` is not bound here"),
    ("MATCH (p:Persn) RETURN p", 1, 7, "the schema has no node type `Persn`"),
    ("MATCH (p:Person) RETURN p.nam", 1, 25, "`Person` has no property `nam`"),
    ("MATCH (p:Person)-[:Knos]->(q) RETURN p", 1, 17, "the schema has no edge type `Knos`"),
    ("MATCH (c:Company)-[:WorksAt]->(p:Person) RETURN p", 1, 18, "nothing matches this: `WorksAt`"),
    ("MATCH (p:Person) OPTIONAL MATCH (p)-[:Knows]->(f) MATCH (f)-[:Knows]->(g) RETURN g", 1, 57,
     "`f` of an `OPTIONAL MATCH` in a later `MATCH`"),
    ("MATCH (p:Person)-[k:Knows]->(f) WITH p, k RETURN k.since", 1, 41, "a relationship in `WITH`"),
    ("MATCH (p:Person) RETRN p", 1, 18, "expected `MATCH`, `WITH` or `RETURN`, found `RETRN`"),
    ("MATCH (p:Person RETURN p", 1, 17, "expected `)` at the end of a node"),
    ("MATCH (p:Person) RETURN 'open", 1, 25, "an unterminated string"),
    ("MATCH (p:Person {name: 'x\\q'}) RETURN p", 1, 26, "unknown escape"),
    ("RETURN 1", 1, 1, "a query begins with `MATCH`"),
    ("MATCH (p:Person) RETURN collect(p)", 1, 25, "`collect` of whole nodes"),
]  # fmt: skip
"""A text, and the line, the column and the beginning of what is said about it."""


def test_what_has_no_counterpart_is_told_with_its_place(catalog: Catalog) -> None:
    def check(case: tuple[str, int, int, str]) -> None:
        text, line, column, message = case
        with pytest.raises(TranslationError) as refused:
            one(text, catalog)
        error = refused.value
        assert error.reason.startswith(message), error.reason
        assert error.position is not None
        assert (error.position.line, error.position.column) == (line, column)

    check_all({case[0]: case for case in REFUSED}, check)


def test_a_suggestion_is_made_for_a_misspelt_name(catalog: Catalog) -> None:
    for text, meant in (
        ("MATCH (p:Persn) RETURN p", "`Person`"),
        ("MATCH (p:Person) RETURN p.nam", "`name`"),
        ("MATCH (p:Person)-[:Knos]->(q) RETURN p", "`Knows`"),
        ("MATCH (p:Person) RETRN p", "`RETURN`"),
    ):
        with pytest.raises(TranslationError) as refused:
            one(text, catalog)
        assert refused.value.hint == f"did you mean {meant}?"


def test_one_bad_statement_does_not_hide_the_others(catalog: Catalog) -> None:
    text = (
        "MATCH (p:Person) RETURN p.name;\nMERGE (p:Person);\n"
        "MATCH (p:Person) RETURN q;\nMATCH (p:Person) RETURN p.age"
    )
    found = translate_cypher(text, catalog)
    assert [query.name for query in found.queries] == ["query1", "query4"]
    assert [error.position.line for error in found.errors if error.position] == [2, 3]


@given(st.text(alphabet="MATCHRETURN (p:Person)-[k*1..2]->{}'\"`$=<>.,;|\n", max_size=60))
def test_any_text_is_translated_or_refused(text: str) -> None:
    for error in translate_cypher(text).errors:
        assert error.position is not None


def test_deep_nesting_is_refused() -> None:
    ands = "MATCH (p:Person) WHERE " + " AND ".join(["p.age > 1"] * 5000) + " RETURN p"
    assert len(translate_cypher(ands).errors) == 1
    for text in ("(" * 5000, "NOT " * 5000, "-" * 5000, "[" * 5000, "CASE WHEN " * 5000):
        (error,) = translate_cypher(f"MATCH (p:Person) RETURN {text}1").errors
        assert isinstance(error, TranslationError)

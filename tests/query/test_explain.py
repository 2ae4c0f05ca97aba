"""Plans as text."""

from __future__ import annotations

from textwrap import dedent

import pytest

from omnigraph.query.compile import compile_query
from omnigraph.query.explain import explain
from tests.query.library import catalog, query


def explained(text: str) -> str:
    return explain(compile_query(text, catalog()))


def lines(text: str) -> str:
    return dedent(text).strip("\n")


def test_read_from_top_to_bottom():
    text = """
    query busy($who: String, $n: I32) {
        match {
            $a: Author { handle: $who }
            $a $w:wrote $b
            $w.share > 0.5
            $b.pages > $n
            not { $b cites $_ }
            optional { $b <cites>{1,3} $c  $c.genre = "poetry" }
            any { $b.blurb is null  all { $b contains $d  $d.title starts_with "x" } }
            $c.title != $a.name
        }
        return { $b.genre, count(*) as n, round(avg($b.price), 2) as mean }
        having { n > 1  max($b.pages) < 100 }
        order { n desc, $b.genre }
        limit $n
        offset 5
    }
    """
    assert explained(text) == lines(
        """
        read busy($who: String, $n: I32)
          Scan $a: Author where $a.handle = $who
          Expand $a -$w:Wrote-> $b: Book where $w.share > 0.5 and $b.pages > $n
          Exclude
            Expand $b -Cites-> $_#1: Book
          Any of
            Filter where $b.blurb is null
          or
            Expand $b -Contains-> $d: Book where $d.title starts_with "x"
          Optional
            Expand $b -Cites{1,3}- $c: Book where $c.genre = "poetry"
          Filter where $c.title != $a.name
          GroupBy b.genre: n = count(*), #2 = avg($b.price), #3 = max($b.pages)
          Having n > 1
          Having #3 < 100
          Order by n desc, b.genre
          Offset 5
          Limit $n
          Return b.genre = b.genre, n = n, mean = round(#2, 2)
        """
    )


def test_checks_paths_and_incoming_hops():
    text = query(
        '$b: Book { isbn: "i" } $b wrote $a $a knows{2,4} $c via $r $c wrote $b', "$r.nodes, $a.*"
    )
    assert explained(text) == lines(
        """
        read q
          Scan $b: Book where $b.isbn = "i"
          Expand $b <-Wrote- $a: Author
          Expand $a -Knows{2,4}-> $c: Author via $r
          Check $c -Wrote-> $b: Book
          Return r.nodes = $r.nodes, a = $a.*
        """
    )


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        (
            'order { rrf(nearest($b.vec, "x"), bm25($b.title, $t), 7) } limit 3',
            '  Rank $b by rrf(nearest($b.vec, "x"), bm25($b.title, $t), 7), best first',
        ),
        ("order { score } limit 3", "  Rank $b by bm25($b.title, $t), worst first"),
    ],
)
def test_ranking(tail: str, shown: str):
    text = query("$b: Book", "bm25($b.title, $t) as score", "$t: String", tail)
    assert shown in explained(text).splitlines()


def test_distinct_and_order():
    text = "query q() { match { $b: Book } return distinct { $b.title } order { $b.title desc } }"
    assert explained(text).splitlines()[2:] == [
        "  Distinct",
        "  Order by b.title desc",
        "  Return b.title = $b.title",
    ]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ('$b.title = "a\\n\\"b\\""', '$b.title = "a\\n\\"b\\""'),
        ("$b.available = true", "$b.available = true"),
        ('$b.released < date("2031-04-09")', '$b.released < date("2031-04-09")'),
        (
            '$b.updated < datetime("2031-04-09T07:30:00Z")',
            '$b.updated < datetime("2031-04-09T07:30:00.000Z")',
        ),
        ("$b.updated < now()", "$b.updated < now()"),
        ("$b.pages in [1, -2]", "[1, -2] contains $b.pages"),
        ('$b.tags contains "sf"', '$b.tags contains "sf"'),
        ("$b.weight > $f", "$b.weight > f32($f)"),
        ("$b.pages is not null", "$b.pages is not null"),
        ("$b is null", "$b is null"),
        ('fuzzy($b.title, "x")', 'fuzzy($b.title, "x", 2)'),
        ('search($b.title, "x")', 'search($b.title, "x")'),
        ("($b.pages + 1) * 2 > length($b.title)", "(($b.pages + 1) * 2) > length($b.title)"),
    ],
)
def test_conditions_read_like_the_language(condition: str, shown: str):
    assert explained(query(f"$b: Book {condition}", parameters="$f: F64")).splitlines()[1] == (
        f"  Scan $b: Book where {shown}"
    )


def test_mutations():
    text = """
    query change($k: String) {
        insert Author { handle: $k, name: "x", born: null, photo: "base64:AAAA" }
        insert Author { handle: $k, name: "y", photo: "s3://bucket/x" }
        insert Knows { from: $k, to: "b", since: date("2031-04-09") }
        update Book set { updated: now() } where isbn = $k or ( pages > 3 and blurb is null )
        update Wrote set { role: null } where from = $k
    }
    """
    assert explained(text) == lines(
        """
        mutation change($k: String)
          InsertNode Author {handle: $k, name: "x", born: null, photo: <3 bytes>}
          InsertNode Author {handle: $k, name: "y", photo: "s3://bucket/x"}
          InsertEdge Knows $k -> "b" {since: date("2031-04-09")}
          UpdateNodes Book {updated: now()} where (isbn = $k) or ((pages > 3) and blurb is null)
          UpdateEdges Wrote {role: null} where src = $k
        """
    )


def test_deletes_name_the_edges_that_go_too():
    assert explained("query q() { delete Author where born is null }").splitlines()[1] == (
        "  DeleteNodes Author where born is null with edges Knows, Wrote"
    )
    assert explained('query q() { delete Cites where name = "x" }').splitlines()[1] == (
        '  DeleteNodes Cites where name = "x"'
    )
    assert explained('query q() { delete Wrote where to in ["b"] }').splitlines()[1] == (
        '  DeleteEdges Wrote where ["b"] contains dst'
    )


def test_c_qry_084_stages_come_in_their_order():
    text = """
    query prolific($n: I32) {
        match { $a: Author  $a wrote $b }
        with { $a, count(*) as books } having { books > $n }
        order { books desc } limit $n per $a limit 3
        match { $a knows $c  $c.fame > books }
        return { $a.name, books, count(*) as n }
    }
    """
    assert explained(text) == lines(
        """
        read prolific($n: I32)
          Scan $a: Author
          Expand $a -Wrote-> $b: Book
          GroupBy a: books = count(*)
          Having books > $n
          Order by books desc
          Limit $n per a
          Limit 3
          With a = a, books = books
          Expand $a -Knows-> $c: Author
          Filter where $c.fame > books
          GroupBy a.name, books: n = count(*)
          Return a.name = a.name, books = books, n = n
        """
    )


def test_c_qry_082_a_block_stands_where_its_condition_is_tested_or_else_last():
    text = """
    query busy($n: I32) {
        match {
            $a: Author
            count { $a wrote $b  $b.pages > 3 } > $n
            $a knows $c
        }
        return {
            $c.name,
            collect { $c wrote $d return { $d.title, $d.pages } order { $d.pages } limit 3 } as x
        }
    }
    """
    assert explained(text) == lines(
        """
        read busy($n: I32)
          Scan $a: Author
          Compute count#1
            Expand $a -Wrote-> $b: Book where $b.pages > 3
          Filter where count#1 > $n
          Expand $a -Knows-> $c: Author
          Compute collect#2 of d.title = $d.title, d.pages = $d.pages order by $d.pages limit 3
            Expand $c -Wrote-> $d: Book
          Return c.name = $c.name, x = collect#2
        """
    )


def test_c_qry_089_a_list_is_unnested_after_the_hops_and_before_another_scan():
    text = """
    query q() {
        match {
            $b: Book
            unnest $tag in $b.tags
            $tag != "new"
            $s: Shop
            $a wrote $b
        }
        return { $tag, $a.name, $s } order { $tag }
    }
    """
    assert explained(text) == lines(
        """
        read q
          Scan $b: Book
          Expand $b <-Wrote- $a: Author
          Unnest $tag in $b.tags
          Filter where $tag != "new"
          Scan $s: Shop
          Order by $tag
          Return tag = $tag, a.name = $a.name, s = $s
        """
    )


def test_c_qry_090_the_statements_of_a_loop_are_inside_of_it():
    text = """
    query q($books: [{ isbn: String, pages: I32? }]) {
        for $n in $books { update $b: Book set { pages: $b.pages + $n.pages } where isbn = $n.isbn }
    }
    """
    assert explained(text) == lines(
        """
        mutation q($books: [{ isbn: String, pages: I32? }])
          ForEach $n in $books
            UpdateNodes Book {pages: $b.pages + $n.pages} where isbn = $n.isbn
        """
    )

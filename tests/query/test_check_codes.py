"""Every diagnostic of the language: its code, and the words it points at."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from omnigraph.errors import QueryParseError, QueryTypeError
from omnigraph.query.compile import check_query, compile_query
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file
from tests.query.library import catalog, pointed_at, query, refusal
from tests.support.tables import check_all


class Case(NamedTuple):
    code: str | None
    text: str
    points_at: str


def match(
    code: str | None, clauses: str, points_at: str, parameters: str = "", items: str = "count(*)"
) -> Case:
    return Case(code, query(clauses, items, parameters), points_at)


def returns(
    code: str | None,
    items: str,
    points_at: str,
    parameters: str = "",
    tail: str = "",
    clauses: str = "$b: Book",
) -> Case:
    return Case(code, query(clauses, items, parameters, tail), points_at)


def orders(
    code: str | None,
    tail: str,
    points_at: str,
    items: str = "$b",
    parameters: str = "",
    clauses: str = "$b: Book",
) -> Case:
    return Case(code, query(clauses, items, parameters, tail), points_at)


def stage(code: str, items: str, points_at: str) -> Case:
    clauses = "$a $w:wrote $b $b cites{1,2} $c via $r"
    text = f"query q() {{ match {{ {clauses} }} with {{ {items} }} return {{ count(*) as n }} }}"
    return Case(code, text, points_at)


def writes(code: str | None, statement: str, points_at: str, parameters: str = "") -> Case:
    return Case(code, f"query q({parameters}) {{ {statement} }}", points_at)


BOOK = 'insert Book {{ isbn: "i" title: "t" genre: "poetry" {} }}'

CASES = {
    # T1
    "unknown node type": match("T1", "$b: Boook", "Boook"),
    "type that no variable can be": match("T5", "$b: Book  $b is Author", "Author"),
    "type test of an unknown type": match("T1", "$b: Book  $b is Boook", "Boook"),
    "type test of an unbound variable": match("T6", "$b: Book  $x is Book", "$x"),
    "edge type as node type": match("T1", "$w: Wrote", "Wrote"),
    # T2
    "inline property of no such name": match("T2", '$b: Book { titel: "x" }', "titel"),
    "inline id of a number": match("T3", "$b: Book { id: 3 }", "3"),
    # T3
    "inline literal of another type": match("T3", '$b: Book { pages: "many" }', '"many"'),
    "inline text for a date": match("T3", '$b: Book { released: "2031-04-09" }', '"2031-04-09"'),
    "inline date for a date-time": match(
        "T3", '$b: Book { updated: date("2031-04-09") }', 'date("2031-04-09")'
    ),
    "inline number for an enum": match("T3", "$b: Book { genre: 3 }", "3"),
    "inline value outside of the enum": match("T3", '$b: Book { genre: "crime" }', '"crime"'),
    "inline blob": match("T3", '$b: Book { cover: "base64:AA==" }', "cover"),
    "inline blob by parameter": match("T3", "$b: Book { cover: $c }", "cover", "$c: Blob"),
    "inline vector": match("T3", "$b: Book { vec: [1.0, 2.0, 3.0, 4.0] }", "vec"),
    "inline vector by parameter": match("T3", "$b: Book { vec: $v }", "vec", "$v: Vector(4)"),
    "inline list for a list": match("T3", '$b: Book { tags: ["a"] }', '["a"]'),
    "inline list for a scalar": match("T3", "$b: Book { pages: [1] }", "[1]"),
    "inline element of another type": match("T3", "$b: Book { tags: 3 }", "3"),
    "assigned literal of another type": writes("T3", BOOK.format('pages: "many"'), '"many"'),
    "assigned fraction for an integer": writes("T3", BOOK.format("pages: 2.5"), "2.5"),
    "assigned integer out of range": writes("T3", BOOK.format("pages: 2147483648"), "2147483648"),
    "assigned negative for unsigned": writes("T3", BOOK.format("chapters: -1"), "-1"),
    "assigned integer no float equals": writes(
        "T3", BOOK.format("price: 9007199254740993"), "9007199254740993"
    ),
    "assigned text for a date": writes("T3", BOOK.format('released: "2031-04-09"'), '"2031-04-09"'),
    "assigned value outside of the enum": writes("T3", BOOK.format('language: "fr"'), '"fr"'),
    "assigned vector of another length": writes("T3", BOOK.format("vec: [1.0, 2.0]"), "[1.0, 2.0]"),
    "assigned vector of text": writes(
        "T3", BOOK.format('vec: ["a", "b", "c", "d"]'), '["a", "b", "c", "d"]'
    ),
    "assigned scalar for a list": writes("T3", BOOK.format('tags: "sf"'), '"sf"'),
    "assigned list of another type": writes("T3", BOOK.format("tags: [1]"), "[1]"),
    "assigned list for a scalar": writes("T3", BOOK.format("pages: [1]"), "[1]"),
    "assigned number for a blob": writes("T3", BOOK.format("cover: 3"), "3"),
    "assigned bad base64": writes("T3", BOOK.format('cover: "base64:*"'), '"base64:*"'),
    "null for a required property": writes(
        "T3", 'update Book set { title: null } where isbn = "i"', "null"
    ),
    "number as endpoint": writes("T3", 'insert Wrote { from: 3 to: "b" }', "3"),
    "null as endpoint": writes("T3", 'insert Wrote { from: "a" to: null }', "null"),
    "list as endpoint": writes("T3", 'insert Wrote { from: ["a"] to: "b" }', '["a"]'),
    # T4
    "unknown edge": match("T4", "$a: Author $a rote $b", "rote"),
    "unknown edge under not": match("T4", "$a: Author not { $a rote $b }", "rote"),
    # T5
    "left end of another type": match("T5", "$s: Shop $s wrote $b", "$s"),
    "right end of another type": match("T5", "$s: Shop $a wrote $s", "$s"),
    "both ends at the source": match("T5", "$a: Author $c: Author $a wrote $c", "$c"),
    "both ends at the target": match("T5", "$b: Book $c: Book $b wrote $c", "$c"),
    "one variable at two types": match("T5", "$x wrote $x", "$x"),
    "end of another type under not": match("T5", "$s: Shop not { $s wrote $b }", "$s"),
    # T6
    "property of an unbound variable": match("T6", '$b: Book $c.title = "x"', "$c"),
    "property used before its binding": match("T6", '$b.title = "x" $b: Book', "$b"),
    "property of a variable local to not": match(
        "T6", "$a: Author not { $a wrote $b } $b.pages > 3", "$b"
    ),
    "property of a variable local to any": match(
        "T6", "$a: Author any { $a wrote $b } $b.pages > 3", "$b"
    ),
    "property of $_": match("T6", "$a: Author $a wrote $_ $_.pages > 3", "$_"),
    "property missing on a node": match("T6", "$b: Book $b.titel is null", "titel"),
    "property missing on an edge": match("T6", "$a $w:wrote $b $w.rol is null", "rol"),
    "property missing on a path": match("T6", "$a knows $b via $r $r.hops > 1", "hops"),
    "returned property of an unbound variable": returns("T6", "$c.title", "$c"),
    "returned property missing": returns("T6", "$b.titel", "titel"),
    "ordered property missing": orders("T6", "order { $b.titel }", "titel"),
    "whole entity of an unbound variable": returns("T6", "$c.*", "$c"),
    "hop to an optional variable": match(
        "T6", "$a: Author optional { $a wrote $b } $b cites $c", "$b"
    ),
    "binding of an optional variable": match(
        "T6", "$a: Author optional { $a wrote $b } $b: Book", "$b"
    ),
    # T7
    "operands of two types": match("T7", '$b: Book $b.pages = "many"', '$b.pages = "many"'),
    "date with date-time": match(
        "T7", "$b: Book $b.released = $b.updated", "$b.released = $b.updated"
    ),
    "date with text": match("T7", '$b: Book $b.released > "2031"', '$b.released > "2031"'),
    "boolean with number": match("T7", "$b: Book $b.available = 1", "$b.available = 1"),
    "parameter of another type": match("T7", "$b: Book $b.title = $n", "$b.title = $n", "$n: I32"),
    "inline parameter of another type": match("T7", "$b: Book { title: $n }", "$n", "$n: I32"),
    "list property compared": match("T7", '$b: Book $b.tags = "sf"', "$b.tags"),
    "list literal compared": match("T7", "$b: Book $b.pages = [1]", "[1]"),
    "list parameter compared": match("T7", "$b: Book $b.title = $l", "$l", "$l: [String]"),
    "inline list parameter": match("T7", "$b: Book { tags: $l }", "$l", "$l: [String]"),
    "vector compared": match("T7", "$b: Book $b.vec = $b.vec", "$b.vec"),
    "vector parameter compared": match("T7", "$b: Book $b.pages = $v", "$v", "$v: Vector(4)"),
    "inline vector parameter for a scalar": match(
        "T7", "$b: Book { pages: $v }", "$v", "$v: Vector(4)"
    ),
    "blob parameter compared": match("T7", "$b: Book $b.title = $c", "$c", "$c: Blob"),
    "inline blob parameter for a scalar": match("T7", "$b: Book { title: $c }", "$c", "$c: Blob"),
    "node compared": match("T7", "$b: Book $b = 3", "$b"),
    "entity compared": match("T7", "$b: Book $b.* = 3", "$b.*"),
    "bare null": match("T7", "$b: Book $b.pages = null", "null"),
    "bare word": match("T7", "$b: Book $b.title = title", "title"),
    "contains on a number": match("T7", "$b: Book $b.pages contains 3", "$b.pages"),
    "contains with a number": match("T7", "$b: Book $b.title contains 3", "3"),
    "contains of another type": match("T7", "$b: Book $b.tags contains 3", "3"),
    "contains with a list": match("T7", '$b: Book $b.tags contains ["a"]', '["a"]'),
    "starts_with on a number": match("T7", '$b: Book $b.pages starts_with "3"', "$b.pages"),
    "starts_with with a number": match("T7", "$b: Book $b.title starts_with 3", "3"),
    "in a scalar": match("T7", "$b: Book $b.pages in $n", "$n", "$n: I32"),
    "in a list of another type": match("T7", '$b: Book $b.pages in ["a"]', '$b.pages in ["a"]'),
    "list in a list": match("T7", "$b: Book $b.tags in $b.tags", "$b.tags"),
    "bm25 in a filter": match("T7", '$b: Book bm25($b.title, "x") > 0.5', 'bm25($b.title, "x")'),
    "nearest in a filter": match(
        "T7", '$b: Book nearest($b.vec, "x") < 0.5', 'nearest($b.vec, "x")'
    ),
    "computed rank in a filter": match(
        "T7", '$b: Book bm25($b.title, "x") * 2 > 1', 'bm25($b.title, "x")'
    ),
    "aggregate in a filter": match("T7", "$b: Book count($b) > 1", "count($b)"),
    "now against a date": match("T7", "$b: Book $b.released < now()", "$b.released < now()"),
    "inline now against a number": match("T7", "$b: Book { pages: now() }", "now()"),
    "assigned now to a date": writes("T7", BOOK.format("released: now()"), "now()"),
    "now as endpoint": writes("T7", 'insert Wrote { from: now() to: "b" }', "now()"),
    "assigned parameter of another type": writes(
        "T7", BOOK.format("pages: $n"), "$n", "$n: String"
    ),
    "assigned float parameter to an integer": writes(
        "T7", BOOK.format("pages: $n"), "$n", "$n: F64"
    ),
    "assigned list parameter to a scalar": writes(
        "T7", BOOK.format("pages: $n"), "$n", "$n: [I32]"
    ),
    "assigned vector parameter of another length": writes(
        "T7", BOOK.format("vec: $v"), "$v", "$v: Vector(3)"
    ),
    "assigned blob parameter to text": writes("T7", BOOK.format("blurb: $c"), "$c", "$c: Blob"),
    "number parameter as endpoint": writes(
        "T7", 'insert Wrote { from: $n to: "b" }', "$n", "$n: I64"
    ),
    "where of two types": writes("T7", "delete Book where pages = true", "pages = true"),
    "where on a list": writes("T7", 'delete Book where tags = "sf"', "tags"),
    "where on a vector": writes("T7", "delete Book where vec = 3", "vec"),
    "where with a list": writes("T7", "delete Book where pages = [1]", "[1]"),
    "where with a list parameter": writes("T7", "delete Book where pages = $l", "$l", "$l: [I32]"),
    "where with now": writes("T7", "delete Book where released < now()", "released < now()"),
    "where in a list of another type": writes("T7", 'delete Book where pages in ["a"]', '["a"]'),
    "where in a scalar": writes("T7", "delete Book where pages in $n", "$n", "$n: I32"),
    "arithmetic on text": match("T7", "$b: Book $b.title + 1 > 2", "$b.title"),
    "arithmetic on a list": returns("T7", "$b.tags * 2 as x", "$b.tags"),
    "index of a text": returns("T7", "$b.title[0]", "$b.title"),
    "lower of a number": returns("T7", "lower($b.pages)", "$b.pages"),
    "length of a number": returns("T7", "length($b.pages)", "$b.pages"),
    "abs of text": returns("T7", "abs($b.title)", "$b.title"),
    "round of text": returns("T7", "round($b.title)", "$b.title"),
    "round to a property": returns("T7", "round($b.price, $b.pages)", "$b.pages"),
    "round to too many digits": returns("T7", "round($b.price, 16)", "16"),
    "coalesce of two types": returns("T7", '$b, coalesce($b.pages, "none")', '"none"'),
    "coalesce of a list": returns("T7", "coalesce($b.tags, $b.tags)", "$b.tags"),
    "date_part of text": returns("T7", 'date_part("year", $b.title)', "$b.title"),
    "date_part unknown": returns("T7", 'date_part("yeer", $b.released)', '"yeer"'),
    "time part of a date": returns("T7", 'date_part("hour", $b.released)', '"hour"'),
    "date_part not literal": returns("T7", "date_part($b.title, $b.released)", "$b.title"),
    "limit of another type": orders("T7", "limit $n", "$n", parameters="$n: String"),
    "limit of a list": orders("T7", "limit $n", "$n", parameters="$n: [I32]"),
    "offset of another type": orders("T7", "limit 1 offset $n", "$n", parameters="$n: F64"),
    # T8
    "sum of text": returns("T8", "sum($b.title)", "$b.title"),
    "sum of a node": returns("T8", "sum($b)", "$b"),
    "avg of a boolean": returns("T8", "avg($b.available)", "$b.available"),
    "min of a boolean": returns("T8", "min($b.available)", "$b.available"),
    "max of a boolean": returns("T8", "max($b.available)", "$b.available"),
    "max of a list": returns("T8", "max($b.tags)", "$b.tags"),
    "collect of a list": returns("T8", "collect($b.tags)", "$b.tags"),
    "collect of a vector": returns("T8", "collect($b.vec)", "$b.vec"),
    "count of a whole entity": returns("T8", "count($b.*)", "$b.*"),
    "nested aggregate": returns("T8", "sum(count($b))", "count($b)"),
    "nested aggregate by alias": returns("T8", "count($b) as n, sum(n) as m", "n"),
    "nested aggregate in a computation": returns("T8", "sum(1 + count($b))", "count($b)"),
    # T9
    "negation without an outer variable": match(
        "T9", "$b: Book not { $a: Author }", "not { $a: Author }"
    ),
    "outer variable only in a nested negation": match(
        "T9",
        "$b: Book not { $a: Author not { $a wrote $b } }",
        "not { $a: Author not { $a wrote $b } }",
    ),
    "outer variable hidden by a parameter": match(
        "T9",
        "$b: Book not { $c: Book $c.pages = $b }",
        "not { $c: Book $c.pages = $b }",
        "$b: I32",
    ),
    "only $_ shared with the outside": match(
        "T9", "$a wrote $_ not { $_ cites $_ }", "not { $_ cites $_ }"
    ),
    "literal beside an aggregate": returns("T9", "3 as three, count(*)", "3 as three"),
    "now beside an aggregate": returns("T9", "now(), count(*)", "now()"),
    "score beside an aggregate": returns(
        "T9", 'bm25($b.title, "x"), count(*)', 'bm25($b.title, "x")'
    ),
    "test beside an aggregate": returns(
        "T9", 'search($b.title, "x"), count(*)', 'search($b.title, "x")'
    ),
    "alias beside an aggregate": returns("T9", "$b.title as t, t as u, count(*)", "t as u"),
    "entity beside an aggregate": returns("T9", "$b.*, count(*)", "$b.*"),
    "ungrouped value in a computation": returns(
        "T9", "count(*) * $b.pages as x", "count(*) * $b.pages as x"
    ),
    "ungrouped value in having": returns(
        "T9", "count(*) as n", "$b.pages > 3", tail="having { $b.pages > 3 }"
    ),
    # T10
    "insert into an unknown type": writes("T10", "insert Boook { isbn: 3 }", "Boook"),
    "update of an unknown type": writes("T10", "update Boook set { a: 3 } where b = 3", "Boook"),
    "delete from an unknown type": writes("T10", "delete Boook where b = 3", "Boook"),
    "insert into an interface": writes("T10", 'insert Named { name: "x" }', "Named"),
    "type name in another case": writes("T10", "delete BOOK where pages = 3", "BOOK"),
    # T11
    "assigned property unknown": writes("T11", BOOK.format("page: 3"), "page"),
    "assigned edge property unknown": writes(
        "T11", 'insert Wrote { from: "a" to: "b" rol: "x" }', "rol"
    ),
    "assigned id": writes("T11", BOOK.format('id: "x"'), "id"),
    "from on a node": writes("T11", BOOK.format('from: "x"'), "from"),
    "where property unknown": writes("T11", "delete Book where page = 3", "page"),
    "where from on a node": writes("T11", 'delete Book where from = "x"', "from"),
    "where property unknown in or": writes(
        "T11", "delete Book where pages = 3 or ( page = 3 and pages = 1 )", "page"
    ),
    "blob in where": writes("T11", 'delete Book where cover = "x"', "cover"),
    "blob null test in where": writes("T11", "delete Book where cover is null", "cover"),
    # T12
    "insert without a required property": writes("T12", 'insert Book { isbn: "i" }', "Book"),
    "insert without the key": writes("T12", 'insert Author { name: "x" }', "Author"),
    "insert without an interface property": writes(
        "T12", 'insert Author { handle: "x" }', "Author"
    ),
    "insert without a part of the key": writes(
        "T12", "insert Shop { code: 1 opened: now() }", "Shop"
    ),
    "insert without from": writes("T12", 'insert Wrote { to: "b" }', "Wrote"),
    "insert without to": writes("T12", 'insert Wrote { from: "a" }', "Wrote"),
    "insert without a required edge property": writes(
        "T12", 'insert Knows { from: "a" to: "b" }', "Knows"
    ),
    "insert without vector and source": writes("T12", "insert Review { stars: 3 }", "Review"),
    # T13
    "property assigned twice": writes("T13", BOOK.format('isbn: "j"'), "isbn"),
    "property updated twice": writes(
        "T13", 'update Book set { pages: 1, pages: 2 } where isbn = "i"', "pages"
    ),
    "endpoint assigned twice": writes(
        "T13", 'insert Wrote { from: "a" to: "b" from: "c" }', "from"
    ),
    # T14
    "inline variable not declared": match("T14", "$b: Book { title: $t }", "$t"),
    "inline node variable": match("T14", "$a: Author $b: Book { title: $a }", "$a"),
    "inline $_": match("T14", "$b: Book { title: $_ }", "$_"),
    "assigned variable not declared": writes("T14", BOOK.format("pages: $n"), "$n"),
    "endpoint variable not declared": writes("T14", 'insert Wrote { from: $a to: "b" }', "$a"),
    "where variable not declared": writes("T14", "delete Book where pages = $n", "$n"),
    "where list not declared": writes("T14", "delete Book where pages in $n", "$n"),
    "limit variable not declared": orders("T14", "limit $n", "$n"),
    # T15
    "hop bounds reversed": match("T15", "$a knows{3,1} $b", "{3,1}"),
    "hop bounded by a text": match("T15", "$a knows{1,$n} $b", "$n", "$n: String"),
    "hop bounded by a float": match("T15", "$a knows{$n,} $b", "$n", "$n: F64"),
    "hop bounded by a list": match("T15", "$a knows{1,$n} $b", "$n", "$n: [I32]"),
    "hop bounded by what may be null": match("T15", "$a knows{1,$n} $b", "$n", "$n: I32?"),
    "hop bounded by an undeclared parameter": match("T14", "$a knows{1,$n} $b", "$n"),
    "nearest on an unbound variable": orders("T15", 'order { nearest($c.vec, "x") } limit 1', "$c"),
    "nearest on an unknown property": orders(
        "T15", 'order { nearest($b.vek, "x") } limit 1', "vek"
    ),
    "nearest on a property that is no vector": orders(
        "T15", 'order { nearest($b.title, "x") } limit 1', "$b.title"
    ),
    "nearest with a vector of another length": orders(
        "T15", "order { nearest($b.vec, [1.0, 2.0]) } limit 1", "[1.0, 2.0]"
    ),
    "nearest with an empty vector": orders("T15", "order { nearest($b.vec, []) } limit 1", "[]"),
    "nearest with a parameter of another length": orders(
        "T15", "order { nearest($b.vec, $v) } limit 1", "$v", parameters="$v: Vector(3)"
    ),
    "nearest with a list of texts": orders(
        "T15",
        'order { nearest($b.vec, ["a", "b", "c", "d"]) } limit 1',
        '["a", "b", "c", "d"]',
    ),
    "nearest with a number": orders("T15", "order { nearest($b.vec, 3) } limit 1", "3"),
    "nearest with a property": orders(
        "T15", "order { nearest($b.vec, $b.title) } limit 1", "$b.title"
    ),
    "nearest with an undeclared variable": orders(
        "T15", "order { nearest($b.vec, $v) } limit 1", "$v"
    ),
    "nearest with a number parameter": orders(
        "T15", "order { nearest($b.vec, $v) } limit 1", "$v", parameters="$v: F32"
    ),
    # T16
    "update of an end of an edge": writes(
        "T16", 'update Wrote set { from: "x" } where role = "y"', "from"
    ),
    # T17
    "nearest without limit": orders(
        "T17", 'order { nearest($b.vec, "x") }', 'nearest($b.vec, "x")'
    ),
    "nearest with offset alone": orders(
        "T17", 'order { nearest($b.vec, "x") } offset 3', 'nearest($b.vec, "x")'
    ),
    # T18
    "alias beside nearest": orders(
        "T18", 'order { nearest($b.vec, "x"), t } limit 1', "t", items="$b.title as t"
    ),
    "nearest by alias": orders(
        "T18", "order { d } limit 1", "d", items='nearest($b.vec, "x") as d'
    ),
    "nearest by alias after another key": orders(
        "T18", "order { $b.title, d } limit 1", "d", items='nearest($b.vec, "x") as d'
    ),
    # T19
    "search of a literal": match("T19", 'search("a", "b")', '"a"'),
    "search on an unbound variable": match("T19", 'search($b.title, "b")', "$b"),
    "search on an unknown property": match("T19", '$b: Book search($b.titel, "b")', "titel"),
    "search on a number": match("T19", '$b: Book search($b.pages, "b")', "$b.pages"),
    "search on a list": match("T19", '$b: Book search($b.tags, "b")', "$b.tags"),
    "search for a number": match("T19", "$b: Book search($b.title, 3)", "3"),
    "search for a property": match("T19", "$b: Book search($b.title, $b.blurb)", "$b.blurb"),
    "search for an undeclared variable": match("T19", "$b: Book search($b.title, $t)", "$t"),
    "search for a list": match("T19", "$b: Book search($b.title, $t)", "$t", "$t: [String]"),
    "search compared with false": match(
        "T19", '$b: Book search($b.title, "b") = false', 'search($b.title, "b") = false'
    ),
    "search compared by !=": match(
        "T19", '$b: Book search($b.title, "b") != true', 'search($b.title, "b") != true'
    ),
    "search on the right": match(
        "T19", '$b: Book true = search($b.title, "b")', 'true = search($b.title, "b")'
    ),
    "search compared with a parameter": match(
        "T19",
        '$b: Book search($b.title, "b") = $f',
        'search($b.title, "b") = $f',
        "$f: Bool",
    ),
    "fuzzy with a negative distance": match("T19", '$b: Book fuzzy($b.title, "b", -1)', "-1"),
    "fuzzy with a fraction": match("T19", '$b: Book fuzzy($b.title, "b", 1.5)', "1.5"),
    "fuzzy with a text distance": match("T19", '$b: Book fuzzy($b.title, "b", "1")', '"1"'),
    "fuzzy with a property distance": match(
        "T19", '$b: Book fuzzy($b.title, "b", $b.pages)', "$b.pages"
    ),
    "fuzzy compared with false": match(
        "T19", '$b: Book fuzzy($b.title, "b") = false', 'fuzzy($b.title, "b") = false'
    ),
    # T20
    "match_text on a number": match("T20", '$b: Book match_text($b.pages, "b")', "$b.pages"),
    "match_text for a number": match("T20", "$b: Book match_text($b.title, 3)", "3"),
    "match_text compared with false": match(
        "T20", '$b: Book match_text($b.title, "b") = false', 'match_text($b.title, "b") = false'
    ),
    "bm25 on a number": orders("T20", 'order { bm25($b.pages, "x") }', "$b.pages"),
    "bm25 for a property": orders("T20", "order { bm25($b.title, $b.blurb) }", "$b.blurb"),
    "bm25 on an unbound variable": orders("T20", 'order { bm25($c.title, "x") }', "$c"),
    # T21
    "rrf without limit": orders(
        "T21",
        'order { rrf(nearest($b.vec, "x"), bm25($b.title, "x")) }',
        'rrf(nearest($b.vec, "x"), bm25($b.title, "x"))',
    ),
    "rrf by alias without limit": orders(
        "T21",
        "order { s desc }",
        "s desc",
        items='rrf(nearest($b.vec, "x"), bm25($b.title, "x")) as s',
    ),
    "rrf with a fraction": orders(
        "T21", 'order { rrf(bm25($b.blurb, "x"), bm25($b.title, "x"), 1.5) } limit 1', "1.5"
    ),
    "rrf with zero": orders(
        "T21", 'order { rrf(bm25($b.blurb, "x"), bm25($b.title, "x"), 0) } limit 1', "0"
    ),
    "rrf with a negative number": orders(
        "T21", 'order { rrf(bm25($b.blurb, "x"), bm25($b.title, "x"), -3) } limit 1', "-3"
    ),
    "rrf with a property": orders(
        "T21",
        'order { rrf(bm25($b.blurb, "x"), bm25($b.title, "x"), $b.pages) } limit 1',
        "$b.pages",
    ),
    "rrf over two variables": orders(
        "T21",
        'order { rrf(bm25($b.title, "x"), bm25($c.title, "x")) } limit 1',
        'rrf(bm25($b.title, "x"), bm25($c.title, "x"))',
        clauses="$b: Book $c: Book",
    ),
    "rrf returned and not ordered by": orders(
        "T21",
        "order { $b.title } limit 1",
        'rrf(nearest($b.vec, "x"), bm25($b.title, "x")) as s',
        items='rrf(nearest($b.vec, "x"), bm25($b.title, "x")) as s',
    ),
    "rrf returned beside another rrf": orders(
        "T21",
        'order { rrf(bm25($b.blurb, "x"), bm25($b.title, "x")) } limit 1',
        'rrf(bm25($b.blurb, "y"), bm25($b.title, "x")) as s',
        items='rrf(bm25($b.blurb, "y"), bm25($b.title, "x")) as s',
    ),
    "rrf computed and not ordered by": orders(
        "T21",
        "limit 1",
        'rrf(bm25($b.blurb, "x"), bm25($b.title, "x")) * 2 as s',
        items='rrf(bm25($b.blurb, "x"), bm25($b.title, "x")) * 2 as s',
    ),
    "rrf aggregated": returns(
        "T21",
        'max(rrf(bm25($b.blurb, "x"), bm25($b.title, "x"))) as s',
        'max(rrf(bm25($b.blurb, "x"), bm25($b.title, "x"))) as s',
    ),
    # T22
    "undirected hop between two types": match("T22", "$a: Author $a <wrote> $b", "wrote"),
    # T23
    "edge binding with bounds": match("T23", "$a $k:knows{1,2} $b", "{1,2}"),
    "edge binding with open bounds": match("T23", "$a $k:knows{1,} $b", "{1,}"),
    "edge binding with a parameter": match("T23", "$a $k:knows{1,$n} $b", "{1,$n}", "$n: I32"),
    "edge binding with a used name": match("T23", "$a: Author $a $a:knows $b", "$a"),
    "edge binding with the name of its end": match("T23", "$a $b:knows $b", "$b"),
    "edge binding with the name of another edge": match(
        "T23", "$a $k:knows $b $b $k:knows $c", "$k"
    ),
    "edge binding with the name of a parameter": match("T23", "$a $k:knows $b", "$k", "$k: String"),
    "edge compared": match("T23", "$a $k:knows $b $k = 3", "$k"),
    "edge tested for null": match("T23", "$a $k:knows $b $k is null", "$k"),
    "edge returned": returns("T23", "$k", "$k", clauses="$a $k:knows $b"),
    "edge summed": returns("T23", "sum($k)", "$k", clauses="$a $k:knows $b"),
    "edge as left end": match("T23", "$a $k:knows $b $k knows $c", "$k"),
    "edge as right end": match("T23", "$a $k:knows $b $c knows $k", "$k"),
    "edge as node": match("T23", "$a $k:knows $b $k: Author", "$k"),
    "edge searched": match("T23", '$a $w:wrote $b search($w.role, "x")', "$w.role"),
    "edge matched": match("T23", '$a $w:wrote $b match_text($w.role, "x")', "$w.role"),
    "edge matched loosely": match("T23", '$a $w:wrote $b fuzzy($w.role, "x")', "$w.role"),
    "edge ranked": orders(
        "T23", 'order { bm25($w.role, "x") }', "$w.role", clauses="$a $w:wrote $b"
    ),
    "edge ranked by distance": orders(
        "T23", 'order { nearest($w.role, "x") } limit 1', "$w.role", clauses="$a $w:wrote $b"
    ),
    "path with a used name": match("T23", "$a knows $b via $a", "$a"),
    "path without a name": match("T23", "$a knows $b via $_", "$_"),
    "path beside an edge binding": match("T23", "$a $k:knows $b via $r", "$r"),
    "path returned": returns("T23", "$r", "$r", clauses="$a knows $b via $r"),
    "path as an entity": returns("T23", "$r.*", "$r", clauses="$a knows $b via $r"),
    "path as an end": match("T23", "$a knows $b via $r $r knows $c", "$r"),
    "path searched": match("T23", '$a knows $b via $r search($r.nodes, "x")', "$r.nodes"),
    # T24
    "blob in a filter": match("T24", '$b: Book $b.cover = "x"', "$b.cover"),
    "blob of an edge in a filter": match("T24", '$a $w:wrote $b $w.contract = "x"', "$w.contract"),
    "blob tested for null": match("T24", "$b: Book $b.cover is null", "$b.cover"),
    "blob returned": returns("T24", "$b.cover", "$b.cover"),
    "blob parameter returned": returns("T24", "$c", "$c", "$c: Blob"),
    "list of blobs returned": returns("T24", "$c", "$c", "$c: [Blob]"),
    "blob ordered": orders("T24", "order { $b.cover }", "$b.cover"),
    "order by a blob parameter": orders("T24", "order { $c }", "$c", parameters="$c: Blob"),
    "order by a list of blobs": orders("T24", "order { $c desc }", "$c", parameters="$c: [Blob]"),
    "blob counted": returns("T24", "count($b.cover)", "$b.cover"),
    "blob collected": returns("T24", "collect($b.cover)", "$b.cover"),
    "blob parameter counted": returns("T24", "count($c)", "$c", "$c: Blob"),
    "blob in a computation": returns("T24", "length($b.cover)", "$b.cover"),
    # T25
    "alias unknown in order": orders("T25", "order { titel }", "titel", items="$b.title as title"),
    "alias unknown in return": returns("T25", "titel", "titel"),
    "alias used before its item": returns("T25", "t as u, $b.title as t", "t"),
    "alias unknown in having": returns("T25", "count(*) as n", "m", tail="having { m > 1 }"),
    "order by a node": orders("T25", "order { $b }", "$b"),
    "order by a parameter": orders("T25", "order { $p }", "$p", parameters="$p: I32"),
    "order by a literal": orders("T25", "order { 3 }", "3"),
    "order by an aggregate": orders(
        "T25", "order { count(*) desc }", "count(*) desc", items="$b.title, count(*)"
    ),
    "order by a computation": orders("T25", "order { $b.pages + 1 }", "$b.pages + 1"),
    "order by a text predicate": orders(
        "T25", 'order { search($b.title, "x") }', 'search($b.title, "x")'
    ),
    "order by a list": orders("T25", "order { $b.tags }", "$b.tags"),
    "order by a vector": orders("T25", "order { $b.vec }", "$b.vec"),
    "order by a list alias": orders("T25", "order { t }", "t", items="$b.tags as t"),
    "order by a collected alias": orders("T25", "order { t }", "t", items="collect($b.title) as t"),
    "order by an entity": orders("T25", "order { whole }", "whole", items="$b.* as whole"),
    "order by the nodes of a path": orders(
        "T25", "order { $r.nodes }", "$r.nodes", items="$r.length", clauses="$a knows $b via $r"
    ),
    "rank after the first key": orders(
        "T25",
        'order { $b.title, bm25($b.title, "x") }',
        'bm25($b.title, "x")',
    ),
    "rrf alias after the first key": orders(
        "T25",
        "order { $b.title, s } limit 1",
        "s",
        items='rrf(bm25($b.blurb, "x"), bm25($b.title, "x")) as s',
    ),
    "rank in an aggregate query": orders(
        "T25",
        'order { bm25($b.title, "x") }',
        'bm25($b.title, "x")',
        items="$b.title, count(*)",
    ),
    "order by what is not grouped": orders(
        "T25", "order { $b.pages }", "$b.pages", items="$b.title, count(*)"
    ),
    "order by what is not distinct": Case(
        "T25",
        "query q() { match { $b: Book } return distinct { $b.title } order { $b.pages } }",
        "$b.pages",
    ),
    "having on what is not returned": returns(
        "T25", "$b.title", "$b.pages > 3", tail="having { $b.pages > 3 }"
    ),
    "order of a block by a computation": returns(
        "T25",
        "collect { $b cites $c return { $c.title } order { $c.pages + 1 } } as xs",
        "$c.pages + 1",
    ),
    "distinct list ordered by what it does not have": returns(
        "T25",
        "collect { $b cites $c return distinct { $c.title } order { $c.pages } } as xs",
        "$c.pages",
    ),
    "order by a list of records": orders(
        "T25",
        "order { xs }",
        "xs",
        items="collect { $b cites $c return { $c.title, $c.pages } } as xs",
    ),
    "block in having": returns(
        "T25", "$b.title", "count { $b cites $c } > 1", tail="having { count { $b cites $c } > 1 }"
    ),
    "limit of groups without an order": returns(
        "T25", "$b.title", "1 per $b.pages", tail="limit 1 per $b.pages"
    ),
    "limit per computation": orders(
        "T25", "order { $b.title } limit 1 per $b.pages + 1", "$b.pages + 1"
    ),
    "limit per unknown alias": orders("T25", "order { $b.title } limit 1 per nobody", "nobody"),
    "limit per list": orders("T25", "order { $b.title } limit 1 per $b.tags", "$b.tags"),
    "limit of groups per what they do not return": orders(
        "T25", "order { n } limit 1 per $b", "$b", items="$b.title, count(*) as n"
    ),
    # T26
    "item of a block twice": returns(
        "T26", "collect { $b cites $c return { $c.title, $c.title } } as xs", "$c.title"
    ),
    "output key twice": returns("T26", "$b.title, $b.title", "$b.title"),
    "alias twice": returns("T26", "$b.title as x, $b.pages as x", "x"),
    "property beside its unaliased aggregate": returns(
        "T26", "$b.pages, count($b.pages)", "count($b.pages)"
    ),
    "node beside its entity": returns("T26", "$b, $b.*", "$b.*"),
    "two literals": returns("T26", "1, 2", "2"),
    "alias item without a new name": returns("T26", "$b.title as t, t", "t"),
    "alias equal to a key": returns("T26", "$b, $b.title as b", "b"),
    "parameter declared twice": Case(
        "T26", "query q($p: I32, $p: String) { match { $b: Book } return { $b } }", "$p: String"
    ),
    # T27
    "edge handed on": stage("T27", "$a, $w", "$w"),
    "path handed on": stage("T27", "$r", "$r"),
    "whole entity handed on": stage("T27", "$a.*", "$a.*"),
    "value handed on without a name": stage("T27", "$a, $a.name", "$a.name"),
    "aggregate handed on without a name": stage("T27", "$a, count(*)", "count(*)"),
    "variable handed on under another name": stage("T27", "$a as x", "$a as x"),
    # T28
    "sum of nothing": returns("T28", "sum { $b cites $c } as n", "sum { $b cites $c }"),
    "two items to add": returns(
        "T28",
        "sum { $b cites $c return { $c.pages, $c.sold } } as n",
        "sum { $b cites $c return { $c.pages, $c.sold } }",
    ),
    "existence of values": returns(
        "T28",
        "exists { $b cites $c return { $c.pages } } as n",
        "exists { $b cites $c return { $c.pages } }",
    ),
    "limit of a count": returns(
        "T28",
        "count { $b cites $c return { $c.pages } limit 3 } as n",
        "count { $b cites $c return { $c.pages } limit 3 }",
    ),
    "order of a sum": returns(
        "T28",
        "sum { $b cites $c return { $c.pages } order { $c.title } } as n",
        "sum { $b cites $c return { $c.pages } order { $c.title } }",
    ),
    "list of vectors": returns(
        "T28", "collect { $b cites $c return { $c.vec } } as n", "$c.vec", clauses="$b: Book"
    ),
    # without a code
    "reserved parameter": match(
        None, "$b: Book", "$__nanograph_now: DateTime", "$__nanograph_now: DateTime"
    ),
    "anonymous parameter": match(None, "$b: Book", "$_: I32", "$_: I32"),
    "vector parameter without dimensions": match(
        None, "$b: Book", "$v: Vector(0)", "$v: Vector(0)"
    ),
    "vector parameter with too many dimensions": match(
        None, "$b: Book", "$v: Vector(2147483648)", "$v: Vector(2147483648)"
    ),
    "rebinding to another type": match(None, "$b: Book $b: Author", "$b"),
    "rebinding of what a hop typed": match(None, "$a wrote $b $b: Author", "$b"),
    "rebinding under not": match(None, "$b: Book not { $b: Author }", "$b"),
    "binding of $_": match(None, "$_: Book", "$_"),
    "bare unbound variable": match(None, "$b: Book $b.title = $t", "$t"),
    "bare unbound variable tested for null": match(None, "$b: Book $t is null", "$t"),
    "bare unbound variable returned": returns(None, "$t", "$t"),
    "bare $_ returned": returns(None, "$_", "$_", clauses="$a wrote $_"),
    "nested list": match(None, "$b: Book $b.pages in [[1]]", "[1]"),
    "mixed list": match(None, '$b: Book $b.pages in [1, "a"]', '[1, "a"]'),
    "list of integers no float equals": match(
        None, "$b: Book $b.sold in [9007199254740993, 0.5]", "[9007199254740993, 0.5]"
    ),
    "mixed list assigned": writes(None, BOOK.format('tags: ["a", 1]'), '["a", 1]'),
    "computed item without a name": returns(None, "$b.pages + 1", "$b.pages + 1"),
    "assignment to the key": writes(None, 'update Book set { isbn: "j" } where isbn = "i"', "isbn"),
    "inserts and deletes mixed": Case(
        None,
        'query both() { insert Cites { name: "x" } delete Book where pages = 3 }',
        "both",
    ),
}


def test_c_qry_075_every_condition_has_its_code_and_its_place():
    def check(case: Case) -> None:
        error = refusal(case.text)
        assert error.diagnostic == case.code
        assert pointed_at(error, case.text) == case.points_at
        label = f"type error: {case.code}: " if case.code else "type error: "
        assert error.message == label + error.reason

    check_all(CASES, check)


def test_c_qry_075_every_code_is_reachable():
    assert {case.code for case in CASES.values()} - {None} == {f"T{n}" for n in range(1, 29)}


def test_positions_count_bytes_behind_letters_of_several_bytes():
    text = 'query q() { match { $b: Book { title: "größe ✓", titel: 3 } } return { $b } }'
    error = refusal(text)
    assert pointed_at(error, text) == "titel"
    assert error.position is not None
    assert text[error.position.column - 1 :].startswith("titel")


@pytest.mark.parametrize("statement", ["insert Book {}", "update Book set {} where pages = 3"])
def test_no_assignments_do_not_parse(statement: str):
    with pytest.raises(QueryParseError):
        compile_query(f"query q() {{ {statement} }}", catalog())


@pytest.mark.parametrize(
    "text",
    [
        'query q() { insert Book { isbn: "i" } }',
        'query q() { update Book set { pages: 3 } where isbn = "i" }',
        'query q() { insert Wrote { from: "a" to: "b" } }',
    ],
)
def test_no_assignments_in_a_tree_give_t10(text: str):
    """The grammar has no empty statement, but a program may build one."""
    file = parse_query_file(text)
    (parsed,) = file.queries
    assert isinstance(parsed.body, ast.WriteBody)
    (statement,) = parsed.body.statements
    assert isinstance(statement, ast.Insert | ast.Update)
    emptied = replace(parsed, body=ast.WriteBody((replace(statement, assignments=()),)))
    with pytest.raises(QueryTypeError) as caught:
        check_query(emptied, file.source, catalog())
    assert caught.value.diagnostic == "T10"

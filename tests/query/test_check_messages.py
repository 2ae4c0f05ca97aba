"""Errors as people see them: a sentence, the place, and the next step."""

# ruff: noqa: E501 - lines stand here as they are printed

from __future__ import annotations

import pytest

from tests.query.library import refusal

# Each entry is a query and what is printed for it.
MESSAGES = {
    "misspelt type": (
        """\
query q() {
    match { $b: Boook }
    return { $b.title }
}
""",
        """\
<input>:2:17: type error: T1: unknown node type `Boook`
  |
2 |     match { $b: Boook }
  |                 ^^^^^
hint: did you mean `Book`?
""",
    ),
    "undeclared variable in a pair": (
        """\
query q($who: String) {
    match {
        $a: Author { handle: $whom }
        $a wrote $b
    }
    return { $b.title }
}
""",
        """\
<input>:3:30: type error: T14: `$whom` is not a declared parameter
  |
3 |         $a: Author { handle: $whom }
  |                              ^^^^^
hint: did you mean `$who`?
""",
    ),
    "hop from the wrong type": (
        """\
query q() {
    match { $b: Book  $s: Shop  $s wrote $b }
    return { $b.title }
}
""",
        """\
<input>:2:33: type error: T5: edge Wrote goes from Author to Book; `$s` is a Shop
  |
2 |     match { $b: Book  $s: Shop  $s wrote $b }
  |                                 ^^
""",
    ),
    "text against a date": (
        """\
query q() {
\tmatch { $b: Book  $b.released > "2031-04-09" }
\treturn { $b.title }
}
""",
        """\
<input>:2:20: type error: T7: cannot compare Date? with String
  |
2 | \tmatch { $b: Book  $b.released > "2031-04-09" }
  | \t                  ^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: write a date as `date("2031-04-09")`
""",
    ),
    "negation on its own": (
        """\
query q() {
    match {
        $a: Author
        not { $b: Book }
    }
    return { $a.name }
}
""",
        """\
<input>:4:9: type error: T9: `not { … }` must mention a variable bound outside of it
  |
4 |         not { $b: Book }
  |         ^^^^^^^^^^^^^^^^
hint: without one it would keep or drop every row alike
""",
    ),
    "hop from an optional variable": (
        """\
query q() {
    match { $a: Author  optional { $a wrote $b }  $b cites $c }
    return { $a.name, $b.title }
}
""",
        """\
<input>:2:51: type error: T6: `$b` is only bound inside `optional`
  |
2 |     match { $a: Author  optional { $a wrote $b }  $b cites $c }
  |                                                   ^^
hint: put this clause into that block, or bind the variable before it
""",
    ),
    "constant beside an aggregate": (
        """\
query q() {
    match { $b: Book }
    return { $b.title, count(*) as n, now() as at }
}
""",
        """\
<input>:3:39: type error: T9: beside an aggregate an item must be a property, a variable, or computed from them
  |
3 |     return { $b.title, count(*) as n, now() as at }
  |                                       ^^^^^^^^^^^
""",
    ),
    "property written as an alias": (
        """\
query q() {
    match { $b: Book }
    return { $b.title }
    order { title }
}
""",
        """\
<input>:4:13: type error: T25: no return item is called `title`
  |
4 |     order { title }
  |             ^^^^^
hint: write the property as `$b.title`
""",
    ),
    "nearest without a limit": (
        """\
query q($text: String) {
    match { $b: Book }
    return { $b.title }
    order { nearest($b.vec, $text) }
}
""",
        """\
<input>:4:13: type error: T17: ordering by `nearest` needs a limit
  |
4 |     order { nearest($b.vec, $text) }
  |             ^^^^^^^^^^^^^^^^^^^^^^
hint: add `limit 10` at the end
""",
    ),
    "edge binding with bounds": (
        """\
query q() {
    match { $a: Author  $a $k:knows{1,3} $b }
    return { $b.name }
}
""",
        """\
<input>:2:36: type error: T23: edge binding `$k` stands for one edge and allows no bounds
  |
2 |     match { $a: Author  $a $k:knows{1,3} $b }
  |                                    ^^^^^
hint: use `via $path` to see the nodes along the way
""",
    ),
    "incomplete insert": (
        """\
query add($isbn: String, $title: String) {
    insert Book { isbn: $isbn, title: $title }
}
""",
        """\
<input>:2:12: type error: T12: insert of Book must provide non-nullable property `genre`
  |
2 |     insert Book { isbn: $isbn, title: $title }
  |            ^^^^
hint: add `genre: …` of type enum(fiction, poetry, science)
""",
    ),
    "value outside of an enum": (
        """\
query add($isbn: String) {
    insert Book { isbn: $isbn, title: "Größe", genre: "crime" }
}
""",
        """\
<input>:2:55: type error: T3: 'crime' is not a value of Book.genre
  |
2 |     insert Book { isbn: $isbn, title: "Größe", genre: "crime" }
  |                                                       ^^^^^^^
hint: expected one of fiction, poetry, science
""",
    ),
    "inserts and deletes mixed": (
        """\
query swap($isbn: String) {
    insert Book { isbn: $isbn, title: "t", genre: "poetry" }
    delete Wrote where to = $isbn
}
""",
        """\
<input>:1:7: type error: mutation 'swap' on the same query mixes inserts/updates and deletes; split it into one query that inserts and updates and one that deletes
  |
1 | query swap($isbn: String) {
  |       ^^^^
hint: to land both together, write them to a branch and merge it
""",
    ),
    "blob returned": (
        """\
query q() {
    match { $b: Book }
    return { $b.cover }
}
""",
        """\
<input>:3:14: type error: T24: `$b.cover` is a Blob and cannot be used here
  |
3 |     return { $b.cover }
  |              ^^^^^^^^
hint: fetch it with `omnigraph blob get`
""",
    ),
    "text predicate negated by comparison": (
        """\
query q($q: String) {
    match { $b: Book  search($b.title, $q) = false }
    return { $b.title }
}
""",
        """\
<input>:2:23: type error: T19: `search(…)` is a test: write it alone or as `search(…) = true`
  |
2 |     match { $b: Book  search($b.title, $q) = false }
  |                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
hint: to keep what does not match, put it inside `not { … }`
""",
    ),
}


@pytest.mark.parametrize(("text", "printed"), MESSAGES.values(), ids=MESSAGES.keys())
def test_rendered_error(text: str, printed: str):
    assert refusal(text).render() + "\n" == printed


@pytest.mark.parametrize(("text", "printed"), MESSAGES.values(), ids=MESSAGES.keys())
def test_error_travels_as_data(text: str, printed: str):
    error = refusal(text)
    envelope = error.envelope()
    assert envelope["error"] == error.message
    assert envelope["code"] == "bad_request"
    assert envelope.get("diagnostic") == error.diagnostic
    assert envelope.get("hint") == error.hint
    line, column = map(int, printed.split(":")[1:3])
    assert (envelope["position"]["line"], envelope["position"]["column"]) == (line, column)

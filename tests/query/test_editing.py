"""The language service: what an editor asks about a text while it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.model.editing import Language
from omnigraph.query.editing import Document

ROOT = Path(__file__).parents[2]
SCHEMA = """node Person @description("Somebody") {
    name: String @key
    age: I32? @description("In years")
}
edge Knows: Person -> Person { since: Date? }
"""
QUERY = """query friends($name: String) {
    match {
        $p: Person { name: $name }
        $p $k:knows $f
    }
    return { $p.age, $k.since }
}
"""


def at(text: str, mark: str = "|") -> tuple[str, int]:
    """A text without its mark, and where the mark was."""
    return text.replace(mark, ""), text.index(mark)


def labels(text: str, language: Language = "gq") -> list[str]:
    written, offset = at(text)
    found = Document(written, language, SCHEMA).complete(offset)
    return [each.label for each in found]


# --- problems -------------------------------------------------------------------------------------


def test_every_problem_of_a_text_has_its_place():
    queries = ("query a { match { $p: Persn } return { $p } }", "query b {", *QUERY.split("\n")[1:])
    text = "\n".join(queries).replace("$p.age", "$p.x").replace("{ name: $name }", "")
    first, second = Document(text, "gq", SCHEMA).diagnostics()
    assert (first.place.line, first.place.column, first.severity) == (1, 23, "error")
    assert first.place.end_column == 23 + len("Persn") and "Person" in (first.hint or "")
    assert (second.place.line, second.place.column) == (7, 17)
    assert Document(QUERY, "gq", SCHEMA).diagnostics() == ()
    broken = Document("query a { match", "gq")
    assert [each.place.line for each in broken.diagnostics()] == [1]
    assert Document("query a { match { $p: Persn } return { $p } }", "gq").diagnostics() == ()
    schema = Document("node A { a: Vector(0) }\nedge E: A -> B\n", "pg").diagnostics()
    assert [each.place.line for each in schema] == [1, 2]


# --- completions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("query q { match { $p: |", ["Person"]),
        ("query q { match { $p: Per|", ["Person"]),
        ("query q { match { $p: Person } return { $p.|", ["age", "name"]),
        ("query q { match { $p: Person } return { $p.na| } }", ["age", "name"]),
        ("query q { match { $a $k:knows $b } return { $k.|", ["since"]),
        ("query q { match { $p: Person { |", ["age", "name"]),
        ("query q { insert |", ["Person", "Knows"]),
        ("|", ["query"]),
    ],
)
def test_what_may_come_next(text: str, expected: list[str]):
    assert labels(text) == expected


def test_edges_parameters_variables_and_words_are_offered_where_they_fit():
    assert labels("query q { match { $p: Person $p |")[:2] == ["knows", "is"]
    assert "String" in labels("query q($n: |")
    offered = labels("query q($n: String) { match { $p: Person } return { |")
    assert offered[:2] == ["$n", "$p"]
    assert {"count", "search", "phrase", "text_query", "highlight"} <= set(offered)
    assert labels("node A @|", "pg")[0] == "key"
    assert {"String", "A"} <= set(labels("node A { a: |", "pg"))
    assert labels("|", "pg")[:2] == ["node", "edge"]


# --- meanings and declarations --------------------------------------------------------------------


def shown(text: str) -> str | None:
    written, offset = at(text)
    found = Document(written, "gq", SCHEMA).hover(offset)
    return None if found is None else found.text


def test_names_are_explained_and_found():
    assert shown(QUERY.replace("$p: Per", "$p: Pe|r")) == (
        "node Person\nSomebody\nage: I32? — In years\nname: String"
    )
    assert shown(QUERY.replace("$p.age", "$p.a|ge")) == "age: I32? — In years"
    assert shown(QUERY.replace("knows", "kno|ws")) == "edge Knows: Person -> Person\nsince: Date?"
    assert shown(QUERY.replace("{ $p.age", "{ $|p.age")) == "$p: node Person"
    assert shown(QUERY.replace("match", "ma|tch")) is None
    for mark, expected in (
        ("$p: Per|son", ("schema", 1, 6)),
        ("$p.a|ge", ("schema", 3, 5)),
        ("kno|ws", ("schema", 5, 6)),
        ("$k.sin|ce", ("schema", 5, 32)),
        ("$|p.age", ("text", 3, 9)),
    ):
        written, offset = at(QUERY.replace(mark.replace("|", ""), mark, 1))
        found = Document(written, "gq", SCHEMA).definition(offset)
        assert found is not None, mark
        assert (found.document, found.place.line, found.place.column) == expected
    written, offset = at(SCHEMA.replace("-> Person", "-> Per|son"))
    there = Document(written, "pg").definition(offset)
    assert there is not None and (there.document, there.place.line) == ("text", 1)


@given(st.integers(0, len(QUERY)), st.integers(0, len(QUERY)), st.sampled_from(("gq", "pg")))
def test_a_text_cut_anywhere_has_an_answer(start: int, end: int, language: Language):
    text = QUERY[:start] + QUERY[max(start, end) :]
    document = Document(text, language, SCHEMA)
    line, column = document._position(start)
    answer = document.answer(line, column)
    assert document.offset(line, column) == start
    assert type(answer).from_dict(json.loads(json.dumps(answer.to_dict()))) == answer


# --- the grammar for editors ----------------------------------------------------------------------

EXTENSION = ROOT / "editors" / "vscode"


def grammar(language: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (EXTENSION / "syntaxes" / f"{language}.tmLanguage.json").read_text()
    )
    return found


def rules(document: dict[str, Any], patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for each in patterns:
        if "include" in each:
            found += rules(document, document["repository"][each["include"][1:]]["patterns"])
        else:
            found.append(each)
    return found


def scopes(document: dict[str, Any], text: str) -> list[tuple[str, str]]:
    """The pieces of a text with their scopes, as an editor colours them."""
    known = rules(document, document["patterns"])
    starts = [
        (re.compile(rule.get("match") or rule["begin"], re.MULTILINE), rule) for rule in known
    ]
    found, at = [], 0
    while at < len(text):
        hits = [
            (hit.start(), n, hit) for n, (p, _) in enumerate(starts) if (hit := p.search(text, at))
        ]
        if not hits:
            break
        _, number, hit = min(hits, key=lambda each: each[:2])
        rule, end = starts[number][1], hit.end()
        if "end" in rule:
            inner = "|".join([rule["end"], *(p["match"] for p in rule.get("patterns", []))])
            close = re.compile(rule["end"])
            while (piece := re.compile(inner).search(text, end)) is not None:
                end = piece.end()
                if close.fullmatch(piece[0]):
                    break
            found.append((text[hit.start() : end], rule["name"]))
        elif "name" in rule:
            found.append((hit[0], rule["name"]))
        else:
            found += [(hit[int(n)], cap["name"]) for n, cap in rule["captures"].items()]
        at = max(end, hit.start() + 1)
    return found


def test_the_grammars_colour_the_examples():
    for path in sorted((ROOT / "examples").rglob("*.[gp][qg]")):
        coloured = scopes(grammar(path.suffix[1:]), path.read_text())
        names = {name.split(".")[0] for _, name in coloured}
        assert {"comment", "entity", "keyword"} <= names, path
        text = path.read_text()
        assert sum(name == "comment.line.double-slash" for _, name in coloured) >= text.count(
            "\n//"
        )


def test_the_grammars_tell_the_parts_of_a_text_apart():
    query = dict(scopes(grammar("gq"), QUERY))
    assert query["friends"] == "entity.name.function"
    assert query["Person"] == "entity.name.type"
    assert query["$name"] == "variable.other"
    assert query["match"] == "keyword.control"
    schema = dict(scopes(grammar("pg"), SCHEMA + "// end"))
    assert schema["node"] == "keyword.declaration"
    assert schema["age"] == "variable.other.property"
    assert schema["@key"] == "storage.modifier.annotation"
    assert schema['"In years"'] == "string.quoted.double"
    assert schema["// end"] == "comment.line.double-slash"


def test_the_extension_names_files_that_exist():
    package = json.loads((EXTENSION / "package.json").read_text())
    contributed = package["contributes"]
    for each in contributed["grammars"]:
        document = json.loads((EXTENSION / each["path"]).read_text())
        assert document["scopeName"] == each["scopeName"]
    for each in contributed["languages"]:
        assert json.loads((EXTENSION / each["configuration"]).read_text())["comments"]

"""The one layout of `.pg` and `.gq` texts."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryParseError, SchemaParseError
from omnigraph.model.editing import Language
from omnigraph.syntax.formatting import format_text, language_of
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.schema_parser import parse_schema
from omnigraph.syntax.tokens import Source, Span

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("examples", "bench")
    for path in (ROOT / folder).rglob("*.[gp][qg]")
    if path.suffix in (".gq", ".pg")
)


def meaning(text: str, language: Language) -> Any:
    """The syntax tree without positions."""
    tree = parse_query_file(text) if language == "gq" else parse_schema(text)
    return _without_places(tree)


def _without_places(value: Any) -> Any:
    if isinstance(value, Span | Source):
        return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return type(value).__name__, [_without_places(getattr(value, f.name)) for f in fields]
    if isinstance(value, tuple):
        return type(value).__name__, [_without_places(each) for each in value]
    return value


def comments(text: str) -> list[str]:
    return [line.partition("//")[2].strip() for line in text.splitlines() if "//" in line]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_our_own_files_have_the_one_layout(path: Path):
    text = path.read_text()
    assert format_text(text, language_of(path.name)) == text


@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_formatting_changes_no_meaning_and_happens_once(path: Path, seed: int):
    """However the white space of a text is, also in places that tear nothing apart."""
    language, dice = language_of(path.name), random.Random(seed)
    lines = []
    for line in path.read_text().splitlines():
        lines += [""] * dice.choice((0, 0, 0, 1, 3))
        indented = " " * dice.randrange(9) + line.lstrip() + " " * dice.randrange(3)
        outside = "//" not in line and '"' not in line and "/*" not in line
        lines.append(indented.replace(" ", dice.choice((" ", "  ", "\t"))) if outside else indented)
    text = dice.choice(("\n", "\r\n")).join(lines)
    formatted = format_text(text, language)
    assert format_text(formatted, language) == formatted
    assert meaning(formatted, language) == meaning(text, language)
    assert comments(formatted) == comments(text)
    if "/*" not in text:
        assert not any(line != line.rstrip() for line in formatted.splitlines())


@pytest.mark.parametrize(
    ("language", "given", "expected"),
    [
        ("pg", "node A{name:String@key}", "node A { name: String@key }\n"),
        (
            "pg",
            'node   A\n@description("x")\n{\n\n\nname :  String   @key // the key\n\n}\n\n\n',
            'node A\n    @description("x")\n{\n    name: String  @key // the key\n}\n',
        ),
        ("pg", "edge E:A->B@card(1..2)\nnode A{ a:I32 }", None),
        (
            "gq",
            "query q($n:I32){match{$p:A{b:$n} $p to{1,3} $f}\nreturn{$f}}",
            "query q($n: I32) { match { $p: A { b: $n } $p to{1,3} $f }\n    return { $f } }\n",
        ),
        (
            "gq",
            'query q {\nupdate A\n  set { b: "a\n  c" }\n  where b = "c"\n}',
            'query q {\n    update A\n        set { b: "a\n  c" }\n        where b = "c"\n}\n',
        ),
        (
            "gq",
            "query q { /* one\n     two */ match { $a: A\n$a <knows>{0,$n} $b }\nreturn { $a } }",
            None,
        ),
    ],
)
def test_spaces_and_indentation(language: Language, given: str, expected: str | None):
    formatted = format_text(given, language)
    assert expected is None or formatted == expected
    assert meaning(formatted, language) == meaning(given, language)
    assert format_text(formatted, language) == formatted


def test_a_text_that_does_not_parse_is_refused_with_its_place():
    with pytest.raises(QueryParseError) as bad:
        format_text("query q { match }", "gq")
    assert bad.value.position is not None
    with pytest.raises(SchemaParseError):
        format_text("node { }", "pg")

"""The primer of the language: every example compiles, whatever the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.errors import CompileError
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from omnigraph.query.primer import candidates, examples, primer
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.query_parser import parse_query_file

ROOT = Path(__file__).parents[2]
SCHEMAS = [*sorted(ROOT.glob("examples/**/*.pg")), ROOT / "bench" / "ldbc" / "schema.pg"]
ODD = {
    "no edges": "node Alone { order: String }",
    "no properties but a key": "node N { n: String @key }\nedge One: N -> N",
    "keys of several parts": "node Place { x: I32  y: I32  @key(x, y) }\nedge Near: Place -> Place",
    "everything required": """
        node Doc {
            at: DateTime @key
            day: Date
            kind: enum(a, b)
            words: [String]
            file: Blob
            vec: Vector(4)
            flag: Bool
            small: F32
            big: U64
        }
        edge Cites: Doc -> Doc { day: Date  words: [String] }
    """,
    "interfaces at both ends": """
        interface Thing { no: I64 @key  label: String @index }
        node Match implements Thing {}
        node Return implements Thing { limit: I32? }
        edge With: Thing -> Thing { where: String  other: String }
    """,
    "nothing to compare": "node Flagged { flag: Bool  file: Blob? }\nedge On: Flagged -> Flagged",
}


def sources() -> dict[str, str]:
    found = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in SCHEMAS}
    return found | ODD


@pytest.mark.parametrize("source", sources().values(), ids=sources())
def test_every_example_that_a_schema_gives_cause_to_compiles(source: str) -> None:
    catalog = compile_schema(source).catalog
    made = list(candidates(catalog))
    for example in made:
        compile_query(example.text, catalog)
    assert examples(catalog) == made
    names = [parse_query_file(example.text).queries[0].name for example in made]
    assert len(names) == len(set(names))
    assert len({example.title for example in made}) == len(made)


def test_an_example_that_does_not_compile_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.query import primer as module

    source = "node Alone { name: String @key }"
    good = primer(source).count("```gq")

    def refused(text: str, catalog: object) -> None:
        if "insert" in text:
            raise CompileError("no")

    monkeypatch.setattr(module, "compile_query", refused)
    assert len(module.examples(compile_schema(source).catalog)) == good - 1


def test_the_primer_of_the_social_example_covers_the_language() -> None:
    source = (ROOT / "examples" / "social" / "schema.pg").read_text("utf-8")
    catalog = compile_schema(source).catalog
    text = primer(source)
    blocks = re.findall(r"^```gq\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == len(examples(catalog)) >= 18
    for words in (
        *("{ handle: $handle }", "order {", "limit $size", "count(*)", "not {", "optional {"),
        *("{1,3}", "via $path", "$e:", "count {", "search(", "bm25(", "insert ", "update "),
        *("delete ", "from: $from"),
    ):
        assert any(words in block for block in blocks), words
    plans = [compile_query(block, catalog) for block in blocks]
    assert sum(isinstance(plan, ReadPlan) for plan in plans) == len(plans) - 4


def test_texts_that_are_no_schema_are_refused() -> None:
    with pytest.raises(CompileError):
        primer("node {")

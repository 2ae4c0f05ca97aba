"""Whatever the text, the answer is a schema or a typed error with a position, and it comes soon."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import CompileError
from omnigraph.schema.compile import compile_schema, lint_schema
from omnigraph.schema.migration import plan_change
from tests.schema.strategies import schemas
from tests.support.budgets import MANY, budget

TOKENS = [
    *("node", "edge", "interface", "implements", "enum", "true", "false", "a", "b", "_rowid", "id"),
    *("T", "U", "String", "I32", "F64", "Blob", "Vector", "Date", "DateTime"),
    *("{", "}", "(", ")", "[", "]", ",", ":", "->", "@", "?", "..", "=", "-", "*"),
    *("0", "7", "1.5", "99999999999999999999", '"s"', '""', '"("', '"\\d"', "// c\n", "/* c */"),
    *("@key", "@unique", "@index", "@range", "@check", "@card", "@embed", "@default", "@x"),
    *("@rename_from", "@description", "@instruction", "#", '"', "/*", "\x00", "é", "$a", "\ud800"),
    *(
        "node T {",
        "edge E : T -> T",
        "a : String",
        "b : I32 ?",
        "@key ( a )",
        "@range ( b , 0 .. )",
    ),
]


def answer(origin: str | bytes) -> CompileError | None:
    """The error a text is refused with; anything but a `CompileError` fails the test."""
    try:
        compile_schema(origin)
    except CompileError as error:
        assert error.position is not None
        assert error.position.line >= 1
        assert 0 <= error.position.byte_start < error.position.byte_end
        error.render().encode("utf-8")
        findings = lint_schema(origin)
        assert findings[0].error.message == error.message
        return error
    assert lint_schema(origin) == ()
    return None


@given(st.text())
def test_any_text_gets_an_answer(text):
    answer(text)


@given(st.text(st.characters()))
def test_any_code_points_get_an_answer(text):
    answer(f'node T @description("{text}") {{}}')


@given(st.binary())
def test_any_bytes_get_an_answer(raw):
    answer(raw)
    answer(b"node T { a: String } " + raw)


@MANY
@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join))
def test_any_soup_of_tokens_gets_an_answer(text):
    answer(text)
    answer(f"node T {{ {text} }}")


@given(schemas(), st.data())
def test_any_damage_to_a_sound_schema_gets_an_answer(schema, data):
    text = schema.text()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    patch = data.draw(st.sampled_from(["", *TOKENS]) | st.text(max_size=3))
    answer(text[:start] + patch + text[end:])


@given(schemas(), st.data())
def test_every_beginning_of_a_sound_schema_gets_an_answer(schema, data):
    text = schema.text()
    answer(text[: data.draw(st.integers(0, len(text)))])


def nonsense(size: int) -> dict[str, str | bytes]:
    """Texts of about this many characters that are wrong in one way, all the way through."""
    return {
        "open braces": "node T " + "{" * size,
        "open brackets": "node T { a: " + "[" * size,
        "open parentheses": "node T { a: String @x" + "(" * size,
        "at signs": "node T { a: String " + "@" * size,
        "an unterminated string": 'node T @description("' + "x\\" * (size // 2),
        "an unterminated comment": "/*" + "*" * size,
        "a long name": "node " + "A" * size,
        "a long wrong word": "nod" * (size // 3),
        "a long number": "node T { a: Vector(" + "9" * size + ") }",
        "an enum without end": "node T { a: enum(" + "a," * (size // 2),
        "duplicate types": "node T {} " * (size // 10),
        "duplicate properties": "node T { " + "a: I32 " * (size // 7) + "}",
        "duplicate values": "node T { a: enum(" + "v," * (size // 2) + "v) }",
        "unknown ends": "".join(f"edge E{n}: A{n} -> B{n}\n" for n in range(size // 25)),
        "unknown columns": "node T { name: I32 "
        + "".join(f"@index(nam{n}) " for n in range(size // 18))
        + "}",
        "digits and dots": "0.." * (size // 3),
        "bytes that are no text": b"node T {}\n" * (size // 10) + b"\xff",
    }


WAYS = list(nonsense(100))

TYPES = budget(2_500, 25_000)
SIZE = 40 * TYPES
"""A text of so many types, or of so many characters, is compiled in linear time."""


@pytest.mark.parametrize("way", WAYS)
def test_a_long_text_that_is_wrong_throughout_is_refused(way):
    error = answer(nonsense(20_000)[way])
    assert error is not None
    assert error.position is not None
    assert len(error.position.line_text) < 300


@pytest.mark.parametrize("way", WAYS)
def test_a_very_long_text_that_is_wrong_throughout_is_refused_soon(way):
    text = nonsense(SIZE)[way]
    start = time.process_time()
    with pytest.raises(CompileError) as caught:
        compile_schema(text)
    assert caught.value.position is not None
    assert time.process_time() - start < SIZE / 50_000


def test_a_very_long_text_that_is_right_is_compiled():
    text = "".join(f"node N{n} {{ a: String @key b: I32? @index }}\n" for n in range(TYPES))
    assert len(text) > SIZE
    assert len(compile_schema(text).catalog.nodes) == TYPES


WIDE = {
    "properties": "node T { "
    + " ".join(f"p{n}: I32 @default({n}) @index" for n in range(TYPES))
    + " }",
    "options": "node T @x(1, " + ", ".join(f"o{n}=1" for n in range(3 * TYPES)) + ") {}",
    "annotations": "node T " + " ".join(f"@a{n}" for n in range(4 * TYPES)) + " {}",
    "groups": "node T { a: I32 "
    + " ".join(f"p{n}: I32 @unique(a, p{n})" for n in range(TYPES))
    + "}",
}


@pytest.mark.parametrize("what", WIDE)
def test_a_very_wide_type_is_compiled_and_compared_in_linear_time(what):
    start = time.process_time()
    accepted = compile_schema(WIDE[what]).ir
    assert plan_change(accepted, WIDE[what]).plan.steps == ()
    assert time.process_time() - start < SIZE / 20_000

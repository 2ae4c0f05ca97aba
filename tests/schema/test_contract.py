"""The three persisted objects, and what happens when they do not belong together."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import SchemaContractError
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.contract import SchemaContract, build_contract, open_contract
from omnigraph.schema.encoding import ir_hash, shape_hash
from tests.schema.library import DOMAIN, compiled

TEXT = "// people\nnode Person { name: String @key }\nedge Knows: Person -> Person"


def contract(text: str = TEXT, domain: str = DOMAIN) -> SchemaContract:
    found = compile_schema(text, domain=domain)
    return build_contract(found.source, found.ir)


def opened(texts: SchemaContract):
    return open_contract(texts.source, texts.ir, texts.state)


def refusal(source: str | None, ir: str | None, state: str | None) -> SchemaContractError:
    with pytest.raises(SchemaContractError) as caught:
        open_contract(source, ir, state)
    assert caught.value.hint
    return caught.value


def test_what_is_built_can_be_opened():
    found = opened(contract())
    assert found.ir == compiled(TEXT).ir
    assert found.catalog == compiled(TEXT).catalog
    assert found.schema_hash == ir_hash(found.ir)
    assert found.contract.source == TEXT, "the source is kept word for word"


def test_the_objects_have_names_and_the_state_comes_last():
    assert list(contract().objects()) == ["_schema.pg", "_schema.ir.json", "__schema_state.json"]


def test_the_state_record_ties_the_objects_together():
    ir = compiled(TEXT).ir
    assert json.loads(contract().state) == {
        "format_version": 2,
        "schema_shape_hash": shape_hash(ir.shape),
        "schema_ir_hash": ir_hash(ir),
        "schema_identity_version": 2,
        "schema_identity_domain": DOMAIN,
    }


def test_opening_the_same_texts_again_costs_nothing():
    assert opened(contract()) is opened(contract())


@pytest.mark.parametrize(
    "edited",
    [
        TEXT + " node City {}",
        TEXT.replace("@key", ""),
        TEXT.replace("String", "Strng"),
        "",
        "#",
        "node A {} node A {}",
    ],
)
def test_c_sch_033_an_edited_source_is_refused(edited):
    texts = contract()
    error = refusal(edited, texts.ir, texts.state)
    assert error.message == "current _schema.pg no longer matches the accepted compiled schema"
    assert error.hint is not None
    assert "schema apply" in error.hint


def test_c_sch_033_an_edit_that_changes_no_meaning_is_harmless():
    texts = contract()
    edited = "edge Knows: Person -> Person node Person { @key(name) name: String }"
    assert open_contract(edited, texts.ir, texts.state).ir == opened(texts).ir


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_object_is_refused_and_never_rebuilt(missing):
    texts: list[str | None] = list(contract().objects().values())
    texts[missing] = None
    name = list(contract().objects())[missing]
    error = refusal(*texts)
    assert f"{name} is missing" in error.message
    assert error.hint is not None
    assert "never rebuilt" in error.hint


def test_objects_of_different_versions_are_refused():
    old, new = contract(), contract(TEXT + " node City {}")
    assert "_schema.ir.json" in refusal(old.source, new.ir, old.state).message
    assert "_schema.ir.json" in refusal(old.source, old.ir, new.state).message


def test_objects_of_different_graphs_are_refused():
    ours, theirs = contract(), contract(domain="01BX5ZZKBKACTAV9WEVGEMMVRZ")
    refusal(ours.source, theirs.ir, ours.state)


def change_state(**members: object) -> str:
    return json.dumps(json.loads(contract().state) | members)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (change_state(format_version=1), "format_version 1 (expected 2)"),
        (change_state(format_version=3), "format_version 3 (expected 2)"),
        (change_state(schema_identity_version=3), "schema_identity_version 3"),
        (change_state(schema_shape_hash="sha256:00"), "does not have the shape"),
        (change_state(schema_ir_hash="sha256:00"), "does not have the hash"),
        (change_state(schema_identity_domain="0" * 26), "different identity domains"),
        (change_state(extra=1), "malformed"),
        (change_state(schema_ir_hash=None), "malformed"),
        ("{}", "format_version None"),
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
    ],
)
def test_a_damaged_state_record_is_refused(state, message):
    texts = contract()
    with pytest.raises(SchemaContractError) as caught:
        open_contract(texts.source, texts.ir, state)
    assert message in caught.value.message


def test_an_ir_whose_hash_is_right_is_still_read_strictly():
    texts = contract()
    spoiled = texts.ir.replace('"ir_version":2', '"ir_version":3')
    from omnigraph.schema.catalog import sha256_of

    with pytest.raises(SchemaContractError, match="unsupported ir_version"):
        open_contract(texts.source, spoiled, change_state(schema_ir_hash=sha256_of(spoiled)))


def test_a_schema_without_a_domain_cannot_be_persisted():
    offline = compile_schema(TEXT)
    with pytest.raises(SchemaContractError, match="identity domain"):
        build_contract(offline.source, offline.ir)

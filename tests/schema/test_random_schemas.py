"""What holds for every schema: tried on random ones."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import IdentityError
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.contract import build_contract, open_contract
from omnigraph.schema.encoding import ir_hash, ir_text, read_ir, shape_hash
from omnigraph.schema.migration import plan_change, plan_migration
from omnigraph.schema.shape import SchemaIR
from omnigraph.schema.steps import DropProperty, DropType
from omnigraph.syntax.schema_parser import parse_schema
from tests.schema.library import DOMAIN, compiled
from tests.schema.strategies import documents, placeless, respelled, schemas, written


# Compiling the first pattern loads Arrow, so that the first example is much slower than the rest.
@given(st.data())
def test_every_document_is_parsed_as_it_was_written(data):
    document = data.draw(documents())
    text = data.draw(written(document))
    assert placeless(parse_schema(text).declarations) == placeless(document.declarations)


@given(st.data())
def test_c_sch_027_order_comments_and_hints_change_nothing(data):
    schema = data.draw(schemas())
    other = data.draw(respelled(schema))
    one, two = compiled(schema.text()), compiled(other.text())
    assert shape_hash(one.ir.shape) == shape_hash(two.ir.shape)


@given(st.data())
def test_c_sch_028_ids_do_not_depend_on_source_order(data):
    old, new = data.draw(schemas()), data.draw(schemas())
    shuffled_old = data.draw(respelled(old))
    accepted, same = compiled(old.text()).ir, compiled(shuffled_old.text()).ir
    assert ir_hash(accepted) == ir_hash(same)
    shuffled_new = "\n".join(
        declaration.text() for declaration in data.draw(st.permutations(new.declarations))
    )
    one = compile_schema(new.text(), accepted=accepted).ir
    two = compile_schema(shuffled_new, accepted=same).ir
    assert ir_hash(one) == ir_hash(two)


@given(schemas())
def test_ids_are_a_dense_row_of_numbers_from_one(schema):
    ir = compiled(schema.text()).ir
    assert sorted(all_ids(ir)) == list(range(1, ir.next_identity_id))


@given(schemas())
def test_an_ir_and_its_contract_come_back_from_their_texts(schema):
    found = compiled(schema.text())
    assert ir_text(read_ir(ir_text(found.ir))) == ir_text(found.ir)
    texts = build_contract(found.source, found.ir)
    opened = open_contract(texts.source, texts.ir, texts.state)
    assert opened.catalog == found.catalog


@given(st.data())
def test_a_schema_needs_no_steps_to_become_itself(data):
    schema = data.draw(schemas())
    accepted = compiled(schema.text()).ir
    shuffled = "\n".join(d.text() for d in data.draw(st.permutations(schema.declarations)))
    change = plan_change(accepted, shuffled)
    assert change.plan.steps == ()
    assert ir_hash(change.compiled.ir) == ir_hash(accepted)


@given(schemas(), schemas(), st.booleans())
def test_any_edit_has_a_plan_that_leads_there(old, new, allow_data_loss):
    accepted = compiled(old.text()).ir
    change = plan_change(accepted, new.text(), allow_data_loss=allow_data_loss)
    plan, desired = change.plan, change.compiled.ir
    assert json.loads(json.dumps(plan.to_json()))["supported"] == plan.supported
    assert len(plan.render()) == len(plan.steps)
    assert (plan.steps == ()) == (ir_hash(accepted) == ir_hash(desired))
    assert plan_migration(desired, desired).steps == ()
    assert desired.next_identity_id >= accepted.next_identity_id
    fresh = set(all_ids(desired)) - set(all_ids(accepted))
    assert all(identity >= accepted.next_identity_id for identity in fresh)
    modes = {step.mode for step in plan.steps if isinstance(step, DropProperty | DropType)}
    assert modes <= {"hard" if allow_data_loss else "soft"}


@given(st.data())
def test_any_hint_resolves_or_is_refused_with_a_position(data):
    accepted = compiled(data.draw(schemas()).text()).ir
    names = st.sampled_from(["A", "B", "C", "E", "I", "a", "b", "c", "i_a", "nothing"])
    text = data.draw(respelled(data.draw(schemas()))).text()
    text = text.replace('"Old"', f'"{data.draw(names)}"')
    try:
        change = plan_change(accepted, text)
    except IdentityError as refused:
        assert refused.position is not None
    else:
        assert change.compiled.ir.domain == DOMAIN


def all_ids(ir: SchemaIR) -> list[int]:
    return [*ir.ids.types.values(), *ir.ids.properties.values(), *ir.ids.incarnations.values()]

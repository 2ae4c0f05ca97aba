"""Extensions of the language leave the plans of existing queries alone."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest

from omnigraph.query.compile import compile_query
from omnigraph.schema.compile import compile_schema
from tests.query.golden_plans import compiled, digest, plan_text, recorded


def test_c_qry_091_every_recorded_query_compiles_to_the_same_plan():
    known, current = recorded(), compiled()
    gone = [name for name in known if name not in current]
    assert not gone, "these no longer compile; if they were removed, write the record again"
    problems = []
    for name, before in known.items():
        if current[name].query != before.query:
            problems.append(f"{name}: the query was edited; write the record again")
        elif current[name].plan != before.plan:
            old, new = before.plan.splitlines(), current[name].plan.splitlines()
            problems.append("\n".join(difflib.unified_diff(old, new, name, "today", lineterm="")))
    if problems:
        pytest.fail(f"{len(problems)} plans of {len(known)} changed\n" + "\n".join(problems[:10]))


def test_c_qry_091_the_record_has_the_cases_and_the_cookbook():
    names = recorded()
    assert len(names) > 500
    files = {name.partition(":")[0] for name in names}
    assert {"aggregates", "interfaces", "ranking", "social/mutations.gq", "crm/checks.gq"} <= files


def test_the_text_of_a_plan_shows_every_field_that_is_not_the_default():
    catalog = compile_schema("node A { name: String @key  n: I32? }").catalog
    plan = compile_query("query q() { match { $a: A { n: 1 } } return { $a.name } }", catalog)
    text = plan_text(plan)
    assert "predicates" in text and "entity_id" not in text and "memory_bytes" not in text
    assert digest(plan_text(replace(plan, description="x"))) != digest(text)
    assert digest(plan_text(replace(plan, memory_bytes=9))) == digest(text)

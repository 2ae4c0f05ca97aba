"""The guide of the language tells the truth and leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from omnigraph.model.types import SCALAR_NAMES, VIRTUAL_COLUMNS
from omnigraph.schema.contract import IR_OBJECT, SOURCE_OBJECT, STATE_OBJECT
from omnigraph.schema.effective import EDGE_STRUCTURAL_COLUMNS
from omnigraph.schema.steps import CODES, Family, Step
from tests.schema.library import compiled, planned

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "schema.md").read_text(encoding="utf-8")


def fences(language: str, text: str = GUIDE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", fences("pg"))
def test_every_example_compiles_on_its_own(text):
    compiled(text)


def test_the_example_of_a_change_has_the_plan_it_shows():
    section = GUIDE.partition("## Changing a schema")[2].partition("## Lint codes")[0]
    old, new = fences("pg", section)
    (shown,) = fences("text", section)
    assert planned(old, new).render() == shown.splitlines()


def test_the_example_of_a_refusal_is_what_is_printed():
    (shown,) = fences("text", GUIDE.partition("## Lint codes")[2])
    plan = planned("node User { age: I32 }", "node User { age: String }")
    assert plan.render() == shown.splitlines()


@pytest.mark.parametrize(
    "word",
    [
        *SCALAR_NAMES,
        *CODES,
        *Family,
        *(step.kind for step in get_args(Step)),
        *sorted(VIRTUAL_COLUMNS),
        *sorted(EDGE_STRUCTURAL_COLUMNS),
        *(SOURCE_OBJECT, IR_OBJECT, STATE_OBJECT),
    ],
)
def test_every_word_of_the_language_is_explained(word):
    assert f"`{word}`" in GUIDE


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_listed_with_its_tier(code):
    assert f"| `{code}` | {CODES[code].tier} |" in GUIDE

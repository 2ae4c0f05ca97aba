"""The room as a whole: its examples run, nothing heavy is loaded, large schemas compile at once."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
import time

import pytest

import omnigraph.schema
from omnigraph.schema.compile import compile_schema

MODULES = [m.name for m in pkgutil.walk_packages(omnigraph.schema.__path__, "omnigraph.schema.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize(
    ("code", "loads_arrow"),
    [
        ("", False),
        ("compile_schema('node T { a: String @key @default_ }')", False),
        ("compile_schema('node T { a: String @check(a, \"x\") }')", True),
    ],
)
def test_arrow_is_loaded_only_for_patterns(code, loads_arrow):
    program = f"""
import sys
import omnigraph.schema.contract, omnigraph.schema.compile, omnigraph.schema.migration
from omnigraph.schema.compile import compile_schema
{code}
print("pyarrow" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(loads_arrow)


def test_a_schema_of_600_lines_compiles_in_a_blink():
    declarations = [
        f"""interface Named{n} {{ label: String @index  alias: String? }}
node Type{n} @description("number {n}") implements Named{n} {{
    slug: String @key
    kind: enum(startup, lp-institution, vc-firm, acquirer, customer, other) @index
    score: F64?
    tags: [String]?
    created_at: DateTime
    @unique(label, slug)
    @range(score, 0.0..100.0)
}}
edge Links{n}: Type{n} -> Type{n} @card(0..4) {{ since: Date?  @unique(src, dst) }}"""
        for n in range(60)
    ]
    text = "\n".join(declarations)
    assert text.count("\n") >= 599

    def seconds() -> float:
        start = time.process_time()
        compile_schema(text)
        return time.process_time() - start

    assert min(seconds() for _ in range(5)) < 0.15

"""The room as a whole: what it may load, and that its examples run."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

LIGHT = ["changes", "ids", "json_object", "merging", "parameters", "receipts"]
LIGHT += ["signatures", "text_table", "types", "upkeep", "values"]
HEAVY = ["arrow", "arrow_columns", "result_json"]


def test_modules_the_languages_need_load_neither_arrow_nor_numpy() -> None:
    imports = "; ".join(f"import omnigraph.model.{name}" for name in LIGHT)
    check = "import sys; assert not {'pyarrow', 'numpy', 'orjson'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", f"{imports}; {check}"], check=True)


@pytest.mark.parametrize("name", LIGHT + HEAVY)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"omnigraph.model.{name}")
    assert doctest.testmod(module).failed == 0

"""Every line of the checklist of branches, commits and the change feed has a test of its name."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"^def (test_\w*c_bra_\d{3}\w*)", re.MULTILINE)
ID = re.compile(r"c_bra_(\d{3})")


def test_c_bra_001_to_048_each_have_a_test() -> None:
    names = [
        name
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
    ]
    found = {int(number) for name in names for number in ID.findall(name)}
    assert found == set(range(1, 49))

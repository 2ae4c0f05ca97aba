"""The offline linter and the catalogue of codes."""

from __future__ import annotations

import re

from omnigraph.schema.compile import lint_schema
from omnigraph.schema.steps import CODES, Family


def test_a_sound_schema_has_no_findings():
    assert lint_schema('node A { a: I32? } edge E: A -> A @rename_from("Old")') == ()


def test_every_problem_is_found_in_source_order():
    findings = lint_schema("node A { v: Vector(0) }\nedge E: A -> B\nnode A { x: [Blob] }")
    assert [f.line for f in findings] == [1, 2, 3]
    assert [f.error.code for f in findings] == [
        "schema_parse_error",
        "schema_catalog_error",
        "schema_catalog_error",
    ]


def test_a_text_that_does_not_parse_has_one_finding():
    (finding,) = lint_schema("node A {\n  a: Strng\n}\nnode A {}")
    assert finding.to_json() == {
        "severity": "error",
        "code": "schema_parse_error",
        "message": "parse error: expected a type, found 'Strng'",
        "position": {"path": None, "line": 2, "column": 6, "byte_start": 14, "byte_end": 19},
        "hint": "did you mean `String`?",
    }


def test_bytes_and_files_are_linted_too(tmp_path):
    path = tmp_path / "s.pg"
    path.write_bytes(b"node A {}\xff")
    (finding,) = lint_schema(path)
    assert "not valid UTF-8" in finding.error.message
    assert finding.to_json()["position"]["path"] == str(path)


def test_codes_are_named_by_family_and_number():
    assert set(CODES) == {
        *(f"OG-DS-10{n}" for n in (1, 2, 3, 4, 5)),
        *(f"OG-MF-10{n}" for n in (3, 4, 6, 7)),
        "OG-CD-101",
    }
    for code, entry in CODES.items():
        assert code == entry.code
        assert re.fullmatch(rf"OG-{entry.family}-\d{{3}}", code)
        assert entry.severity == "error"
        assert entry.meaning


def test_the_tiers_of_the_codes_never_change():
    assert {code: entry.tier for code, entry in CODES.items()} == {
        "OG-DS-101": "destructive",
        "OG-DS-102": "destructive",
        "OG-DS-103": "destructive",
        "OG-DS-104": "destructive",
        "OG-DS-105": "destructive",
        "OG-MF-103": "validated",
        "OG-MF-104": "validated",
        "OG-MF-106": "destructive",
        "OG-MF-107": "validated",
        "OG-CD-101": "safe",
    }
    assert [c for c, entry in CODES.items() if entry.is_reserved] == [
        "OG-DS-101",
        "OG-DS-105",
        "OG-MF-104",
    ]


def test_families_are_reserved_ahead_of_their_codes():
    assert set(Family) == {"DS", "MF", "CD", "BC", "NM", "OW", "NL", "VE", "ED", "LK"}

"""Lint: a file of queries against a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.query.lint import HARDCODED_MUTATION, LintReport, lint_queries
from omnigraph.schema.compile import compile_schema
from tests.query.library import catalog

GOOD = "query good() { match { $b: Book } return { $b.title } }"
BAD = "query bad() { match { $b: Boook } return { $b.title } }"
UNCODED = "query twice() { match { $b: Book $b: Shop } return { $b.title } }"
HARDCODED = "query wipe() { delete Book where pages = 3 }"

SMALL = """
node Plant {
    code: String @key
    name: String
    height: F32?
    habit: enum(tree, shrub)?
    notes: String?
    leaf: Vector(2)? @embed("name")
}
node Garden { name: String @key  area: F64? }
edge Grows: Plant -> Garden { since: Date? }
"""


def lint(text: str | bytes) -> LintReport:
    return lint_queries(text, catalog())


def as_json(report: LintReport) -> dict[str, Any]:
    document = report.to_dict({"kind": "file", "path": "schema.pg"}, "queries.gq")
    decoded: dict[str, Any] = json.loads(json.dumps(document))
    return decoded


# --- shape ----------------------------------------------------------------------------------------


def test_report_of_a_good_file():
    assert as_json(lint(GOOD)) == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "schema.pg"},
        "query_path": "queries.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "good",
                "kind": "read",
                "status": "ok",
                "operation": {
                    "result": [
                        {
                            "name": "title",
                            "column": "b.title",
                            "kind": "string",
                            "nullable": False,
                        }
                    ],
                    "reads": [{"kind": "node", "type_name": "Book"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_members_come_in_the_documented_order():
    document = as_json(lint(HARDCODED + BAD))
    assert list(document) == [
        "status",
        "schema_source",
        "query_path",
        "queries_processed",
        "errors",
        "warnings",
        "infos",
        "results",
        "findings",
    ]
    assert list(document["results"][0]) == ["name", "kind", "status", "warnings", "operation"]
    assert list(document["results"][1]) == ["name", "kind", "status", "error"]
    assert list(document["findings"][0])[:3] == ["severity", "code", "message"]


def test_empty_file_is_fine():
    document = as_json(lint("// no queries yet\n"))
    assert (document["status"], document["queries_processed"]) == ("ok", 0)


@pytest.mark.parametrize("text", ["query", "query q() { match {} }", "query q() { 1e3 }", b"\xff"])
def test_c_qry_076_unparsable_file_gives_one_q000_and_nothing_else(text: str | bytes):
    document = as_json(lint(text))
    assert document["status"] == "error"
    assert (document["queries_processed"], document["errors"], document["warnings"]) == (0, 1, 0)
    assert document["results"] == []
    (finding,) = document["findings"]
    assert (finding["severity"], finding["code"]) == ("error", "Q000")
    assert finding["message"].startswith("parse error: ")
    assert finding["position"]["line"] == 1


def test_a_parse_error_hides_the_good_queries_around_it():
    assert as_json(lint(GOOD + " query broken( " + GOOD))["queries_processed"] == 0


# --- errors ---------------------------------------------------------------------------------------


def test_one_bad_query_does_not_hide_the_others():
    document = as_json(lint(BAD + GOOD + UNCODED + HARDCODED))
    assert [(r["name"], r["status"]) for r in document["results"]] == [
        ("bad", "error"),
        ("good", "ok"),
        ("twice", "error"),
        ("wipe", "ok"),
    ]
    assert (document["queries_processed"], document["errors"], document["warnings"]) == (4, 2, 1)
    assert document["status"] == "error"
    assert document["results"][0]["error"] == "type error: T1: unknown node type `Boook`"
    assert "operation" not in document["results"][0]


def test_finding_of_an_error_tells_query_place_and_hint():
    (finding,) = as_json(lint(GOOD + "\n" + BAD))["findings"]
    place = finding.pop("position")
    assert finding == {
        "severity": "error",
        "code": "T1",
        "message": "type error: T1: unknown node type `Boook`",
        "query_names": ["bad"],
        "hint": "did you mean `Book`?",
    }
    assert (place["line"], place["byte_end"] - place["byte_start"]) == (2, len("Boook"))


def test_error_without_a_code_is_called_type():
    (finding,) = as_json(lint(UNCODED))["findings"]
    assert finding["code"] == "type"


def test_c_qry_072_mixing_is_an_error_for_lint_too():
    document = as_json(
        lint("query both($k: String) { insert Cites { name: $k } delete Book where isbn = $k }")
    )
    assert document["status"] == "error"
    assert "mixes inserts/updates and deletes" in document["results"][0]["error"]


# --- warnings -------------------------------------------------------------------------------------


def test_c_qry_076_hardcoded_mutation_is_warned_about():
    document = as_json(lint(HARDCODED))
    assert document["results"][0]["warnings"] == [
        "mutation declares no params; hardcoded mutations are easy to miss"
    ]
    assert (document["status"], document["warnings"], document["findings"]) == ("ok", 1, [])


def test_c_qry_076_hardcoded_mutation_is_warned_about_even_when_it_does_not_compile():
    document = as_json(lint("query wipe() { delete Boook where pages = 3 }"))
    assert document["results"][0]["warnings"] == [HARDCODED_MUTATION]
    assert (document["errors"], document["warnings"]) == (1, 1)


def test_reads_and_mutations_with_parameters_are_not_warned_about():
    text = GOOD + "query wipe($n: I32) { delete Book where pages = $n }"
    assert all("warnings" not in result for result in as_json(lint(text))["results"])


def l201(text: str) -> list[dict[str, Any]]:
    report = lint_queries(text, compile_schema(SMALL).catalog)
    return [f for f in as_json(report)["findings"] if f["code"] == "L201"]


UPDATE = 'query {}($v: {}) {{ update Plant set {{ {}: $v }} where code = "x" }}'


def test_c_qry_076_l201_for_nullable_properties_no_update_sets():
    text = UPDATE.format("grow", "F32", "height") + UPDATE.format("call", "String", "name")
    assert l201(text) == [
        {
            "severity": "warning",
            "code": "L201",
            "message": f"Plant.{name} exists in schema but no update query sets it",
            "type_name": "Plant",
            "property": name,
            "query_names": ["call", "grow"],
        }
        for name in ("habit", "notes")
    ]


def test_c_qry_076_l201_needs_a_valid_update_of_the_type():
    assert l201("query add($n: String) { insert Garden { name: $n } }") == []
    assert l201(UPDATE.format("grow", "String", "height")) == []
    assert l201("query go($n: String) { delete Garden where name = $n }") == []


def test_c_qry_076_l201_counts_updates_of_all_queries_and_statements():
    text = (
        UPDATE.format("one", "String", "habit")
        + UPDATE.format("two", "String", "notes")
        + 'query three($h: F32) { update Plant set { height: null } where code = "x" '
        + "update Garden set { area: $h } where area is null }"
    )
    assert l201(text) == []


def test_c_qry_076_findings_are_sorted_by_severity_type_property_and_message():
    text = (
        'query zebra($v: F64) { update Garden set { area: $v } where name = "x" }'
        + UPDATE.format("grow", "F32", "height")
        + "query b2() { match { $x: Zzz } return { $x } }"
        + "query b1() { match { $x: Aaa } return { $x } }"
    )
    findings = as_json(lint_queries(text, compile_schema(SMALL).catalog))["findings"]
    assert [(f["severity"], f.get("type_name"), f.get("property")) for f in findings] == [
        ("error", None, None),
        ("error", None, None),
        ("warning", "Plant", "habit"),
        ("warning", "Plant", "notes"),
    ]
    assert [f["query_names"] for f in findings[:2]] == [["b1"], ["b2"]]


def test_findings_of_two_types_are_sorted_by_type():
    text = UPDATE.format("grow", "F32", "height") + (
        "query a($v: String) { update Garden set { area: null } where name = $v }"
    )
    schema = SMALL.replace("area: F64?", "area: F64?  zone: I32?")
    report = lint_queries(text, compile_schema(schema).catalog)
    assert [f.type_name for f in report.findings] == ["Garden", "Plant", "Plant"]


@pytest.mark.parametrize(
    ("text", "status"), [(GOOD, "ok"), (HARDCODED, "ok"), (BAD, "error"), ("query", "error")]
)
def test_c_qry_076_status_is_error_only_for_errors(text: str, status: str):
    assert lint(text).status == status


def test_file_is_named_in_positions(tmp_path):
    file = tmp_path / "queries.gq"
    file.write_text(BAD, encoding="utf-8")
    (finding,) = lint_queries(file, catalog()).findings
    assert finding.to_dict()["position"]["path"] == str(file)


# --- hops that run against their edge type --------------------------------------------------------

MESSAGES = """
interface Message { text: String }
node Comment implements Message { text: String @key }
node Post implements Message { text: String @key }
node Person { name: String @key }
edge HasCreator: Message -> Person
edge ReplyOf: Comment -> Message
edge Likes: Person -> Message
"""


@pytest.mark.parametrize(
    ("match", "hop"),
    [
        ("$c hasCreator $a  $c replyOf $m", "$c replyOf $m"),
        ("$c: Message  $c replyOf $m", "$c replyOf $m"),
        ("$c hasCreator $a  not { $c replyOf{1,1} $m  $m hasCreator $a }", "$c replyOf $m"),
        ("$a: Person  $a likes $c  optional { $c $r:replyOf $m }", "$c replyOf $m"),
        ("$c: Comment  $c hasCreator $a  $c replyOf $m", None),
        ("$c hasCreator $a  $m replyOf $c", None),
        ("$p: Post  $p hasCreator $a  $m replyOf $p", None),
        ("$p: Post  $p replyOf $m", None),
        ("$m: Message  $m likes $a", None),
    ],
)
def test_a_hop_that_may_have_been_meant_the_other_way_is_warned_about(match: str, hop: str | None):
    text = f"query q() {{ match {{ {match} }} return {{ count(*) as n }} }}"
    report = lint_queries(text, compile_schema(MESSAGES).catalog)
    found = [each for each in report.findings if each.severity != "error"]
    assert [each.code for each in report.findings] == (["L202"] if hop else []), report.findings
    if hop:
        left, word, right = hop.split()
        assert f"`{hop}` runs against ReplyOf" in found[0].message
        assert f"`{right} {word} {left}`" in found[0].message
        assert found[0].type_name == "ReplyOf" and found[0].query_names == ("q",)

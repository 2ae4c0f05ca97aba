"""`omnigraph schema check` and `omnigraph schema plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LIBRARY = "examples/library/schema.pg"
V1 = "examples/evolution/v1.pg"
V2 = "examples/evolution/v2.pg"
FIRST_STEP = "examples/evolution/v2_first_step.pg"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- check ----------------------------------------------------------------------------------------


def test_check_shows_types_properties_and_rules(run):
    done = run("schema", "check", LIBRARY)
    assert done.code == 0
    assert done.err == ""
    for line in (
        "node Work implements Findable, Titled",
        "edge CopyOf: Copy -> Edition @card(1..1)",
        "edge CreatedBy: Work -> Author @card(1..)",
        "  @key(branch, number)",
        "  @range(weight_kg, ..25.0)",
        '  @check(isbn, "^97[89]\\\\d{10}$")',
        "  @unique(dst, src, taken)",
        "  @key(src, dst)",
        "  One loan, from the desk and back",
        f"{LIBRARY}: 6 node types, 8 edge types, 2 interfaces, 58 properties",
    ):
        assert line in done.out.splitlines()
    assert '@embed(summary, model="example/tiny-4")' in done.out
    assert "returned  DateTime?  – Missing while the copy is out" in done.out
    assert done.out.splitlines()[-1].startswith("sha256:")


def test_check_as_json_describes_the_whole_schema(run):
    document = json.loads(run("schema", "check", LIBRARY, "--json").out)
    assert document["status"] == "ok"
    assert document["schema_path"] == LIBRARY
    assert document["shape_hash"].startswith("sha256:")
    assert document["warnings"] == []
    copy = next(node for node in document["nodes"] if node["name"] == "Copy")
    assert copy["key"] == ["branch", "number"]
    assert {"name": "number", "type": "U32", "nullable": False} in copy["properties"]
    work = next(node for node in document["nodes"] if node["name"] == "Work")
    meaning = next(prop for prop in work["properties"] if prop["name"] == "meaning")
    assert meaning["embed"] == {"source": "summary", "model": "example/tiny-4"}
    reserved = next(edge for edge in document["edges"] if edge["name"] == "Reserved")
    assert reserved["cardinality"] == {"minimum": 0, "maximum": 10}
    keys = {edge["name"]: edge["key"] for edge in document["edges"]}
    assert (keys["Rated"], keys["Reserved"]) == (["src", "dst"], [])
    assert [interface["name"] for interface in document["interfaces"]] == ["Findable", "Titled"]


def test_check_hash_ignores_comments_and_order(run, tmp_path: Path):
    one = write(tmp_path, "one.pg", "node A { x: I32? y: I32? } node B {}")
    two = write(tmp_path, "two.pg", "node B {} // last\nnode A {\n y: I32?\n x: I32? }")
    hashes = {
        json.loads(run("schema", "check", path, "--json").out)["shape_hash"] for path in (one, two)
    }
    assert len(hashes) == 1


def test_check_of_an_empty_schema(run, tmp_path: Path):
    path = write(tmp_path, "empty.pg", "")
    done = run("schema", "check", path)
    assert done.code == 0
    assert done.out.startswith(f"{path}: 0 node types, 0 edge types, 0 properties\n")


def test_check_shows_every_problem_with_its_caret(run, tmp_path: Path):
    path = write(tmp_path, "bad.pg", "node A { a: Vector(0) }\nedge E: A -> B\n")
    done = run("schema", "check", path)
    assert done.code == 1
    assert done.out == ""
    assert f"{path}:1:20: parse error: Vector dimension must be greater than zero" in done.err
    assert f"{path}:2:14: catalog error: edge E references unknown target type: B" in done.err
    assert done.err.count("^") >= 2


def test_check_warns_about_hints_without_effect(run):
    done = run("schema", "check", FIRST_STEP)
    assert done.code == 0
    assert f"warning: {FIRST_STEP}:" in done.err
    assert '@rename_from("Client") on node:Customer is ignored' in done.err
    document = json.loads(run("schema", "check", FIRST_STEP, "--json").out)
    assert len(document["warnings"]) == done.err.count("warning:")


# --- plan -----------------------------------------------------------------------------------------


def test_plan_lists_marked_steps_with_their_codes(run):
    done = run("schema", "plan", "--from", V1, "--schema", V2)
    assert done.code == 0
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == f"{V1} → {V2}"
    assert "  ~ rename node Client to Customer" in lines
    assert "  + add property node:Customer.phone: String?" in lines
    assert "  - drop property node:Customer.fax (soft, OG-DS-104)" in lines
    assert any(
        line.startswith("  ! unsupported change on node:Customer.country [OG-MF-103, validated]: ")
        for line in lines
    )
    assert lines[-1] == "22 steps, 3 not supported: this cannot be applied"


def test_plan_as_json_has_the_members_of_the_contract(run):
    done = run("schema", "plan", "--from", V1, "--schema", V2, "--json")
    assert done.code == 0
    document = json.loads(done.out)
    assert list(document) == ["from", "supported", "step_count", "steps"]
    assert document["from"] == V1
    assert document["supported"] is False
    assert document["step_count"] == len(document["steps"])
    assert {
        "kind": "rename_type",
        "type_kind": "node",
        "from": "Client",
        "to": "Customer",
    } in document["steps"]


def test_a_supported_plan_says_so(run):
    done = run("schema", "plan", "--from", V1, "--schema", FIRST_STEP)
    assert done.out.splitlines()[-1].endswith(" steps, all supported")
    document = json.loads(run("schema", "plan", "--from", V1, "--schema", FIRST_STEP, "--json").out)
    assert document["supported"] is True


def test_data_loss_makes_drops_final(run):
    done = run("schema", "plan", "--from", V1, "--schema", V2, "--allow-data-loss")
    assert "(soft" not in done.out
    assert "drop node Printer (hard, OG-DS-102)" in done.out


def test_equal_schemas_need_nothing(run):
    done = run("schema", "plan", "--from", V1, "--schema", V1)
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "nothing to do: both schemas mean the same",
    )


def test_a_rename_hint_that_leads_nowhere_is_an_error(run, tmp_path: Path):
    path = write(tmp_path, "new.pg", 'node Customer @rename_from("Clint") { number: U32 @key }')
    done = run("schema", "plan", "--from", V1, "--schema", path, "--json")
    assert done.code == 1
    envelope = json.loads(done.out)
    assert envelope["error"].startswith("identity error: ")
    assert envelope["hint"] == "did you mean `Client`?"


@pytest.mark.parametrize("broken", ["--from", "--schema"])
def test_a_schema_that_does_not_compile_fails_the_plan(run, tmp_path: Path, broken: str):
    path = write(tmp_path, "bad.pg", "node A { a: Vector(0) }\nedge E: A -> B\n")
    files = {"--from": V1, "--schema": V1} | {broken: str(path)}
    done = run("schema", "plan", *(word for pair in files.items() for word in pair))
    assert done.code == 1
    assert f"{path}:1:20: parse error" in done.err
    assert f"{path}:2:14: catalog error" in done.err

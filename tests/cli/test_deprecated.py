"""C-CLI-043: former spellings warn once and behave identically."""

from __future__ import annotations

import json
import re
from pathlib import Path

ADD = ["-e", 'query add() { insert City { name: "Rome" } }']


def warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("warning: ")]


def test_c_cli_043_change_is_mutate(run, graph: str):
    old = run("change", "--store", graph, *ADD)
    assert warnings(old.err) == ["warning: `change` is deprecated; write `mutate`"]
    new = run("mutate", "--store", graph, *ADD)
    assert old.out.splitlines()[0] == new.out.splitlines()[0]
    assert old.err.splitlines()[1:] == new.err.splitlines()
    stale = ["--if-commit", "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"]
    assert run("change", "--store", graph, *ADD, *stale).code == 4


def test_c_cli_043_ingest_keeps_its_defaults_and_its_parser(run, graph: str, tmp_path: Path):
    data = tmp_path / "spread.json"
    data.write_text('{"type": "Person",\n "data": {"name": "ada"}}\n')
    done = run("ingest", graph, "--data", data, "--json")
    assert done.code == 0
    assert warnings(done.err) == ["warning: `ingest` is deprecated; write `load`"]
    document = json.loads(done.out)
    assert (document["mode"], document["base_branch"]) == ("merge", "main")
    on_branch = run("ingest", graph, "--data", data, "--branch", "review", "--json")
    assert json.loads(on_branch.out)["branch_created"] is True
    assert run("load", graph, "--data", data, "--mode", "merge").code == 1


def test_c_cli_043_check_is_lint(run):
    files = ["--schema", "examples/social/schema.pg", "--query", "examples/social/queries.gq"]
    old, new = run("check", *files), run("lint", *files)
    assert old.out == new.out
    assert old.err == "warning: `check` is deprecated; write `lint`\n"


def test_c_cli_043_export_jsonl_is_export(run, full_graph: str):
    old, new = run("export", full_graph, "--jsonl"), run("export", full_graph)
    assert old.out == new.out
    assert old.err == "warning: `export --jsonl` is deprecated; write `export`\n"


def test_removed_spellings_are_usage_errors(run, full_graph: str):
    for command in (
        ["export", full_graph, "--table", "Person"],
        ["snapshot", "--target", full_graph],
        ["mutate", "--alias", "triage"],
    ):
        assert run(*command).code == 2


def test_former_names_are_neither_listed_nor_suggested(run):
    listed = re.findall(r"^  ([a-z-]+)", run("--help").out, re.MULTILINE)
    assert "query" in listed
    for name in ("change", "ingest"):
        assert name not in listed
    assert "`ingest`" not in run("ingst").err

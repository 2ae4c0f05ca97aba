"""`omnigraph policy …`, and actors on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

TEAM = "examples/policy/team.yaml"
OPERATORS = "examples/policy/operators.yaml"
CASES = "examples/policy/team_tests.yaml"


def answer(run: Run, *arguments: object, code: int = 0) -> Any:
    """The JSON document a command prints."""
    done = run("policy", *arguments, "--json")
    assert done.code == code, done.err
    return json.loads(done.out)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.yaml"
    path.write_text("version: 1\nrulez: []\n", encoding="utf-8")
    return path


# --- validate -------------------------------------------------------------------------------------


def test_c_pol_043_validate_checks_a_file_that_was_never_applied(run: Run):
    done = run("policy", "validate", "--file", TEAM)
    assert done.code == 0
    assert done.out == f"{TEAM}: a valid graph bundle with 4 actors and 6 rules\n"
    assert answer(run, "validate", "--file", OPERATORS) == {
        "ok": True,
        "bundles": [
            {"name": OPERATORS, "kind": "server", "applies_to": [], "actors": 1, "rules": 1}
        ],
        "errors": [],
    }


def test_validate_says_what_is_wrong_and_where(run: Run, broken: Path):
    done = run("policy", "validate", "--file", broken)
    assert (done.code, done.out) == (1, "")
    assert f"{broken}:2:1: unknown key `rulez`" in done.err
    assert "did you mean `rules`?" in done.err
    assert answer(run, "validate", "--file", broken, code=1) == {
        "ok": False,
        "bundles": [],
        "errors": [{"bundle": str(broken), "message": f"{broken}:2:1: unknown key `rulez`"}],
    }


@pytest.mark.parametrize("command", ["validate", "test", "explain"])
def test_a_missing_file_is_told_with_the_nearest_name(run: Run, command: str):
    more = {
        "test": ["--tests", CASES],
        "explain": ["--actor", "a", "--action", "read"],
    }.get(command, [])
    done = run("policy", command, "--file", "examples/policy/tame.yaml", *more)
    assert done.code == 1
    assert "there is no file `examples/policy/tame.yaml`" in done.err
    assert "did you mean `team.yaml`?" in done.err


@pytest.mark.parametrize("command", ["validate", "test", "explain"])
def test_a_bundle_is_needed(run: Run, command: str):
    more = {
        "test": ["--tests", CASES],
        "explain": ["--actor", "a", "--action", "read"],
    }.get(command, [])
    without = run("policy", command, *more)
    assert without.code == 2
    assert f"`omnigraph policy {command}` needs a bundle" in without.err


def test_a_file_is_one_bundle_already(run: Run):
    for flag in ("--cluster", "--graph", "--profile"):
        done = run("policy", "validate", "--file", TEAM, flag, "x")
        assert done.code == 2
        assert f"`{flag}`" in done.err


def test_flags_that_address_graphs_do_not_apply(run: Run):
    for flag in ("--store", "--as"):
        done = run("policy", "validate", "--file", TEAM, flag, "x")
        assert done.code == 2
        assert f"`policy validate` is a control command; {flag}" in done.err


# --- test -----------------------------------------------------------------------------------------


def test_the_tests_of_the_example_hold(run: Run):
    done = run("policy", "test", "--file", TEAM, "--tests", CASES)
    assert (done.code, done.out) == (0, "12 cases as expected\n")
    assert answer(run, "test", "--file", TEAM, "--tests", CASES) == {
        "ok": True,
        "cases": 12,
        "failures": [],
    }


def test_c_pol_041_test_lists_every_mismatch_and_exits_1(run: Run, tmp_path: Path):
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "version: 1\n"
        "cases:\n"
        "  - {id: a, actor: act-bo, action: change, branch: main, expect: allow}\n"
        "  - {id: b, actor: act-bo, action: change, branch: review, expect: allow}\n"
        "  - {id: c, actor: act-bo, action: change, branch: review, expect: deny}\n",
        encoding="utf-8",
    )
    done = run("policy", "test", "--file", TEAM, "--tests", cases)
    assert done.code == 1
    assert done.out.splitlines() == [
        "a: expected allow but got deny",
        "c: expected deny but got allow",
        "2 of 3 cases not as expected",
    ]
    assert answer(run, "test", "--file", TEAM, "--tests", cases, code=1) == {
        "ok": False,
        "cases": 3,
        "failures": [
            {"id": "a", "expected": "allow", "actual": "deny"},
            {
                "id": "c",
                "expected": "deny",
                "actual": "allow",
                "matched_rule": "team-edits-branches",
            },
        ],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 2\ncases: []\n", "`version` must be the integer 1"),
        ("version: 1\n", "the document needs the key `cases`"),
        ("cases:\n- {actor: a, action: read, expect: deny}\n", "needs the key `id`"),
        ("cases:\n- {id: x, action: read, expect: deny}\n", "needs the key `actor`"),
        ("cases:\n- {id: x, actor: a, expect: deny}\n", "needs the key `action`"),
        ("cases:\n- {id: x, actor: a, action: read}\n", "needs the key `expect`"),
        ("cases:\n- {id: x, actor: ' ', action: read, expect: deny}\n", "`cases[0].actor` is"),
        ("cases:\n- {id: x, actor: a, action: raed, expect: deny}\n", "no action `raed`"),
        ("cases:\n- {id: x, actor: a, action: read, expect: no}\n", "must be allow or deny"),
        ("cases:\n- {id: x, actor: a, action: read, expect: deny, brnch: x}\n", "cases[0].brnch"),
        (
            "cases:\n" + "- {id: x, actor: a, action: read, expect: deny}\n" * 2,
            "case `x`: there is another case with this id",
        ),
        (
            "cases:\n- {id: lists, actor: a, action: graph_list, expect: deny}\n",
            "case `lists`: `graph_list` is decided by the bundle of a server",
        ),
    ],
)
def test_a_bad_file_of_cases_is_refused(run: Run, tmp_path: Path, text: str, words: str):
    cases = tmp_path / "cases.yaml"
    whole = text if text.startswith("version") else f"version: 1\n{text}"
    cases.write_text(whole, encoding="utf-8")
    done = run("policy", "test", "--file", TEAM, "--tests", cases)
    assert (done.code, done.out) == (1, "")
    assert words in done.err


def test_test_needs_its_cases(run: Run):
    done = run("policy", "test", "--file", TEAM)
    assert done.code == 2
    assert "needs `--tests TESTS.yaml`" in done.err
    assert run("policy", "test", "--file", TEAM, "--tests", "none.yaml").code == 1


# --- explain --------------------------------------------------------------------------------------


def test_explain_says_that_upkeep_shows_all_of_a_graph(run: Run, tmp_path: Path):
    bundle = tmp_path / "upkeep.yaml"
    bundle.write_text(
        "version: 2\ngroups: { ops: [act-ops] }\nrules:\n  - id: keeps\n"
        "    allow: { actors: { group: ops }, actions: [maintain, read] }\n"
    )
    asked = ("policy", "explain", "--file", str(bundle), "--actor", "act-ops", "--action")
    told = run(*asked, "maintain").out
    assert "shows: all of the graph: a backup has every row" in told
    assert "shows:" not in run(*asked, "read").out


def test_c_pol_042_explain_exits_0_on_deny_and_shows_the_rule_on_allow(run: Run):
    question = ["--file", TEAM, "--actor", "act-bo", "--action", "change"]
    denied = run("policy", "explain", *question, "--branch", "main")
    assert denied.code == 0
    assert denied.out.splitlines() == [
        "decision: deny",
        "actor: act-bo",
        "action: change",
        "branch: main",
        "message: no rule lets actor `act-bo` do `change` on branch `main`",
    ]
    allowed = run("policy", "explain", *question, "--branch", "review")
    assert allowed.code == 0
    assert allowed.out.splitlines()[0] == "decision: allow"
    assert "matched_rule: team-edits-branches" in allowed.out.splitlines()


def test_explain_as_json_has_what_was_given_and_found(run: Run):
    question = ["--file", TEAM, "--action", "branch_merge", "--target-branch", "main"]
    denied = answer(run, "explain", *question, "--actor", "act-bo")
    assert denied == {
        "decision": "deny",
        "actor": "act-bo",
        "action": "branch_merge",
        "target_branch": "main",
        "message": "no rule lets actor `act-bo` do `branch_merge` on target branch `main`",
        "bundle": TEAM,
    }
    allowed = answer(run, "explain", *question, "--actor", "act-ana", "--branch", "review")
    assert allowed["decision"] == "allow"
    assert allowed["branch"] == "review"
    assert allowed["matched_rule"] == "maintainers-merge"


def test_explain_asks_the_bundle_of_a_server_for_its_list(run: Run):
    question = ["--actor", "act-ana", "--action", "graph_list"]
    assert answer(run, "explain", "--file", OPERATORS, *question)["decision"] == "allow"
    refused = run("policy", "explain", "--file", TEAM, *question)
    assert refused.code == 1
    assert "`graph_list` is decided by the bundle of a server" in refused.err


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--action", "raed", "there is no action `raed`"),
        ("--actor", " ", "`--actor` is empty"),
    ],
)
def test_explain_refuses_a_question_that_is_none(run: Run, flag: str, value: str, words: str):
    given = {"--actor": "act-bo", "--action": "read"} | {flag: value}
    flags = [word for pair in given.items() for word in pair]
    done = run("policy", "explain", "--file", TEAM, *flags)
    assert done.code == 2
    assert words in done.err


def test_explain_refuses_a_malformed_branch(run: Run):
    done = run(
        "policy", "explain", "--file", TEAM, "--actor", "a", "--action", "read", "--branch", ""
    )
    assert done.code == 1
    assert "branch name '' is empty" in done.err


# --- actors ---------------------------------------------------------------------------------------


def test_c_pol_040_as_refuses_the_reserved_prefix_before_anything_is_read(run: Run, graph: str):
    for actor in ("omnigraph:recovery", "omnigraph:", " "):
        done = run("branch", "create", "x", "--uri", graph, "--as", actor)
        assert done.code == 2
        assert "`--as` is" in done.err
    assert run("branch", "list", "--uri", graph).out == "main\n"
    assert run("branch", "create", "x", "--uri", graph, "--as", "Omnigraph:x").code == 0


def test_c_pol_040_the_configured_actor_refuses_the_reserved_prefix(
    run: Run, graph: str, no_settings: Path
):
    no_settings.mkdir()
    config = no_settings / "config.yaml"
    config.write_text("operator: {actor: 'omnigraph:me'}\n", encoding="utf-8")
    done = run("branch", "create", "x", "--uri", graph)
    assert done.code == 1
    assert f"`operator.actor` in {config} is `omnigraph:me`" in done.err
    config.unlink()
    assert run("branch", "list", "--uri", graph).out == "main\n"

"""C-CLI-050: whoever misspells a name is told the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

SCHEMA = "examples/social/schema.pg"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["lnt"], "`omnigraph` has no command `lnt`", "did you mean `lint`?"),
        (["schema", "pln"], "`omnigraph schema` has no command `pln`", "did you mean `plan`?"),
        (["lint", "--shema", "x"], "`omnigraph lint` has no flag `--shema`", "`--schema`?"),
        (["lint", "--qiet"], "`omnigraph lint` has no flag `--qiet`", "`--quiet`?"),
        (["--colour", "never"], "`omnigraph` has no flag `--colour`", "`--color`?"),
        (["--color", "alway"], "`--color` takes auto, always, never, not `alway`", "`always`?"),
        (
            ["schema", "check", "examples/social/shema.pg"],
            "there is no file `examples/social/shema.pg`",
            "did you mean `schema.pg`?",
        ),
    ],
)
def test_c_cli_050_a_misspelt_word_gets_a_suggestion(run, arguments, message, hint):
    done = run(*arguments)
    assert message in done.err
    assert f"hint: {hint}" in done.err or hint in done.err.rpartition("hint: ")[2]


def test_c_cli_050_a_word_like_no_other_gets_the_list(run):
    first = "hint: its commands are alias, audit, backup, blob, branch, changes, cleanup, clone"
    assert first in run("xyzzy").err
    assert "hint: its commands are apply, check, plan, rebase, show" in run("schema", "xyzzy").err


def test_a_flag_like_no_other_points_at_the_help(run):
    assert "hint: `omnigraph lint --help` shows what it takes" in run("lint", "--xyzzy").err


def test_a_missing_directory_is_named(run):
    done = run("schema", "check", "no/such/place/schema.pg")
    assert "hint: there is no directory `no/such/place`" in done.err


def test_c_cli_050_names_inside_a_text_are_suggested_as_well(run, tmp_path: Path):
    path = tmp_path / "typo.gq"
    path.write_text("query a() { match { $p: Persn } return { $p.name } }")
    done = run("lint", "--schema", SCHEMA, "--query", path)
    assert "hint: did you mean `Person`?" in done.out


def test_c_cli_050_branches_types_queries_and_profiles_are_suggested(
    run, full_graph: str, no_settings: Path
):
    run("branch", "create", "review", "--uri", full_graph)
    no_settings.mkdir()
    (no_settings / "config.yaml").write_text("profiles: {team: {store: graph.omni}}\n")
    text = 'query add() { insert City { name: "Rome" } }'
    for arguments, hint in [
        (["snapshot", full_graph, "--branch", "reviw"], "did you mean `review`?"),
        (["branch", "delete", "reviw", "--uri", full_graph], "did you mean `review`?"),
        (["export", full_graph, "--type", "Persn"], "did you mean `Person`?"),
        (["mutate", "ad", "--store", full_graph, "-e", text], "did you mean `add`?"),
        (["snapshot", "--profile", "tem"], "did you mean `team`?"),
    ]:
        done = run(*arguments)
        assert done.code == 1
        assert f"hint: {hint}" in done.err


def test_c_cli_050_values_of_flags_are_suggested(run, full_graph: str, people: Path):
    done = run("load", full_graph, "--data", people, "--mode", "overwrit")
    assert (done.code, "hint: did you mean `overwrite`?" in done.err) == (2, True)
    done = run("commit", "list", full_graph, "--filter", "actr=ana")
    assert (done.code, "hint: did you mean `actor`?" in done.err) == (2, True)
    done = run("load", full_graph, "--data", people.with_name("peple.jsonl"), "--mode", "merge")
    assert (done.code, "hint: did you mean `people.jsonl`?" in done.err) == (1, True)

"""`omnigraph branch diff`, `branch merge` and `commit changes`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Run

AGE = "query age($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture
def uri(full_graph: str) -> str:
    """A graph whose branch `review` has one insert and one update more than main."""
    graph = og.open(full_graph)
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "cleo"}, branch="review")
    graph.mutate(AGE, {"n": "ada", "a": 40}, branch="review")
    return full_graph


def conflict(uri: str) -> None:
    og.open(uri).mutate(AGE, {"n": "ada", "a": 50})


def age_of_ada(uri: str) -> int:
    found = og.open(uri, mode="read_only").entity_at("node:Person", "ada")
    assert found is not None
    return int(found["age"])


# --- diff -----------------------------------------------------------------------------------------


def test_diff_shows_counts_and_every_change(run: Run, uri: str) -> None:
    done = run("branch", "diff", "main", "review", "--uri", uri)
    assert (done.code, done.err) == (0, "")
    header, *lines = done.out.splitlines()
    assert header.startswith("review ") and header.endswith(", the merge base")
    assert lines == [
        "type         inserted  updated  deleted",
        "node Person         1        1        0",
        "",
        "~ node Person ada  age 36 → 40",
        "+ node Person cleo",
    ]


def test_diff_as_json_has_both_ends_the_changes_and_statistics(run: Run, uri: str) -> None:
    done = run("branch", "diff", "main", "review", "--uri", uri, "--json")
    document = json.loads(done.out)
    assert (document["from"]["graph_branch"], document["to"]["graph_branch"]) == ("main", "review")
    (type_id,) = {change.pop("type_id") for change in document["changes"]}
    assert type_id
    assert document["changes"] == [
        {"kind": "node", "type_name": "Person", "id": "ada", "op": "update"},
        {"kind": "node", "type_name": "Person", "id": "cleo", "op": "insert"},
    ]
    assert document["stats"]["inserted"] == document["stats"]["updated"] == 1
    images = json.loads(
        run("branch", "diff", "main", "review", "--uri", uri, "--json", "--images").out
    )
    assert images["changes"][0]["before"]["properties"]["age"] == 36


def test_diff_takes_filters_commits_and_a_limit(run: Run, uri: str) -> None:
    commits = json.loads(run("commit", "list", uri, "--branch", "review", "--json").out)["commits"]
    ids = [commit["graph_commit_id"] for commit in commits]
    done = run("branch", "diff", ids[1], ids[0], "--uri", uri)
    assert done.out.splitlines()[-1] == "~ node Person ada  age 36 → 40"
    edges = run("branch", "diff", "main", "review", "--uri", uri, "--kind", "edge").out
    assert edges.splitlines()[1:] == ["no differences"]
    short = run("branch", "diff", "main", "review", "--uri", uri, "--limit", "1").out
    assert "1 of 2 changes are not listed" in short
    wrong = run("branch", "diff", "main", "review", "--uri", uri, "--type", "Persn")
    assert wrong.code == 1
    assert "there is no type 'Persn'" in wrong.err


def test_commit_changes_shows_what_one_commit_did(run: Run, uri: str) -> None:
    commits = json.loads(run("commit", "list", uri, "--branch", "review", "--json").out)["commits"]
    newest = commits[0]["graph_commit_id"]
    assert run("commit", "changes", newest.lower(), "--uri", uri).out.splitlines()[0] == (
        "~ node Person ada  age 36 → 40"
    )
    document = json.loads(run("commit", "changes", newest, "--uri", uri, "--json").out)
    assert document["cause"]["authored_branch"] == "review"
    (change,) = document["changes"]
    assert change["type"]["name"] == "Person"
    assert (change["before"]["properties"]["age"], change["after"]["properties"]["age"]) == (36, 40)
    genesis = commits[-1]["graph_commit_id"]
    refused = run("commit", "changes", genesis, "--uri", uri, "--json")
    assert refused.code == 1
    reason = json.loads(refused.out)["change_diff_refusal"]["reason"]
    assert reason == "parentless_commit"


# --- merge ----------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_plan_and_changes_nothing(run: Run, uri: str) -> None:
    done = run("branch", "merge", "review", "--uri", uri, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "review into main: fast forward",
        "",
        "type         how      inserted  updated  deleted  conflicts  resolved",
        "node Person  adopted         1        1        0          0         0",
        "",
        "~ node Person ada  age",
        "+ node Person cleo",
    ]
    short = run("branch", "merge", "review", "--uri", uri, "--dry-run", "--limit", "1").out
    assert short.splitlines()[-1] == "… 1 of 2 changes are listed; `--limit` or `--json` shows more"
    assert age_of_ada(uri) == 36
    document = json.loads(run("branch", "merge", "review", "--uri", uri, "--dry-run", "--json").out)
    assert document["outcome"] == "fast_forward"
    assert document["types"][0]["inserted"] == 1
    assert [change["id"] for change in document["changes"]] == ["ada", "cleo"]
    page = ["branch", "merge", "review", "--uri", uri, "--dry-run", "--json", "--limit", "1"]
    first = json.loads(run(*page).out)
    second = json.loads(run(*page, "--page-token", first["next_page_token"]).out)
    assert [*first["changes"], *second["changes"]] == document["changes"]


def test_a_merge_says_what_it_did(run: Run, uri: str) -> None:
    done = run("branch", "merge", "review", "--uri", uri)
    assert done.code == 0
    first, second = done.out.splitlines()
    assert first == "merged review into main, which had not moved"
    assert second.startswith("commit ")
    assert f"omnigraph branch merge → {uri}" in done.err
    again = run("branch", "merge", "review", "--uri", uri)
    assert again.out == "main already has everything of review\n"
    assert age_of_ada(uri) == 40


def test_a_merge_as_json_has_the_served_shape(run: Run, uri: str) -> None:
    done = run("--as", "act-ana", "branch", "merge", "review", "--uri", uri, "--json")
    assert json.loads(done.out) == {
        "source": "review",
        "target": "main",
        "outcome": "fast_forward",
        "actor_id": "act-ana",
        "commit": og.open(uri).list_commits()[0].to_dict(),
    }


def test_a_conflict_fails_with_its_images_and_changes_nothing(run: Run, uri: str) -> None:
    conflict(uri)
    done = run("branch", "merge", "review", "--uri", uri)
    assert (done.code, done.out) == (1, "")
    assert (
        "divergent_update  Person 'ada' was updated differently on review and on main" in done.err
    )
    assert "    base    age 36\n    source  age 40\n    target  age 50\n" in done.err
    assert "hint: nothing was merged" in done.err
    machine = run("branch", "merge", "review", "--uri", uri, "--json")
    assert machine.code == 1
    (found,) = json.loads(machine.out)["merge_conflicts"]
    assert {key: found[key] for key in ("entity_kind", "type_name", "entity_id", "kind")} == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "ada",
        "kind": "divergent_update",
    }
    assert [found[side]["properties"]["age"] for side in ("base", "source", "target")] == [
        36,
        40,
        50,
    ]
    assert age_of_ada(uri) == 50
    planned = run("branch", "merge", "review", "--uri", uri, "--dry-run")
    assert planned.code == 0
    assert "divergent_update" in planned.out


@pytest.mark.parametrize(
    ("rules", "age"),
    [(["source"], 40), (["target"], 50), (["target", "Person=source"], 40)],
    ids=str,
)
def test_one_side_wins_if_asked_for(run: Run, uri: str, rules: list[str], age: int) -> None:
    conflict(uri)
    words = [word for rule in rules for word in ("--on-conflict", rule)]
    assert run("branch", "merge", "review", "--uri", uri, *words).code == 0
    assert age_of_ada(uri) == age


def test_a_review_from_plan_to_conflict_to_merge(run: Run, full_graph: str) -> None:
    """A plan, a conflict that changes nothing and says all of itself, and a way through."""
    graph = og.open(full_graph)
    graph.create_branch("agent/1")
    graph.mutate(AGE, {"n": "ada", "a": 40}, branch="agent/1")
    conflict(full_graph)
    merge = ("branch", "merge", "agent/1", "--uri", full_graph)
    before = b"".join(graph.export()), graph.list_commits()

    plan = run(*merge, "--dry-run")
    assert (plan.code, plan.err) == (0, "")
    assert "node Person  merged         0        0        0          1         0" in plan.out
    planned = json.loads(run(*merge, "--dry-run", "--json").out)

    refused = run(*merge, "--json")
    assert refused.code == 1
    envelope = json.loads(refused.out)
    assert envelope.keys() == {"error", "code", "merge_conflicts", "hint"}
    assert envelope["code"] == "conflict", "what a server answers with 409"
    (found,) = envelope["merge_conflicts"]
    assert planned["merge_conflicts"] == [found]
    said = "Person 'ada' was updated differently on agent/1 and on main"
    ada = {"name": "ada"}
    assert {key: found[key] for key in found.keys() - {"base", "source", "target"}} == {
        "entity_kind": "node",
        "type_name": "Person",
        "table_key": "node:Person",
        "entity_id": "ada",
        "kind": "divergent_update",
        "message": said,
        "properties": ["age"],
    }
    for side, age in (("base", 36), ("source", 40), ("target", 50)):
        properties = found[side]["properties"]
        assert {"name": properties["name"], "age": properties["age"]} == ada | {"age": age}
    assert (b"".join(graph.export()), graph.list_commits()) == before, "the target changed"

    done = run(*merge, "--on-conflict", "source")
    assert (done.code, done.out.splitlines()[0]) == (0, "merged agent/1 into main")
    assert age_of_ada(full_graph) == 40


def test_an_entity_that_a_side_does_not_have_has_no_image_there(run: Run, uri: str) -> None:
    og.open(uri).mutate('query q { delete Person where name = "ada" }')
    refused = run("branch", "merge", "review", "--uri", uri, "--json")
    (found,) = json.loads(refused.out)["merge_conflicts"]
    assert (found["kind"], found["source"]["properties"]["age"]) == ("delete_vs_update", 40)
    assert "target" not in found
    shown = run("branch", "merge", "review", "--uri", uri, "--dry-run").out
    assert "    target  -\n" in shown


def test_plans_and_diffs_are_coloured_without_changing_a_word(run: Run, uri: str) -> None:
    conflict(uri)
    for words, colours in (
        (("branch", "diff", "main", "review"), ("33", "32")),
        (("branch", "merge", "review", "--dry-run"), ("1;31", "31")),
    ):
        plain = run(*words, "--uri", uri).out
        styled = run(*words, "--uri", uri, "--color", "always").out
        assert re.sub(r"\x1b\[[0-9;]*m", "", styled) == plain
        assert all(f"\x1b[{colour}m" in styled for colour in colours)
        assert "\x1b" not in plain


def test_words_that_mean_nothing_are_usage_errors(run: Run, uri: str) -> None:
    wrong = run("branch", "merge", "review", "--uri", uri, "--on-conflict", "sorce")
    assert wrong.code == 2
    assert "`--on-conflict` takes fail, source, target, not `sorce`" in wrong.err
    assert run("branch", "merge", "review", "--uri", uri, "--granularity", "row").code == 2
    assert (
        run("branch", "merge", "review", "--uri", uri, "--on-conflict", "Nobody=source").code == 1
    )


def test_a_branch_is_merged_into_another(run: Run, uri: str) -> None:
    og.open(uri).create_branch("stage")
    assert run("branch", "merge", "review", "--into", "stage", "--uri", uri).code == 0
    assert age_of_ada(uri) == 36
    left = run("branch", "diff", "stage", "review", "--uri", uri).out
    assert left.splitlines()[1:] == ["no differences"]


def test_c_rev_001_the_command_compares_with_the_merge_base_or_directly(run: Run, uri: str) -> None:
    og.open(uri).mutate('query q { insert Person { name: "meanwhile" } }')
    pair = ("branch", "diff", "main", "review", "--uri", uri)
    since = run(*pair).out.splitlines()
    assert since[0].endswith(", the merge base") and "- node Person meanwhile" not in since
    direct = run(*pair, "--direct").out.splitlines()
    assert direct[0].endswith(", compared directly") and "- node Person meanwhile" in direct
    assert json.loads(run(*pair, "--direct", "--json").out)["compared"] == "direct"


def test_the_merged_branch_is_deleted_if_asked_for(run: Run, uri: str) -> None:
    done = run("branch", "merge", "review", "--uri", uri, "--delete-branch", "--json")
    assert json.loads(done.out)["branch_deleted"] is True
    assert run("branch", "list", "--uri", uri).out == "main\n"


def test_c_cli_030_a_refused_deletion_is_a_warning(run: Run, uri: str) -> None:
    og.open(uri).create_branch("child", "review")
    done = run("branch", "merge", "review", "--uri", uri, "--delete-branch")
    assert done.code == 0
    assert "warning: branch review was not deleted" in done.err
    assert "child still depends on it" in done.err
    machine = run("branch", "merge", "review", "--uri", uri, "--delete-branch", "--json")
    document = json.loads(machine.out)
    assert document["outcome"] == "already_up_to_date"
    assert document["branch_deleted"] is False
    assert "still depends on it" in document["branch_delete_error"]


def test_reading_what_would_be_merged_writes_nothing(run: Run, uri: str) -> None:
    def files() -> dict[str, int]:
        found = (path for path in Path(uri).rglob("*") if path.is_file())
        return {str(path): path.stat().st_mtime_ns for path in found}

    before = files()
    run("branch", "merge", "review", "--uri", uri, "--dry-run")
    run("branch", "diff", "main", "review", "--uri", uri)
    assert files() == before


# --- one commit, one entity -----------------------------------------------------------------------


def newest(run: Run, uri: str, branch: str = "main") -> str:
    commits = json.loads(run("commit", "list", uri, "--branch", branch, "--json").out)["commits"]
    return str(commits[0]["graph_commit_id"])


def test_a_commit_is_reverted_by_a_new_one(run: Run, uri: str) -> None:
    conflict(uri)
    wrong = newest(run, uri)
    planned = run("commit", "revert", wrong, "--uri", uri, "--dry-run")
    assert f"revert of {wrong} into main: merged" in planned.out
    assert age_of_ada(uri) == 50
    done = run("commit", "revert", wrong, "--uri", uri)
    assert done.code == 0
    first, second, third = done.out.splitlines()
    assert (first, second) == (f"reverted {wrong} on main", "0 inserted, 1 updated, 0 deleted")
    assert third == f"commit {newest(run, uri)}"
    assert age_of_ada(uri) == 36


def test_a_commit_that_was_changed_again_is_not_reverted(run: Run, uri: str) -> None:
    conflict(uri)
    wrong = newest(run, uri)
    og.open(uri).mutate(AGE, {"n": "ada", "a": 51})
    refused = run("commit", "revert", wrong, "--uri", uri, "--json")
    assert refused.code == 1
    assert json.loads(refused.out)["merge_conflicts"][0]["kind"] == "divergent_update"
    assert age_of_ada(uri) == 51


def test_a_commit_is_picked_into_a_branch(run: Run, uri: str) -> None:
    picked = newest(run, uri, "review")
    og.open(uri).create_branch("stage")
    done = run("branch", "cherry-pick", picked, "--into", "stage", "--uri", uri, "--json")
    document = json.loads(done.out)
    assert (document["of_commit_id"], document["updated"], document["inserted"]) == (picked, 1, 0)
    again = run("branch", "cherry-pick", picked, "--into", "stage", "--uri", uri)
    assert again.out == "stage needs nothing of it: there is nothing to change\n"


def test_commits_that_changed_an_entity_are_listed_with_what_they_did(run: Run, uri: str) -> None:
    done = run("commit", "list", uri, "--branch", "review", "--entity", "Person:ada")
    lines = done.out.splitlines()
    assert lines[0].startswith(f"~ {newest(run, uri, 'review')}")
    assert lines[1].strip() == "age 36 → 40"
    assert lines[2].startswith("+ ")
    assert len(lines) == 4
    document = json.loads(
        run(
            "commit", "list", uri, "--branch", "review", "--entity", "node:Person:ada", "--json"
        ).out
    )
    assert [each["change"]["op"] for each in document["commits"]] == ["update", "insert"]
    assert run("commit", "list", uri, "--entity", "Person").code == 2
    assert run("commit", "list", uri, "--entity", "Person:who").out == "no commit changed it\n"

"""`omnigraph cleanup`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph import open_graph

ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture
def old(full_graph: str) -> str:
    """A graph with a history."""
    graph = open_graph(full_graph)
    for number in range(6):
        graph.mutate(ADD, {"n": f"p{number}"})
    return full_graph


def versions(uri: str) -> int:
    return len(open_graph(uri)._opened.reader().handle("node:Person").versions())


def test_c_mnt_031_a_policy_is_needed(run, old: str):
    done = run("cleanup", old, "--confirm")
    assert done.code == 2
    assert "`--keep` or `--older-than`" in done.err


def test_c_cli_040_without_confirm_nothing_goes_and_the_policy_is_told(run, old: str):
    before = versions(old)
    done = run("cleanup", old, "--keep", "3")
    assert done.code == 0
    assert "only a preview: versions beyond the newest 3" in done.err
    assert done.out.endswith("would be removed\n")
    assert versions(old) == before
    assert "preview" not in run("cleanup", old, "--keep", "3", "--quiet").err


def test_cleanup_says_what_went_and_then_that_nothing_is_left(run, old: str):
    done = run("cleanup", old, "--keep", "3", "--confirm")
    assert done.code == 0
    assert done.err == f"omnigraph cleanup → {old} (direct, local)\n"
    header, first, *_ = (line.split() for line in done.out.splitlines())
    assert header == ["table", "versions", "bytes", "refs"]
    assert first[:3] == ["node", "Person", "5"]
    assert versions(old) == 3
    assert run("cleanup", old, "--keep", "3", "--confirm").out == "nothing to clean up\n"


def test_few_versions_are_warned_about(run, old: str):
    assert "warning: `--keep 2` leaves little room" in run("cleanup", old, "--keep", "2").err
    assert "warning" not in run("cleanup", old, "--keep", "3").err
    assert run("cleanup", old, "--keep", "-1").code == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("2m", 120), ("3h", 10_800), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_ages_have_units(run, old: str, text: str, seconds: int):
    document = json.loads(run("cleanup", old, "--older-than", text, "--json").out)
    assert (document["keep_versions"], document["older_than_secs"]) == (None, seconds)


@pytest.mark.parametrize("text", ["", "soon", "1y", "-1d", "1.5h", f"{'9' * 30}w"])
def test_other_ages_are_usage_errors(run, old: str, text: str):
    assert run("cleanup", old, "--older-than", text).code == 2


def test_cleanup_as_json(run, old: str):
    document = json.loads(run("cleanup", old, "--keep", "1", "--confirm", "--json").out)
    assert set(document) == {"uri", "keep_versions", "older_than_secs", "datasets", "summary"}
    (person,) = [row for row in document["datasets"] if row["type_key"] == "node:Person"]
    assert list(person) == [
        *("type_key", "bytes_removed", "old_versions_removed", "orphan_refs_removed", "error"),
    ]
    assert person["old_versions_removed"] == 7
    assert document["datasets"][-1]["type_key"] == "__manifest"
    assert document["summary"]["dry_run"] is False


def test_c_mnt_043_and_c_cli_039_remote_storage_needs_consent_to_a_removal(run):
    done = run("cleanup", "s3://nowhere/team.omni", "--keep", "10", "--confirm")
    assert done.code == 1
    assert "needs consent" in done.err
    assert "--yes" in done.err


def test_c_mnt_040_an_error_in_a_row_exits_with_1(run, old: str, monkeypatch: pytest.MonkeyPatch):
    from omnigraph.effects.failpoints import armed

    with armed("cleanup.table_gc=error*1"):
        done = run("cleanup", old, "--keep", "1", "--confirm")
    assert done.code == 1
    assert "failed: " in done.out
    assert run("cleanup", old, "--keep", "1", "--confirm").code == 0


def test_c_mnt_037_an_unfinished_operation_stops_it(run, old: str):
    folder = Path(old) / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / "01K9WR3C5T8M2B7XQ4ZJ6V0NHD.json").write_text("{}")
    before = versions_on_disk(old)
    assert run("cleanup", old, "--keep", "1", "--confirm").code == 1
    assert versions_on_disk(old) == before


def versions_on_disk(uri: str) -> int:
    return len(list(Path(uri).glob("nodes/*/_versions/*.manifest")))

"""`omnigraph commit changes`, `changes poll` and `changes baseline`."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.model.changes import CommitPage, FeedPage
from tests.cli.conftest import Run

ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
AGE = "query age($n: String, $a: I32?) { update Person set { age: $a } where name = $n }"


def write(uri: str, *names: str, mode: str = "merge") -> str:
    lines = [json.dumps({"type": "Person", "data": {"name": name}}) for name in names]
    receipt = og.open(uri).load(data="\n".join(lines), mode=mode)  # type: ignore[arg-type]
    assert receipt.commit is not None
    return receipt.commit.graph_commit_id


def cursor_now(run: Run, uri: str, *flags: str) -> str:
    document = json.loads(run("changes", "poll", "--uri", uri, "--json", *flags).out)
    cursor: str = document["cursor"]
    return cursor


# --- commit changes -------------------------------------------------------------------------------


def test_c_cli_036_all_pages_of_a_commit_are_one_json_document(run: Run, full_graph: str) -> None:
    commit = write(full_graph, *(f"n{n}" for n in range(7)))
    whole = json.loads(run("commit", "changes", commit, "--uri", full_graph, "--json").out)
    assert set(whole) == {"cause", "changes"}
    assert [change["id"] for change in whole["changes"]] == [f"n{n}" for n in range(7)]
    for limit in ("1", "3", "7", "8"):
        done = run("commit", "changes", commit, "--uri", full_graph, "--json", "--limit", limit)
        assert (done.code, done.err) == (0, "")
        assert json.loads(done.out) == whole


def test_c_cli_036_a_page_token_shows_one_raw_page(run: Run, full_graph: str) -> None:
    commit = write(full_graph, *(f"n{n}" for n in range(5)))
    first = og.open(full_graph).commit_changes_page(commit, limit=2)
    command = ("commit", "changes", commit, "--uri", full_graph, "--limit", "2")
    done = run(*command, "--page-token", first.next_page_token, "--json")
    page = json.loads(done.out)
    assert set(page) == {"cause", "changes", "next_page_token"}
    assert [change["id"] for change in page["changes"]] == ["n2", "n3"]
    shown = run(*command, "--page-token", page["next_page_token"])
    assert shown.out == "+ node Person n4\n"
    shown = run(*command, "--page-token", first.next_page_token)
    assert shown.out.splitlines() == [
        "+ node Person n2",
        "+ node Person n3",
        f"next page  {page['next_page_token']}",
    ]
    bad = run(*command, "--page-token", "nonsense", "--json")
    assert bad.code == 1
    assert json.loads(bad.out)["error"] == "change cursor rejected: it is damaged"


def test_c_cli_036_a_later_page_that_fails_exits_1_after_a_partial_print(
    run: Run, full_graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = write(full_graph, *(f"n{n}" for n in range(5)))
    real = og.Graph.commit_changes_page

    def failing(graph: og.Graph, *args: object, **request: object) -> CommitPage:
        if request.get("page_token") is not None:
            raise StorageError("the store is gone")
        return real(graph, *args, **request)  # type: ignore[arg-type]

    monkeypatch.setattr(og.Graph, "commit_changes_page", failing)
    done = run("commit", "changes", commit, "--uri", full_graph, "--json", "--limit", "2")
    assert done.code == 1
    assert '"n1"' in done.out and '"n2"' not in done.out
    with pytest.raises(json.JSONDecodeError):
        json.loads(done.out)
    assert json.loads(done.err)["error"] == "the store is gone"


def test_changes_of_a_commit_for_people(run: Run, full_graph: str) -> None:
    graph = og.open(full_graph)
    graph.load(
        data="\n".join(
            json.dumps(record)
            for record in (
                {"type": "Person", "data": {"name": "ada", "age": 40}},
                {"type": "Person", "data": {"name": "cleo"}},
                {"type": "Person", "data": {"name": "bo", "age": 1}},
            )
        ),
        mode="merge",
    )
    commit = graph.list_commits()[0].graph_commit_id
    assert run("commit", "changes", commit, "--uri", full_graph).out.splitlines() == [
        "~ node Person ada  age 36 → 40",
        "~ node Person bo  age <null> → 1",
        "+ node Person cleo",
        "",
        "type         inserted  updated  deleted",
        "node Person         1        2        0",
    ]
    nothing = run("commit", "changes", commit, "--uri", full_graph, "--op", "delete")
    assert nothing.out == "no changes\n"


def test_a_moved_edge_shows_both_pairs_of_ends(run: Run, full_graph: str) -> None:
    graph = og.open(full_graph)
    write(full_graph, "cleo")
    known = '{"edge": "Knows", "from": "ada", "to": "%s", "data": {"id": "k", "since": null}}'
    graph.load(data=known % "bo", mode="merge")
    graph.load(data=known % "cleo", mode="merge")
    commit = graph.list_commits()[0].graph_commit_id
    done = run("commit", "changes", commit, "--uri", full_graph)
    assert done.out.splitlines()[0] == "~ edge Knows k (ada → bo) ⇒ (ada → cleo)"


# --- poll -----------------------------------------------------------------------------------------


def test_c_cli_037_the_cursor_is_printed_last_and_once(run: Run, full_graph: str) -> None:
    cursor = cursor_now(run, full_graph)
    commits = [write(full_graph, "a", "b", "c"), write(full_graph, "d")]
    done = run("changes", "poll", "--uri", full_graph, "--cursor", cursor, "--limit", "2", "--json")
    document = json.loads(done.out)
    assert list(document) == ["blocks", "cursor", "caught_up"]
    assert [block["cause"]["graph_commit_id"] for block in document["blocks"]] == commits
    assert [[c["id"] for c in block["changes"]] for block in document["blocks"]] == [
        ["a", "b", "c"],
        ["d"],
    ]
    assert document["caught_up"] is True
    assert done.out.count('"cursor"') == 1
    assert "next_page_token" not in done.out
    assert done.out.rstrip().endswith('"caught_up": true\n}')
    again = run("changes", "poll", "--uri", full_graph, "--cursor", document["cursor"], "--json")
    assert json.loads(again.out)["blocks"] == []


def test_c_cli_037_a_poll_that_fails_prints_no_cursor(
    run: Run, full_graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = cursor_now(run, full_graph)
    write(full_graph, "a", "b", "c")
    real = og.Graph.poll_changes

    def failing(graph: og.Graph, *args: object, **request: object) -> FeedPage:
        if request.get("page_token") is not None:
            raise StorageError("the store is gone")
        return real(graph, *args, **request)  # type: ignore[arg-type]

    monkeypatch.setattr(og.Graph, "poll_changes", failing)
    for flags in ((), ("--json",)):
        done = run(
            "changes", "poll", "--uri", full_graph, "--cursor", cursor, "--limit", "2", *flags
        )
        assert done.code == 1
        assert "cursor" not in done.out
        assert "the store is gone" in done.err


def test_a_poll_for_people_shows_blocks_and_then_the_cursor(run: Run, full_graph: str) -> None:
    start = cursor_now(run, full_graph)
    nothing = run("changes", "poll", "--uri", full_graph).out.splitlines()
    assert nothing == ["no commits", "", "caught up", f"cursor {start}"]
    graph = og.open(full_graph)
    graph.mutate(ADD, {"n": "cleo", "a": 3}, actor="act-ana")
    graph.mutate(AGE, {"n": "cleo", "a": None})
    lines = run("changes", "poll", "--uri", full_graph, "--cursor", start).out.splitlines()
    second, first = graph.list_commits()[:2]
    assert lines[0].startswith(f"{first.graph_commit_id}  main  act-ana  2")
    assert lines[1] == "  + node Person cleo"
    assert lines[2].startswith(f"{second.graph_commit_id}  main  -  2")
    assert lines[3:6] == ["  ~ node Person cleo  age 3 → <null>", "", "caught up"]
    assert lines[6].startswith("cursor ")
    assert len(lines) == 7
    cities = ("changes", "poll", "--uri", full_graph, "--type", "City")
    of_cities = run(*cities, "--start", f"after:{first.graph_commit_id}").out.splitlines()
    assert of_cities[1] == "  no changes"


def test_a_cursor_excludes_a_start(run: Run, full_graph: str) -> None:
    done = run("changes", "poll", "--uri", full_graph, "--cursor", "x", "--start", "now")
    assert done.code == 2
    assert "`--cursor` and `--start` exclude each other" in done.err
    done = run("changes", "poll", "--uri", full_graph, "--cursor", "x", "--json")
    assert (done.code, json.loads(done.out)["code"]) == (1, "bad_request")
    assert "change cursor rejected: " in done.err


def test_a_gap_says_which_commit_cannot_be_read(run: Run, full_graph: str) -> None:
    cursor = cursor_now(run, full_graph)
    missing = write(full_graph, "n0")
    for n in range(1, 5):
        write(full_graph, f"n{n}")
    og.open(full_graph).cleanup(keep=1, confirm=True)
    done = run("changes", "poll", "--uri", full_graph, "--cursor", cursor, "--json")
    assert done.code == 1
    gap = {"cursor": cursor, "first_unreadable_commit_id": missing}
    assert json.loads(done.out)["change_feed_gap"] == gap
    assert "omnigraph changes baseline" in done.err


# --- baseline -------------------------------------------------------------------------------------


def test_a_baseline_is_written_and_its_cursor_goes_on(
    run: Run, full_graph: str, tmp_path: Path
) -> None:
    out = tmp_path / "base.jsonl"
    done = run("changes", "baseline", "--uri", full_graph, "--out", out, "--json")
    assert (done.code, done.err) == (0, "")
    handshake = json.loads(done.out)
    assert set(handshake) == {"snapshot_commit_id", "resume_cursor"}
    *records, last = [json.loads(line) for line in out.read_text().splitlines()]
    assert last == {"baseline": handshake}
    assert [(record["type"]["name"], record["id"]) for record in records[:2]] == [
        ("Person", "ada"),
        ("Person", "bo"),
    ]
    write(full_graph, "cleo")
    poll = ("changes", "poll", "--uri", full_graph, "--json")
    document = json.loads(run(*poll, "--cursor", handshake["resume_cursor"]).out)
    assert [[c["id"] for c in block["changes"]] for block in document["blocks"]] == [["cleo"]]
    shown = run("changes", "baseline", "--uri", full_graph, "--out", out).out.splitlines()
    assert shown[0] == f"4 entities of main written to {out}"
    assert shown[1] == f"commit {document['blocks'][0]['cause']['graph_commit_id']}"
    assert shown[2] == f"cursor {document['cursor']}"
    assert sorted(path.name for path in tmp_path.glob("*base*")) == [
        "base.jsonl",
        "base.jsonl.lock",
    ]
    assert not list(tmp_path.glob(".*"))


def test_c_cli_038_a_failed_baseline_keeps_the_file_and_prints_no_cursor(
    run: Run, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.branching.change_feed import ChangeBaseline

    out = tmp_path / "base.jsonl"
    out.write_text("as it was")
    real = ChangeBaseline.blocks

    def failing(baseline: ChangeBaseline) -> object:
        for block in real(baseline):
            yield block
            raise StorageError("the store is gone")

    monkeypatch.setattr(ChangeBaseline, "blocks", failing)
    done = run("changes", "baseline", "--uri", full_graph, "--out", out)
    assert done.code == 1
    assert done.out == ""
    assert "the store is gone" in done.err
    assert out.read_text() == "as it was"
    assert not list(tmp_path.glob(".*partial"))


def test_c_cli_038_a_baseline_without_its_last_record_is_a_failure(
    run: Run, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.branching.change_feed import ChangeBaseline

    out = tmp_path / "base.jsonl"
    monkeypatch.setattr(ChangeBaseline, "blocks", lambda baseline: iter([b"{}\n"]))
    done = run("changes", "baseline", "--uri", full_graph, "--out", out, "--json")
    assert done.code == 1
    assert "resume_cursor" not in done.out
    assert not out.exists()


def test_c_cli_038_a_full_disk_or_a_wrong_place_prints_no_cursor(
    run: Run, full_graph: str, tmp_path: Path
) -> None:
    for out in (tmp_path, tmp_path / "missing" / "base.jsonl", Path("/dev/full")):
        done = run("changes", "baseline", "--uri", full_graph, "--out", out)
        assert (done.code, done.out) == (1, "")
        assert str(out) in done.err


def test_c_cli_038_two_baselines_do_not_write_one_file(
    run: Run, full_graph: str, tmp_path: Path
) -> None:
    out = tmp_path / "base.jsonl"
    with (tmp_path / "base.jsonl.lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = run("changes", "baseline", "--uri", full_graph, "--out", out)
        assert (done.code, done.out) == (1, "")
        assert "another baseline is being written" in done.err
        assert not out.exists()
    assert run("changes", "baseline", "--uri", full_graph, "--out", out).code == 0


def test_c_cli_038_a_file_that_another_program_put_there_is_noticed(
    run: Run, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, theirs = tmp_path / "base.jsonl", tmp_path / "theirs"
    theirs.write_text("theirs")
    replace = Path.replace

    def raced(path: Path, target: Path) -> Path:
        done = replace(path, target)
        replace(theirs, target)
        return done

    monkeypatch.setattr(Path, "replace", raced)
    done = run("changes", "baseline", "--uri", full_graph, "--out", out)
    assert (done.code, done.out) == (1, "")
    assert "was replaced by another process" in done.err


def test_a_baseline_needs_a_file(run: Run, full_graph: str) -> None:
    done = run("changes", "baseline", "--uri", full_graph)
    assert done.code == 2
    assert "--out" in done.err

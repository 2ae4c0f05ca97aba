"""`omnigraph snapshot`, `export`, `branch`, `commit`, `schema show`, and lint against a graph."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from omnigraph.cli.files import replaced_file
from omnigraph.errors import InputError
from tests.cli.conftest import SCHEMA


def test_snapshot_shows_types_counts_and_the_commit(run, full_graph: str):
    document = json.loads(run("snapshot", full_graph, "--json").out)
    assert document["graph_branch"] == "main"
    assert [(d["entity_kind"], d["type_name"]) for d in document["datasets"]] == [
        ("edge", "Knows"),
        ("node", "City"),
        ("node", "Person"),
    ]
    lines = run("snapshot", full_graph).out.splitlines()
    assert re.fullmatch(r"type +entities +version", lines[0])
    assert re.fullmatch(r"node Person +2 +\d+", lines[3])
    assert lines[-2:] == ["3 entities on main", f"commit {document['graph_commit_id']}"]


def test_reads_write_nothing(run, full_graph: str):
    def files() -> dict[str, float]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in Path(full_graph).rglob("*")
            if path.is_file()
        }

    before = files()
    for command in (
        ["snapshot", full_graph],
        ["export", full_graph],
        ["branch", "list", "--uri", full_graph],
        ["commit", "list", full_graph],
        ["schema", "show", full_graph],
        ["recovery", "list", full_graph],
    ):
        assert run(*command).code == 0
    assert files() == before


@pytest.mark.parametrize(
    "command",
    [["snapshot"], ["export"], ["commit", "list"], ["recover"], ["schema", "show"]],
    ids=" ".join,
)
def test_where_there_is_no_graph_none_is_made(run, tmp_path: Path, command):
    place = tmp_path / "nothing.omni"
    done = run(*command, place)
    assert (done.code, done.out) == (1, "")
    assert f"there is no graph at {place}" in done.err
    assert "hint: create one with `omnigraph init" in done.err
    assert not place.exists()


# --- export ---------------------------------------------------------------------------------------


def test_export_writes_one_entity_a_line(run, full_graph: str):
    done = run("export", full_graph)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record.get("edge") or record["type"] for record in records] == [
        "Knows",
        "Person",
        "Person",
    ]
    assert done.err == ""


def test_export_of_chosen_types(run, full_graph: str):
    done = run("export", full_graph, "--type", "Person", "--type", "City")
    assert [json.loads(line)["type"] for line in done.out.splitlines()] == ["Person", "Person"]


def test_export_into_a_file_leaves_a_receipt(run, full_graph: str, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    done = run("export", full_graph, "--out", out)
    assert done.out == f"3 entities exported from main to {out}\n"
    assert out.read_text() == run("export", full_graph).out
    document = json.loads(run("export", full_graph, "--out", out, "--json").out)
    assert document == {
        "uri": full_graph,
        "branch": "main",
        "out": str(out),
        "entities": 3,
        "bytes": out.stat().st_size,
    }
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.jsonl"]


def test_a_failed_export_leaves_the_old_file(run, full_graph: str, tmp_path: Path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    assert run("export", full_graph, "--type", "Missing", "--out", out).code == 1
    assert out.read_text() == "old"


@pytest.mark.parametrize("format", ["parquet", "csv", "arrow", "jsonl"])
def test_export_of_files_by_type_loads_back(
    run, full_graph: str, schema_file: Path, tmp_path: Path, format: str
):
    out, copy = tmp_path / "out", str(tmp_path / "copy.omni")
    done = run("export", full_graph, "--format", format, "--out", out)
    assert done.out == f"3 entities exported from main to {out} as {format}\n"
    again = run("export", full_graph, "--format", format, "--out", out)
    assert again.code == 1
    assert f"{out} holds an export\nhint: replace it with `--overwrite`" in again.err
    replaced = run("export", full_graph, "--format", format, "--out", out, "--overwrite", "--json")
    document = json.loads(replaced.out)
    assert (document["format"], document["entities"], document["out"]) == (format, 3, str(out))
    assert [each["type_name"] for each in document["types"]] == ["Knows", "City", "Person"]
    assert run("init", "--schema", schema_file, copy).code == 0
    assert run("load", copy, "--data", out, "--mode", "overwrite").code == 0
    assert run("export", copy).out == run("export", full_graph).out


def test_export_of_files_of_chosen_types_of_an_older_commit(run, full_graph: str, tmp_path: Path):
    head = json.loads(run("commit", "list", full_graph, "--json").out)["commits"][0]
    then = head["graph_commit_id"]
    add = 'query add { insert Person { name: "cy" } }'
    assert run("mutate", "--store", full_graph, "-e", add).code == 0
    place = [full_graph, "--snapshot", then, "--types", "Person,City", "--json"]
    done = run("export", *place, "--format", "csv", "--out", tmp_path / "out")
    document = json.loads(done.out)
    assert (document["entities"], document["graph_commit_id"]) == (2, then)
    assert len(run("export", full_graph, "--snapshot", then).out.splitlines()) == 3
    assert len(run("export", full_graph).out.splitlines()) == 4


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--format", "parquet"], "`--format parquet` needs a directory of files"),
        (["--overwrite"], "`--overwrite` needs a directory of files"),
        (["--overwrite", "--out", "x.jsonl"], "`--overwrite` needs a directory of files"),
        (["--format", "parkuet", "--out", "x"], "not `parkuet`"),
    ],
)
def test_export_says_which_flags_belong_together(run, full_graph: str, flags, said: str):
    done = run("export", full_graph, *flags)
    assert done.code == 2
    assert said in done.err


def test_a_replaced_file_is_all_or_nothing(tmp_path: Path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), replaced_file(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_replaced_file_keeps_the_link_to_it(tmp_path: Path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replaced_file(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_what_is_not_a_file_is_never_replaced_by_one(tmp_path: Path):
    with pytest.raises(InputError, match="is a directory"), replaced_file(tmp_path):
        pass
    with replaced_file(Path(os.devnull)) as stream:
        stream.write(b"gone")
    assert Path(os.devnull).is_char_device()


def test_a_place_that_cannot_be_written_is_named_as_it_was_given(run, full_graph: str):
    done = run("export", full_graph, "--out", "no/such/place.jsonl")
    assert done.code == 1
    said = "error: cannot write `no/such/place.jsonl`: no such file or directory\n"
    assert done.err == f"{said}hint: there is no directory `no/such`\n"


def test_c_cli_049_a_reader_that_leaves_an_export_ends_it_with_141(start, run, graph: str):
    data = Path(graph).with_name("many.jsonl")
    lines = (
        f'{{"type": "Person", "data": {{"name": "person number {n}"}}}}\n' for n in range(5000)
    )
    data.write_text("".join(lines))
    run("load", graph, "--data", data, "--mode", "append")
    process = start("export", graph)
    assert process.stdout.read(10) == b'{"type":"P'
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


# --- branches and history -------------------------------------------------------------------------


def test_branches_are_created_listed_and_deleted(run, full_graph: str):
    at = ("--uri", full_graph)
    assert run("branch", "create", "review", *at).out == "created branch review from main\n"
    created = run("branch", "create", "fixes/may", "--from", "review", *at, "--json")
    assert json.loads(created.out) == {
        "uri": full_graph,
        "from": "review",
        "name": "fixes/may",
        "actor_id": None,
    }
    assert run("branch", "list", *at).out == "fixes/may\nmain\nreview\n"
    assert json.loads(run("branch", "list", *at, "--json").out) == {
        "branches": ["fixes/may", "main", "review"]
    }
    refused = run("branch", "delete", "review", *at)
    assert refused.code == 1
    assert "fixes/may still depends on it" in refused.err
    assert run("branch", "delete", "fixes/may", *at).out == "deleted branch fixes/may\n"
    deleted = run("branch", "delete", "review", *at, "--as", "act-ana", "--json")
    assert json.loads(deleted.out) == {"uri": full_graph, "name": "review", "actor_id": "act-ana"}
    assert run("branch", "list", *at).out == "main\n"


@pytest.mark.parametrize("name", ["main", "a b", ""])
def test_a_name_no_branch_may_have_is_refused(run, full_graph: str, name: str):
    done = run("branch", "create", name, "--uri", full_graph)
    assert done.code == 1
    assert run("branch", "list", "--uri", full_graph).out == "main\n"


def test_commits_are_listed_newest_first_with_whole_ids(run, full_graph: str, people: Path):
    load = ["load", full_graph, "--data", people, "--mode", "overwrite", "--json"]
    newest = json.loads(run(*load, "--as", "act-ana").out)["commit"]
    lines = run("commit", "list", full_graph).out.splitlines()
    assert len(lines) == 4
    assert re.fullmatch(r"commit +kind +branch +actor +time \(UTC\) +nodes +edges", lines[0])
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    newest_id = newest["graph_commit_id"]
    assert re.fullmatch(rf"{newest_id}  load +main +act-ana  {when} +\d +\d", lines[1])
    assert re.fullmatch(rf"\w{{26}}  load +main +-        {when} +\d +\d", lines[2])
    assert re.fullmatch(rf"\w{{26}}  genesis +main +-        {when}  - +-", lines[3])
    commits = json.loads(run("commit", "list", full_graph, "--json").out)["commits"]
    assert commits[0] == newest
    assert len(commits) == 3


def test_commits_can_be_filtered_by_actor(run, full_graph: str, people: Path):
    run("load", full_graph, "--data", people, "--mode", "overwrite", "--as", "act-ana")
    ours = run("commit", "list", full_graph, "--filter", "actor=act-ana", "--json")
    (commit,) = json.loads(ours.out)["commits"]
    assert commit["actor_id"] == "act-ana"
    nobody = run("commit", "list", full_graph, "--filter", "actor=nobody")
    assert nobody.out.splitlines() == ["commit  kind  branch  actor  time (UTC)  nodes  edges"]


@pytest.mark.parametrize("text", ["actor", "actor=", "branch=main", "=x"])
def test_other_filters_are_usage_errors(run, full_graph: str, text: str):
    assert run("commit", "list", full_graph, "--filter", text).code == 2


def test_commit_show_finds_a_commit_on_any_branch(run, full_graph: str, tmp_path: Path):
    data = tmp_path / "cy.jsonl"
    data.write_text('{"type": "Person", "data": {"name": "cy"}}\n')
    load = ["load", full_graph, "--data", data, "--mode", "append", "--json"]
    receipt = json.loads(run(*load, "--branch", "review", "--from", "main").out)
    commit_id = receipt["commit"]["graph_commit_id"]
    done = run("commit", "show", commit_id.lower(), "--uri", full_graph)
    facts = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert facts["commit"] == commit_id
    assert facts["branch"] == "review"
    assert facts["parent"] == receipt["commit"]["parent_commit_id"]
    assert facts["time"].endswith(" UTC")
    assert "actor" not in facts


def test_commit_show_of_an_unknown_id_fails(run, full_graph: str):
    unknown = run("commit", "show", "01K3Z7M0Q8W4R6T2Y5V9B1N3XC", "--uri", full_graph)
    assert unknown.code == 1
    assert "there is no commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC" in unknown.err
    assert "names no commit" in run("commit", "show", "head", "--uri", full_graph).err


# --- schemas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["show", "get"])
def test_schema_show_prints_what_was_written(run, graph: str, verb: str):
    assert run("schema", verb, graph).out == SCHEMA
    assert json.loads(run("schema", verb, graph, "--json").out) == {"schema_source": SCHEMA}


def test_lint_takes_the_schema_of_a_graph(run, graph: str, tmp_path: Path):
    queries = tmp_path / "queries.gq"
    queries.write_text("query all() { match { $p: Person } return { $p.nam } }\n")
    done = run("lint", graph, "--query", queries, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert document["schema_source"] == {"kind": "graph", "uri": graph}
    assert run("lint", "--store", graph, "--query", queries).code == 1


def test_lint_checks_against_a_file_or_a_graph_but_not_both(run, graph: str, schema_file: Path):
    command = ["lint", "--schema", schema_file, "--query", "queries.gq"]
    for words, named in (([graph], "URI"), (["--store", graph], "--store")):
        done = run(*command, *words)
        assert done.code == 2
        assert f"`--schema` and `{named}` are mutually exclusive" in done.err


def test_tags_are_made_listed_used_and_deleted(run, full_graph: str):
    at = ["--uri", full_graph]
    made = run("tag", "create", "v1", "HEAD~1", *at)
    assert made.code == 0 and made.out.startswith("tag v1 names commit ")
    tag_id = made.out.split()[-1]
    lines = run("tag", "list", *at).out.splitlines()
    assert lines[0].split() == ["tag", "commit", "branch", "made", "by", "time", "(UTC)"]
    assert lines[1].split()[:3] == ["v1", tag_id, "main"]
    shown = run("commit", "show", "v1", *at)
    assert shown.out.split()[1] == tag_id
    assert json.loads(run("tag", "list", *at, "--json").out)["tags"][0]["name"] == "v1"
    run("branch", "create", "again", "--from", "v1", *at)
    listed = json.loads(run("commit", "list", full_graph, "--branch", "again", "--json").out)
    assert listed["commits"][0]["graph_commit_id"] == tag_id
    assert run("tag", "create", "again", *at).code == 1
    assert run("branch", "diff", "v1", "HEAD", *at).code == 0
    assert run("tag", "delete", "v1", *at).out.startswith("deleted tag v1")
    gone = run("tag", "delete", "v1", *at)
    assert gone.code == 1 and "there is no tag `v1`" in gone.err
    ambiguous = run("commit", "show", tag_id[:4], *at)
    assert ambiguous.code == 1 and "commits begin with" in ambiguous.err and tag_id in ambiguous.err

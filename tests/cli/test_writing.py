"""`omnigraph init`, `load` and `mutate`."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PEOPLE

ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
TWO = ADD + '\nquery forget() { delete Person where name = "ada" }'


def head(run, graph: str, branch: str = "main") -> str:
    summary = json.loads(run("snapshot", graph, "--branch", branch, "--json").out)
    return str(summary["graph_commit_id"])


def contents(run, graph: str, branch: str = "main") -> str:
    return str(run("export", graph, "--branch", branch).out)


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch):
    """Give the next command something to read."""

    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give


# --- init -----------------------------------------------------------------------------------------


def test_init_creates_an_empty_graph(run, schema_file: Path, tmp_path: Path):
    uri = tmp_path / "new.omni"
    done = run("init", "--schema", schema_file, uri)
    assert (done.code, done.out, done.err) == (0, f"created a graph at {uri}\n", "")
    assert "0 entities on main" in run("snapshot", uri).out
    other = tmp_path / "other.omni"
    document = json.loads(run("init", "--schema", schema_file, other, "--json").out)
    assert document == {"uri": str(other), "initialized": True}


def test_init_refuses_a_graph_even_by_force(run, full_graph: str, schema_file: Path):
    before = contents(run, full_graph)
    for force in ([], ["--force"]):
        done = run("init", "--schema", schema_file, full_graph, *force)
        assert done.code == 1
        assert "already holds a graph" in done.err
    assert contents(run, full_graph) == before


def test_init_replaces_leftovers_only_by_force(run, schema_file: Path, tmp_path: Path):
    root = tmp_path / "half.omni"
    root.mkdir()
    (root / "_schema.pg").write_text("node Old {}")
    done = run("init", "--schema", schema_file, root)
    assert done.code == 1
    assert "hint: replace them with `--force` (force=True)" in done.err
    assert run("init", "--schema", schema_file, root, "--force").code == 0
    assert "node Person" in run("schema", "show", root).out


def test_init_with_a_bad_schema_shows_every_problem_and_creates_nothing(run, tmp_path: Path):
    bad = tmp_path / "bad.pg"
    bad.write_text("node A { a: Vector(0) }\nedge E: A -> B\n")
    done = run("init", "--schema", bad, tmp_path / "new.omni")
    assert done.code == 1
    assert f"{bad}:1:20: parse error" in done.err
    assert f"{bad}:2:14: catalog error" in done.err
    assert not (tmp_path / "new.omni").exists()


# --- load -----------------------------------------------------------------------------------------


def test_load_says_what_became_of_each_type(run, graph: str, people: Path):
    done = run("load", graph, "--data", people, "--mode", "merge")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:5] == [
        "type         inserted  updated  unchanged",
        "node Person         2        0          0",
        "edge Knows          1        0          0",
        "",
        "3 entities loaded into main",
    ]
    assert lines[5] == f"commit {head(run, graph)}"


def test_load_as_json_has_the_members_of_the_contract(run, graph: str, people: Path):
    done = run("load", graph, "--data", people, "--mode", "append", "--json")
    document = json.loads(done.out)
    assert document["uri"] == graph
    assert (document["branch"], document["mode"]) == ("main", "append")
    assert document["branch_created"] is False
    assert "base_branch" not in document
    assert document["total_entities"] == 3
    assert [entry["name"] for entry in document["nodes"]] == ["Person"]
    assert [entry["entities_loaded"] for entry in document["edges"]] == [1]


def test_a_load_that_changes_nothing_makes_no_commit(run, full_graph: str, tmp_path: Path):
    data = tmp_path / "same.jsonl"
    data.write_text('{"type": "Person", "data": {"name": "bo"}}\n')
    done = run("load", full_graph, "--data", data, "--mode", "merge")
    assert done.out.endswith("nothing changed, so there is no new commit\n")
    document = json.loads(run("load", full_graph, "--data", data, "--mode", "merge", "--json").out)
    assert document["commit"] is None


def test_c_pip_036_load_keeps_what_a_record_lacks_unless_it_replaces(
    run, graph: str, tmp_path: Path
):
    data = tmp_path / "people.jsonl"
    load = ["load", graph, "--data", data, "--mode", "merge"]
    data.write_text('{"type": "Person", "data": {"name": "bo", "age": 7}}\n')
    run(*load)
    data.write_text('{"type": "Person", "data": {"name": "bo"}}\n')
    assert run(*load).out.splitlines()[:2] == [
        "type         inserted  updated  unchanged  kept",
        "node Person         0        0          1     1",
    ]
    document = json.loads(run(*load, "--replace", "--json").out)
    assert (document["updated"], document["kept"]) == (1, 0)
    done = run("load", graph, "--data", data, "--mode", "append", "--replace")
    assert done.code != 0 and "(--replace) is an option of the mode merge" in done.err


def test_c_pip_040_load_skips_bad_records_and_tells_them(run, graph: str, tmp_path: Path):
    data, errors = tmp_path / "in.jsonl", tmp_path / "bad.jsonl"
    bad = "".join(
        f'{{"type": "Person", "data": {{"name": "x{i}", "age": "old"}}}}\n' for i in range(11)
    )
    data.write_text('{"type": "Person", "data": {"name": "bo"}}\n' + bad)
    load = ["load", graph, "--data", data, "--mode", "append"]
    over = run(*load, "--on-error", "skip", "--max-error-share", "0.9", "--errors-out", errors)
    assert over.code == 1 and "in 11 of 12 records, more than the allowed share" in over.err
    assert len(errors.read_text().splitlines()) == 11
    tried = run(*load, "--on-error", "skip", "--dry-run")
    assert tried.out.splitlines()[:5] == [
        "type         inserted  updated  unchanged  skipped",
        "node Person         1        0          0       11",
        "",
        "11 records skipped; `--errors-out FILE` keeps them",
        f"  {data}:2: Person.age: property 'age' expects Int32, got string 'old'",
    ]
    assert "  …" in tried.out.splitlines()
    document = json.loads(run(*load, "--on-error", "skip", "--errors-out", errors, "--json").out)
    assert (document["skipped"], document["inserted"], len(document["problems"])) == (11, 1, 11)
    listed = [json.loads(line) for line in errors.read_text().splitlines()]
    assert listed == document["problems"]
    for wrong in (["--on-error", "ignore"], ["--max-error-share", "0.1"]):
        done = run(*load, *wrong)
        assert (done.code, done.out) == (2, "")
        assert "skip" in done.err


@pytest.mark.parametrize("mode", [[], ["--mode", "upsert"], ["--mode", ""]])
def test_c_cli_027_load_without_a_mode_is_a_usage_error(run, graph: str, people: Path, mode):
    before = head(run, graph)
    done = run("load", graph, "--data", people, *mode)
    assert (done.code, done.out) == (2, "")
    assert "append" in done.err and "merge" in done.err and "overwrite" in done.err
    assert head(run, graph) == before


def test_load_without_data_is_a_usage_error(run, graph: str):
    done = run("load", graph, "--mode", "merge")
    assert done.code == 2
    assert "there is nothing to load" in done.err


def test_c_cli_028_load_to_a_missing_branch_changes_nothing(run, full_graph: str, people: Path):
    before = run("commit", "list", full_graph).out
    done = run("load", full_graph, "--data", people, "--mode", "merge", "--branch", "review")
    assert done.code == 1
    assert "there is no branch `review`" in done.err
    assert run("branch", "list", "--uri", full_graph).out == "main\n"
    assert run("commit", "list", full_graph).out == before


def test_load_from_a_branch_creates_the_missing_one(run, full_graph: str, tmp_path: Path):
    data = tmp_path / "cy.jsonl"
    data.write_text('{"type": "Person", "data": {"name": "cy"}}\n')
    command = ["load", full_graph, "--data", data, "--mode", "merge"]
    command += ["--branch", "review", "--from", "main"]
    done = run(*command)
    assert "created branch review from main\n" in done.out
    assert '"cy"' in contents(run, full_graph, "review")
    assert '"cy"' not in contents(run, full_graph)
    document = json.loads(run(*command, "--json").out)
    assert (document["base_branch"], document["branch_created"]) == ("main", False)


def test_load_takes_several_files_and_stdin_as_one_commit(
    run, graph: str, people: Path, tmp_path: Path, standard_input
):
    packed = tmp_path / "cy.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"type": "Person", "data": {"name": "cy"}}\n'))
    standard_input(
        '{"edge": "Knows", "from": "cy", "to": "dee"}\n{"type": "Person", "data": {"name": "dee"}}'
    )
    files = ["--data", people, "--data", packed, "--data", "-"]
    document = json.loads(run("load", graph, *files, "--mode", "append", "--json").out)
    assert document["total_entities"] == 6
    assert document["commit"]["parent_commit_id"] is not None


def test_stdin_can_be_named_only_once(run, graph: str):
    done = run("load", graph, "--data", "-", "--data", "-", "--mode", "merge")
    assert done.code == 2
    assert "stdin can be read only once" in done.err


def test_a_stdin_that_was_never_open_is_one_sentence(run, graph: str, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    done = run("load", graph, "--data", "-", "--mode", "merge")
    assert "error: stdin is closed" in done.err


def test_load_reads_strict_lines(run, graph: str, standard_input):
    standard_input('{"type": "Person",\n "data": {"name": "ada"}}\n')
    before = head(run, graph)
    done = run("load", graph, "--data", "-", "--mode", "merge")
    assert done.code == 1
    assert "line 1" in done.err
    assert head(run, graph) == before


def test_load_names_the_file_and_the_line_of_a_bad_record(run, graph: str, tmp_path: Path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(PEOPLE + '{"type": "Person", "data": {"name": "cy", "age": "old"}}\n')
    done = run("load", graph, "--data", bad, "--mode", "merge")
    assert done.code == 1
    assert f"{bad}:4: Person.age" in done.err
    assert contents(run, graph) == ""


@pytest.mark.parametrize("name", ["missing.jsonl", "folder"])
def test_data_that_is_not_there_stops_the_load_before_a_branch_is_made(
    run, graph: str, tmp_path: Path, name: str
):
    (tmp_path / "folder").mkdir()
    done = run(
        *("load", graph, "--data", tmp_path / name, "--mode", "merge"),
        *("--branch", "review", "--from", "main"),
    )
    assert done.code == 1
    assert name in done.err
    assert run("branch", "list", "--uri", graph).out == "main\n"


def test_c_cli_049_an_interrupted_load_ends_with_130_and_leaves_nothing(
    start, run, full_graph: str
):
    before = contents(run, full_graph)
    reading, writing = os.pipe()
    process = start("load", full_graph, "--data", "-", "--mode", "overwrite", stdin=reading)
    os.close(reading)
    os.write(writing, b'{"type": "Person", "data": {"name": "lost"}}\n')
    assert process.stderr.readline().startswith(b"omnigraph load")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    os.close(writing)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert contents(run, full_graph) == before
    assert run("recover", full_graph).out == "nothing to recover\n"


LOSES_INTERRUPTS = """
import os, signal, sys

class Loses:
    def find_spec(self, name, path=None, target=None):
        if name == "lance":
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                pass

sys.meta_path.insert(0, Loses())
"""


def test_c_cli_049_an_interrupt_that_a_library_loses_while_it_is_imported_still_ends_a_load(
    start, run, full_graph: str, tmp_path: Path
):
    before = contents(run, full_graph)
    (tmp_path / "sitecustomize.py").write_text(LOSES_INTERRUPTS)
    reading, writing = os.pipe()
    process = start(
        *("load", full_graph, "--data", "-", "--mode", "overwrite"),
        stdin=reading,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    os.close(reading)
    # Nobody closes the other end: who has lost the interrupt would wait for ever.
    out, err = process.communicate(timeout=60)
    os.close(writing)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert contents(run, full_graph) == before


INTERRUPTS_CODE_FROM_TEXT = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "lance":
            sys.meta_path.remove(self)
            exec("os.kill(os.getpid(), signal.SIGINT)")

sys.meta_path.insert(0, Interrupts())
"""


def test_c_cli_049_an_interrupt_inside_code_from_text_ends_a_load_with_130_too(
    start, full_graph: str, tmp_path: Path
):
    # `python -m` remembers such an interrupt, and would end by the signal instead of the exit code.
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS_CODE_FROM_TEXT)
    process = start(
        *("load", full_graph, "--data", "-", "--mode", "overwrite"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    process.communicate(timeout=60)
    assert process.returncode == 130


# --- mutate ---------------------------------------------------------------------------------------


def mutate(run, graph: str, *arguments: object) -> Any:
    return run("mutate", "--store", graph, *arguments)


def test_mutate_says_how_much_changed_and_names_the_commit(run, graph: str):
    done = mutate(run, graph, "-e", ADD, "--params", '{"name": "ada", "age": 36}')
    assert done.code == 0
    assert done.out == f"add changed 1 node and 0 edges on main\ncommit {head(run, graph)}\n"


def test_mutate_keeps_a_message_that_commit_list_shows(run, graph: str):
    done = mutate(run, graph, "-e", ADD, "--params", '{"name": "ada"}', "--message", "first guest")
    assert done.code == 0
    lines = run("commit", "list", graph).out.splitlines()
    assert lines[0].split()[-3:] == ["nodes", "edges", "message"]
    assert lines[1].split()[-4:] == ["1", "0", "first", "guest"]
    shown = run("commit", "show", lines[1].split()[0], "--uri", graph).out
    assert "message   first guest" in shown and "changed   1 node, 0 edges" in shown


def test_mutate_takes_files_for_the_query_and_its_parameters(run, graph: str, tmp_path: Path):
    (tmp_path / "add.gq").write_text(ADD)
    (tmp_path / "who.json").write_text('{"name": "ada"}')
    files = ["--query", tmp_path / "add.gq", "--params-file", tmp_path / "who.json"]
    document = json.loads(mutate(run, graph, *files, "--json").out)
    assert (document["query_name"], document["affected_nodes"]) == ("add", 1)


def test_a_query_with_a_mistake_is_shown_with_its_place(run, graph: str, tmp_path: Path):
    file = tmp_path / "typo.gq"
    file.write_text("query add() {\n    insert Persn { name: 1 }\n}\n")
    done = mutate(run, graph, "--query", file)
    assert done.code == 1
    assert f"{file}:2:12: type error" in done.err
    assert "hint: did you mean `Person`?" in done.err


def test_a_query_that_only_reads_is_refused(run, graph: str):
    text = "query all() { match { $p: Person } return { $p.name } }"
    done = mutate(run, graph, "-e", text)
    assert done.code == 1
    assert "query 'all' only reads" in done.err


def test_c_cli_023_one_of_several_queries_has_to_be_named(run, graph: str):
    unnamed = mutate(run, graph, "-e", TWO)
    assert unnamed.code == 1
    assert "the file has add, forget" in unnamed.err
    unknown = run("mutate", "forgt", "--store", graph, "-e", TWO)
    assert unknown.code == 1
    assert "query 'forgt' not found" in unknown.err
    assert run("mutate", "forget", "--store", graph, "-e", TWO).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "a.gq", "-e", ADD], "`--query` and `--query-string` are mutually exclusive"),
        (
            ["-e", ADD, "--params", "{}", "--params-file", "a.json"],
            "`--params` and `--params-file` are mutually exclusive",
        ),
        (["-e", " \n"], "`--query-string` is empty"),
        ([], "`omnigraph mutate` needs a query"),
        (["add"], "running the stored query `add` needs a server"),
        (["-e", ADD, "--params", "[1]"], "`--params` is not a JSON object"),
        (["-e", ADD, "--params", "{"], "`--params` is not JSON"),
        (["-e", ADD, "--params", '{"age": NaN}'], "`--params` is not JSON: NaN is no number"),
        (["-e", ADD, "--if-commit", "*"], "`--if-commit` takes one commit id, not `*`"),
        (["-e", ADD, "--if-commit", ""], "`--if-commit` takes one commit id"),
    ],
)
def test_c_cli_024_a_contradictory_or_missing_source_is_a_usage_error(
    run, graph: str, arguments, message
):
    before = head(run, graph)
    done = mutate(run, graph, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert head(run, graph) == before


def test_a_missing_parameter_is_named(run, graph: str):
    done = mutate(run, graph, "-e", ADD)
    assert done.code == 1
    assert "parameter 'name' not provided" in done.err


def test_c_cli_025_a_lost_race_exits_with_4_and_the_envelope(run, full_graph: str):
    base = head(run, full_graph)
    add = ["-e", ADD, "--params", '{"name": "cy"}', "--if-commit", base]
    assert mutate(run, full_graph, *add).code == 0
    now = head(run, full_graph)
    lost = mutate(run, full_graph, *add, "--json")
    assert lost.code == 4
    envelope = json.loads(lost.out)
    assert envelope["precondition_failure"] == {"expected": base, "actual": now}
    plain = mutate(run, full_graph, *add)
    assert (plain.code, plain.out) == (4, "")
    assert f"the branch head is {now}, not {base}" in plain.err
    assert head(run, full_graph) == now


def test_c_cli_025_a_condition_is_checked_even_if_nothing_would_change(run, full_graph: str):
    nothing = 'query q() { delete City where name = "Atlantis" }'
    stale = "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"
    assert mutate(run, full_graph, "-e", nothing, "--if-commit", stale).code == 4
    assert mutate(run, full_graph, "-e", nothing, "--if-commit", head(run, full_graph)).code == 0


def test_c_cli_029_the_receipt_carries_the_exact_commit(run, graph: str, people: Path):
    loaded = json.loads(run("load", graph, "--data", people, "--mode", "merge", "--json").out)
    changed = json.loads(
        mutate(run, graph, "-e", ADD, "--params", '{"name": "cy"}', "--as", "act-ana", "--json").out
    )
    assert changed["commit"]["parent_commit_id"] == loaded["commit"]["graph_commit_id"]
    assert changed["commit"]["actor_id"] == changed["actor_id"] == "act-ana"
    for receipt in (loaded, changed):
        commit_id = receipt["commit"]["graph_commit_id"]
        shown = json.loads(run("commit", "show", commit_id, "--uri", graph, "--json").out)
        assert shown == receipt["commit"]


def test_c_cli_029_a_mutation_without_effect_has_no_commit(run, full_graph: str):
    before = head(run, full_graph)
    nothing = ["-e", 'query q() { delete City where name = "Atlantis" }']
    document = json.loads(mutate(run, full_graph, *nothing, "--json").out)
    assert document["commit"] is None
    assert document["affected_nodes"] == 0
    assert mutate(run, full_graph, *nothing).out == "q changed nothing on main\n"
    assert head(run, full_graph) == before


def test_a_load_keeps_its_message_and_the_history_shows_it(run, graph, people):
    assert "message" not in run("commit", "list", graph).out
    done = run("load", graph, "--data", people, "--mode", "append", "--message", "first\nof many")
    assert done.code == 0
    listed = run("commit", "list", graph)
    assert listed.out.splitlines()[0].split()[-1] == "message"
    assert listed.out.splitlines()[1].endswith("first")
    (newest, _) = json.loads(run("commit", "list", graph, "--json").out)["commits"]
    assert newest["message"] == "first\nof many"
    shown = run("commit", "show", newest["graph_commit_id"], "--uri", graph).out
    assert shown.endswith("message   first\nmessage   of many\n")

"""The program as the shell sees it: entry point, exit codes, pipes, signals, start-up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli.failures import ExitCode, exit_code_of
from omnigraph.cli.main import main
from omnigraph.errors import InputError, PreconditionFailed
from tests.cli.conftest import PROGRAM

SCHEMA = "examples/social/schema.pg"
QUERIES = "examples/social/queries.gq"


def test_console_script_is_the_main_function():
    (script,) = entry_points(group="console_scripts", name="omnigraph")
    assert script.load() is main


def test_c_cli_001_version_flags_and_command_agree(start, run):
    expected = f"omnigraph {omnigraph.__version__}\n"
    assert start("--version").communicate(timeout=60)[0].decode() == expected
    assert run("-v").out == expected
    assert run("version").out == expected + "internal-schema 4\n"
    assert json.loads(run("version", "--json").out) == {
        "version": omnigraph.__version__,
        "internal_schema": 4,
    }


def test_installed_script_runs():
    script = Path(sys.executable).with_name("omnigraph")
    done = subprocess.run([script, "version"], capture_output=True, timeout=60, check=True)
    assert done.stderr == b""


# --- exit codes -----------------------------------------------------------------------------------


def test_c_cli_049_closed_stdout_ends_quietly_with_141(start):
    reading, writing = os.pipe()
    os.close(reading)
    process = start("schema", "check", "examples/library/schema.pg", stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141
    assert err == b""


def test_c_cli_049_a_reader_that_stops_early_ends_a_long_output_with_141(start, tmp_path: Path):
    schema = tmp_path / "large.pg"
    schema.write_text("".join(f"node N{n} {{ p: String }}\n" for n in range(5_000)))
    process = start("schema", "check", schema)
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_c_cli_049_interrupt_ends_with_130(start, tmp_path: Path):
    # Opening a pipe for writing waits for its reader: once that returns, the command is at work.
    schema = tmp_path / "schema.pg"
    os.mkfifo(schema)
    process = start("schema", "check", schema)
    with schema.open("wb"):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_a_result_that_cannot_be_written_is_reported(tmp_path: Path):
    # A limit on the size of files fails late, when buffers are flushed, as a full disk does.
    command = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *PROGRAM, "version"]
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"error: file too large\n")


def test_a_stdout_that_was_never_open_is_no_accident():
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "version"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""


def test_lost_conditional_write_has_a_code_of_its_own():
    assert exit_code_of(PreconditionFailed("a", "b")) is ExitCode.LOST_RACE
    assert exit_code_of(InputError("no")) is ExitCode.FAILURE


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["--no-such-flag"],
        ["lint", "--no-such-flag"],
        ["lint", "--query", QUERIES],
        ["lint", "--schema"],
        ["lint", "--schema", SCHEMA, "--query", QUERIES, "one-too-many"],
        ["schema"],
        ["schema", "no-such-command"],
        ["schema", "check"],
        ["--color"],
        ["version", "--color", "pink"],
        ["version", "--json=yes"],
    ],
)
def test_a_wrong_command_line_exits_with_2_and_writes_nothing_to_stdout(run, arguments):
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 2 and "\nhint: " in done.err


# --- start-up -------------------------------------------------------------------------------------


START = """
import os, sys
import omnigraph
from omnigraph.cli.main import main

def imported(run):
    \"\"\"The modules of a process that does nothing else.\"\"\"
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as pipe:
            modules = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        return modules
    run()
    os.write(writing, " ".join(sys.modules).encode())
    sys.stdout.flush()
    os._exit(0)

def called(words):
    assert main(words) == 0

def asked():
    graph = omnigraph.open(sys.argv[1])
    query = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
    found = graph.query(query, {"n": "ada"})
    assert found.to_pylist() == [{"p.age": 36}]
    assert "pandas" not in sys.modules

def learned():
    \"\"\"What Arrow was spared while the graph was opened, it still learns.\"\"\"
    asked()
    import pandas, pyarrow
    assert pyarrow.array(pandas.Series([1.0, None])).null_count == 1
    assert pyarrow.scalar(True).as_py() is True

def converted():
    called(sys.argv[2].split("|"))
    import pandas
    assert pandas.Series([1]).sum() == 1

for line in sys.argv[3:]:
    print("#", imported(lambda: called(line.split("|"))))
print("#", imported(converted))
print("#", imported(asked))
imported(learned)
"""
OTHERS = "pyspark mcp starlette uvicorn cedarpy polars duckdb httpx obstore pydantic rich ruamel"
NO_DATA = "numpy pyarrow lance pandas prompt_toolkit orjson concurrent.futures"
NO_ROWS = "pandas omnigraph.query omnigraph.engines omnigraph.computing"
NO_WRITES = """
omnigraph.commit.write_path omnigraph.commit.validation omnigraph.commit.mutate omnigraph.loading
omnigraph.branching.merge omnigraph.branching.three_way omnigraph.branching.change_feed
omnigraph.review omnigraph.copies omnigraph.upkeep.optimize omnigraph.upkeep.stats
omnigraph.policy.decide omnigraph.embedding.client omnigraph.audit omnigraph.strict_yaml
"""
"""What reading a graph has nothing to do with."""
OF_A_PAGE = (
    f"{OTHERS} {NO_DATA} omnigraph.graph omnigraph.query omnigraph.schema omnigraph.cli.query"
)
OF_A_LIST = f"{OTHERS} {NO_ROWS} {NO_WRITES} omnigraph.commit.recovery omnigraph.storage.migrations"
FORBIDDEN = {
    "--help": OF_A_PAGE,
    "version": OF_A_PAGE,
    "complete|bash|omnigraph bra": OF_A_PAGE,
    "schema|check|SCHEMA": f"{OTHERS} {NO_DATA} omnigraph.graph omnigraph.storage",
    "lint|--schema|SCHEMA|--query|QUERIES": f"{OTHERS} {NO_DATA} omnigraph.graph"
    " omnigraph.storage omnigraph.engines",
    "schema|show|GRAPH": OF_A_LIST,
    "branch|list|--store|GRAPH": OF_A_LIST,
    "commit|list|GRAPH": OF_A_LIST,
    'mutate|-e|query q { insert Person { name: "cy" } }|--store|GRAPH': "pandas"
    " pyspark mcp starlette uvicorn cedarpy polars duckdb omnigraph.branching.merge",
}
"""Commands, and the modules that they must not import, with everything below them."""


def test_a_command_imports_nothing_that_it_does_not_use(full_graph: str, tmp_path: Path):
    """Start-up is felt on every call; `bench/` has the seconds.

    One process that has imported little is forked for each command, and for a program that opens a
    graph and reads a row. Arrow imports pandas when it converts its first value: commands prevent
    that, and opening a graph and reading a row convert none.
    """
    schema, queries = tmp_path / "schema.pg", tmp_path / "queries.gq"
    schema.write_text("node Person { name: String @key }")
    queries.write_text("query all { match { $p: Person } return { $p.name } }")
    places = {"SCHEMA": str(schema), "QUERIES": str(queries), "GRAPH": full_graph}
    lines = ["|".join(places.get(word, word) for word in line.split("|")) for line in FORBIDDEN]
    ages = "query|-e|query q { match { $p: Person } return { $p.age } }|--store|" + full_graph
    done = subprocess.run(
        [sys.executable, "-c", START, full_graph, ages, *lines],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    of_queries = f"{OTHERS} {NO_WRITES}"
    tables = {**FORBIDDEN, "query": of_queries, "omnigraph.open": of_queries}
    found = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    for (line, forbidden), modules in zip(tables.items(), found, strict=True):
        names = [name for name in modules.split() if name.startswith(tuple(forbidden.split()))]
        below = {each for each in forbidden.split() for name in names
                 if name == each or name.startswith(f"{each}.")}  # fmt: skip
        assert not below, (line, below)
    assert "pyarrow" in found[5] and "pandas" in found[-2] and "omnigraph.engines" in found[-1]

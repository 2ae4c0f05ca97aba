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


def test_start_up_imports_no_engine_and_no_language():
    heavy = {"pyarrow", "pyspark", "fastapi", "cedarpy", "lance", "numpy", "pandas", "httpx"}
    code = (
        "import sys; from omnigraph.cli.main import main; main(['version']);"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stderr.split())
    assert "omnigraph.cli.main" in modules
    assert {name.partition(".")[0] for name in modules}.isdisjoint(heavy)
    assert not [name for name in modules if name.startswith(("omnigraph.query", "rich"))]


COMMANDS = """
import sys
from omnigraph.cli.main import main
graph, *forbidden = sys.argv[1:]
everybody = "query q { match { $p: Person } return { $p.name, $p.age } }"
for command in (
    ["schema", "show", graph],
    ["branch", "list", graph],
    ["commit", "list", graph],
    ["query", "-e", everybody, "--store", graph],
    ["mutate", "-e", 'query q { insert Person { name: "cy" } }', "--store", graph],
    ["lint", "--store", graph, "--query", "examples/social/queries.gq"],
):
    main(command)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert loaded.isdisjoint(forbidden), (command, loaded.intersection(forbidden))
assert "pyarrow" in loaded
import pandas
assert pandas.Series([1]).sum() == 1
"""


def test_commands_import_no_library_that_they_do_not_use(full_graph: str):
    unused = ("pandas", "pyspark", "mcp", "starlette", "uvicorn", "cedarpy", "polars", "duckdb")
    command = [sys.executable, "-c", COMMANDS, full_graph, *unused]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "bo" in done.stdout

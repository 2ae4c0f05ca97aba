"""The two languages: how fast a query and a schema compile, and what start-up costs."""

from __future__ import annotations

import os
import pty
import re
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.circumstances import ROOT
from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import best_seconds, process_seconds, seconds_per_call
from bench.scale import Scale
from bench.texts import query_texts, schema_text
from omnigraph.errors import LimitExceeded
from omnigraph.graph import init
from omnigraph.query.compile import QueryCompiler, compile_query
from omnigraph.schema.compile import compile_schema

SEED = None
QUERIES = 400
SCHEMA_LINES = 600

COLD_PER_SECOND = Target(500, "at least")
CACHED_RATIO = Target(100, "at least")
LARGEST_SECONDS = Target(1, "at most")
SCHEMA_MS = Target(100, "at most")
IMPORT_SECONDS = Target(0.4, "at most")
HELP_SECONDS = Target(0.15, "at most")
COMMAND_SECONDS = Target(0.35, "at most")
FIRST_QUERY_SECONDS = Target(0.5, "at most")
SHELL_MS = Target(20, "at most")
SHELL_ANSWERS = 20
SHELL_SECONDS_MAX = 60.0

SOCIAL = ROOT / "examples" / "social"
QUERIES_FILE = SOCIAL / "queries.gq"
PERSON = '{"type": "Person", "data": {"name": "%s", "age": 36}}\n'
POINT = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
FIRST_QUERY = f"""
import sys, omnigraph
graph = omnigraph.open(sys.argv[1])
assert graph.query({POINT!r}, {{"n": "ada"}}).to_pylist() == [{{"p.age": 36}}]
"""


def run(scale: Scale) -> Iterator[Figure]:
    """Measure everything about the languages; it is so little that scales do not differ."""
    yield from _queries(QUERIES)
    yield _largest()
    yield from _schemas()
    yield from _start_up()


def _queries(count: int) -> list[Figure]:
    catalog = compile_schema(schema_text(100)).catalog
    texts = list(query_texts(count))

    def compile_all() -> None:
        for text in texts:
            compile_query(text, catalog)

    cold = best_seconds(compile_all) / len(texts)
    compiler = QueryCompiler(catalog)
    compiler.compile(texts[0])
    cached = seconds_per_call(lambda: compiler.compile(texts[0]))
    return [
        Figure("cold query compile", 1 / cold, "per second", COLD_PER_SECOND, "10 lines each"),
        Figure(
            "cached query compile",
            cached * 1e6,
            "µs",
            CACHED_RATIO,
            versus=Versus("cold", cold * 1e6, "theirs to ours"),
        ),
    ]


def _largest() -> Figure:
    """The slowest of texts that are as large as they may be, or larger."""
    catalog = compile_schema("node Item { size: I32? }\nedge Next: Item -> Item").catalog
    begin, end = "query q { match { $v0: Item ", "} return { $v0.size } }"
    bodies = [
        "$v0.size in [" + "1," * 500_000 + "1] ",
        "$v0.size in [" + "1," * 24_000 + "1] ",
        "$v0.size > 1 " * 80_000,
        "$v0.size > 1 " * 1_900,
        "not { $v0 next $w } " * 999,
        " ".join(f"$v{n}: Item {{ size: 1 }}" for n in range(999)),
        " ".join(f"$v{n} next $v{n + 1}" for n in range(999)),
    ]
    texts = [begin + body + end for body in bodies]

    def compile_or_refuse(text: str) -> None:
        with suppress(LimitExceeded):
            compile_query(text, catalog)

    slowest = max(best_seconds(partial(compile_or_refuse, text)) for text in texts)
    note = "1 MB of text, or as much as the limits allow"
    return Figure("largest query text", slowest, "s", LARGEST_SECONDS, note)


def _schemas() -> list[Figure]:
    text = schema_text(SCHEMA_LINES)
    seconds = best_seconds(lambda: compile_schema(text))
    return [
        Figure("schema compile", seconds * 1e3, "ms", SCHEMA_MS, f"{SCHEMA_LINES} lines"),
        Figure("schema compile, lines", SCHEMA_LINES / seconds, "per second"),
    ]


def _start_up() -> Iterator[Figure]:
    yield Figure("bare python", process_seconds(["-c", "pass"]), "s CPU")
    imported = process_seconds(["-c", "import omnigraph"])
    yield Figure("import omnigraph", imported, "s CPU", IMPORT_SECONDS)
    both = "import omnigraph.query.compile, omnigraph.schema.compile"
    yield Figure("import both languages", process_seconds(["-c", both]), "s CPU")
    yield Figure("omnigraph --help", _command("--help"), "s CPU", HELP_SECONDS)
    with TemporaryDirectory() as directory, durability("process"):
        graph = people(Path(directory) / "team.omni")
        named = ("--store", graph)
        for name, words in {
            "schema show": ("schema", "show", *named),
            "branch list": ("branch", "list", *named),
            "commit list": ("commit", "list", *named),
            "lint": ("lint", "--schema", str(SOCIAL / "schema.pg"), "--query", str(QUERIES_FILE)),
        }.items():
            yield Figure(f"omnigraph {name}", _command(*words), "s CPU", COMMAND_SECONDS)
        first = process_seconds(["-c", FIRST_QUERY, graph])
        yield Figure(
            "open and first point query",
            first,
            "s CPU",
            FIRST_QUERY_SECONDS,
            "pandas is not imported, even if it is installed",
        )
        yield Figure(
            "omnigraph query, a point query",
            _command("query", *named, "-e", POINT, "--params", '{"n": "ada"}'),
            "s CPU",
        )
        yield Figure(
            "shell, point query from Enter to the answer",
            shell_answer_ms(graph),
            "ms",
            SHELL_MS,
            f"in a pseudo-terminal, the median of {SHELL_ANSWERS}",
        )


def _command(*words: str) -> float:
    return process_seconds(["-m", "omnigraph.cli", *words])


def people(place: Path) -> str:
    """A graph with a thousand persons; its path."""
    graph = init(place, "node Person { name: String @key  age: I32? }")
    names = ["ada", *(f"person-{number}" for number in range(1_000))]
    graph.load(data="".join(PERSON % name for name in names), mode="append")
    return str(place)


def shell_answer_ms(graph: str) -> float:
    """The milliseconds from Enter to the answer of a point query in `omnigraph shell`."""
    screen, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph.cli", "shell", "--store", graph],
        stdin=inside, stdout=inside, stderr=inside, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(inside)

    def read_until(wanted: str) -> None:
        shown = ""
        while wanted not in shown:
            if not select.select([screen], [], [], SHELL_SECONDS_MAX)[0]:
                raise RuntimeError(f"the shell does not show {wanted!r}: {shown[-300:]!r}")
            part = os.read(screen, 65_536).decode(errors="replace")
            if "\x1b[6n" in part:  # where is the cursor?
                os.write(screen, b"\x1b[1;1R")
            shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)

    taken = []
    try:
        read_until("main>")
        for number in range(SHELL_ANSWERS + 1):
            name = f"person-{number}"
            asked = f'match {{ $p: Person {{ name: "{name}" }} }} return {{ $p.age as a{number}z }}'
            os.write(screen, asked.encode())
            read_until(f"a{number}z }}")
            began = time.perf_counter()
            os.write(screen, b"\r")
            read_until("1 row")
            taken.append(time.perf_counter() - began)
            read_until("main>")
        os.write(screen, b"\\q\r")
        process.wait(SHELL_SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    return statistics.median(taken[1:]) * 1000

"""The two languages: how fast a query and a schema compile, and what start-up costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from bench.figure import Figure, Target, Versus
from bench.measure import best_seconds, process_seconds, seconds_per_call
from bench.scale import Scale
from bench.texts import query_texts, schema_text
from omnigraph.errors import LimitExceeded
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
COMMAND_SECONDS = Target(0.4, "at most")


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


def _start_up() -> list[Figure]:
    bare = process_seconds(["-c", "pass"])
    imported = process_seconds(["-c", "import omnigraph"])
    languages = process_seconds(["-c", "import omnigraph.query.compile, omnigraph.schema.compile"])
    command = process_seconds(["-m", "omnigraph.cli", "version"])
    return [
        Figure("bare python", bare, "s"),
        Figure("import omnigraph", imported, "s", IMPORT_SECONDS),
        Figure("import both languages", languages, "s"),
        Figure("omnigraph version", command, "s", COMMAND_SECONDS),
    ]

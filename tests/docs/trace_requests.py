"""Trace the six requests of `docs/design/architecture.md`: files, functions and room changes.

    python -m tests.docs.trace_requests           # a table
    python -m tests.docs.trace_requests --json    # for machines
    python -m tests.docs.trace_requests write     # one request, with its files in order

A room change is a call from a function of one room to a function of another, counted each time it
happens. Only functions of the package count; what they call in libraries is passed through.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import omnigraph
from omnigraph import Graph
from omnigraph.effects.failpoints import armed
from omnigraph.errors import OmnigraphError
from omnigraph.graph.facade import in_place

PACKAGE = Path(omnigraph.__file__).parent
RECORDS = PACKAGE / "model" / "records.py"
SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
PEOPLE = "".join(
    f'{{"type": "Person", "data": {{"name": "p{number}", "age": {number}}}}}\n'
    for number in range(50)
)
FRIENDS = "".join(
    f'{{"edge": "Knows", "from": "p{number}", "to": "p{(number * 7 + 1) % 50}"}}\n'
    for number in range(50)
)
GRACE = '{"type": "Person", "data": {"name": "Grace"}}\n'
TWO_HOPS = (
    "query q($n: String) { match { $p: Person { name: $n } $p knows{2,2} $f } return { $f.name } }"
)
INSERT = "query add($n: String) { insert Person { name: $n } }"


@dataclass
class Trace:
    """What one request visited."""

    files: dict[str, None] = field(default_factory=dict)
    functions: set[CodeType] = field(default_factory=set)
    calls: int = 0
    room_changes: int = 0
    changes: Counter[str] = field(default_factory=Counter)

    def row(self) -> dict[str, int]:
        """The figures of the page."""
        return {
            "files": len(self.files),
            "functions": len(self.functions),
            "room_changes": self.room_changes,
        }


def trace(request: Callable[[], object]) -> Trace:
    """Run a request, in all threads it starts, and note what it visits."""
    found = Trace()
    lock = threading.Lock()
    places: dict[CodeType, tuple[str, str] | None] = {}

    def place(code: CodeType) -> tuple[str, str] | None:
        if code not in places:
            path = Path(code.co_filename)
            # Methods of dataclasses are compiled when they are first used; as one of the standard
            # library, the decorator is passed through.
            inside = path.is_relative_to(PACKAGE) and path != RECORDS and "<" not in path.name
            name = path.relative_to(PACKAGE).as_posix() if inside else ""
            places[code] = (name, name.partition("/")[0]) if inside else None
        return places[code]

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or (here := place(frame.f_code)) is None:
            return
        caller = frame.f_back
        while caller is not None and place(caller.f_code) is None:
            caller = caller.f_back
        there = None if caller is None else place(caller.f_code)
        with lock:
            found.calls += 1
            found.files.setdefault(here[0])
            found.functions.add(frame.f_code)
            if there is not None and there[1] != here[1]:
                found.room_changes += 1
                found.changes[f"{there[1]} > {here[1]}"] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        request()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def _file(folder: Path, records: str) -> Path:
    path = folder / "records.jsonl"
    path.write_text(records, encoding="utf-8")
    return path


def _filled(folder: Path, name: str) -> Graph:
    in_place(Graph)  # the first look-up of a verb imports it
    graph = omnigraph.init(str(folder / name), schema=SCHEMA)
    for records in (PEOPLE, FRIENDS):
        graph.load(_file(folder, records), mode="append")
    return graph


def _query(folder: Path) -> Trace:
    graph = _filled(folder, "query.omni")
    graph.query(TWO_HOPS, {"n": "p1"})
    return trace(lambda: graph.query(TWO_HOPS, {"n": "p2"}).to_pylist())


def _write(folder: Path) -> Trace:
    graph = _filled(folder, "write.omni")
    return trace(lambda: graph.mutate(INSERT, {"n": "Grace"}))


def _load(folder: Path) -> Trace:
    graph = _filled(folder, "load.omni")
    more = _file(folder, GRACE)
    return trace(lambda: graph.load(more, mode="append"))


def _load_on_spark(folder: Path) -> Trace:
    graph = _filled(folder, "spark.omni")
    more = _file(folder, GRACE)
    return trace(lambda: graph.load(more, mode="append", engine="spark"))


def _merge(folder: Path) -> Trace:
    graph = _filled(folder, "merge.omni")
    graph.create_branch("review")
    graph.mutate(INSERT, {"n": "Grace"}, branch="review")
    graph.mutate(INSERT, {"n": "Ada"})
    return trace(lambda: graph.merge_branch("review"))


def _recover(folder: Path) -> Trace:
    graph = _filled(folder, "crash.omni")
    with armed("mutation.post_table_commit=error"), suppress(OmnigraphError):
        graph.mutate(INSERT, {"n": "Grace"})
    return trace(graph.recover)


REQUESTS: dict[str, Callable[[Path], Trace]] = {
    "query": _query,
    "write": _write,
    "load": _load,
    "load-on-spark": _load_on_spark,
    "merge": _merge,
    "crash": _recover,
}


def main() -> None:
    """Print the figures of the requests that are named, of all if none is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("requests", nargs="*", choices=[[], *REQUESTS])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    names = chosen.requests or list(REQUESTS)
    with tempfile.TemporaryDirectory() as folder:
        traces = {name: REQUESTS[name](Path(folder)) for name in names}
    if chosen.json:
        print(json.dumps({name: found.row() for name, found in traces.items()}))
        return
    print(f"{'request':<16}{'files':>6}{'functions':>11}{'room changes':>14}")
    for name, found in traces.items():
        row = found.row()
        print(f"{name:<16}{row['files']:>6}{row['functions']:>11}{row['room_changes']:>14}")
    if len(traces) == 1:
        (found,) = traces.values()
        print(*found.files, sep="\n")
        for change, count in found.changes.most_common():
            print(f"{count:>6}  {change}")


if __name__ == "__main__":
    main()

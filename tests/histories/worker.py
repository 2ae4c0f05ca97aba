"""A process that writes and reads one graph through one face, and keeps a journal of it.

    python -m tests.histories.worker FACE PLACE JOURNAL NUMBER

Each invocation is a line of the journal before it is made, and each answer another one after it, so
that whatever kills the process leaves what it had begun. Times are of the monotonic clock, which
all processes of a machine share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Protocol

from omnigraph.errors import OmnigraphError, PreconditionFailed

SCHEMA = """
node Register { name: String @key  value: I64? }
node Log { name: String @key  items: String? }
"""
WRITE = "query put($k: String, $v: I64) { insert Register { name: $k, value: $v } }"
READ = "query get($k: String) { match { $r: Register { name: $k } } return { $r.value as v } }"
EXTEND = "query put($k: String, $v: String) { insert Log { name: $k, items: $v } }"
READ_LOG = "query get($k: String) { match { $l: Log { name: $k } } return { $l.items as v } }"
BRANCHES = ("main", "side")
SECONDS_PER_KEY = 3
"""How long a key is used: the search of the checker grows with the operations on one key."""
ATTEMPTS_MAX = 5


class Unknown(Exception):
    """It is not known whether the operation was done."""


class Refused(Exception):
    """The operation was not done."""


class Face(Protocol):
    """What a way into the product offers."""

    appends: bool

    def write(self, branch: str, key: str, value: int) -> None: ...
    def read(self, branch: str, key: str) -> Any: ...
    def append(self, branch: str, key: str, item: str) -> None: ...
    def read_log(self, branch: str, key: str) -> Any: ...


class Python:
    """The SDK on the storage, or its client of a server."""

    appends = True

    def __init__(self, graph: Any, *, is_served: bool) -> None:
        self._graph = graph
        self._is_served = is_served

    def _tell(self, error: Exception) -> Exception:
        if not isinstance(error, OmnigraphError):
            return Unknown(repr(error))
        outcome = getattr(error, "outcome", None) or error.details.get("outcome")
        if outcome == "unknown" or (self._is_served and outcome != "not_begun"):
            is_conflict = isinstance(error, PreconditionFailed)
            return Refused(repr(error)) if is_conflict else Unknown(repr(error))
        return Refused(repr(error))

    def write(self, branch: str, key: str, value: int) -> None:
        try:
            self._graph.mutate(WRITE, {"k": key, "v": value}, branch=branch)
        except Exception as error:
            raise self._tell(error) from error

    def read(self, branch: str, key: str) -> Any:
        try:
            rows = self._graph.query(READ, {"k": key}, branch=branch).to_pylist()
        except Exception as error:
            raise Refused(repr(error)) from error
        return rows[0]["v"] if rows else None

    def append(self, branch: str, key: str, item: str) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                head = self._graph.list_commits(branch)[0].graph_commit_id
                rows = self._graph.query(READ_LOG, {"k": key}, snapshot=head).to_pylist()
            except Exception as error:
                raise Refused(repr(error)) from error
            items = f"{rows[0]['v']} {item}" if rows else item
            try:
                self._graph.mutate(
                    EXTEND, {"k": key, "v": items}, branch=branch, expected_head=head
                )
                return
            except PreconditionFailed:
                continue
            except Exception as error:
                raise self._tell(error) from error
        raise Refused("others were faster each time")

    def read_log(self, branch: str, key: str) -> Any:
        try:
            rows = self._graph.query(READ_LOG, {"k": key}, branch=branch).to_pylist()
        except Exception as error:
            raise Refused(repr(error)) from error
        return rows[0]["v"].split() if rows else None


class CommandLine:
    """The command line, a process for each operation."""

    appends = False

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def _run(self, verb: str, text: str, branch: str, params: dict[str, Any]) -> str:
        where = ["--store", self._uri, "--branch", branch, "--params", json.dumps(params)]
        done = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli", verb, "-e", text, *where, "--json", "--yes"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Unknown(done.stderr)
        return done.stdout

    def write(self, branch: str, key: str, value: int) -> None:
        self._run("mutate", WRITE, branch, {"k": key, "v": value})

    def read(self, branch: str, key: str) -> Any:
        rows = json.loads(self._run("query", READ, branch, {"k": key}))["rows"]
        return rows[0]["v"] if rows else None

    def append(self, branch: str, key: str, item: str) -> None:
        raise Refused("a command knows no head to append to")

    def read_log(self, branch: str, key: str) -> Any:
        rows = json.loads(self._run("query", READ_LOG, branch, {"k": key}))["rows"]
        return rows[0]["v"].split() if rows else None


def face_of(name: str, place: str) -> Face:
    import omnigraph as og

    if name == "cli":
        return CommandLine(place)
    if name == "http":
        return Python(og.connect(place), is_served=True)
    return Python(og.open(place), is_served=False)


def main(name: str, place: str, journal: str, number: int) -> None:
    random = Random(f"{number} {time.time_ns()}")
    face: Face | None = None
    with Path(journal).open("a", encoding="utf-8", buffering=1) as lines:
        while True:
            try:
                face = face or face_of(name, place)
            except Exception:
                time.sleep(0.2)
                continue
            _one(face, random, lines, number)


def _one(face: Face, random: Random, lines: Any, number: int) -> None:
    branch = random.choice(BRANCHES)
    kinds = ["write", "read", "read"]
    kinds += ["append", "read log"] if face.appends else ["read log"]
    kind = random.choice(kinds)
    is_log = kind in ("append", "read log")
    key = f"{'l' if is_log else 'r'}{int(time.monotonic() / SECONDS_PER_KEY)}"
    value: Any = time.time_ns() // 1000 * 10 + number
    entry = {"id": f"{number}-{value}", "kind": kind, "key": f"{branch}/{key}"}
    written = str(value) if kind == "append" else value if kind == "write" else None
    lines.write(json.dumps({**entry, "value": written, "began": time.monotonic()}) + "\n")
    try:
        match kind:
            case "write":
                face.write(branch, key, value)
            case "append":
                face.append(branch, key, str(value))
            case "read":
                written = face.read(branch, key)
            case _:
                written = face.read_log(branch, key)
    except Unknown:
        return
    except Refused as refused:
        lines.write(json.dumps({"id": entry["id"], "refused": str(refused)[:200]}) + "\n")
        return
    lines.write(json.dumps({"id": entry["id"], "value": written, "ended": time.monotonic()}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

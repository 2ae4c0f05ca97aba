"""One worker of the soak: does one operation after another until it is killed.

It writes down what it is about to do before it does it, and how that ended afterwards, each time to
the disk. After a death the next process of the same worker reads that journal and goes on.
"""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from omnigraph.errors import Busy, Conflict, LeaseLost, NotFound, RecoveryRequired, UncoveredDrift
from omnigraph.graph import Graph
from tests.crash.operations import opened
from tests.crash.soak_model import COMMON, Operation, choose, perform
from tests.support.forked import enter

# The server that forks these processes imports Lance and never uses it, which is safe.
warnings.filterwarnings("ignore", message="lance is not fork-safe")

Outcome = Literal["done", "refused", "unknown", "broken"]
"""``unknown``: the operation may be there or not, but as a whole. ``broken``: an error that no
caller should meet."""


@dataclass
class Entry:
    """One operation of a journal."""

    worker: int
    at: int
    operation: Operation
    began: int
    ended: float = float("inf")
    outcome: Outcome = "unknown"
    commit_id: str | None = None
    error: str = ""

    def operation_id(self, seed: str) -> str:
        return f"soak-{seed}-{self.worker}-{self.at}"

    def __str__(self) -> str:
        return f"worker {self.worker} #{self.at} {json.dumps(self.operation)}: {self.outcome}"


def read_journal(path: Path, worker: int) -> list[Entry]:
    """The operations of a worker so far; one that was begun and not ended is unknown."""
    entries: list[Entry] = []
    for line in _whole_lines(path):
        if "operation" in line:
            entries.append(Entry(worker, line["at"], line["operation"], line["time"]))
        else:
            entry = entries[-1]
            assert entry.at == line["at"]
            entry.ended = line["time"]
            entry.outcome, entry.commit_id = line["outcome"], line["commit_id"]
            entry.error = line["error"]
    return entries


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().splitlines(keepends=True):
            # The last line of a process may be cut short: then it was never acknowledged.
            if line.endswith(b"\n"):
                yield json.loads(line)


def own_branches(entries: list[Entry]) -> list[str]:
    """The branches this worker has created and never begun to delete."""
    found: list[str] = []
    for entry in entries:
        branch = entry.operation["branch"]
        if branch == COMMON:
            continue
        if entry.operation["kind"] == "branch_create" and entry.outcome == "done":
            found.append(branch)
        if entry.operation["kind"] == "branch_delete" and branch in found:
            found.remove(branch)
    return found


class Worker:
    """The loop."""

    def __init__(self, root: str, journal: Path, seed: str, number: int) -> None:
        self._root = root
        self._seed = seed
        self._number = number
        self._entries = read_journal(journal, number)
        self._file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if journal.stat().st_size and not journal.read_bytes().endswith(b"\n"):
            os.ftruncate(self._file, journal.read_bytes().rfind(b"\n") + 1)

    def run(self) -> None:
        """Until somebody kills this process."""
        graph = opened(self._root)
        at = self._entries[-1].at + 1 if self._entries else 0
        while True:
            operation = choose(self._seed, self._number, at, own_branches(self._entries))
            self._write({"at": at, "time": time.monotonic_ns(), "operation": operation})
            entry = Entry(self._number, at, operation, time.monotonic_ns())
            outcome, commit_id, error = self._attempt(graph, entry)
            entry.outcome = outcome
            self._entries.append(entry)
            self._write(
                {
                    "at": at,
                    "time": time.monotonic_ns(),
                    "outcome": outcome,
                    "commit_id": commit_id,
                    "error": error,
                }
            )
            if outcome == "unknown" or error.startswith(UncoveredDrift.code):
                graph.recover()
            at += 1

    def _attempt(self, graph: Graph, entry: Entry) -> tuple[Outcome, str | None, str]:
        try:
            commit_id = perform(graph, entry.operation, entry.operation_id(self._seed))
        except RecoveryRequired as error:
            return "unknown", None, error.message
        except (Conflict, Busy, LeaseLost) as error:
            return "refused", None, f"{error.code}: {error.message}"
        except NotFound as error:
            if entry.operation["branch"] == COMMON:
                return "refused", None, error.message
            return "broken", None, traceback.format_exc()
        except Exception:
            return "broken", None, traceback.format_exc()
        return "done", commit_id, ""

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        assert os.write(self._file, data) == len(data)
        os.fsync(self._file)


def forked(root: str, journal: str, seed: str, number: int, settings: dict[str, str]) -> None:
    """The process: armed with failpoints, and silent about what it survives."""
    logging.disable(logging.WARNING)
    enter(settings)
    Worker(root, Path(journal), seed, number).run()

"""`make hostile`: every write verb against every fault of an object store.

    python -m tests.s3 --cases 3 --record bench/records/hostile.json   # three requests a cell
    python -m tests.s3 --verb insert --fault "reset after" --nth 7     # one case again

A cell of the table is a verb and a fault. Its cases let different requests of the verb meet the
fault; which ones, a seed decides. With a record, a run goes on where the last one has stopped. A
signal, as of Ctrl-C, ends it after the cell under way.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.circumstances import ROOT, circumstances
from tests.effects import s3_server
from tests.s3.hostile import LEASE_TTL_MS, Case, Trial, verbs
from tests.support.hostile_store import Fault, HostileStore, Seen, hostile_store

TABLE = ROOT / "bench" / "records" / "hostile.json"
"""The one that is kept."""
BUCKET = "graphs"
CASES_PER_GRAPH = 25
"""Then the next graph is begun: reading all of it after each case is most of the work."""

Table = dict[str, dict[str, dict[str, Any]]]
"""By verb and fault: how many cases ended in which way, at which requests, of which code."""


def main() -> int:
    """Fill the table; the exit code is 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.s3")
    parser.add_argument("--cases", type=int, default=2, help="requests of each cell")
    parser.add_argument("--verb", action="append", choices=[*verbs(Path())])
    parser.add_argument("--fault", action="append", choices=[*Fault])
    parser.add_argument("--nth", type=int, help="the request that meets the fault")
    parser.add_argument("--seconds", type=float, help="begin no cell after so long")
    parser.add_argument("--record", type=Path, help="go on with this table, and add to it")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    ends = time.monotonic() + (arguments.seconds or float("inf"))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    table: Table = {}
    if arguments.record is not None and arguments.record.exists():
        table = json.loads(arguments.record.read_text(encoding="utf-8"))
    with _store() as store, TemporaryDirectory(prefix="omnigraph-hostile-") as folder:
        for verb in arguments.verb or [*verbs(Path())]:
            cells = table.setdefault(verb, {})
            left = [each for each in arguments.fault or Fault if not is_filled(cells.get(each))]
            graphs = _Graphs(store, Path(folder))
            requests = graphs.take().requests_of(verb) if left else []
            for fault in left:
                if stop.is_set() or time.monotonic() > ends:
                    break
                nths = [arguments.nth] if arguments.nth else _nths(verb, fault, requests, arguments)
                cells[fault] = _cell(graphs, [Case(verb, fault, nth) for nth in nths])
                print(f"{verb} / {fault}: {_told(cells[fault])}", flush=True)
                if arguments.record is not None:
                    arguments.record.write_text(_page(table), encoding="utf-8")
    tried = [cell for cells in table.values() for cell in cells.values()]
    failed = sum(len(cell["failures"]) for cell in tried)
    print(
        f"{len(tried)} cells, {sum(len(each['requests']) for each in tried)} cases, {failed} failed"
    )
    return 1 if failed else 0


def _nths(
    verb: str, fault: Fault, requests: list[Seen], arguments: argparse.Namespace
) -> list[int]:
    """Which of the requests that a fault makes a difference for meet it."""
    fitting = sum(seen.fits(fault) for seen in requests)
    dice = random.Random(f"{verb} {fault}")
    return sorted(dice.sample(range(1, 1 + fitting), min(fitting, arguments.cases)))


class _Graphs:
    """Gives the graph for the next case; one that has seen many is looked through and left."""

    def __init__(self, store: HostileStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._trial: Trial | None = None
        self._left = 0

    def take(self) -> Trial:
        if self._trial is not None and not self._left:
            trial = self._trial
            self.leave()
            trial.require_healthy()
        if self._trial is None:
            folder = self._folder / uuid.uuid4().hex
            folder.mkdir()
            self._trial = Trial.begin(self._store, f"s3://{BUCKET}/{folder.name}", folder)
            self._left = CASES_PER_GRAPH
        self._left -= 1
        return self._trial

    def leave(self) -> None:
        """Begin the next one for the next case."""
        self._trial = None


@contextmanager
def _store() -> Iterator[HostileStore]:
    """An S3 server and the proxy in front of it, which the environment names."""
    with s3_server.running_s3() as endpoint, hostile_store(endpoint) as store:
        s3_server.create_bucket(endpoint, BUCKET)
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            del os.environ[name]
        os.environ.update(s3_server.environment(store.endpoint))
        os.environ["OMNIGRAPH_LEASE_TTL_MS"] = str(LEASE_TTL_MS)
        yield store


def _cell(graphs: _Graphs, cases: list[Case]) -> dict[str, Any]:
    """Run the cases of a cell; a failed one is told, and the next one has a graph of its own."""
    endings: Counter[str] = Counter()
    requests, failures = [], []
    while cases:
        case = cases.pop(0)
        requests.append(case.nth)
        try:
            trial = graphs.take()
            trial.endings.clear()
            trial.run(case)
        except Exception as error:
            traceback.print_exc()
            failures.append(f"{case}: {error!r}")
            graphs.leave()
            continue
        endings.update(trial.endings)
        if "not met" in trial.endings and case.nth > 1:
            # What is asked at once is not asked equally often each time: an earlier request.
            cases.append(replace(case, nth=case.nth // 2))
    commit = circumstances(None, 0).commit
    return {
        "requests": requests,
        "endings": dict(endings),
        "failures": failures,
        "commit": commit,
    }


def is_filled(cell: dict[str, Any] | None) -> bool:
    """Whether a request met the fault, and no case failed."""
    return cell is not None and not cell["failures"] and bool({*cell["endings"]} - {"not met"})


def _told(cell: dict[str, Any]) -> str:
    ends = ", ".join(f"{ending} {count}" for ending, count in cell["endings"].items())
    return f"requests {cell['requests']}: {ends}" + "".join(f"\n  {x}" for x in cell["failures"])


def _page(table: Table) -> str:
    """JSON with a line for each cell."""
    rows = (
        f" {json.dumps(verb)}: {{\n"
        + ",\n".join(f"  {json.dumps(fault)}: {json.dumps(cell)}" for fault, cell in cells.items())
        + "\n }"
        for verb, cells in table.items()
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())

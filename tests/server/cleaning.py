"""Readers of old commits and of the head of a served graph, while it is written and cleaned up."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.graph import open_graph

ADD = "query add($n: String, $t: String) { insert Person { name: $n, text: $t } }"
QUERIES = (
    "query names { match { $p: Person } return { $p.name } order { $p.name } }",
    # The texts are read after the names, by another request to storage.
    "query texts { match { $p: Person  $p.text = $p.name } return { $p.name } order { $p.name } }",
)
READERS = 3


class Disturbed:
    """What readers saw while the versions they read were removed."""

    def __init__(self, root: Path, client: Callable[[], httpx.Client]) -> None:
        self._root = root
        self._client = client
        self.commits: list[str] = []
        """In their order; the nth shows the first n + 1 names."""
        self.seen: Counter[str] = Counter()
        self.cleanups = 0
        self._ends = threading.Event()
        self._wrong: list[str] = []

    def run(self, is_enough: Callable[[], bool]) -> None:
        """Read until there is enough, or something is wrong; raises `AssertionError` then."""
        self._write_once(0)
        self._write_once(1)
        work = [self._write_and_clean, *([self._read] * READERS)]
        threads = [threading.Thread(target=self._guarded, args=(each,)) for each in work]
        for thread in threads:
            thread.start()
        while not self._ends.wait(0.01) and not is_enough():
            pass
        self._ends.set()
        for thread in threads:
            thread.join()
        assert not self._wrong, self._wrong[:3]

    def require_removed(self) -> None:
        """Raise unless the versions of the first commit are gone, for a reader that kept none."""
        graph = open_graph(self._root)
        graph.cleanup(keep=1, confirm=True)
        with pytest.raises(HistoricalVersionReclaimed):
            graph.query(QUERIES[1], snapshot=self.commits[0])

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._wrong.append(f"{work.__name__}: {error!r}")
            self._ends.set()

    def _write_once(self, number: int) -> None:
        name = f"n{number:06}"
        with self._client() as client:
            body = {"query": ADD, "params": {"n": name, "t": name}}
            answer = client.post("/mutate", json=body)
        assert answer.status_code == 200, answer.text
        self.commits.append(answer.json()["commit"]["graph_commit_id"])

    def _write_and_clean(self) -> None:
        graph = open_graph(self._root)
        while not self._ends.is_set():
            self._write_once(len(self.commits))
            self._write_once(len(self.commits))
            graph.cleanup(keep=1 + self.cleanups % 3, confirm=True)
            self.cleanups += 1

    def _read(self) -> None:
        with self._client() as client:
            for number in itertools.count():
                if self._ends.is_set():
                    return
                query = QUERIES[number % len(QUERIES)]
                newest = len(self.commits) - 1
                if number % 3 == 0:
                    self._read_head(client, query, newest)
                else:
                    # Those about to be removed, mostly.
                    self._read_commit(client, query, max(0, newest - number % 6))

    def _read_head(self, client: httpx.Client, query: str, at_least: int) -> None:
        answer = client.post("/query", json={"query": query})
        assert answer.status_code == 200, answer.text
        names = [row["p.name"] for row in answer.json()["rows"]]
        assert names == [f"n{each:06}" for each in range(len(names))] and len(names) > at_least
        self.seen["head"] += 1

    def _read_commit(self, client: httpx.Client, query: str, number: int) -> None:
        answer = client.post("/query", json={"query": query, "snapshot": self.commits[number]})
        if answer.status_code == 404:
            assert answer.json()["error_code"] == HistoricalVersionReclaimed.code, answer.text
            self.seen["reclaimed"] += 1
            return
        assert answer.status_code == 200, answer.text
        names = [row["p.name"] for row in answer.json()["rows"]]
        assert names == [f"n{each:06}" for each in range(number + 1)]
        self.seen["right"] += 1

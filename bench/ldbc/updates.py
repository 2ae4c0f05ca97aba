"""The updates of the benchmark: each engine makes all of them on a copy of its database.

Updates come in rounds, so that what one adds is there for the next: a person and a friendship, a
forum and a member, a post, a comment and likes of both. Every update is one commit, and an engine
says that it is done when the commit would survive the loss of power: Omnigraph flushes the files of
the commit, DuckDB and Kuzu flush their logs, as they do unless told otherwise. What was added is
then compared with what DuckDB has, and a difference ends the run.
"""

from __future__ import annotations

import datetime as dt
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from bench.contest import Mismatch
from bench.durability import durability
from bench.judges import Parameters, Rows, SameRows
from bench.ldbc import generator
from bench.ldbc.files import LdbcFiles
from bench.ldbc.generator import Network
from bench.ldbc.reads import UPDATES, added, updates
from bench.measure import seconds_of
from bench.peer_duckdb import DuckDb
from bench.peer_kuzu import KuzuConnection, kuzu_rows
from bench.peer_omnigraph import Omnigraph
from bench.peers import rows_of, used_in
from bench.questions import Wording
from omnigraph.graph import open_graph

SINCE = dt.datetime.fromtimestamp(generator.LAST / 1000, dt.UTC).replace(tzinfo=None)
"""Updates come after everything that the network has."""
WARMING = 1
"""Rounds that are not measured."""


class Writer(Protocol):
    """A database of one engine, opened for writing."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def write(self, update: Wording, parameters: Parameters) -> None:
        """Make one update, durably."""
        ...

    def ask(self, read: Wording) -> Rows | None:
        """What was added; nothing if the engine has no text for this."""
        ...

    def close(self) -> None:
        """Give up the database."""
        ...


class OmnigraphWriter:
    """A graph, by one `Graph.mutate` for each update."""

    name = Omnigraph.name

    def __init__(self, path: Path) -> None:
        self._graph = open_graph(path)

    def write(self, update: Wording, parameters: Parameters) -> None:
        """One mutation."""
        self._graph.mutate(update.gq, parameters)

    def ask(self, read: Wording) -> Rows | None:
        """The rows of a query."""
        return rows_of(self._graph.query(read.gq, {"since": SINCE}).to_pylist())

    def close(self) -> None:
        """Nothing is held open."""


class DuckDbWriter:
    """A DuckDB database, by one transaction for each update."""

    name = DuckDb.name

    def __init__(self, path: Path) -> None:
        self._connection = duckdb.connect(str(path))

    def write(self, update: Wording, parameters: Parameters) -> None:
        """The statements of the update."""
        self._connection.execute("BEGIN")
        for statement in _statements(update.sql[0]):
            self._connection.execute(statement, used_in(statement, parameters))
        self._connection.execute("COMMIT")

    def ask(self, read: Wording) -> Rows | None:
        """The rows of a query."""
        return self._connection.execute(read.sql[0], {"since": SINCE}).fetchall()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()


class KuzuWriter:
    """A Kuzu database, by one transaction for each update."""

    name = KuzuConnection.name

    def __init__(self, path: Path) -> None:
        self._opened = KuzuConnection(path, read_only=False)

    def write(self, update: Wording, parameters: Parameters) -> None:
        """The statements of the update that have something to do: empty lists have no type."""
        connection = self._opened.connection
        kuzu_rows(connection, "BEGIN TRANSACTION")
        for statement in _statements(update.cypher[0]):
            used = used_in(statement, parameters)
            if [] not in used.values():
                kuzu_rows(connection, statement, used)
        kuzu_rows(connection, "COMMIT")

    def ask(self, read: Wording) -> Rows | None:
        """The rows of a query, where there is one."""
        if not read.cypher:
            return None
        return rows_of(kuzu_rows(self._opened.connection, read.cypher[0], {"since": SINCE}))

    def close(self) -> None:
        """Close the database."""
        self._opened.close()


def measure(files: LdbcFiles, rounds: int) -> dict[str, dict[str, float]]:
    """The median seconds of each update, by engine, once all of them have the same rows."""
    taken: dict[str, dict[str, list[float]]] = {name: {} for name in UPDATES}
    databases = (files.duckdb, files.kuzu, files.graph)
    with TemporaryDirectory(dir=files.directory) as directory, durability("disk"):
        duckdb_file, kuzu_file, graph = (_copy(path, Path(directory)) for path in databases)
        writers: list[Writer] = [
            DuckDbWriter(duckdb_file),
            KuzuWriter(kuzu_file),
            OmnigraphWriter(graph),
        ]
        try:
            for number, (name, parameters) in enumerate(stream(files.network, rounds + WARMING)):
                for writer in writers:
                    write = partial(writer.write, updates()[name], parameters)
                    seconds = seconds_of(write)
                    if number >= WARMING * len(UPDATES):
                        taken[name].setdefault(writer.name, []).append(seconds)
                writers.append(writers.pop(0))
            compare(writers, files.network)
        finally:
            for writer in writers:
                writer.close()
    return {
        name: {engine: statistics.median(times) for engine, times in found.items()}
        for name, found in taken.items()
    }


def compare(writers: Sequence[Writer], network: Network) -> None:
    """Raise `Mismatch` where an engine has other rows than DuckDB."""
    (first,) = (writer for writer in writers if writer.name == DuckDb.name)
    for read in added().values():
        expected = first.ask(read)
        assert expected, f"{read.name}: nothing was added"
        for writer in writers:
            rows = writer.ask(read)
            if rows is None:
                continue
            fault = SameRows(in_order=True).fault(network, [{}], [rows], [expected])
            if fault is not None:
                raise Mismatch(f"{read.name}: {writer.name} has {fault}")


def stream(network: Network, rounds: int) -> Iterator[tuple[str, Parameters]]:
    """The updates in the order in which they are made: every one once in a round."""
    for number in range(rounds):
        yield from _Round(network, number).updates()


class _Round:
    """Updates that build on each other."""

    def __init__(self, network: Network, number: int) -> None:
        self._network = network
        self._random = np.random.default_rng([network.seed, number])
        self._number = number
        self._minutes = 0
        self.person, self.forum = (
            network.nodes[kind].num_rows + number for kind in ("Person", "Forum")
        )
        self.post = network.messages + 2 * number
        self.comment = self.post + 1

    def updates(self) -> Iterator[tuple[str, Parameters]]:
        """Every update once, each after what it needs."""
        yield "iu1", self._new_person()
        friend = {"person": self._some("Person"), "other": self.person}
        yield "iu8", {**friend, **self._now()}
        tags = {"tags": self._several("Tag", 4)}
        forum = {"forum": self.forum, "title": f"Group {self.forum}", "person": self.person}
        yield "iu4", {**forum, **tags, **self._now()}
        member = {"forum": self.forum, "person": friend["person"]}
        yield "iu5", {**member, **self._now()}
        yield (
            "iu6",
            self._message(self.post, self.person)
            | {
                "forum": self.forum,
                "imageFile": None,
                "language": "lang_1",
            },
        )
        yield "iu7", self._message(self.comment, friend["person"]) | {"parent": self.post}
        yield "iu2", {"person": friend["person"], "message": self.post, **self._now()}
        yield "iu3", {"person": self.person, "message": self.comment, **self._now()}

    def _new_person(self) -> dict[str, Any]:
        random = self._random
        return {
            "person": self.person,
            **self._like(self._network.nodes["Person"], ("firstName", "lastName", "gender")),
            "birthday": dt.date(1980, 1, 1) + dt.timedelta(days=int(random.integers(7000))),
            **self._origin(),
            **self._now(),
            "email": [f"new{self.person}@mail{n}.example" for n in range(random.integers(1, 4))],
            "speaks": ["lang_1", "lang_2"],
            "city": self._some("City"),
            "tags": self._several("Tag", 8),
            "studies": [
                {"university": each, "year": 2005} for each in self._several("University", 2)
            ],
            "work": [{"company": each, "year": 2010} for each in self._several("Company", 3)],
        }

    def _message(self, number: int, author: int) -> dict[str, Any]:
        text = f"message {number} of round {self._number}"
        what = {"message": number, "person": author, "content": text, "length": len(text)}
        places = {"country": self._some("Country"), "tags": self._several("Tag", 4)}
        return {**what, **places, **self._origin(), **self._now()}

    def _origin(self) -> dict[str, Any]:
        return self._like(self._network.nodes["Person"], ("locationIP", "browserUsed"))

    def _like(self, table: pa.Table, columns: Sequence[str]) -> dict[str, Any]:
        """Values of somebody else."""
        at = int(self._random.integers(table.num_rows))
        return {name: table[name][at].as_py() for name in columns}

    def _now(self) -> Mapping[str, Any]:
        self._minutes += 1
        passed = dt.timedelta(hours=self._number, minutes=self._minutes)
        return {"creationDate": SINCE + passed}

    def _some(self, kind: str) -> int:
        return int(self._random.integers(self._network.nodes[kind].num_rows))

    def _several(self, kind: str, most: int) -> list[int]:
        """From none to so many different ones."""
        count = int(self._random.integers(most + 1))
        numbers = self._random.choice(self._network.nodes[kind].num_rows, count, replace=False)
        return sorted(int(each) for each in numbers)


def _copy(path: Path, place: Path) -> Path:
    if path.is_dir():
        return Path(shutil.copytree(path, place / path.name))
    return Path(shutil.copyfile(path, place / path.name))


def _statements(text: str) -> list[str]:
    return [part for part in text.split(";") if part.strip()]

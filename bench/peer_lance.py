"""Bare Lance: the tables of the graph and their indexes, read with the calls of the library.

What one would write without an engine: a lookup by index, a hop as a lookup of all sources it
starts from, the library's own search. Questions that need joins and groups are left to engines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.judges import Parameters
from bench.peers import Answer, Form
from bench.questions import (
    ONE_HOP,
    POINT,
    TEXT,
    THREE_HOPS,
    THREE_HOPS_COUNT,
    TWO_HOPS,
    VECTOR,
    Wording,
)
from omnigraph.graph import open_graph


class BareLance:
    """The datasets of a graph, opened once."""

    name = "bare Lance"

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("LANCE_LOG", "error")
        tables = {
            table.type_name: table for table in open_graph(path, "read_only").snapshot().datasets
        }
        self._persons, self._knows = (
            lance.dataset(
                str(path / tables[name].dataset_path),
                version=tables[name].published_dataset_version,
            )
            for name in ("Person", "Knows")
        )
        self._ways: Mapping[str, Callable[[Parameters], Answer]] = {
            POINT.name: self._point,
            ONE_HOP.name: lambda asked: self._names(self._within(asked["key"], 1)),
            TWO_HOPS.name: lambda asked: self._names(self._within(asked["key"], 2)),
            THREE_HOPS.name: lambda asked: self._names(self._within(asked["key"], 3)),
            THREE_HOPS_COUNT.name: lambda asked: [(len(self._within(asked["key"], 3)),)],
            VECTOR.name: self._vector,
            TEXT.name: self._text,
        }

    def forms(self, question: Wording) -> Sequence[Form]:
        """The one way it is written here, where there is one."""
        way = self._ways.get(question.name)
        return [] if way is None else [way]

    def close(self) -> None:
        """Nothing is held open."""

    def _point(self, asked: Parameters) -> Answer:
        columns = ["name", "age", "city"]
        found = self._persons.to_table(columns=columns, filter=pc.field("id") == asked["key"])
        return _rows(found)

    def _within(self, key: str, hops: int) -> list[str]:
        """The keys of everybody within some hops: each level is one lookup of all its sources."""
        seen, level = {key}, [key]
        for _ in range(hops):
            if not level:
                break
            found = self._knows.to_table(columns=["dst"], filter=pc.field("src").isin(level))
            level = list(set(found["dst"].to_pylist()) - seen)
            seen.update(level)
        return list(seen - {key})

    def _names(self, keys: list[str]) -> Answer:
        if not keys:
            return []
        wanted = pc.field("id").isin(keys)
        found = self._persons.to_table(columns=["key", "name"], filter=wanted)
        return _rows(found)

    def _vector(self, asked: Parameters) -> Answer:
        nearest = {"column": "vec", "q": np.array(asked["q"], np.float32), "k": 10}
        found = self._persons.to_table(
            columns=["key", "_distance"],
            filter=pc.field("age") > asked["age"],
            prefilter=True,
            nearest=nearest,
        )
        return _rows(found)

    def _text(self, asked: Parameters) -> Answer:
        found = self._persons.to_table(
            columns=["key", "_score"],
            filter=pc.field("age") > asked["age"],
            prefilter=True,
            full_text_query={"columns": ["bio"], "query": asked["q"]},
            limit=10,
        )
        return _rows(found)


def _rows(table: pa.Table) -> Answer:
    rows: Answer = table.to_pylist()
    return rows

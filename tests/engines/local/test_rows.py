"""Cached columns and masks, against what Lance scans at every version."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.engines.local import rows as rows_module
from omnigraph.engines.local.ids import IdSpace
from omnigraph.engines.local.memory import MemoryBudget
from omnigraph.engines.local.nodes import slots_of_ids
from omnigraph.engines.local.rows import RowView, TableVersions
from omnigraph.storage.reader import SnapshotReader
from tests.engines.local.graphs import knows, load, new_graph, person, reader_of, write
from tests.support.graphs import with_settings

PERSON, KNOWS = "node:Person", "edge:Knows"
TYPES = {"age": pa.int32(), "bio": pa.string(), "id": pa.string(), "name": pa.string()}
TAGS = pa.list_(pa.field("item", pa.string()))
PLENTY = 10**9


def view_of(table: TableVersions, reader: SnapshotReader, key: str = PERSON) -> RowView:
    entry = reader.snapshot.table(key)
    return table.view(entry.ref, entry.version, reader.handle(key))


def shown(view: RowView, name: str, type: pa.DataType) -> list[Any]:
    """The values of the rows that exist."""
    column = view.column(name, type)
    assert len(column) == view.layout.size
    values: list[Any] = column.take(pa.array(view.positions())).to_pylist()
    return values


def assert_shows_what_lance_scans(view: RowView, reader: SnapshotReader, key: str = PERSON) -> None:
    columns = {**TYPES, "tags": TAGS} if key == PERSON else dict.fromkeys(("id", "src", "dst"))
    scanned = reader.handle(key).to_table(columns=list(columns))
    for name, type in columns.items():
        assert shown(view, name, type or pa.string()) == scanned[name].to_pylist()
    assert view.count == scanned.num_rows
    mask = np.ones(view.layout.size, np.bool_) if view.live is None else view.live
    assert view.positions().tolist() == np.flatnonzero(mask).tolist()


def scans(work: Callable[[], object]) -> int:
    """How many scans the work asks storage for."""
    with measure() as io:
        work()
    return io.report().count("lance", "scan")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = new_graph(tmp_path)
    load(graph, *(person(f"a{at}", age=at, bio=f"text {at}", tags=["t"]) for at in range(6)))
    return graph


@pytest.fixture
def table() -> TableVersions:
    return TableVersions(MemoryBudget(PLENTY))


# --- random histories -----------------------------------------------------------------------------


class History:
    """Random writes to two branches, each commit remembered."""

    def __init__(self, graph: og.Graph, choices: random.Random) -> None:
        self.graph = graph
        self.choices = choices
        self.readers: list[SnapshotReader] = []
        self._count = 0
        graph.create_branch("side")

    def step(self) -> None:
        """One write; afterwards the head of its branch is among the readers."""
        branch = self.choices.choice(["main", "main", "side"])
        names = reader_of(self.graph, branch).scan(PERSON, ["id"])["id"].to_pylist()
        victim = self.choices.choice(names)
        match self.choices.choice(["append", "append", "replace", "update", "delete"]):
            case "append":
                self._append(branch, names)
            case "replace":
                load(self.graph, person(victim, age=-1), person(self._new_name()), branch=branch)
            case "update":
                write(
                    self.graph,
                    f'update Person set {{ bio: "new" }} where name = "{victim}"',
                    branch=branch,
                )
            case "delete":
                if len(names) > 2:
                    write(self.graph, f'delete Person where name = "{victim}"', branch=branch)
        self.readers.append(reader_of(self.graph, branch))

    def _append(self, branch: str, names: list[str]) -> None:
        new = [self._new_name() for _ in range(self.choices.randint(1, 3))]
        ends = [*names, *new]
        edges = [
            knows(self.choice(ends), self.choice(ends)) for _ in range(self.choices.randint(0, 3))
        ]
        people = [person(name, age=len(name), tags=[]) for name in new]
        load(self.graph, *people, *edges, branch=branch)

    def choice(self, options: list[str]) -> str:
        return self.choices.choice(options)

    def _new_name(self) -> str:
        self._count += 1
        return f"n{self._count}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("views_max", [32, 2], ids=["remembered", "forgotten"])
def test_columns_and_masks_are_what_lance_scans_whatever_was_written(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, seed: int, views_max: int
):
    graph = with_settings(graph, table_compact_every=4)
    monkeypatch.setattr(rows_module, "_VIEWS_MAX", views_max)
    history = History(graph, random.Random(seed))
    warm = {key: TableVersions(MemoryBudget(PLENTY)) for key in (PERSON, KNOWS)}
    for _ in range(10):
        history.step()
        for key, table in warm.items():
            reader = history.readers[-1]
            assert_shows_what_lance_scans(view_of(table, reader, key), reader, key)
    # Older versions, looked at again after all that came later, and by somebody who never saw them.
    fresh = TableVersions(MemoryBudget(PLENTY))
    for reader in history.readers[::-3]:
        assert_shows_what_lance_scans(view_of(warm[PERSON], reader), reader)
        assert_shows_what_lance_scans(view_of(fresh, reader), reader)


@pytest.mark.parametrize("seed", range(2))
def test_slots_follow_their_ids_through_all_versions(graph: og.Graph, seed: int):
    history = History(graph, random.Random(100 + seed))
    table, space = TableVersions(MemoryBudget(PLENTY)), IdSpace()
    for _ in range(8):
        history.step()
    for reader in history.readers + history.readers[::-2]:
        assert_slots_follow_ids(table, space, reader)


def assert_slots_follow_ids(table: TableVersions, space: IdSpace, reader: SnapshotReader) -> None:
    view = view_of(table, reader)
    slots = view.derived(("id", space.serial), slots_of_ids(space))
    ids = view.column("id", pa.string()).to_pylist()
    assert space.strings(slots).to_pylist() == ids
    assert len(set(slots.tolist())) == len(set(ids))


def test_an_id_that_was_deleted_and_is_back_has_one_slot(graph: og.Graph):
    write(graph, 'update Person set { age: 50 } where name = "a1"')
    write(graph, 'delete Person where name = "a2"')
    load(graph, person("a2"))
    assert_slots_follow_ids(TableVersions(MemoryBudget(PLENTY)), IdSpace(), reader_of(graph))


# --- what is read ---------------------------------------------------------------------------------


def test_a_column_is_read_once(graph: og.Graph, table: TableVersions):
    view = view_of(table, reader_of(graph))
    assert scans(lambda: view.column("age", pa.int32())) == 1
    assert scans(lambda: view.column("age", pa.int32())) == 0
    again = view_of(table, reader_of(graph))
    assert again is view


def test_only_new_fragments_are_read(graph: og.Graph, table: TableVersions):
    old = view_of(table, reader_of(graph))
    old.column("age", pa.int32())
    load(graph, person("b0", age=50), person("b1"))
    read: list[int] = []
    new = view_of(table, reader_of(graph))

    def load_ages(handle, fragments):
        read.extend(fragment.rows for fragment in fragments)
        return pa.array([50, None], pa.int32())

    column = table.column(new, "age", load_ages)
    assert read == [2]
    assert pa.array(column).to_pylist() == [0, 1, 2, 3, 4, 5, 50, None]


def test_a_delete_reads_no_column_again(graph: og.Graph, table: TableVersions):
    view_of(table, reader_of(graph)).column("age", pa.int32())
    write(graph, 'delete Person where name = "a3"')
    reader = reader_of(graph)
    reader.handle(PERSON)
    # The file that lists the deleted rows is read, and no table.
    assert scans(lambda: view_of(table, reader)) == 0
    view = view_of(table, reader)
    assert scans(lambda: view.column("age", pa.int32())) == 0
    assert shown(view, "age", pa.int32()) == [0, 1, 2, 4, 5]


def test_deletions_are_read_once_for_all_versions_that_share_them(
    graph: og.Graph, table: TableVersions
):
    write(graph, 'delete Person where name = "a3"')
    view_of(table, reader_of(graph))
    load(graph, person("b0"))
    reader = reader_of(graph)
    reader.handle(PERSON)
    assert scans(lambda: view_of(table, reader)) == 0


def test_a_branch_reads_nothing_that_main_has_read(graph: og.Graph, table: TableVersions):
    view_of(table, reader_of(graph)).column("bio", pa.string())
    graph.create_branch("side")
    write(graph, 'delete Person where name = "a0"', branch="side")
    view = view_of(table, reader_of(graph, "side"))
    assert scans(lambda: view.column("bio", pa.string())) == 0
    assert shown(view, "bio", pa.string()) == [f"text {at}" for at in range(1, 6)]


def test_an_older_version_reads_nothing_that_a_newer_one_has_read(
    graph: og.Graph, table: TableVersions
):
    before = reader_of(graph)
    load(graph, person("b0", age=7))
    view_of(table, reader_of(graph)).column("age", pa.int32())
    old = view_of(table, before)
    assert scans(lambda: old.column("age", pa.int32())) == 0
    assert shown(old, "age", pa.int32()) == list(range(6))


def test_a_property_that_a_version_does_not_have_is_null(graph: og.Graph, table: TableVersions):
    view = view_of(table, reader_of(graph))
    column = view.column("added_later", pa.float64())
    assert (column.type, column.to_pylist()) == (pa.float64(), [None] * 6)


def test_an_empty_table_has_typed_columns(tmp_path: Path, table: TableVersions):
    view = view_of(table, reader_of(new_graph(tmp_path / "empty")))
    assert (view.count, view.layout.size, view.live) == (0, 0, None)
    assert view.column("age", pa.int32()).type == pa.int32()
    assert view.derived("numbers", lambda handle, fragments: np.zeros(0, np.int32)).tolist() == []


# --- what is made of columns ----------------------------------------------------------------------


class Words:
    """Something that grows with its column: the values so far, and how often it was extended."""

    def __init__(self, values: list[Any], pieces: int = 1) -> None:
        self.values = values
        self.pieces = pieces
        self.nbytes = 8 * len(values)


def words_of(view: RowView) -> Words:
    column = view.column("bio", pa.string())

    def grow(known: Words | None, start: int) -> Words:
        new = column.slice(start).to_pylist()
        return Words(new) if known is None else Words([*known.values, *new], known.pieces + 1)

    return view.keep_growing("words", grow)


def test_what_grows_is_the_same_as_what_is_built_from_scratch(
    graph: og.Graph, table: TableVersions
):
    readers = [reader_of(graph)]
    for at in range(3):
        load(graph, person(f"b{at}", bio=f"b {at}"))
        readers.append(reader_of(graph))
    found = [words_of(view_of(table, reader)) for reader in readers]
    assert [each.pieces for each in found] == [1, 2, 3, 4]
    for reader, each in zip(readers, found, strict=True):
        fresh = words_of(view_of(TableVersions(MemoryBudget(PLENTY)), reader))
        assert (fresh.values, fresh.pieces) == (each.values, 1)


def test_what_grows_goes_on_from_the_longest_beginning(graph: og.Graph, table: TableVersions):
    first = reader_of(graph)
    load(graph, person("b", bio="b"))
    second = reader_of(graph)
    load(graph, person("c", bio="c"))
    words_of(view_of(table, first))
    words_of(view_of(table, second))
    newest = words_of(view_of(table, reader_of(graph)))
    assert newest.pieces == 3
    # A version whose files begin differently starts anew.
    write(graph, 'delete Person where name = "b"')
    changed = view_of(table, reader_of(graph))
    assert words_of(changed).values == changed.column("bio", pa.string()).to_pylist()


def test_what_is_forgotten_while_it_is_grown_is_made_anew(
    graph: og.Graph, table: TableVersions, monkeypatch: pytest.MonkeyPatch
):
    words_of(view_of(table, reader_of(graph)))
    load(graph, person("b", bio="b"))
    real = TableVersions.longest_beginning

    def forgotten(self, layout, key):
        found = real(self, layout, key)
        assert found is not None
        found.made.clear()  # another table needed the memory just now
        return found

    monkeypatch.setattr(TableVersions, "longest_beginning", forgotten)
    view = view_of(table, reader_of(graph))
    assert words_of(view).values == view.column("bio", pa.string()).to_pylist()


def test_things_made_for_files_are_shared_by_versions_and_those_for_rows_are_not(
    graph: og.Graph, table: TableVersions
):
    before = view_of(table, reader_of(graph))
    write(graph, 'delete Person where name = "a0"')
    after = view_of(table, reader_of(graph))
    assert before.layout.files[0] == after.layout.files[0]
    one = before.keep_with_files("index", lambda: Words(["files"]))
    assert after.keep_with_files("index", lambda: Words(["other"])) is one
    mine = before.keep("rows", lambda: Words(["before"]))
    assert after.keep("rows", lambda: Words(["after"])).values == ["after"]
    assert before.keep("rows", lambda: Words(["again"])) is mine


def test_asking_is_remembered_by_files(graph: og.Graph, table: TableVersions):
    layout = view_of(table, reader_of(graph)).layout
    assert not layout.asked_before("x")
    assert layout.asked_before("x")
    assert not layout.asked_before("y")

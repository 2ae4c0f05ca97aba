"""What storage says about the pieces of a table, after every kind of write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import (
    FragmentState,
    deleted_offsets,
    fragments_of,
    remaining_offsets,
    stored_rows,
)
from tests.engines.local.graphs import knows, load, new_graph, person, reader_of, write
from tests.support.graphs import with_settings

PERSON, KNOWS = "node:Person", "edge:Knows"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Two loads: two fragments."""
    graph = new_graph(tmp_path)
    load(graph, *(person(f"a{at}", age=at) for at in range(5)))
    load(graph, *(person(f"b{at}", age=at) for at in range(3)))
    return graph


def handle_of(graph: og.Graph, branch: str | None = None, key: str = PERSON) -> Handle:
    return reader_of(graph, branch).handle(key)


def stored(handle: Handle, fragments: list[FragmentState], column: str = "id") -> list[str]:
    batches = list(stored_rows(handle, fragments, [column]))
    assert all(batch.schema.names == [column] for batch in batches)
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def live(handle: Handle) -> list[str]:
    """The rows that the fragments and their deletions leave."""
    found = []
    for fragment in fragments_of(handle):
        ids = stored(handle, [fragment])
        assert len(ids) == fragment.rows
        if fragment.deletions is None:
            found += ids
        else:
            found += [ids[at] for at in remaining_offsets(handle, fragment).tolist()]
    return found


def scanned(handle: Handle) -> list[str]:
    ids: list[str] = handle.to_table(columns=["id"])["id"].to_pylist()
    return ids


def test_every_load_is_a_fragment_with_rows_of_its_own(graph: og.Graph):
    handle = handle_of(graph)
    first, second = fragments_of(handle)
    assert (first.rows, second.rows) == (5, 3)
    assert first.deletions is None
    assert first.files != second.files
    assert stored(handle, [second]) == ["b0", "b1", "b2"]
    assert stored(handle, [first, second]) == scanned(handle)


def test_deleted_rows_keep_their_place(graph: og.Graph):
    before = handle_of(graph)
    whole = {fragment.files: stored(before, [fragment]) for fragment in fragments_of(before)}
    write(graph, 'delete Person where name = "a1"')
    write(graph, 'delete Person where name = "a4"')
    handle = handle_of(graph)
    first, second = fragments_of(handle)
    assert first.deletions is not None
    assert second.deletions is None
    assert remaining_offsets(handle, first).tolist() == [0, 2, 3]
    assert stored(handle, [first]) == whole[first.files] == [f"a{at}" for at in range(5)]
    assert live(handle) == scanned(handle)
    # The version before it is as it was.
    assert [fragment.deletions for fragment in fragments_of(before)] == [None, None]
    assert live(before) == scanned(before)


def test_every_delete_has_a_deletion_file_of_its_own(graph: og.Graph):
    found = set()
    for name in ("a0", "a1", "a2"):
        write(graph, f'delete Person where name = "{name}"')
        found.add(fragments_of(handle_of(graph))[0].deletions)
    assert len(found) == 3
    assert None not in found


@pytest.mark.parametrize(("every", "ending"), [(1000, ".arrow"), (3, ".bin")])
def test_deletion_files_of_both_kinds_are_read_without_a_scan(
    tmp_path: Path, every: int, ending: str
):
    graph = new_graph(tmp_path)
    load(graph, *(person(f"n{at:05}", age=at % every) for at in range(18_000)))
    write(graph, "delete Person where age = 0")
    handle = handle_of(graph)
    (fragment,) = fragments_of(handle)
    assert fragment.deletions is not None
    assert fragment.deletions.endswith(ending)
    with measure() as storage:
        found = deleted_offsets(handle, fragment)
    assert "scan" not in str(storage.report().to_dict())
    left = remaining_offsets(handle, fragment)
    assert sorted([*found.tolist(), *left.tolist()]) == list(range(fragment.rows))
    assert len(found) == 18_000 // every


def test_an_update_deletes_a_row_and_adds_a_fragment(graph: og.Graph):
    known = {fragment.files for fragment in fragments_of(handle_of(graph))}
    write(graph, 'update Person set { age: 99 } where name = "a2"')
    handle = handle_of(graph)
    new = [fragment for fragment in fragments_of(handle) if fragment.files not in known]
    assert stored(handle, new) == ["a2"]
    assert live(handle) == scanned(handle)
    assert len(live(handle)) == 8


def test_a_fragment_without_rows_is_gone(graph: og.Graph):
    for at in range(3):
        write(graph, f'delete Person where name = "b{at}"')
    handle = handle_of(graph)
    assert live(handle) == scanned(handle) == [f"a{at}" for at in range(5)]


def test_a_branch_shares_the_fragments_it_did_not_write(graph: og.Graph):
    graph.create_branch("side")
    write(graph, 'delete Person where name = "a0"', branch="side")
    load(graph, person("c0"), branch="side")
    main, side = handle_of(graph), handle_of(graph, "side")
    shared = {fragment.files for fragment in fragments_of(main)}
    fragments = fragments_of(side)
    assert shared <= {fragment.files for fragment in fragments}
    assert len(fragments) == 3
    assert live(side) == scanned(side)
    # The same place is deleted on both sides by different files.
    write(graph, 'delete Person where name = "a1"')
    assert fragments_of(handle_of(graph))[0].deletions != fragments[0].deletions
    assert "a0" in live(handle_of(graph))


def test_deleting_a_node_marks_its_edges_too(graph: og.Graph):
    load(graph, knows("a0", "a1", since=1), knows("a1", "a2", since=2), knows("a2", "a3", since=3))
    write(graph, 'delete Person where name = "a1"')
    handle = handle_of(graph, key=KNOWS)
    (fragment,) = fragments_of(handle)
    assert remaining_offsets(handle, fragment).tolist() == [2]
    assert stored(handle, [fragment], "src") == ["a0", "a1", "a2"]


def test_compaction_makes_new_fragments_of_the_rows_that_are_left(
    graph: og.Graph,
):
    write(graph, 'delete Person where name = "a1"')
    before = fragments_of(handle_of(graph))
    graph = with_settings(graph, table_compact_every=2)
    for at in range(4):
        load(graph, person(f"c{at}"))
    handle = handle_of(graph)
    after = fragments_of(handle)
    assert not {fragment.files for fragment in before} & {fragment.files for fragment in after}
    assert live(handle) == scanned(handle)
    assert sorted(live(handle)) == sorted({*map("a{}".format, (0, 2, 3, 4)), *scanned(handle)})


def test_no_fragments_are_no_rows(graph: og.Graph):
    # Lance would take an empty list for all of them.
    with measure() as io:
        assert stored(handle_of(graph), []) == []
    assert io.report().count("lance", "scan") == 0


def test_columns_of_any_type_come_with_deleted_rows(graph: og.Graph):
    load(graph, person("t", tags=["x", "y"]), person("u", tags=[]))
    write(graph, 'delete Person where name = "t"')
    handle = handle_of(graph)
    batches = list(stored_rows(handle, fragments_of(handle), ["tags"]))
    column = pa.chunked_array([batch.column(0) for batch in batches])
    assert column.to_pylist()[-2:] == [["x", "y"], []]
    assert len(column) == 10

"""Changes of one graph applied to another: the two are equal, however the changes are cut."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph
from omnigraph.commit.plan import WriteLimits
from omnigraph.commit.write_path import WritePath
from omnigraph.errors import InputError, LimitExceeded
from omnigraph.graph import Graph
from omnigraph.loading.changes import ChangesLoad
from omnigraph.loading.load import load
from omnigraph.loading.request import EXISTING_BRANCH, LoadSpec
from omnigraph.model.receipts import LoadReceipt
from tests.commit.loading import edge, lines, node
from tests.support.budgets import FEW

SCHEMA = """
node Person { slug: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person { since: I32?  @key(src, dst) }
edge About: Note -> Person
"""
COLUMNS = pa.schema(
    [("sequence", pa.int64()), *((name, pa.string()) for name in ("kind", "type", "id", "op"))]
).append(pa.field("after", pa.string()))


class Feed:
    """What a graph has committed and nobody has read yet."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._cursor = graph.poll_changes().cursor
        self._commits = 0

    def rows(self) -> list[dict[str, Any]]:
        page = self._graph.poll_changes(cursor=self._cursor)
        self._cursor = page.cursor
        rows = []
        for block in page.blocks:
            self._commits += 1
            for each in block.changes:
                row = {"kind": each.kind, "type": each.type_name, "id": each.id, "op": each.op}
                image = None if each.after is None else orjson.dumps(each.after.to_dict()).decode()
                rows.append({**row, "after": image, "sequence": self._commits})
        return rows


def applied(
    rows: list[dict[str, Any]], graph: Graph, folder: Path, limits: WriteLimits | None = None
) -> LoadReceipt:
    """Apply rows, in two files and against their order."""
    paths = []
    for at, part in enumerate((rows[::2], rows[1::2])):
        table = pa.Table.from_pylist(part[::-1], COLUMNS)
        paths.append(str(folder / f"{at}.arrow"))
        with pa.OSFile(paths[-1], "wb") as sink, pa.ipc.new_file(sink, COLUMNS) as out:
            out.write_table(table)
    kernel = graph._kernel
    executor = ChangesLoad(kernel, LoadSpec("main", "merge"), paths, limits or WriteLimits())
    return load(WritePath(kernel), EXISTING_BRANCH, executor)


def exported(graph: Graph) -> list[bytes]:
    return sorted(b"".join(graph.export()).splitlines())


NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("person"), NAMES, st.integers(0, 3)),
    st.tuples(st.just("knows"), NAMES, NAMES),
    st.tuples(st.just("note"), NAMES),
    st.tuples(st.just("forget"), NAMES),
    st.tuples(st.just("part"), NAMES),
    st.just(("follow",)),
)


def step(graph: Graph, what: str, *args: Any) -> None:
    """One commit, or none if it cannot be."""
    match what, args:
        case "person", (slug, age):
            graph.load(data=lines(node("Person", slug=slug, age=age or None)), mode="merge")
        case "knows", (one, other):
            people = [node("Person", slug=name) for name in {one, other}]
            knows = edge("Knows", one, other)
            graph.load(data=lines(*people, knows), mode="merge")
        case "note", (slug,):
            note = {"type": "Note", "data": {"id": f"n-{slug}", "text": slug}}
            about = {"edge": "About", "from": f"n-{slug}", "to": slug, "data": {"id": f"n-{slug}"}}
            graph.load(data=lines(node("Person", slug=slug), note, about), mode="merge")
        case "forget", (slug,):
            graph.mutate(f'query q {{ delete Person where slug = "{slug}" }}')
        case "part", (slug,):
            graph.mutate(f'query q {{ delete Knows where from = "{slug}" }}')


@FEW
@given(st.lists(STEPS, max_size=12))
def test_a_graph_that_follows_another_is_equal_to_it_after_every_batch(steps):
    with TemporaryDirectory() as folder:
        graph, copy = (omnigraph.init(Path(folder) / name, SCHEMA) for name in ("one", "two"))
        feed = Feed(graph)
        for each in (*steps, ("follow",)):
            if each[0] != "follow":
                step(graph, *each)
                continue
            before = len(copy.list_commits())
            rows = feed.rows()
            receipt = applied(rows, copy, Path(folder))
            assert exported(copy) == exported(graph)
            assert len(copy.list_commits()) == before + (receipt.commit is not None)
            head = copy.list_commits()
            assert applied(rows, copy, Path(folder)).commit is None, "applied twice"
            assert copy.list_commits() == head


@pytest.fixture
def copy(tmp_path: Path) -> Graph:
    return omnigraph.init(tmp_path / "copy.omni", SCHEMA)


def change(sequence: int, kind: str, type: str, id: str, after: Any = None) -> dict[str, Any]:
    image = None if after is None else orjson.dumps(after).decode()
    named = {"sequence": sequence, "kind": kind, "type": type, "id": id}
    return {**named, "op": "delete" if after is None else "update", "after": image}


def test_what_a_graph_has_alone_stays_but_for_edges_of_deleted_nodes(copy, tmp_path):
    copy.load(
        data=lines(*(node("Person", slug=name, age=1) for name in "abz"), edge("Knows", "z", "a")),
        mode="append",
    )
    rows = [change(1, "node", "Person", "a"), change(1, "node", "Person", "gone")]
    rows.append(change(2, "node", "Person", "b", {"properties": {"slug": "b"}}))
    receipt = applied(rows, copy, tmp_path)
    assert receipt.commit is not None
    people = copy.table("Person").to_arrow()
    assert dict(zip(people["slug"].to_pylist(), people["age"].to_pylist(), strict=True)) == {
        "b": 1,
        "z": 1,
    }
    assert copy.table("Knows").to_arrow().num_rows == 0


def test_changes_that_do_not_fit_change_nothing(copy, tmp_path):
    before = copy.list_commits()
    ends = {"endpoints": {"from": "a", "to": "b"}, "properties": {}}
    for row, message in (
        (change(1, "node", "Persn", "a"), "unknown node type 'Persn'"),
        (change(1, "node", "Person", "a", {"properties": {"slug": "a", "x": 1}}), "'x'"),
        (change(1, "edge", "Knows", "k", ends), "not found in Person"),
        ({**change(1, "node", "Person", "a"), "op": "insert"}, "has no image"),
    ):
        with pytest.raises(InputError, match=message):
            applied([row], copy, tmp_path)
    many = [change(1, "node", "Note", str(at), {"properties": {"text": "x"}}) for at in range(9)]
    with pytest.raises(LimitExceeded, match="rows of node:Note"):
        applied(many, copy, tmp_path, WriteLimits(rows_max=5))
    assert copy.list_commits() == before

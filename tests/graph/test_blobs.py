"""`Graph.blob`: one value found by type, entity and property, and read in parts."""

from __future__ import annotations

import threading
from base64 import b64encode
from pathlib import Path
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.errors import BlobRangeError, HistoricalVersionReclaimed, InputError, NotFound
from omnigraph.graph.blobs import Blob
from omnigraph.model.blobs import CHUNK_BYTES_MAX

SCHEMA = """
node Person { name: String @key  photo: Blob?  age: I32? }
edge Knows: Person -> Person { scan: Blob? }
"""
SMALL = b"\x00\x01 a few bytes \xff"
"""Kept in the data file."""
MIDDLE = Random(1).randbytes(100_000)
"""Kept in a file with others."""
LARGE = Random(2).randbytes(CHUNK_BYTES_MAX * 2 + 12_345)
"""Kept in a file of its own."""
VALUES: dict[str, bytes | None] = {
    "small": SMALL,
    "middle": MIDDLE,
    "large": LARGE,
    "empty": b"",
    "none": None,
}


def text(data: bytes | None) -> str | None:
    return None if data is None else f"base64:{b64encode(data).decode()}"


def person(name: str, data: bytes | None) -> bytes:
    return orjson.dumps({"type": "Person", "data": {"name": name, "photo": text(data)}}) + b"\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """A graph for those who only read."""
    graph = og.init(tmp_path_factory.mktemp("blobs") / "graph.omni", schema=SCHEMA)
    graph.load(mode="append", data=b"".join(person(*each) for each in VALUES.items()))
    edge = {"edge": "Knows", "from": "small", "to": "none", "data": {"id": "k1"}}
    edge["data"] |= {"scan": text(b"signed")}  # type: ignore[operator]
    graph.load(mode="append", data=orjson.dumps(edge))
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    graph.load(mode="append", data=person("ada", SMALL) + person("bo", MIDDLE))
    return graph


def photo(graph: og.Graph, name: str, **target: str) -> Blob:
    return graph.blob("node", "Person", name, "photo", **target)


def set_photo(graph: og.Graph, name: str, data: bytes, branch: str | None = None) -> None:
    update = "query q($n: String, $b: Blob) { update Person set { photo: $b } where name = $n }"
    graph.mutate(update, {"n": name, "b": text(data)}, branch=branch)


def set_age(graph: og.Graph, name: str, branch: str | None = None) -> None:
    update = "query q($n: String) { update Person set { age: 7 } where name = $n }"
    graph.mutate(update, {"n": name}, branch=branch)


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "middle", "large", "empty"])
def test_c_sch_047_a_value_is_read_whole_and_in_pieces(shared: og.Graph, name: str):
    value = VALUES[name]
    assert value is not None
    blob = photo(shared, name)
    assert (blob.kind, blob.size, blob.uri) == ("managed", len(value), None)
    assert blob.snapshot_id == shared.snapshot().graph_commit_id
    assert blob.read() == value
    pieces = list(blob.chunks())
    assert b"".join(pieces) == value
    assert all(0 < len(piece) <= CHUNK_BYTES_MAX for piece in pieces)


@given(
    st.sampled_from(["small", "middle", "large"]),
    st.integers(0, 200_000),
    st.integers(1, 200_000) | st.none(),
)
def test_a_range_is_the_slice_of_the_value(
    shared: og.Graph, name: str, offset: int, length: int | None
):
    value = VALUES[name]
    assert value is not None
    blob = photo(shared, name)
    if offset >= len(value):
        with pytest.raises(BlobRangeError):
            blob.read(offset, length)
    else:
        assert blob.read(offset, length) == value[offset:][:length]


def test_blobs_of_edges_are_read_as_those_of_nodes(shared: og.Graph):
    assert shared.blob("edge", "Knows", "k1", "scan").read() == b"signed"


def test_chunks_can_be_smaller_but_not_larger(shared: og.Graph):
    pieces = list(photo(shared, "middle").chunks(10, 100, chunk_bytes=30))
    assert [len(piece) for piece in pieces] == [30, 30, 30, 10]
    assert b"".join(pieces) == MIDDLE[10:110]
    for wrong in (0, CHUNK_BYTES_MAX + 1):
        with pytest.raises(InputError, match="a chunk has"):
            photo(shared, "middle").chunks(chunk_bytes=wrong)


def test_a_bad_range_is_told_before_the_first_chunk(shared: og.Graph):
    with pytest.raises(BlobRangeError) as caught:
        photo(shared, "small").chunks(len(SMALL))
    assert caught.value.details == {
        "start": len(SMALL),
        "end": len(SMALL),
        "length": len(SMALL),
    }


def test_what_is_known_of_a_value_is_known_without_reading_it(shared: og.Graph):
    with measure() as storage:
        photo(shared, "large").stat.to_dict()
    counts = storage.report().counts
    assert not any(verb.startswith("read_blob") for _, verb in counts), counts


def test_many_threads_read_one_value(shared: og.Graph):
    blob = photo(shared, "large")
    parts: dict[int, bytes] = {}

    def read(number: int) -> None:
        parts[number] = blob.read(number * 1000, 1000)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert b"".join(parts[number] for number in range(16)) == LARGE[:16_000]


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "kind", "message", "hint"),
    [
        (("node", "Person", "none", "photo"), NotFound, "is null on branch main", "older snapshot"),
        (("node", "Person", "nobody", "photo"), NotFound, "there is no node Person 'nobody'", "id"),
        (("edge", "Knows", "nobody", "scan"), NotFound, "there is no edge Knows 'nobody'", "id"),
        (("node", "Persom", "small", "photo"), InputError, "no node type 'Persom'", "`Person`"),
        (("edge", "Person", "small", "photo"), InputError, "no edge type 'Person'", "Knows"),
        (("node", "Person", "small", "foto"), InputError, "no property 'foto'", "`photo`"),
        (("node", "Person", "small", "age"), InputError, "age is not a Blob but", "photo"),
        (("node", "Person", "small", "id"), InputError, "no property 'id'", "photo"),
        (("thing", "Person", "small", "photo"), InputError, "not a kind of entity", "`node`"),
    ],
)
def test_what_there_is_not_is_told_with_a_hint(
    shared: og.Graph,
    selector: tuple[str, str, str, str],
    kind: type[Exception],
    message: str,
    hint: str,
):
    with pytest.raises(kind) as caught:
        shared.blob(*selector)
    assert message in str(caught.value)
    assert isinstance(caught.value, og.errors.OmnigraphError)
    assert caught.value.hint is not None and hint in caught.value.hint


def test_a_branch_or_a_snapshot_and_both_known(graph: og.Graph):
    commit = graph.snapshot().graph_commit_id
    with pytest.raises(InputError, match="not both"):
        photo(graph, "ada", branch="main", snapshot=commit)
    with pytest.raises(NotFound):
        photo(graph, "ada", branch="nowhere")
    with pytest.raises(NotFound):
        photo(graph, "ada", snapshot="01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


# --- branches, snapshots, and time ----------------------------------------------------------------


def test_a_branch_has_its_own_value_and_a_snapshot_the_former_one(graph: og.Graph):
    first = graph.snapshot().graph_commit_id
    graph.create_branch("review")
    set_photo(graph, "ada", b"on review", "review")
    set_photo(graph, "ada", b"on main")
    assert photo(graph, "ada").read() == b"on main"
    assert photo(graph, "ada", branch="review").read() == b"on review"
    old = photo(graph, "ada", snapshot=first)
    assert (old.read(), old.snapshot_id) == (SMALL, first)
    assert old.stat.to_dict()["target"] == {"snapshot": first, "resolved_snapshot": first}


def test_a_value_that_was_found_stays_what_it_was(graph: og.Graph):
    blob = photo(graph, "ada")
    set_photo(graph, "ada", b"another one")
    graph.optimize()
    assert blob.read() == SMALL
    assert photo(graph, "ada").read() == b"another one"


def test_a_tag_lasts_as_long_as_the_stored_value(graph: og.Graph):
    before = photo(graph, "ada").etag
    assert before is not None and before.startswith('"') and before.endswith('"')
    set_photo(graph, "bo", b"somebody else's")
    graph.create_branch("review")
    set_age(graph, "bo", "review")
    assert photo(graph, "ada").etag == before
    assert photo(graph, "ada", branch="review").etag == before
    assert photo(og.open(graph.uri), "ada").etag == before


def test_other_bytes_never_have_the_same_tag(graph: og.Graph):
    graph.create_branch("review")
    tags = {photo(graph, name).etag for name in ("ada", "bo")}
    set_photo(graph, "ada", b"A" * len(SMALL))
    tags.add(photo(graph, "ada").etag)
    set_photo(graph, "ada", b"B" * len(SMALL))
    tags.add(photo(graph, "ada").etag)
    # The same position in a file of the same length, at the same version of another branch.
    set_photo(graph, "ada", b"C" * len(SMALL), "review")
    tags.add(photo(graph, "ada", branch="review").etag)
    assert len(tags) == 5


def test_values_are_read_after_compaction_and_cleanup(graph: og.Graph):
    first = graph.snapshot().graph_commit_id
    for number in range(5):
        set_photo(graph, "bo", f"number {number}".encode())
    graph.optimize()
    assert photo(graph, "ada").read() == SMALL
    assert photo(graph, "bo").read() == b"number 4"
    graph.cleanup(keep=1, confirm=True)
    assert photo(graph, "ada").read() == SMALL
    assert photo(graph, "bo").read() == b"number 4"
    with pytest.raises((HistoricalVersionReclaimed, NotFound)):
        photo(og.open(graph.uri), "bo", snapshot=first).read()

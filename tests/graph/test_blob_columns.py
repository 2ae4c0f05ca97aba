"""Blobs through everything that moves rows: merges, picks, reverts, diffs, exports, schemas."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.errors import LimitExceeded, MergeConflicts, NotFound
from omnigraph.graph.blobs import Blob

SCHEMA = """
node Person { name: String @key  photo: Blob?  age: I32?  big: U64? }
edge Signed: Person -> Person { scan: Blob? }
"""
SIZES = {"small": 20, "middle": 100_000, "large": 5_000_000}
"""One of each way of Lance to keep a blob: in the data file, among others, and alone."""
PHOTOS = {name: Random(name).randbytes(size) for name, size in SIZES.items()} | {"empty": b""}


def text(data: bytes) -> str:
    return f"base64:{b64encode(data).decode()}"


def person(name: str, photo: bytes | None, **data: Any) -> bytes:
    data |= {"name": name, "photo": None if photo is None else text(photo)}
    return orjson.dumps({"type": "Person", "data": data}) + b"\n"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    people = b"".join(person(name, photo) for name, photo in PHOTOS.items())
    scan = {"id": "s1", "scan": text(b"ink")}
    edge = orjson.dumps({"edge": "Signed", "from": "small", "to": "none", "data": scan})
    graph.load(mode="append", data=people + person("none", None, big=2**64 - 1) + edge)
    return graph


def photo(graph: og.Graph, name: str, branch: str | None = None) -> Blob:
    return graph.blob("node", "Person", name, "photo", branch=branch)


def set_photo(graph: og.Graph, name: str, data: bytes, branch: str | None = None) -> str:
    update = "query q($n: String, $b: Blob) { update Person set { photo: $b } where name = $n }"
    receipt = graph.mutate(update, {"n": name, "b": text(data)}, branch=branch)
    assert receipt.commit is not None
    return receipt.commit.graph_commit_id


def set_age(graph: og.Graph, name: str, age: int, branch: str | None = None) -> str:
    update = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
    receipt = graph.mutate(update, {"n": name, "a": age}, branch=branch)
    assert receipt.commit is not None
    return receipt.commit.graph_commit_id


def require_photos(graph: og.Graph, branch: str | None = None, **changed: bytes) -> None:
    for name, data in (PHOTOS | changed).items():
        assert photo(graph, name, branch).read() == data, name
    with pytest.raises(NotFound, match="is null"):
        photo(graph, "none", branch)


# --- updates --------------------------------------------------------------------------------------


def test_blobs_survive_an_update_that_does_not_name_them(graph: og.Graph):
    for name in (*PHOTOS, "none"):
        set_age(graph, name, 7)
    require_photos(graph)


def test_c_wrt_038_an_update_over_the_limit_is_refused_before_payloads_are_read(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_WRITE_BYTES_MAX", "1000000")
    limited = og.open(graph.uri)
    head = limited.snapshot().graph_commit_id
    with measure() as storage, pytest.raises(LimitExceeded, match="bytes of node:Person"):
        set_age(limited, "large", 7)
    assert storage.report().count("lance", "read_blobs") == 0
    assert limited.snapshot().graph_commit_id == head
    set_age(limited, "middle", 7)
    require_photos(limited)


# --- branches -------------------------------------------------------------------------------------


def test_a_merge_carries_blobs_of_every_size(graph: og.Graph):
    graph.create_branch("review")
    set_photo(graph, "small", b"from review", "review")
    graph.load(mode="merge", data=person("new", PHOTOS["large"][::-1]), branch="review")
    set_photo(graph, "middle", b"from main")
    graph.merge_branch("review")
    require_photos(graph, small=b"from review", middle=b"from main", new=PHOTOS["large"][::-1])
    assert graph.blob("edge", "Signed", "s1", "scan").read() == b"ink"


def test_properties_merge_around_a_blob(graph: og.Graph):
    graph.create_branch("review")
    set_photo(graph, "middle", b"only on review", "review")
    set_age(graph, "middle", 7)
    graph.merge_branch("review", granularity="property")
    assert photo(graph, "middle").read() == b"only on review"
    found = graph.entity_at("node:Person", "middle")
    assert found is not None and found["age"] == 7


def test_a_conflict_shows_the_size_and_a_digest_instead_of_the_bytes(graph: og.Graph):
    graph.create_branch("review")
    set_photo(graph, "large", b"mine", "review")
    set_photo(graph, "large", b"theirs")
    with pytest.raises(MergeConflicts) as caught:
        graph.merge_branch("review")
    (conflict,) = caught.value.details["merge_conflicts"]
    assert conflict["properties"] == ["photo"]
    assert conflict["base"]["properties"]["photo"] == {
        "size": SIZES["large"],
        "sha256": hashlib.sha256(PHOTOS["large"]).hexdigest(),
    }
    assert conflict["source"]["properties"]["photo"]["size"] == 4
    require_photos(graph, large=b"theirs")


def test_a_commit_is_picked_and_reverted_with_its_blobs(graph: og.Graph):
    graph.create_branch("review")
    changed = set_photo(graph, "large", b"picked", "review")
    graph.cherry_pick(changed)
    require_photos(graph, large=b"picked")
    (head, *_) = graph.list_commits()
    graph.revert(head.graph_commit_id)
    require_photos(graph)
    require_photos(graph, "review", large=b"picked")


# --- what changed ---------------------------------------------------------------------------------


def test_a_diff_shows_the_size_and_a_digest_instead_of_the_bytes(graph: og.Graph):
    graph.create_branch("review")
    set_photo(graph, "large", b"smaller now", "review")
    diff = graph.diff("main", "review").to_dict(images=True)
    (change,) = diff["changes"]
    assert change["before"]["properties"]["photo"]["size"] == SIZES["large"]
    assert change["after"]["properties"]["photo"] == {
        "size": 11,
        "sha256": hashlib.sha256(b"smaller now").hexdigest(),
    }
    assert len(orjson.dumps(diff)) < 2_000


def test_a_blob_that_was_only_moved_does_not_show_as_changed(graph: og.Graph):
    graph.create_branch("review")
    set_age(graph, "large", 7, "review")
    (change,) = graph.diff("main", "review").to_dict(images=True)["changes"]
    assert change["before"]["properties"]["photo"] == change["after"]["properties"]["photo"]
    assert change["after"]["properties"]["age"] == 7


def test_the_changes_of_a_commit_have_the_bytes(graph: og.Graph):
    commit_id = set_photo(graph, "small", b"exact")
    (change,) = graph.commit_changes(commit_id)
    assert change.before is not None and change.after is not None
    assert change.before.properties["photo"] == text(PHOTOS["small"])
    assert change.after.properties["photo"] == text(b"exact")


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", ["strict", "compatible"])
def test_c_sch_055_an_export_loads_into_the_same_graph_again(
    graph: og.Graph, tmp_path: Path, grammar: Any
):
    lines = b"".join(graph.export())
    copy = og.init(tmp_path / "copy.omni", schema=SCHEMA)
    copy.load(mode="overwrite", data=lines, grammar=grammar)
    assert b"".join(copy.export()) == lines
    require_photos(copy)
    assert orjson.loads(
        next(line for line in lines.splitlines() if b'"none"' in line and b"type" in line)
    )["data"] == {"id": "none", "age": None, "big": 2**64 - 1, "name": "none", "photo": None}


def test_c_sch_047_an_empty_blob_is_not_a_null_one(graph: og.Graph):
    assert (photo(graph, "empty").size, photo(graph, "empty").read()) == (0, b"")
    with pytest.raises(NotFound, match="is null"):
        photo(graph, "none")
    assert photo(graph, "empty").etag is not None


# --- schema and upkeep ----------------------------------------------------------------------------


def test_a_blob_property_is_added_renamed_and_read_in_the_past(graph: og.Graph):
    first = graph.snapshot().graph_commit_id
    renamed = SCHEMA.replace("photo: Blob?", 'portrait: Blob? @rename_from("photo")  cv: Blob?')
    assert graph.apply_schema(renamed).applied
    for name, data in PHOTOS.items():
        assert graph.blob("node", "Person", name, "portrait").read() == data
    with pytest.raises(NotFound, match="is null"):
        graph.blob("node", "Person", "small", "cv")
    graph.mutate('query q { update Person set { cv: "base64:Y3Y=" } where name = "small" }')
    assert graph.blob("node", "Person", "small", "cv").read() == b"cv"

    # As of the commit before, under the names of today.
    old = graph.blob("node", "Person", "large", "portrait", snapshot=first)
    assert (old.read(), old.snapshot_id) == (PHOTOS["large"], first)
    with pytest.raises(NotFound, match="is null on snapshot"):
        graph.blob("node", "Person", "small", "cv", snapshot=first)
    with pytest.raises(NotFound, match="there is no node"):
        graph.blob("node", "Person", "nobody", "cv", snapshot=first)


def test_a_type_that_was_made_later_has_no_past(graph: og.Graph):
    first = graph.snapshot().graph_commit_id
    graph.apply_schema(SCHEMA + "node Memo { name: String @key  scan: Blob? }")
    graph.mutate('query q { insert Memo { name: "m", scan: "base64:AAE=" } }')
    assert graph.blob("node", "Memo", "m", "scan").read() == b"\x00\x01"
    with pytest.raises(NotFound, match="there is no node Memo 'm'"):
        graph.blob("node", "Memo", "m", "scan", snapshot=first)


def test_blobs_survive_upkeep(graph: og.Graph):
    for round in range(4):
        set_age(graph, "large", round)
        set_photo(graph, "small", f"round {round}".encode())
    graph.optimize()
    require_photos(graph, small=b"round 3")
    graph.cleanup(keep=1, confirm=True)
    require_photos(og.open(graph.uri), small=b"round 3")

"""Blobs in an object store: read in parts, and copied from other buckets."""

from __future__ import annotations

from pathlib import Path
from random import Random

import orjson
import pytest

from omnigraph.effects.objects import open_store
from omnigraph.effects.uri import Root
from omnigraph.errors import ExternalBlobUnavailable, LimitExceeded, ValueConversionError
from omnigraph.graph import init, open_graph
from tests.effects import s3_server
from tests.graph.test_blobs import SCHEMA, person, photo, set_photo

PICTURES = "pictures"
LARGE = Random(5).randbytes(6_000_000)


@pytest.fixture(scope="module")
def bucket(s3_endpoint: str) -> str:
    s3_server.create_bucket(s3_endpoint, PICTURES)
    return PICTURES


@pytest.fixture
def pictures(bucket: str, uri: str) -> str:
    """A folder of a bucket with a picture in it; `uri` has set the environment."""
    put("people/ada lovelace.png", b"ada")
    put("private/key", b"secret")
    return f"s3://{bucket}/people"


def put(key: str, data: bytes) -> None:
    open_store(Root.parse(f"s3://{PICTURES}")).write(key, data)


def record(name: str, uri: str) -> bytes:
    return orjson.dumps({"type": "Person", "data": {"name": name, "photo": uri}})


def test_a_value_is_read_in_parts_on_branches_and_in_the_past(uri: str):
    graph = init(uri, SCHEMA)
    graph.load(mode="append", data=person("ada", LARGE) + person("bo", b"small"))
    first = graph.snapshot().graph_commit_id
    graph.create_branch("review")
    set_photo(graph, "bo", b"on review", "review")
    set_photo(graph, "bo", b"on main")
    again = open_graph(uri, "read_only")
    assert photo(again, "ada").size == len(LARGE)
    assert photo(again, "ada").read(4_000_000, 100) == LARGE[4_000_000:4_000_100]
    assert b"".join(photo(again, "ada", branch="review").chunks()) == LARGE
    assert photo(again, "ada", branch="review").etag == photo(graph, "ada").etag
    assert photo(again, "bo", branch="review").read() == b"on review"
    assert photo(again, "bo", snapshot=first).read() == b"small"
    graph.optimize()
    assert photo(graph, "ada").read() == LARGE


def test_objects_of_an_allowed_folder_are_copied(uri: str, pictures: str):
    graph = init(uri, SCHEMA, external_blobs=[pictures])
    place = f"{pictures}/ada%20lovelace.png"
    graph.load(mode="merge", data=record("ada", place))
    graph.mutate(
        'query q($b: Blob) { insert Person { name: "bo", photo: $b } }',
        {"b": f"{pictures}/ada lovelace.png"},
    )
    put("people/ada lovelace.png", b"somebody else")
    assert [photo(graph, name).read() for name in ("ada", "bo")] == [b"ada", b"ada"]
    for outside in (f"s3://{PICTURES}/private/key", f"{pictures}/../private/key"):
        with pytest.raises(ValueConversionError, match="is not allowed"):
            graph.load(mode="merge", data=record("x", outside))


def test_a_missing_object_and_a_missing_bucket_are_named(uri: str, pictures: str):
    graph = init(uri, SCHEMA, external_blobs=[pictures, "s3://no-such-bucket/x"])
    for place, reason in (
        (f"{pictures}/nobody.png", "there is no such object"),
        ("s3://no-such-bucket/x/y", "the bucket does not exist"),
    ):
        with pytest.raises(ExternalBlobUnavailable) as caught:
            graph.load(mode="merge", data=record("x", place))
        assert caught.value.details == {"uri": place, "reason": reason}
        assert s3_server.SECRET_KEY not in caught.value.render()


def test_an_object_that_is_too_large_is_not_fetched(
    uri: str, pictures: str, monkeypatch: pytest.MonkeyPatch
):
    put("people/huge", bytes(2_000_000))
    monkeypatch.setenv("OMNIGRAPH_WRITE_BYTES_MAX", "1000000")
    graph = init(uri, SCHEMA, external_blobs=[pictures])
    with pytest.raises(LimitExceeded) as caught:
        graph.load(mode="merge", data=record("x", f"{pictures}/huge"))
    assert caught.value.details["actual"] == 2_000_000


def test_a_reference_into_a_bucket_is_kept_and_never_followed(uri: str):
    graph = init(uri, SCHEMA, external_blobs=["s3://nobody-has-this-bucket"])
    place = "s3://nobody-has-this-bucket/a/b%20c.png"
    graph.load(mode="overwrite", data=record("ada", place))
    graph.mutate('query q { update Person set { age: 7 } where name = "ada" }')
    graph.optimize()
    found = photo(open_graph(uri, "read_only"), "ada")
    assert (found.kind, found.uri) == ("external", place)


def test_a_graph_on_disk_copies_from_a_bucket(tmp_path: Path, pictures: str):
    graph = init(tmp_path / "graph.omni", SCHEMA, external_blobs=[pictures])
    graph.load(mode="append", data=record("ada", f"{pictures}/ada lovelace.png"))
    assert photo(graph, "ada").read() == b"ada"

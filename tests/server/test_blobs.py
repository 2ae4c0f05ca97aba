"""Blobs over HTTP: ranges, conditions, and objects that lie elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from omnigraph.errors import BlobRangeError, InputError
from omnigraph.graph import init
from omnigraph.model.blobs import ByteRange
from omnigraph.server.config import GraphSpec, ServerConfig
from omnigraph.server.generation import build
from omnigraph.server.routes.blobs import if_range_holds, matches, requested_span
from tests.server.live import SCHEMA, Live, serving

PAYLOAD = bytes(range(256)) * 20_000
PHOTO = {"entity": "node", "type": "Person", "id": "ada", "property": "photo"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a large blob, an empty one, none, and one that lies elsewhere."""
    folder = tmp_path_factory.mktemp("blobs")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "cat.png").write_bytes(b"meow")
    root = folder / "team.omni"
    graph = init(str(root), SCHEMA, external_blobs=[elsewhere.as_uri()])
    photos = {
        "ada": f'"base64:{base64.b64encode(PAYLOAD).decode()}"',
        "bo": '"base64:"',
        "cy": "null",
        "di": f'"{(elsewhere / "cat.png").as_uri()}"',
    }
    lines = [
        f'{{"type": "Person", "data": {{"name": "{name}", "photo": {photo}}}}}'
        for name, photo in photos.items()
    ]
    # Only an overwrite keeps a URI; other writes copy what it leads to.
    graph.load(data="\n".join(lines), mode="overwrite", engine="local")
    (elsewhere / "cat.png").unlink()  # a read of it would fail
    return root


@pytest.fixture(scope="module")
def live(root: Path) -> Iterator[Live]:
    with serving(GraphSpec("default", str(root))) as live:
        yield live


@pytest.fixture
def graph(live: Live) -> Iterator[httpx.Client]:
    with live.client() as client:
        yield client


def test_a_blob_comes_whole(graph: httpx.Client):
    answer = graph.get("/blob", params=PHOTO)
    assert answer.status_code == 200
    assert answer.content == PAYLOAD
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-length"] == str(len(PAYLOAD))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"].startswith('"')
    commit = graph.get("/commits").json()["commits"][0]["graph_commit_id"]
    assert answer.headers["omnigraph-snapshot-id"] == commit
    at_commit = graph.get("/blob", params={**PHOTO, "snapshot": commit})
    assert at_commit.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=100-199", 100, 200),
        ("bytes=5119990-", 5_119_990, len(PAYLOAD)),
        ("bytes=-10", len(PAYLOAD) - 10, len(PAYLOAD)),
        ("bytes=-99999999", 0, len(PAYLOAD)),
        ("bytes=10-99999999", 10, len(PAYLOAD)),
    ],
)
def test_one_range_is_206(graph: httpx.Client, asked: str, start: int, end: int):
    answer = graph.get("/blob", params=PHOTO, headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == PAYLOAD[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(PAYLOAD)}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,4-5", "bytes=", "bytes=5-1", "lines=0-1", "bytes=a-b", "bytes=-"]
)
def test_what_is_not_one_byte_range_is_ignored(graph: httpx.Client, asked: str):
    answer = graph.get("/blob", params=PHOTO, headers={"Range": asked})
    assert (answer.status_code, len(answer.content)) == (200, len(PAYLOAD))


def test_c_srv_037_conditions_come_in_order(graph: httpx.Client):
    tag = graph.head("/blob", params=PHOTO).headers["etag"]
    part = {"Range": "bytes=0-3"}
    beyond = {"Range": "bytes=99999999-"}

    def status(**headers: str) -> int:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = graph.get("/blob", params=PHOTO, headers=sent)
        if answer.status_code in (304, 412, 416):
            assert answer.headers["etag"] == tag
            assert answer.headers["omnigraph-snapshot-id"]
        return answer.status_code

    # If-Match first: it wins over a match that would be 304, and over a range that would be 416.
    assert status(If_Match='"other"', If_None_Match=tag, **beyond) == 412
    assert status(If_Match=f"W/{tag}") == 412
    assert status(If_Match="not a tag") == 412
    assert status(If_Match=f'"other", {tag}') == 200
    assert status(If_Match="*") == 200
    # Then If-None-Match, which wins over the range.
    assert status(If_None_Match=tag, **beyond) == 304
    assert status(If_None_Match=f"W/{tag}", **part) == 304
    assert status(If_None_Match="*") == 304
    assert status(If_None_Match='"other"', **part) == 206
    # Then the range, if If-Range does not call it off.
    assert status(**beyond) == 416
    assert status(If_Range=tag, **part) == 206
    assert status(If_Range=f"W/{tag}", **part) == 200
    assert status(If_Range='"other"', **beyond) == 200


def test_the_answers_to_conditions_have_their_shapes(graph: httpx.Client):
    tag = graph.head("/blob", params=PHOTO).headers["etag"]
    lost = graph.get("/blob", params=PHOTO, headers={"If-Match": '"other"'})
    assert lost.json()["code"] == "conflict"
    same = graph.get("/blob", params=PHOTO, headers={"If-None-Match": tag})
    assert (same.content, same.headers["content-length"]) == (b"", str(len(PAYLOAD)))
    outside = graph.get("/blob", params=PHOTO, headers={"Range": "bytes=6000000-6000009"})
    assert outside.headers["content-range"] == f"bytes */{len(PAYLOAD)}"
    assert outside.json()["blob_range"] == {
        "start": 6_000_000,
        "end": 6_000_010,
        "length": len(PAYLOAD),
    }


def test_c_srv_037_head_reads_nothing(tmp_path: Path):
    root = tmp_path / "team.omni"
    graph = init(str(root), SCHEMA)
    photo = base64.b64encode(PAYLOAD).decode()
    record = f'{{"type": "Person", "data": {{"name": "ada", "photo": "base64:{photo}"}}}}'
    graph.load(data=record, mode="append", engine="local")
    payloads = list(root.rglob("*.blob"))
    assert payloads
    for file in payloads:
        file.unlink()
    with serving(GraphSpec("default", str(root))) as live:
        client = live.client()
        shown = client.head("/blob", params=PHOTO, headers={"Range": "bytes=0-1"})
        assert (shown.status_code, shown.headers["content-length"]) == (200, str(len(PAYLOAD)))
        same = {"If-None-Match": shown.headers["etag"]}
        assert client.head("/blob", params=PHOTO, headers=same).status_code == 304
        read = client.get("/blob", params=PHOTO)
        assert read.status_code == 500
        assert read.json()["code"] == "internal" and str(root) not in read.text


def test_an_empty_blob_has_no_ranges(graph: httpx.Client):
    empty = {**PHOTO, "id": "bo"}
    whole = graph.get("/blob", params=empty)
    assert (whole.status_code, whole.content) == (200, b"")
    assert graph.get("/blob", params=empty, headers={"Range": "bytes=0-"}).status_code == 416


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"id": "cy"}, 404),
        ({"id": "nobody"}, 404),
        ({"branch": "nowhere"}, 404),
        ({"entity": "thing"}, 400),
        ({"type": "Persn"}, 400),
        ({"property": "name"}, 400),
        ({"property": "nothing"}, 400),
        ({"id": ""}, 400),
        ({"branch": "main", "snapshot": "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"}, 400),
    ],
)
def test_a_blob_that_is_not_there(graph: httpx.Client, changed: dict[str, str], status: int):
    for method in ("GET", "HEAD"):
        assert graph.request(method, "/blob", params=PHOTO | changed).status_code == status


def test_c_srv_038_an_external_blob_redirects_without_looking(graph: httpx.Client, root: Path):
    there = {**PHOTO, "id": "di"}
    for method, headers in (("GET", {}), ("HEAD", {}), ("GET", {"Range": "bytes=0-1"})):
        answer = graph.request(method, "/blob", params=there, headers=headers)
        assert answer.status_code == 302
        # The object is gone: the server looks up only where it lies.
        assert answer.headers["location"] == (root.parent / "elsewhere" / "cat.png").as_uri()
        assert answer.headers["cache-control"] == "no-store"
        assert "etag" not in answer.headers and answer.headers["omnigraph-snapshot-id"]


def test_a_load_cannot_make_the_server_name_its_own_files(graph: httpx.Client, tmp_path: Path):
    record = '{"type": "Person", "data": {"name": "eve", "photo": "file:///etc/passwd"}}\n'
    assert graph.post("/load", json={"data": record}).status_code == 400
    spec = GraphSpec("default", str(tmp_path), external_blobs=("file:///etc",))
    with pytest.raises(InputError, match="external blobs"):
        build(ServerConfig((spec,), unauthenticated=True, environment={}))


def test_tags_are_compared_as_http_says():
    assert matches(['"a", "b,c"'], '"b,c"', weak=False)
    assert matches(['"a"', '"b"'], '"b"', weak=False)
    assert not matches(['"a", b'], '"a"', weak=False)
    assert not matches(['W/"a"'], '"a"', weak=False)
    assert matches(['W/"a"'], '"a"', weak=True)
    assert if_range_holds([], '"a"') and not if_range_holds(['"a"', '"a"'], '"a"')


def test_ranges_are_read_as_http_says():
    assert requested_span("bytes=0-", 5) == ByteRange(0, 5)
    assert requested_span("bytes=4-9", 5) == ByteRange(4, 5)
    assert requested_span(f"bytes=0-{'9' * 40}", 5) is None
    for outside in ("bytes=5-", "bytes=-0", "bytes=9-9"):
        with pytest.raises(BlobRangeError):
            requested_span(outside, 5)

"""Blobs given by URI: which are allowed, what is copied, and what stays a reference."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import (
    ExternalBlobUnavailable,
    InputError,
    LimitExceeded,
    ValueConversionError,
)
from omnigraph.graph.blobs import Blob

SCHEMA = "node Person { name: String @key  photo: Blob?  age: I32? }"
INSERT = "query q($n: String, $b: Blob) { insert Person { name: $n, photo: $b } }"
UPDATE = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
PICTURE = b"\x89PNG of ada"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "my pictures"
    folder.mkdir()
    (folder / "ada.png").write_bytes(PICTURE)
    (tmp_path / "secret").write_bytes(b"nobody's business")
    return folder


@pytest.fixture
def graph(tmp_path: Path, pictures: Path) -> og.Graph:
    return og.init(tmp_path / "graph.omni", SCHEMA, external_blobs=[pictures.as_uri()])


def record(name: str, photo: str | None = None, **data: Any) -> bytes:
    return orjson.dumps({"type": "Person", "data": {"name": name, "photo": photo, **data}}) + b"\n"


def photo(graph: og.Graph, name: str, **target: str) -> Blob:
    return graph.blob("node", "Person", name, "photo", **target)


def exported(graph: og.Graph, **target: Any) -> dict[str, Any]:
    lines = b"".join(graph.export(**target)).splitlines()
    return {data["name"]: data for line in lines for data in [orjson.loads(line)["data"]]}


def with_reference(graph: og.Graph, pictures: Path) -> str:
    """Ada's photo as a reference, and Bo's as bytes."""
    uri = (pictures / "ada.png").as_uri()
    rows = record("ada", uri) + record("bo", f"base64:{b64encode(b'bo').decode()}")
    graph.load(mode="overwrite", data=rows)
    return uri


# --- what is allowed ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_c_sch_047_without_a_base_every_uri_is_refused_and_nothing_written(
    tmp_path: Path, pictures: Path, mode: Any
):
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    uri = (pictures / "ada.png").as_uri()
    head = graph.snapshot().graph_commit_id
    with pytest.raises(ValueConversionError) as caught:
        graph.load(mode=mode, data=record("ada", uri))
    assert f"external blob URI '{uri}' is not allowed" in caught.value.message
    assert caught.value.hint is not None and "external_blobs" in caught.value.hint
    with pytest.raises(ValueConversionError, match="is not allowed"):
        graph.mutate(INSERT, {"n": "ada", "b": uri})
    assert graph.snapshot().graph_commit_id == head


def test_c_sch_047_a_uri_outside_the_bases_is_refused(graph: og.Graph, pictures: Path):
    beside = (pictures.parent / "secret").as_uri()
    climbing = pictures.as_uri() + "/../secret"
    for uri in (beside, climbing, "s3://pictures/ada.png"):
        with pytest.raises(ValueConversionError, match="is not allowed"):
            graph.load(mode="merge", data=record("ada", uri))
        with pytest.raises(ValueConversionError, match="is not allowed"):
            graph.mutate(INSERT, {"n": "ada", "b": uri})
    assert exported(graph) == {}


def test_a_refusal_repeats_no_credentials(graph: og.Graph):
    uri = "s3://AKIA:hunter2@pictures/ada.png?X-Amz-Signature=cafe"
    attempts: list[Callable[[], object]] = [
        lambda: graph.load(mode="merge", data=record("ada", uri)),
        lambda: graph.mutate(INSERT, {"n": "ada", "b": uri}),
    ]
    for attempt in attempts:
        with pytest.raises(ValueConversionError, match="'s3://pictures/ada\\.png'") as caught:
            attempt()
        shown = f"{caught.value.render()} {caught.value.envelope()}"
        assert "hunter2" not in shown and "cafe" not in shown


@pytest.mark.parametrize("base", ["file:///no/such/folder", "s3://k:s@b/x", "relative"])
def test_a_base_that_cannot_be_meant_is_refused_at_once(graph: og.Graph, base: str):
    with pytest.raises(InputError):
        og.open(graph.uri, external_blobs=[base])


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_adds_copies_the_bytes(graph: og.Graph, pictures: Path, mode: Any):
    uri = (pictures / "ada.png").as_uri()
    graph.load(mode=mode, data=record("ada", uri) + record("twin", uri) + record("none"))
    (pictures / "ada.png").unlink()
    for name in ("ada", "twin"):
        assert photo(graph, name).kind == "managed"
        assert photo(graph, name).read() == PICTURE
    assert exported(graph)["none"]["photo"] is None


def test_a_mutation_copies_the_bytes(graph: og.Graph, pictures: Path):
    graph.mutate(INSERT, {"n": "ada", "b": (pictures / "ada.png").as_uri()})
    (pictures / "ada.png").write_bytes(b"changed since")
    assert photo(graph, "ada").read() == PICTURE


@pytest.mark.parametrize("by", ["load", "mutate"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.png", "no such file"),
        ("folder", "not a file"),
        ("pipe", "not a file"),
        ("way-out", "leads out of the allowed base"),
        ("way%20out/secret", "leads out of the allowed base"),
        ("circle", "symbolic links"),
    ],
)
def test_a_source_that_cannot_be_read_is_named_with_the_reason(
    graph: og.Graph, pictures: Path, name: str, reason: str, by: str
):
    (pictures / "folder").mkdir()
    os.mkfifo(pictures / "pipe")
    (pictures / "way-out").symlink_to(pictures.parent / "secret")
    (pictures / "way out").symlink_to(pictures.parent)
    (pictures / "circle").symlink_to(pictures / "circle")
    uri = f"{pictures.as_uri()}/{name}"
    head = graph.snapshot().graph_commit_id
    with pytest.raises(ExternalBlobUnavailable) as caught:
        if by == "load":
            graph.load(mode="merge", data=record("ada", uri))
        else:
            graph.mutate(INSERT, {"n": "ada", "b": uri})
    detail = caught.value.envelope()["external_blob_source"]
    assert detail["uri"] == uri
    assert reason in detail["reason"]
    assert graph.snapshot().graph_commit_id == head


def test_more_than_a_write_may_hold_is_refused_before_it_is_read(
    graph: og.Graph, pictures: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_WRITE_BYTES_MAX", "100000")
    with (pictures / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (pictures / "half").write_bytes(bytes(60_000))
    limited = og.open(graph.uri, external_blobs=[pictures.as_uri()])
    huge, half = (f"{pictures.as_uri()}/{name}" for name in ("huge", "half"))
    for rows in (record("a", huge), record("a", half) + record("b", half)):
        with pytest.raises(LimitExceeded) as caught:
            limited.load(mode="merge", data=rows)
        assert caught.value.hint is not None
        assert "OMNIGRAPH_WRITE_BYTES_MAX" in caught.value.hint
    with pytest.raises(LimitExceeded):
        limited.mutate(INSERT, {"n": "a", "b": huge})


# --- references -----------------------------------------------------------------------------------


def test_an_overwrite_keeps_the_reference_and_looks_at_nothing(graph: og.Graph, pictures: Path):
    uri = (pictures / "not there yet.png").as_uri()
    graph.load(mode="overwrite", data=record("ada", uri))
    blob = photo(graph, "ada")
    assert (blob.kind, blob.uri, blob.size, blob.etag) == ("external", uri, None, None)
    for read in (blob.read, blob.chunks, blob.byte_range):
        with pytest.raises(InputError) as caught:
            read()
        assert uri in caught.value.message


def test_the_reference_means_the_place_that_was_allowed(graph: og.Graph, pictures: Path):
    spelled = {
        "space": pictures.as_uri().replace("%20", " ") + "/ada.png",
        "escaped": pictures.as_uri() + "/%61da.png",
        "capitals": pictures.as_uri().replace("file://", "FILE://localhost") + "/ada.png",
    }
    graph.load(mode="overwrite", data=b"".join(record(*each) for each in spelled.items()))
    from omnigraph.model.external_uris import ExternalPlace

    for name, uri in spelled.items():
        stored = photo(graph, name).uri
        assert stored is not None
        assert ExternalPlace.parse(stored) == ExternalPlace.parse(uri)


def test_a_reference_stays_one_through_updates_and_upserts(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    (pictures / "ada.png").unlink()
    plain = og.open(graph.uri)  # without any base: nothing is read, so nothing needs allowing
    plain.mutate(UPDATE, {"n": "ada", "a": 36})
    plain.mutate(UPDATE, {"n": "bo", "a": 7})
    assert photo(plain, "ada").uri == uri
    assert photo(plain, "bo").read() == b"bo"
    assert exported(plain)["ada"]["age"] == 36
    plain.load(mode="merge", data=record("cleo"))
    plain.mutate('query q { delete Person where name = "bo" }')
    assert photo(plain, "ada").uri == uri
    assert sorted(exported(plain)) == ["ada", "cleo"]


def test_many_rows_with_references_are_updated_together(graph: og.Graph, pictures: Path):
    base = pictures.as_uri()
    rows = b"".join(record(f"p{n:02}", f"{base}/{n}" if n % 2 else None) for n in range(50))
    graph.load(mode="overwrite", data=rows)
    graph.optimize()
    graph.mutate('query q { update Person set { age: 1 } where name >= "p10" }')
    found = exported(graph)
    assert [found[f"p{n:02}"]["age"] for n in range(50)] == [None] * 10 + [1] * 40
    assert [found[f"p{n:02}"]["photo"] for n in range(50)] == [
        f"{base}/{n}" if n % 2 else None for n in range(50)
    ]


def test_a_new_value_takes_the_place_of_a_reference(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    first = graph.snapshot().graph_commit_id
    graph.load(mode="merge", data=record("ada", uri))
    assert photo(graph, "ada").read() == PICTURE
    assert photo(graph, "ada", snapshot=first).uri == uri


def test_references_go_through_compaction_and_cleanup(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    (pictures / "ada.png").unlink()
    for age in range(4):
        graph.mutate(UPDATE, {"n": "bo", "a": age})
        graph.mutate(UPDATE, {"n": "ada", "a": age})
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    assert photo(og.open(graph.uri), "ada").uri == uri
    assert photo(og.open(graph.uri), "bo").read() == b"bo"


def test_references_go_through_merges_and_reverts(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    (pictures / "ada.png").unlink()
    graph.create_branch("review")
    graph.mutate(UPDATE, {"n": "ada", "a": 36}, branch="review")
    graph.mutate(UPDATE, {"n": "bo", "a": 7})
    receipt = graph.merge_branch("review")
    assert receipt.commit is not None
    assert photo(graph, "ada").uri == uri
    assert exported(graph)["ada"]["age"] == 36
    graph.revert(receipt.commit.graph_commit_id)
    assert photo(graph, "ada").uri == uri
    assert exported(graph)["ada"]["age"] is None
    graph.cherry_pick(receipt.commit.graph_commit_id)
    assert exported(graph)["ada"] == {"id": "ada", "name": "ada", "photo": uri, "age": 36}


def test_edits_of_other_properties_merge_around_a_reference(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    graph.create_branch("review")
    graph.mutate(
        'query q($b: Blob) { update Person set { photo: $b } where name = "ada" }',
        {"b": "base64:bmV3"},
        branch="review",
    )
    graph.mutate(UPDATE, {"n": "ada", "a": 36})
    assert photo(graph, "ada").uri == uri
    graph.merge_branch("review", granularity="property")
    assert photo(graph, "ada").read() == b"new"
    assert exported(graph)["ada"]["age"] == 36


def test_c_sch_055_references_are_exported_and_loaded_again(
    graph: og.Graph, pictures: Path, tmp_path: Path
):
    uri = with_reference(graph, pictures)
    lines = b"".join(graph.export())
    assert uri.encode() in lines
    copy = og.init(tmp_path / "copy.omni", SCHEMA, external_blobs=[pictures.as_uri()])
    copy.load(mode="overwrite", data=lines)
    assert b"".join(copy.export()) == lines
    assert photo(copy, "ada").uri == uri
    stranger = og.init(tmp_path / "stranger.omni", SCHEMA)
    with pytest.raises(ValueConversionError, match="is not allowed"):
        stranger.load(mode="overwrite", data=lines)


def test_references_go_through_changes_of_schema(graph: og.Graph, pictures: Path):
    uri = with_reference(graph, pictures)
    (pictures / "ada.png").unlink()
    changed = """
    node Person {
        name: String @key
        portrait: Blob? @rename_from("photo")
        age: I64?
        cv: Blob?
        level: I32 @default(3)
    }
    """
    assert graph.apply_schema(changed).applied
    assert graph.blob("node", "Person", "ada", "portrait").uri == uri
    assert graph.blob("node", "Person", "bo", "portrait").read() == b"bo"
    assert exported(graph)["ada"]["level"] == 3

"""Root URIs: one place, one root, whatever its spelling."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from omnigraph.effects.uri import Root
from omnigraph.errors import InputError


def test_c_sto_043_spellings_of_a_directory_are_one_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = tmp_path / "a b%20c"
    real.mkdir()
    (tmp_path / "link").symlink_to(real, target_is_directory=True)
    (tmp_path / "chain").symlink_to("link")
    monkeypatch.chdir(tmp_path)
    expected = Root(str(real.resolve()), "file", real.resolve())
    for spelling in (
        *(real, str(real), f"{real}/", f"{tmp_path}//./a b%20c", f"{tmp_path}/x/../a b%20c"),
        *("a b%20c", "./a b%20c/.", "link", "chain", "link/../chain", Path("link")),
        *(real.as_uri(), f"file:{real.as_uri().removeprefix('file://')}"),
        *(f"file://localhost{real.as_uri().removeprefix('file://')}", f"FILE://{tmp_path}/link"),
    ):
        root = Root.parse(spelling)
        assert root == expected, spelling
        assert hash(root) == hash(expected)


def test_a_root_that_does_not_exist_yet_resolves_what_exists(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Root.parse(tmp_path / "link" / "new").uri == str((tmp_path / "real" / "new").resolve())
    assert not (tmp_path / "real").exists()


@pytest.mark.parametrize(
    ("spelling", "uri"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket//a/./b//", "s3://bucket/a/b"),
        ("s3://my.bucket-1/with space/ü", "s3://my.bucket-1/with space/ü"),
        ("memory://", "memory://"),
        ("memory://name/", "memory://name"),
    ],
)
def test_remote_roots_are_normalised(spelling: str, uri: str):
    root = Root.parse(spelling)
    assert root.uri == str(root) == uri
    assert not root.is_local
    assert root.path is None
    assert Root.parse(uri) == root


def test_parts_of_an_s3_root():
    root = Root.parse("s3://bucket/a/b")
    assert (root.scheme, root.bucket, root.prefix) == ("s3", "bucket", "a/b")
    assert Root.parse("s3://bucket").prefix == ""


def test_join_stays_below_the_root(tmp_path: Path):
    assert Root.parse("s3://bucket/a").join("nodes", "1-2") == "s3://bucket/a/nodes/1-2"
    assert Root.parse("s3://bucket").join("__manifest") == "s3://bucket/__manifest"
    assert Root.parse(tmp_path).join("nodes/x") == str(tmp_path.resolve() / "nodes" / "x")
    assert Root.parse("/").join("x") == "/x"
    for parts in [(), ("",), ("..",), ("a", "../b"), ("/a",)]:
        with pytest.raises(InputError):
            Root.parse(tmp_path).join(*parts)


@pytest.mark.parametrize("uri", ["http://localhost:8080/graphs/knowledge", "HTTPS://host/x"])
def test_a_served_graph_is_not_a_storage_root(uri: str):
    with pytest.raises(InputError, match="served graph") as caught:
        Root.parse(uri)
    assert f'omnigraph.connect("{uri}")' in (caught.value.hint or "")
    assert f"--server {uri}" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "is empty"),
        ("a\0b", "NUL"),
        ("file://host/path", "names a host"),
        ("file://relative/path", "names a host"),
        ("file:relative", "no absolute path"),
        ("file:///a?b", "'\\?' or '#'"),
        ("file:///a%00b", "no absolute path"),
        ("s3://", "bucket name"),
        ("s3:///prefix", "bucket name"),
        ("s3://Bucket/x", "bucket name"),
        ("s3://b/x", "bucket name"),
        ("s3://bucket/../x", "'..'"),
        ("s3://bucket/a%20b", "characters"),
        ("s3://bucket/a?versionId=1", "characters"),
        ("s3://bucket/.omnigraph-x", "reserved"),
        ("memory://../x", "'..'"),
        ("gs://bucket/x", "unknown scheme 'gs'"),
        ("s3a://bucket/x", "unknown scheme 's3a'"),
        (Path("s3://bucket/x"), "turned into a path"),
        ("s3:/bucket/x", "turned into a path"),
    ],
)
def test_what_is_not_a_root_is_refused_with_advice(uri: str | Path, message: str):
    with pytest.raises(InputError, match=message) as caught:
        Root.parse(uri)
    assert caught.value.hint


def test_a_loop_of_links_is_refused_or_kept_apart(tmp_path: Path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    try:
        root = Root.parse(tmp_path / "a")
    except InputError as error:
        assert "symbolic links" in (error.hint or "")
    else:  # newer versions of Python keep an unresolvable path as it is
        assert root.path is not None


@pytest.mark.parametrize(
    "uri",
    ["s3://user:hunter2@bucket/x", "https://user:hunter2@host/x?token=hunter2", "gs://u:hunter2@b"],
)
def test_c_sto_046_credentials_in_a_uri_are_refused_and_not_repeated(uri: str):
    with pytest.raises(InputError) as caught:
        Root.parse(uri)
    assert "hunter2" not in f"{caught.value.render()} {caught.value.details}"


def test_a_path_with_a_colon_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert Root.parse("data:2024/graph").path == tmp_path.resolve() / "data:2024" / "graph"


def test_names_that_are_not_utf8_survive_a_file_uri(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"\xff")
    assert Root.parse(folder.as_uri()) == Root.parse(folder)

"""Which URIs lie below an allowed base, however they are spelled."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError
from omnigraph.model.external_uris import ExternalBases, ExternalPlace, without_credentials
from omnigraph.model.values import BLOB_URI_BYTES_MAX
from tests.support.budgets import MANY

BASES = ("file:///data/img", "s3://pics/a/b/")
ALLOWED = ExternalBases.of(BASES)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://pics/a/b/c.png",
        "S3://pics/a/b/deep/er/c.png",
        "s3://pics/a/b/c%20d.png",
        "s3://pics/a/b/c d.png",
        "s3://pics/a/b/é.png",
        "s3://pics/%61/b/c.png",
        "s3://pics/a/b/...",
        "file:///data/img/x",
        "FILE://localhost/data/img/x",
    ],
)
def test_objects_below_a_base_are_allowed(uri: str):
    assert ALLOWED.allow(uri)


@pytest.mark.parametrize(
    "uri",
    [
        # beside a base, above it, or the base itself
        "s3://pics/a/bc/x",
        "s3://pics/a/x",
        "s3://pics/a/b",
        "s3://pics/a/b/",
        "s3://other/a/b/x",
        "s3://pics.evil/a/b/x",
        "s3://pics/A/b/x",
        "file:///data/image/x",
        "file:///etc/passwd",
        # ways out of it
        "s3://pics/a/b/../secret",
        "s3://pics/a/b/%2e%2e/secret",
        "s3://pics/a/b/.%2E/secret",
        "s3://pics/a/b/%252e%252e/secret",
        "s3://pics/a/b/..%2fsecret",
        "s3://pics/a/b/x%2f..%2f..%2fsecret",
        "s3://pics/a/b/..\\secret",
        "s3://pics/a/b/%5c..%5csecret",
        "s3://pics/a/b/.\t./secret",
        "s3://pics/a/b/.\n./secret",
        "s3://pics/a/b/./x",
        "s3://pics/a/b//x",
        "s3://pics/a//b/x",
        # other readers see another host, or credentials
        "s3://key:secret@pics/a/b/x",
        "s3://pics@evil/a/b/x",
        "s3://pics:80/a/b/x",
        "s3://pics%2Fa/b/x",
        "s3://PICS/a/b/x",
        "file://server/data/img/x",
        "file://localhost:1/data/img/x",
        # signatures, and what follows them
        "s3://pics/a/b/x?X-Amz-Signature=abc",
        "s3://pics/a/b/x#part",
        "s3://pics/a/b/x%3fversionId=1",
        # not a URI of an object at all
        "",
        "x",
        "/data/img/x",
        "file:/data/img/x",
        "file:data/img/x",
        "s3:/pics/a/b/x",
        "http://pics/a/b/x",
        "s3a://pics/a/b/x",
        " s3://pics/a/b/x",
        "s3://pics/a/b/x ",
        "s3://pics/a/b/\x00",
        "s3://pics/a/b/%00",
        "s3://pics/a/b/%zz",
        "s3://pics/a/b/%",
        "s3://pics/a/b/%ff",
        "s3://pics/a/b/" + "x" * BLOB_URI_BYTES_MAX,
    ],
)
def test_c_sch_047_everything_else_is_denied(uri: str):
    assert not ALLOWED.allow(uri)


def test_c_sch_047_without_a_base_nothing_is_allowed():
    assert not ExternalBases.of([]).allow("s3://pics/a/b/c.png")


def readings(uri: str) -> set[tuple[str, str, str]]:
    """The places some parser or other takes a URI for."""
    found = set()
    for text in (uri, uri.strip(), re.sub(r"[\t\r\n]", "", uri).strip()):
        for spelled in (text, text.replace("\\", "/")):
            parts = urlsplit(spelled)
            path = parts.path
            for _ in range(4):
                host = parts.netloc.replace("localhost", "")
                for each in (path, path.replace("\\", "/"), path.split("?")[0], path.split("#")[0]):
                    found.add((parts.scheme, host, posixpath.normpath(each)))
                path = unquote(path)
    return found


PIECES = st.sampled_from(
    [
        *("/", "//", ".", "..", "%2e", "%2E%2e", "%252e", "%2f", "%5c", "\\", "\t", "\n", " "),
        *("%00", "%", "%25", "?", "#", "@", ":", "a", "b", "img", "x.png", "é", "%c3%a9", "%61"),
        *("etc", "secret", ";", "+", "~", "$", "&"),
    ]
)
STARTS = st.sampled_from(
    [
        *("file:///data/img/", "file:///data/img", "FILE:///data/img/", "file://localhost/data/"),
        *("s3://pics/a/b/", "s3://pics/a/b", "S3://pics/a/", "s3://pics@x/a/b/", "s3://", "file:"),
    ]
)


@MANY
@given(STARTS, st.lists(PIECES, max_size=6))
def test_c_sch_047_what_is_allowed_lies_below_a_base_in_every_reading(start: str, rest: list[str]):
    uri = start + "".join(rest)
    if not ALLOWED.allow(uri):
        return
    for scheme, host, path in readings(uri):
        place = f"{scheme}://{host}{path}"
        assert place.startswith(("file:///data/img/", "s3://pics/a/b/")), place


@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4))
def test_a_place_is_the_same_when_its_spelling_is_read_again(segments: list[str]):
    try:
        place = ExternalPlace.parse("s3://pics/" + "/".join(segments))
    except InputError:
        return
    assert ExternalPlace.parse(str(place)) == place


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("s3://", "no bucket"),
        ("s3://key:secret@pics/a", "credentials"),
        ("s3://pics/a?x=1", "a ?"),
        ("s3://pics/a#x", "a ?"),
        ("s3://pics/../a", "one that is . or .."),
        ("s3://pics/%2e%2e/a", "one that is . or .."),
        ("s3://pics/%252e", "decode twice"),
        (" s3://pics/a", "a space"),
        ("https://pics/a", "neither s3 nor file"),
        ("/data/img", "does not begin with a scheme"),
        ("s3://pics/" + "x" * BLOB_URI_BYTES_MAX, "more than 65536 bytes"),
    ],
)
def test_c_clu_009_an_unsafe_base_is_refused(base: str, reason: str):
    with pytest.raises(InputError) as caught:
        ExternalBases.of([base])
    shown = f"{caught.value.message} {caught.value.details}"
    assert reason in shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    "bases",
    [
        ("s3://pics/a", "s3://pics/a/"),
        ("s3://pics", "s3://pics/a"),
        ("s3://pics/a/b", "s3://pics/c", "s3://pics/%61"),
        ("file:///data", "FILE://localhost/data/img"),
    ],
)
def test_c_clu_009_overlapping_bases_are_refused(bases: tuple[str, ...]):
    with pytest.raises(InputError, match="overlap"):
        ExternalBases.of(bases)


def test_bases_side_by_side_and_whole_buckets_are_fine():
    bases = ExternalBases.of(["s3://pics", "s3://pictures/", "file:///data/a", "file:///data/ab"])
    assert bases.allow("s3://pics/x") and bases.allow("s3://pictures/x")
    assert not bases.allow("s3://pics") and not bases.allow("s3://pics/")


def test_credentials_are_never_shown():
    assert without_credentials("s3://key:secret@pics/x?sig=abc#y") == "s3://pics/x"
    assert without_credentials("https://u:p@host/x") == "https://host/x"
    assert without_credentials("s3://pics/me@home") == "s3://pics/me@home"

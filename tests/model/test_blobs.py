"""Which bytes of a value a range means, and what is said of a value that was not read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import BlobRangeError, InputError
from omnigraph.model.blobs import BlobSelector, BlobStat, ByteRange, check_range, range_of
from omnigraph.model.result import ReadTarget

SELECTOR = BlobSelector("node", "Person", "ada", "photo")


@given(st.binary(max_size=50), st.integers(0, 60), st.integers(1, 60) | st.none())
def test_c_cli_033_a_range_is_what_slicing_gives_or_an_error(
    value: bytes, offset: int, length: int | None
):
    stop = None if length is None else offset + length
    try:
        found = range_of(len(value), offset, length)
    except BlobRangeError as error:
        assert value[offset:stop] == b""
        assert error.details["start"] == offset
        assert error.details["length"] == len(value)
        assert error.details["start"] <= error.details["end"]
    else:
        assert value[found.start : found.end] == value[offset:stop]
        assert len(found) == len(value[offset:stop])


def test_c_cli_033_only_the_whole_of_an_empty_value_can_be_read():
    assert range_of(0) == ByteRange(0, 0)
    for offset, length in ((0, 1), (1, None), (1, 1)):
        with pytest.raises(BlobRangeError):
            range_of(0, offset, length)


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (-1, None), (0, -3), (2**63, None), (2**63 - 1, 1)]
)
def test_c_cli_033_a_range_that_fits_no_value_is_known_without_one(offset: int, length: int | None):
    with pytest.raises(InputError) as caught:
        check_range(offset, length)
    assert not isinstance(caught.value, BlobRangeError)
    assert caught.value.hint


def test_c_cli_034_what_does_not_apply_is_left_out():
    target = ReadTarget("main")
    managed = BlobStat(SELECTOR, "managed", target, "01X", size=0, etag='"a"')
    assert managed.to_dict() == {
        "selector": {"entity": "node", "type": "Person", "id": "ada", "property": "photo"},
        "kind": "managed",
        "size": 0,
        "etag": '"a"',
        "target": {"branch": "main", "resolved_snapshot": "01X"},
    }
    external = BlobStat(SELECTOR, "external", ReadTarget(None, "01X"), "01X", uri="s3://b/k")
    assert external.to_dict() == {
        "selector": SELECTOR.to_dict(),
        "kind": "external",
        "uri": "s3://b/k",
        "target": {"snapshot": "01X", "resolved_snapshot": "01X"},
    }


def test_an_entity_is_a_node_or_an_edge():
    assert BlobSelector.of("edge", "Knows", "1", "scan").table_key == "edge:Knows"
    with pytest.raises(InputError, match="'Node' is not a kind of entity"):
        BlobSelector.of("Node", "Person", "ada", "photo")

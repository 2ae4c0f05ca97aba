"""One string or many of them: the hash is the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.model.hashing import StringHash
from tests.engines.local.examples import EXAMPLES

# Lengths around one and two words of eight bytes, and characters of every width in UTF-8.
texts = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="aé€𝄞\x00", max_size=20),
    st.integers(0, 17).map(lambda n: "x" * n),
)
columns = st.lists(texts, max_size=30)
keys = st.integers(0, 2**64 - 1)
string_types = st.sampled_from([pa.string(), pa.large_string()])


@EXAMPLES
@given(columns, keys, string_types)
def test_one_string_hashes_as_it_does_among_many(column: list[str], key: int, type: pa.DataType):
    hash_ = StringHash(key)
    many = hash_.many(pa.array(column, type))
    assert many.tolist() == [hash_.one(text) for text in column]


@EXAMPLES
@given(columns, st.data(), string_types)
def test_a_slice_hashes_as_its_strings_do(
    column: list[str], data: st.DataObject, type: pa.DataType
):
    start = data.draw(st.integers(0, len(column)))
    length = data.draw(st.integers(0, len(column) - start))
    hash_ = StringHash(7)
    many = hash_.many(pa.array(column, type).slice(start, length))
    assert many.tolist() == [hash_.one(text) for text in column[start : start + length]]


@EXAMPLES
@given(st.lists(st.text(alphabet="ab€", min_size=3, max_size=3), min_size=1), keys)
def test_strings_of_one_length_hash_as_they_do_among_others(column: list[str], key: int):
    hash_ = StringHash(key)
    alone = hash_.many(pa.array(column))
    among_others = hash_.many(pa.array([*column, "", "a longer string than those before it"]))
    assert alone.tolist() == among_others.tolist()[: len(column)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_empty_strings_and_empty_columns_have_hashes(count: int):
    hash_ = StringHash(1)
    assert hash_.many(pa.array([""] * count, pa.string())).tolist() == [hash_.one("")] * count


def test_a_column_without_a_data_buffer_is_empty():
    assert StringHash().many(pa.array([], pa.string())).tolist() == []


@EXAMPLES
@given(st.lists(texts, unique=True, max_size=50))
def test_different_strings_have_different_hashes(column: list[str]):
    # With 64 bits, a repeat among so few would be a fault of the function.
    assert len(set(StringHash(99).many(pa.array(column, pa.string())).tolist())) == len(column)


def test_trailing_zero_bytes_count():
    hash_ = StringHash(3)
    assert len({hash_.one("a" + "\x00" * n) for n in range(20)}) == 20


def test_every_instance_has_a_key_of_its_own():
    assert StringHash().key != StringHash().key
    assert StringHash(1).one("a") != StringHash(2).one("a")

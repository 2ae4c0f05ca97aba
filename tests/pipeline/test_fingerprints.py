"""Texts are found for certain, whatever their fingerprints are."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.validation.evaluation import fingerprints
from omnigraph.loading.upsert_tasks import WantedTexts

TEXTS = st.lists(st.text("aé0", max_size=40), max_size=30)


def found(wanted: list[str], others: pa.StringArray) -> list[tuple[int, int]]:
    texts = WantedTexts(pa.array(wanted, pa.string()))
    at, which = texts.among(others, fingerprints(others))
    return sorted(zip(at.tolist(), which.tolist(), strict=True))


@given(TEXTS.map(lambda texts: list(dict.fromkeys(texts))), TEXTS, st.integers(0, 5))
def test_what_is_found_is_what_is_there(wanted, others, skipped):
    # A column that was cut out of another one has its texts somewhere within the bytes.
    column = pa.array(["x" * skipped, *others], pa.string()).slice(1)
    expected = [(i, wanted.index(text)) for i, text in enumerate(others) if text in wanted]
    assert found(wanted, column) == expected


@given(st.integers(1, 40).flatmap(lambda n: st.lists(st.text("ab", min_size=n, max_size=n))))
def test_texts_of_one_length_have_the_fingerprints_they_have_among_others(texts):
    column = pa.array(texts, pa.string())
    mixed = pa.array(["", *texts, "x" * 50], pa.string())
    assert fingerprints(column).tolist() == fingerprints(mixed).tolist()[1:-1]


def alike(number: int) -> str:
    """Texts that differ only where nobody looks."""
    return f"{'-' * 8}{number}{'-' * 31}"


def test_texts_with_one_fingerprint_are_told_apart():
    assert len(set(fingerprints(pa.array(map(alike, range(9)))).tolist())) == 1
    wanted = [alike(3), "other", alike(5)]
    assert not WantedTexts(pa.array(wanted)).are_apart
    assert found(wanted, pa.array(map(alike, range(9)))) == [(3, 0), (5, 2)]
    assert found([alike(3)], pa.array(map(alike, range(9)))) == [(3, 0)]


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 17, 26, 32])
def test_numbered_texts_have_fingerprints_of_their_own(width):
    count = min(10**width, 20_000)
    texts = pa.array([f"{number:0{width}}" for number in range(count)], pa.string())
    assert WantedTexts(texts).are_apart

"""Knowing the newest version without listing versions."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.storage import transactions
from omnigraph.storage.transactions import newest_version

ROWS = pa.table({"a": [1]})
LONG_AGO_NS = 1_000_000_000_000_000_001


@pytest.fixture
def place(tmp_path: Path) -> Path:
    lance.write_dataset(ROWS, tmp_path / "table")
    return tmp_path / "table"


class Probe:
    """Lists versions, and counts how often."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        version: int = lance.dataset(self.place).latest_version
        return version


def settle(place: Path) -> None:
    """As if the last change had been a while ago."""
    os.utime(place / "_versions", ns=(LONG_AGO_NS, LONG_AGO_NS))


def test_what_has_not_changed_for_a_while_is_listed_once(place: Path) -> None:
    settle(place)
    probe = Probe(place)
    assert [newest_version(str(place), probe) for _ in range(3)] == [1, 1, 1]
    assert probe.asked == 1


def test_a_new_version_is_seen_at_once(place: Path) -> None:
    settle(place)
    probe = Probe(place)
    for version in range(1, 6):
        assert newest_version(str(place), probe) == version
        lance.write_dataset(ROWS, place, mode="append")


def test_a_change_that_may_share_its_time_with_the_next_is_not_relied_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MTIME_RESOLUTION_NS", 10**18)
    probe = Probe(place)
    for _ in range(3):
        newest_version(str(place), probe)
    assert probe.asked == 3


def test_a_file_system_that_counts_whole_seconds_is_not_relied_on(place: Path) -> None:
    os.utime(place / "_versions", ns=(10**18, 10**18))
    probe = Probe(place)
    for _ in range(2):
        newest_version(str(place), probe)
    assert probe.asked == 2


def test_another_dataset_in_its_place_is_another_one(place: Path) -> None:
    lance.write_dataset(ROWS, place, mode="append")
    settle(place)
    assert newest_version(str(place), Probe(place)) == 2
    place.rename(place.with_name("former"))
    lance.write_dataset(ROWS, place)
    settle(place)
    assert newest_version(str(place), Probe(place)) == 1


def test_what_is_not_there_is_left_to_the_probe(tmp_path: Path) -> None:
    assert newest_version(str(tmp_path / "nothing"), lambda: 7) == 7

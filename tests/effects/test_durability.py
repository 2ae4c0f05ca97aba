"""The setting, and the flushing of files that others wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.effects.failures import StorageFailure
from omnigraph.effects.local_disk import (
    Durability,
    configured_durability,
    files_below,
    flush_tree,
    replace_unflushed,
)
from omnigraph.effects.requests import Meter, measure
from omnigraph.errors import InputError


def make(root: Path, *names: str) -> list[Path]:
    files = [root / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return files


def flushed(meter: Meter, root: Path) -> list[str]:
    return [Path(event.target).relative_to(root).as_posix() for event in meter.report().events]


def test_the_setting_is_disk_unless_told_otherwise():
    assert Durability.from_environment({}) is Durability.DISK
    assert Durability.from_environment({"OMNIGRAPH_DURABILITY": ""}) is Durability.DISK
    assert Durability.from_environment({"OMNIGRAPH_DURABILITY": "process"}) is Durability.PROCESS
    with pytest.raises(InputError, match="OMNIGRAPH_DURABILITY is 'none'") as caught:
        Durability.from_environment({"OMNIGRAPH_DURABILITY": "none"})
    assert "disk" in (caught.value.hint or "")


def test_the_setting_of_the_process_is_read_once(monkeypatch: pytest.MonkeyPatch):
    configured_durability.cache_clear()
    try:
        monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")
        assert configured_durability() is Durability.PROCESS
        monkeypatch.setenv("OMNIGRAPH_DURABILITY", "disk")
        assert configured_durability() is Durability.PROCESS
    finally:
        configured_durability.cache_clear()


def test_c_sto_050_flush_tree_flushes_files_then_their_directories_each_once(tmp_path: Path):
    files = make(tmp_path, "t/data/1", "t/data/2", "t/_versions/9.manifest", "other/x")
    with measure(tracing=True) as io:
        flush_tree(tmp_path, [*files, files[0]], Durability.DISK)
    assert flushed(io, tmp_path) == [
        *("other/x", "t/_versions/9.manifest", "t/data/1", "t/data/2"),
        *("t/_versions", "t/data", "other", "t", "."),
    ]
    assert io.report().counts == {("disk", "flush_file"): 4, ("disk", "flush_directory"): 5}
    assert io.report().requests == io.report().round_trips == 0


def test_c_sto_050_many_files_are_flushed_side_by_side_and_all_counted(tmp_path: Path):
    files = make(tmp_path, *(f"data/{i}" for i in range(20)))
    with measure() as io:
        flush_tree(tmp_path, files, Durability.DISK)
    assert io.report().count("disk", "flush_file") == 20


def test_c_sto_050_process_durability_flushes_nothing(tmp_path: Path):
    files = make(tmp_path, "a/b")
    with measure() as io:
        flush_tree(tmp_path, files, Durability.PROCESS)
    assert io.report().counts == {}


def test_files_below_a_directory_are_all_of_them_at_any_depth(tmp_path: Path):
    files = make(tmp_path, "data/old", "data/deep/new")
    assert files_below(tmp_path) == set(files)
    assert files_below(tmp_path / "absent") == frozenset()


def test_an_unflushed_replacement_is_whole_and_leaves_nothing_beside_it(tmp_path: Path):
    for content in (b"first", b"second"):
        replace_unflushed(tmp_path / "new/folder/file", content)
        assert files_below(tmp_path) == {tmp_path / "new/folder/file"}
        assert (tmp_path / "new/folder/file").read_bytes() == content


@pytest.mark.parametrize("n", [1, 10])
def test_a_file_that_cannot_be_flushed_is_a_failure(tmp_path: Path, n: int):
    files = make(tmp_path, *(f"{i}" for i in range(n)))
    with pytest.raises(StorageFailure, match=r"cannot flush .*gone"):
        flush_tree(tmp_path, [*files, tmp_path / "gone"], Durability.DISK)


def test_a_file_outside_of_the_root_is_refused(tmp_path: Path):
    (outside,) = make(tmp_path, "outside")
    with pytest.raises(ValueError, match="outside"):
        flush_tree(tmp_path / "root", [outside], Durability.DISK)

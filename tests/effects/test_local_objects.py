"""What only files can show: staging, flushing, permissions, hard links, the lock of a directory."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.effects import local_objects
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import Durability, OsLock, lock_path
from omnigraph.effects.local_objects import Folder
from omnigraph.effects.objects import ObjectStore, Token, open_store
from omnigraph.effects.requests import measure
from omnigraph.effects.uri import Root


@pytest.fixture
def store(local_root: Root) -> ObjectStore:
    return open_store(local_root, Durability.PROCESS)


@pytest.fixture
def folder(local_root: Root) -> Path:
    assert local_root.path is not None
    return local_root.path


def names_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def refusing(
    monkeypatch: pytest.MonkeyPatch, function: str, number: int, when: Callable[[Any], bool]
) -> None:
    """Let a call of the operating system fail; permissions alone would not stop root."""
    real = getattr(os, function)

    def refuse(path: Any, *args: Any, **kwargs: Any) -> Any:
        if when(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, function, refuse)


# --- staging --------------------------------------------------------------------------------------


def test_operations_leave_only_their_objects(store: ObjectStore, folder: Path):
    store.write("a/x", b"1")
    store.write("a/x", b"2")
    assert store.write_if_absent("a/y", b"1")
    assert not store.write_if_absent("a/y", b"2")
    _, token = store.read_versioned("a/x") or (b"", Token(""))
    assert store.write_if_match("a/x", b"3", token)
    assert not store.write_if_match("a/x", b"4", token)
    store.rename("a/y", "b/y")
    store.probe_atomic_create()
    assert names_below(folder) == ["a", "a/x", "b", "b/y"]


def test_c_sto_039_staging_residue_is_invisible_and_unaddressable(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A process that dies between staging and publishing leaves a hidden file, and only that."""
    store.write("a/x", b"old")
    with monkeypatch.context() as patched:

        def die(*args: Any, **kwargs: Any) -> None:
            raise SystemExit

        patched.setattr(os, "replace", die)
        patched.setattr(Folder, "remove", lambda self, name: None)
        with pytest.raises(SystemExit):
            store.write("a/x", b"new")
    (residue,) = [path for path in (folder / "a").iterdir() if path.name != "x"]
    assert residue.read_bytes() == b"new"
    assert store.read("a/x") == b"old"
    assert store.list() == ["a/x"]
    with pytest.raises(ValueError, match="reserved"):
        store.read(f"a/{residue.name}")
    store.delete("a/x")
    assert store.exists("a") is False
    store.delete_prefix("a")
    assert names_below(folder) == []


def test_a_failed_write_cleans_up_and_changes_nothing(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    store.write("a", b"old")
    refusing(monkeypatch, "write", errno.ENOSPC, lambda descriptor: True)
    for attempt in (
        lambda: store.write("a", b"new"),
        lambda: store.write_if_absent("b", b"new"),
        lambda: store.write_if_match(
            "a", b"new", (store.read_versioned("a") or (b"", Token("")))[1]
        ),
    ):
        with pytest.raises(StorageFailure) as caught:
            attempt()
        assert caught.value.failure_class is FailureClass.PERMANENT
        assert caught.value.hint == "free some disk space and try again"
    assert names_below(folder) == ["a"]
    assert store.read("a") == b"old"


def test_c_sto_039_list_of_a_file_uri_root_round_trips(tmp_path: Path):
    root = Root.parse(f"{(tmp_path / 'my graph').as_uri()}")
    store = open_store(root, Durability.PROCESS)
    store.write("dir/with space.json", b"1")
    (name,) = store.list()
    assert store.read(name) == b"1"
    assert (tmp_path / "my graph" / name).read_bytes() == b"1"


def test_c_sto_040_delete_prefix_leaves_no_skeleton(store: ObjectStore, folder: Path):
    store.write("a/b/c/d", b"1")
    store.write("a/b/e", b"1")
    store.write("f", b"1")
    store.delete_prefix("a/b")
    assert names_below(folder) == ["f"]


def test_delete_prefix_does_not_follow_links_out_of_the_root(
    store: ObjectStore, folder: Path, tmp_path: Path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"1")
    store.write("a/x", b"1")
    (folder / "a" / "link").symlink_to(outside)
    (folder / "b").symlink_to(outside)
    assert store.list() == ["a/x"]
    store.delete_prefix("a")
    store.delete_prefix("b")
    assert (outside / "precious").exists()


def test_an_object_in_the_way_of_a_prefix_is_a_permanent_failure(store: ObjectStore):
    store.write("a", b"1")
    store.write("b/c", b"1")
    for attempt in (
        lambda: store.write("a/x", b"2"),
        lambda: store.write_if_absent("a/x/y", b"2"),
        lambda: store.write("b", b"2"),
        lambda: store.write_if_absent("b", b"2"),
        lambda: store.rename("a", "b"),
    ):
        with pytest.raises(StorageFailure) as caught:
            attempt()
        assert caught.value.failure_class is FailureClass.PERMANENT
    assert store.list() == ["a", "b/c"]


def overtaken(monkeypatch: pytest.MonkeyPatch, other: Callable[[], Any]) -> None:
    """Let ``other`` happen at the worst moment: after the first look, before publishing."""
    real = Folder.stage

    def stage(self: Folder, data: bytes) -> str:
        staged = real(self, data)
        monkeypatch.setattr(Folder, "stage", real)
        other()
        return staged

    monkeypatch.setattr(Folder, "stage", stage)


def test_c_sto_036_a_claimant_that_is_overtaken_loses(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    overtaken(monkeypatch, lambda: store.write_if_absent("a/x", b"first"))
    assert store.write_if_absent("a/x", b"second") is False
    assert store.read("a/x") == b"first"
    assert names_below(folder) == ["a", "a/x"]


def test_c_sto_037_a_swap_that_is_overtaken_loses(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    others = {
        "another swap": lambda token: store.write_if_match("a/x", b"first", token),
        "a write": lambda token: store.write("a/x", b"first"),
        "a removal": lambda token: store.delete("a/x"),
        "a removal of all": lambda token: store.delete_prefix("a"),
    }
    for name, other in others.items():
        store.write("a/x", b"old")
        _, token = store.read_versioned("a/x") or (b"", Token(""))
        overtaken(monkeypatch, lambda act=other, token=token: act(token))  # type: ignore[misc]
        assert store.write_if_match("a/x", b"second", token) is None, name
        assert store.read_if_exists("a/x") in (b"first", None), name
        store.delete_prefix("a")
        assert names_below(folder) == [], name


# --- permissions ----------------------------------------------------------------------------------


def test_c_sto_038_exists_raises_when_it_may_not_look(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    store.write("a/b/object", b"1")
    with monkeypatch.context() as patched:
        refusing(patched, "stat", errno.EACCES, lambda path: str(path).endswith("object"))
        with pytest.raises(StorageFailure) as caught:
            store.exists("a/b/object")
    assert caught.value.failure_class is FailureClass.CONFIGURATION
    assert "permission denied (EACCES)" in caught.value.message
    with monkeypatch.context() as patched:
        refusing(patched, "scandir", errno.EACCES, lambda path: str(path).endswith("/b"))
        for attempt in (lambda: store.exists("a"), store.list, lambda: store.list("a")):
            with pytest.raises(StorageFailure):
                attempt()


def test_reading_without_permission_is_not_an_absence(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    store.write("a", b"1")

    def refuse(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    for attempt in (
        lambda: store.read("a"),
        lambda: store.read_if_exists("a"),
        lambda: store.read_versioned("a"),
        lambda: store.write_if_match("a", b"2", Token("t")),
    ):
        with pytest.raises(StorageFailure) as caught:
            attempt()
        assert caught.value.failure_class is FailureClass.CONFIGURATION


def test_c_sto_034_reading_changes_nothing_on_disk(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    store.write("a/x", b"1")
    before = {path: path.stat() for path in [folder, *folder.rglob("*")]}
    real_open = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return real_open(path, flags, *args, **kwargs)

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("reading must not change anything")

    monkeypatch.setattr(os, "open", read_only)
    for function in ("link", "replace", "rename", "unlink", "mkdir", "rmdir", "fsync", "write"):
        monkeypatch.setattr(os, function, never)
    assert store.read("a/x") == b"1"
    assert store.read_if_exists("b") is None
    assert store.read_versioned("a/x") is not None
    assert store.exists("a")
    assert store.list() == ["a/x"]
    after = {path: path.stat() for path in [folder, *folder.rglob("*")]}
    assert {p: (s.st_ino, s.st_mtime_ns) for p, s in before.items()} == {
        p: (s.st_ino, s.st_mtime_ns) for p, s in after.items()
    }


# --- hard links -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_c_sto_042_a_file_system_without_hard_links_is_refused_up_front(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    refusing(monkeypatch, "link", number, lambda path: True)
    with pytest.raises(StorageFailure) as caught:
        store.probe_atomic_create()
    assert caught.value.failure_class is FailureClass.CONFIGURATION
    assert errno.errorcode[number] in caught.value.message
    assert "read-only" in (caught.value.hint or "")
    assert names_below(tmp_path) == []  # not even the directory of the root


def test_c_sto_042_reading_works_without_hard_links(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
):
    store.write("a", b"1")
    refusing(monkeypatch, "link", errno.EPERM, lambda path: True)
    assert store.read("a") == b"1"
    assert store.list() == ["a"]


def test_probe_refuses_a_file_system_without_directory_locks(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """NFS does not lock a directory that is open for reading."""

    def unsupported(descriptor: int, timeout_ms: int | None) -> bool:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(local_objects, "lock_descriptor", unsupported)
    with pytest.raises(StorageFailure, match="EBADF"):
        store.probe_atomic_create()
    assert names_below(tmp_path) == []


def test_probe_of_a_read_only_root_says_so(store: ObjectStore, monkeypatch: pytest.MonkeyPatch):
    store.write("a", b"1")
    refusing(monkeypatch, "open", errno.EROFS, lambda path: str(path).startswith(".omnigraph-"))
    with pytest.raises(StorageFailure) as caught:
        store.probe_atomic_create()
    assert caught.value.failure_class is FailureClass.CONFIGURATION
    assert "EROFS" in caught.value.message


# --- the lock of a directory ----------------------------------------------------------------------


def test_every_change_waits_for_a_running_swap(
    store: ObjectStore, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Between comparison and rename nobody may replace, remove or move the object."""
    monkeypatch.setattr(local_objects, "LOCK_WAIT_MS", 30)
    store.write("a/x", b"1")
    store.write("b/y", b"1")
    _, token = store.read_versioned("a/x") or (b"", Token(""))
    with Folder(folder / "a", Durability.PROCESS) as swapping, swapping.locked():
        for attempt in (
            lambda: store.write("a/x", b"2"),
            lambda: store.write_if_match("a/x", b"2", token),
            lambda: store.delete("a/x"),
            lambda: store.delete_prefix("a"),
            lambda: store.rename("a/x", "b/x"),
            lambda: store.rename("b/y", "a/x"),
        ):
            with pytest.raises(StorageFailure) as caught:
                attempt()
            assert caught.value.failure_class is FailureClass.TRANSIENT
        assert store.read("a/x") == b"1"
        store.write("b/z", b"1")  # another directory is not concerned
    store.write("a/x", b"2")


def test_kill_9_inside_a_swap_frees_the_directory(store: ObjectStore, folder: Path):
    store.write("a/x", b"1")
    script = """
        import os, signal, sys
        from pathlib import Path
        from omnigraph.effects.local_disk import Durability
        from omnigraph.effects.local_objects import Folder
        with Folder(Path(sys.argv[1]), Durability.PROCESS) as folder, folder.locked():
            os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(folder / "a")]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    _, token = store.read_versioned("a/x") or (b"", Token(""))
    assert store.write_if_match("a/x", b"2", token)


def test_lock_files_are_invisible_to_the_store(store: ObjectStore, folder: Path):
    store.write("__lease/main.json", b"{}")
    with OsLock(lock_path(folder / "__lease", "agent/42")):
        assert store.list() == ["__lease/main.json"]
        store.delete("__lease/main.json")
        assert store.exists("__lease") is False


def test_c_sto_043_spellings_of_one_root_share_objects_and_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    spellings = ["real", "./link/", "link/../real", str(real), f"file://{tmp_path}/link"]
    roots = [Root.parse(spelling) for spelling in spellings]
    assert len(set(roots)) == 1
    stores = [open_store(root, Durability.PROCESS) for root in roots]
    assert [store.write_if_absent("claim", b"1") for store in stores] == [True] + 4 * [False]
    paths = [root.path for root in roots if root.path is not None]
    with OsLock(lock_path(paths[0], "main")):
        assert [OsLock(lock_path(path, "main")).try_acquire() for path in paths] == 5 * [False]


# --- durability -----------------------------------------------------------------------------------


class Trace:
    """The calls that decide what is on disk when, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        fsync, link, replace = os.fsync, os.link, os.replace

        def traced_fsync(descriptor: int) -> None:
            is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            self.calls.append("flush directory" if is_directory else "flush file")
            fsync(descriptor)

        def traced_link(*args: Any, **kwargs: Any) -> None:
            self.calls.append("link")
            link(*args, **kwargs)

        def traced_replace(*args: Any, **kwargs: Any) -> None:
            self.calls.append("replace")
            replace(*args, **kwargs)

        monkeypatch.setattr(os, "fsync", traced_fsync)
        monkeypatch.setattr(os, "link", traced_link)
        monkeypatch.setattr(os, "replace", traced_replace)

    def of(self, operation: Callable[[], Any]) -> list[str]:
        self.calls.clear()
        operation()
        return list(self.calls)


def test_c_sto_050_disk_durability_flushes_data_before_the_name_and_the_name_before_the_answer(
    local_root: Root, monkeypatch: pytest.MonkeyPatch
):
    store = open_store(local_root, Durability.DISK)
    store.write("a/x", b"1")
    _, token = store.read_versioned("a/x") or (b"", Token(""))
    trace = Trace(monkeypatch)
    replaced = ["flush file", "replace", "flush directory"]
    assert trace.of(lambda: store.write("a/y", b"1")) == replaced
    assert trace.of(lambda: store.write_if_match("a/x", b"2", token)) == replaced
    assert trace.of(lambda: store.write_if_absent("a/z", b"1")) == [
        "flush file",
        "link",
        "flush directory",
    ]
    # A new directory is flushed into its parent before anything is put into it.
    assert trace.of(lambda: store.write("b/c/x", b"1")) == 2 * ["flush directory"] + replaced
    assert trace.of(lambda: store.rename("a/z", "b/z")) == ["replace"] + 2 * ["flush directory"]
    assert trace.of(lambda: store.rename("b/z", "b/y")) == ["replace", "flush directory"]
    assert trace.of(lambda: store.delete("a/y")) == ["flush directory"]
    assert trace.of(lambda: store.delete_prefix("b")) == ["flush directory"]
    assert trace.of(lambda: store.read("a/x")) == []


def test_c_sto_050_process_durability_flushes_nothing(
    local_root: Root, monkeypatch: pytest.MonkeyPatch
):
    trace = Trace(monkeypatch)
    store = open_store(local_root, Durability.PROCESS)

    def everything() -> None:
        store.write("a/x", b"1")
        store.write_if_absent("a/y", b"1")
        _, token = store.read_versioned("a/x") or (b"", Token(""))
        store.write_if_match("a/x", b"2", token)
        store.rename("a/y", "b/y")
        store.delete("b/y")
        store.delete_prefix("a")

    with measure() as io:
        calls = trace.of(everything)
    assert not [call for call in calls if call.startswith("flush")]
    assert io.report().count("disk") == 0


def test_c_sto_050_flushes_are_counted_with_their_files(local_root: Root, folder: Path):
    store = open_store(local_root, Durability.DISK)
    store.write("a/x", b"1")
    with measure(tracing=True) as io:
        store.write("a/x", b"2")
    flushed = [event for event in io.report().events if event.kind == "disk"]
    assert [event.verb for event in flushed] == ["flush_file", "flush_directory"]
    assert Path(flushed[0].target).parent == folder / "a"
    assert flushed[1].target == str(folder / "a")
    assert io.report().requests == io.report().round_trips == 1

"""Locks of the operating system: exclusive between handles, gone with their process."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.local_disk import OsLock, is_locked, lock_path
from omnigraph.errors import InternalError


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has said `ready`."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def finish(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def require_lock_ends_with(parent: subprocess.Popen[str], child: int, path: Path) -> None:
    """A lock of the parent is free once it is dead, although its child lives."""
    parent.kill()
    parent.wait(timeout=60)
    os.kill(child, 0)  # it lives
    assert not is_locked(path)


HOLDER = """
    import sys
    from pathlib import Path
    from omnigraph.effects.local_disk import OsLock
    lock = OsLock(Path(sys.argv[1]))
    assert lock.try_acquire()
    print("ready", flush=True)
    sys.stdin.readline()
    lock.release()
    print("released", flush=True)
    sys.stdin.readline()
"""


def test_one_holder_at_a_time_within_a_process(tmp_path: Path):
    path = tmp_path / "missing" / "lock"
    first, second = OsLock(path), OsLock(path)
    assert not is_locked(path)
    assert first.try_acquire()
    assert first.is_held
    assert is_locked(path)
    assert not second.try_acquire()
    first.release()
    first.release()
    assert not is_locked(path)
    assert second.try_acquire()
    second.release()


def test_kill_9_of_the_holder_releases_the_lock(tmp_path: Path):
    path = tmp_path / "lock"
    holder = start(HOLDER, str(path))
    assert is_locked(path)
    lock = OsLock(path)
    assert not lock.try_acquire()
    os.kill(holder.pid, signal.SIGKILL)
    assert holder.wait(timeout=60) == -signal.SIGKILL
    assert not is_locked(path)
    assert lock.acquire(timeout_ms=5_000)
    lock.release()
    finish(holder)


def test_a_released_lock_can_be_taken_while_its_process_lives(tmp_path: Path):
    path = tmp_path / "lock"
    holder = start(HOLDER, str(path))
    assert holder.stdin is not None
    waited: list[bool] = []
    lock = OsLock(path)
    waiter = threading.Thread(target=lambda: waited.append(lock.acquire(30_000)))
    waiter.start()
    holder.stdin.write("\n")
    holder.stdin.flush()
    waiter.join(timeout=30)
    assert waited == [True]
    lock.release()
    finish(holder)


def test_a_wait_ends_at_its_limit(tmp_path: Path):
    with OsLock(tmp_path / "lock"):
        started = time.monotonic()
        assert not OsLock(tmp_path / "lock").acquire(timeout_ms=40)
        assert 0.04 <= time.monotonic() - started < 60


def test_a_wait_that_was_given_up_on_leaves_no_lock_behind(tmp_path: Path):
    path = tmp_path / "lock"
    with OsLock(path):
        for _ in range(3):
            assert not OsLock(path).acquire(timeout_ms=10)
    # The threads that were still waiting get the lock now, one after the other, and drop it.
    with OsLock(path):
        pass
    until = time.monotonic() + 30
    while any(thread.name == "omnigraph-lock" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.001)


def test_every_waiter_gets_the_lock(tmp_path: Path):
    path = tmp_path / "lock"
    had: list[int] = []

    def take(number: int) -> None:
        with OsLock(path):
            had.append(number)

    with ThreadPoolExecutor(8) as pool:
        with OsLock(path):
            takers = [pool.submit(take, number) for number in range(8)]
            time.sleep(0.02)  # by now most of them wait in earnest
            assert had == []
        for taker in takers:
            taker.result(timeout=30)
    assert sorted(had) == list(range(8))


def test_a_forked_child_does_not_keep_a_lock_its_parent_waits_for(tmp_path: Path):
    path = tmp_path / "lock"
    script = """
        import os, sys, threading, time
        from pathlib import Path
        from omnigraph.effects.local_disk import OsLock, _waiting
        lock = OsLock(Path(sys.argv[1]))
        waiter = threading.Thread(target=lock.acquire)
        waiter.start()
        while not _waiting:
            time.sleep(0.001)
        if os.fork() == 0:
            Path(sys.argv[2]).write_text(str(os.getpid()))  # it has dropped what it inherited
            time.sleep(60)
            os._exit(0)
        while not Path(sys.argv[2]).exists() or not Path(sys.argv[2]).read_text():
            time.sleep(0.01)
        print("ready", flush=True)
        waiter.join()
        print("locked", flush=True)
        time.sleep(60)
    """
    pid_file = tmp_path / "child"
    with OsLock(path):
        parent = start(script, str(path), str(pid_file))
    child = int(pid_file.read_text())
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "locked\n"
        assert is_locked(path)
        require_lock_ends_with(parent, child, path)
    finally:
        os.kill(child, signal.SIGKILL)
        finish(parent)


def test_a_forked_child_does_not_keep_its_parents_lock(tmp_path: Path):
    """A prefork server must not look alive after its death because a worker is."""
    path = tmp_path / "lock"
    script = """
        import os, sys, time
        from pathlib import Path
        from omnigraph.effects.local_disk import OsLock
        lock = OsLock(Path(sys.argv[1]))
        assert lock.try_acquire()
        if os.fork() == 0:
            assert not lock.is_held
            Path(sys.argv[2]).write_text(str(os.getpid()))
            time.sleep(60)
            os._exit(0)
        while not Path(sys.argv[2]).exists() or not Path(sys.argv[2]).read_text():
            time.sleep(0.01)
        print("ready", flush=True)
        time.sleep(60)
    """
    pid_file = tmp_path / "child"
    parent = start(script, str(path), str(pid_file))
    child = int(pid_file.read_text())
    try:
        assert is_locked(path)
        require_lock_ends_with(parent, child, path)
    finally:
        os.kill(child, signal.SIGKILL)
        finish(parent)


def test_a_lock_on_a_file_that_was_replaced_does_not_count(tmp_path: Path):
    """Whoever waits on a removed file must end up with the lock of the new one."""
    path = tmp_path / "lock"
    first = OsLock(path)
    assert first.try_acquire()
    waiting = OsLock(path)
    result: list[bool] = []
    waiter = threading.Thread(target=lambda: result.append(waiting.acquire(30_000)))
    waiter.start()
    time.sleep(0.03)
    path.unlink()
    third = OsLock(path)
    assert third.try_acquire()
    first.release()
    time.sleep(0.05)
    assert result == []  # it has got the old file, and noticed
    third.release()
    waiter.join(timeout=30)
    assert result == [True]
    assert is_locked(path)
    waiting.release()


def test_observers_do_not_disturb_each_other_or_an_acquirer(tmp_path: Path):
    path = tmp_path / "lock"
    path.touch()
    stop = threading.Event()

    def observe() -> list[bool | None]:
        seen: list[bool | None] = []
        while not stop.is_set():
            seen.append(is_locked(path))
        return seen

    with ThreadPoolExecutor(2) as pool:
        observers = [pool.submit(observe) for _ in range(2)]
        time.sleep(0.02)  # two observers of a free lock
        taken = []
        for _ in range(20):
            lock = OsLock(path)
            taken.append(lock.acquire(5_000))
            lock.release()
        stop.set()
    assert all(taken)
    assert all(False in observer.result() for observer in observers)


def test_looking_creates_nothing(tmp_path: Path):
    assert not is_locked(tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_acquiring_twice_is_a_mistake(tmp_path: Path):
    with OsLock(tmp_path / "lock") as lock, pytest.raises(InternalError):
        lock.acquire()


def test_a_lock_that_cannot_be_opened_is_a_failure(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailure) as caught:
        OsLock(tmp_path / "file" / "lock").acquire(0)
    assert caught.value.failure_class is FailureClass.PERMANENT
    with pytest.raises(StorageFailure):
        is_locked(tmp_path / "file" / "lock")


def test_lock_files_are_named_by_scope(tmp_path: Path):
    paths = {lock_path(tmp_path, scope) for scope in ("graph", "main", "agent/42", "x" * 200)}
    assert len(paths) == 4
    assert all(p.parent == tmp_path and p.name.startswith(".omnigraph-lock-") for p in paths)
    assert lock_path(tmp_path, "main") == lock_path(tmp_path, "main")


# --- who may open a lock file: all that can read it can lock it, and block its writers ------------


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("folder", "expected"), [(0o755, 0o600), (0o775, 0o660)])
def test_a_lock_file_is_for_those_who_may_write_to_its_folder(
    tmp_path: Path, folder: int, expected: int
):
    tmp_path.chmod(folder)
    former = os.umask(0)
    try:
        with OsLock(tmp_path / "lock"):
            assert mode_of(tmp_path / "lock") == expected
    finally:
        os.umask(former)


def test_a_loose_lock_file_and_its_folder_are_tightened(tmp_path: Path):
    """As they are where an older release, or a umask of 0, has made them."""
    path = tmp_path / "folder" / "lock"
    path.parent.mkdir()
    path.parent.chmod(0o777)
    path.touch()
    path.chmod(0o666)
    with OsLock(path):
        assert mode_of(path) == 0o660
        assert mode_of(path.parent) == 0o775
    path.parent.chmod(0o755)
    with OsLock(path):
        assert mode_of(path) == 0o600


def test_a_loose_lock_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o666)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(StorageFailure, match=r"other users may block its writers") as refused:
        OsLock(path).acquire(0)
    assert refused.value.failure_class == "Configuration"
    assert f"chmod 600 {path}" in (refused.value.hint or "")


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path):
    (tmp_path / "elsewhere").touch()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageFailure):
        OsLock(tmp_path / "lock").acquire(0)

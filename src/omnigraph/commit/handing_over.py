"""Staged writes that processes of one machine hand over to the owner of a branch.

A writer that finds its branch owned by another process puts its staged write into a file below the
leases of the graph, and holds a lock on the file while it waits. The owner claims the file by
renaming it, commits the write as a member of its group, and puts the answer beside it. If the
branch becomes free before the file is claimed, the writer withdraws it and commits itself.

An answer is only a hint. A writer reports success once `__manifest` contains its commit, whose id
the writer has chosen. Files are read only if they belong to this user and have the format of
`_encode`.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.commit.grouping import MEMBER_BYTES_MAX, MemberTable, MemberWrite
from omnigraph.commit.leases import QUEUE_WAIT_MS, READY, WaitingWriter, handed_over
from omnigraph.commit.plan import Intent
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.local_disk import OsLock, is_locked
from omnigraph.errors import OmnigraphError
from omnigraph.model.arrow import BLOB_STORAGE
from omnigraph.model.ids import TableKey, is_ulid
from omnigraph.model.records import dataclass
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.storage.transactions import added_fragments, append_of

log = logging.getLogger(__name__)

TAKEN, DONE = ".taken", ".done"
FILE_BYTES_MAX = 4 * MEMBER_BYTES_MAX
PAUSE_SECONDS = 0.002
LOOKS_PER_CHECK = 4
"""Polls for the answer (one system call each) per check whether the branch still has an owner
(several system calls)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a claimed write, as its owner reports it."""

    commit: CommitRow | None = None
    """The published commit; None if the write was not published, or that is not known."""


class HandOver:
    """The writes that wait for one branch, as files in a folder."""

    def __init__(self, locks: Path, branch: str) -> None:
        self._folder = handed_over(locks, branch)

    def leave(self, write: MemberWrite) -> LeftWrite:
        """Write the file of a staged write for the owner of the branch."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = self._folder / write.attempt_id
        # Locked before it gets its visible name: an unlocked file belongs to a dead process.
        lock = OsLock(staged)
        lock.acquire(0)
        try:
            staged.write_bytes(_encode(write))
            staged.rename(staged.with_suffix(READY))
        except BaseException:
            lock.release()
            staged.unlink(missing_ok=True)
            raise
        return LeftWrite(staged, lock)

    def take(self, count: int) -> list[WaitingWriter[MemberWrite]]:
        """Claim at most ``count`` waiting writes, oldest first."""
        taken = []
        with suppress(FileNotFoundError):
            for file in sorted(self._folder.glob(f"*{READY}"))[:count]:
                write = self._claimed(file)
                if write is not None:
                    taken.append(WaitingWriter(write))
        return taken

    def tell(self, member: WaitingWriter[MemberWrite]) -> None:
        """Write the answer for a member; if that fails, its writer reads the manifest instead."""
        file = self._folder / f"{member.write.attempt_id}{DONE}"
        told = {"commit": None if member.commit is None else asdict(member.commit)}
        try:
            staged = file.with_suffix(".part")
            staged.write_bytes(orjson.dumps(told))
            staged.rename(file)
        except OSError:
            log.warning("the answer %s could not be left", file, exc_info=True)

    def _claimed(self, file: Path) -> MemberWrite | None:
        """Claim a write whose process is alive; None if it is dead or has withdrawn the file."""
        try:
            if is_locked(file) is False:
                file.unlink()
                return None
            content = _own_content(file)
            write = None if content is None else _decode(file.stem, content)
            if write is None:
                return None
            hit(Failpoint.GROUP_PRE_CLAIM)
            file.rename(file.with_suffix(TAKEN))
        except (OSError, OmnigraphError):
            return None  # withdrawn
        return write


class LeftWrite:
    """A write that was handed over, as its writer sees it."""

    def __init__(self, staged: Path, lock: OsLock) -> None:
        self._staged = staged
        self._done = staged.with_suffix(DONE)
        self._lock = lock

    @property
    def answer(self) -> Answer | None:
        """The answer of the owner; None before there is one."""
        if not os.access(self._done, os.F_OK):
            return None
        content = _own_content(self._done)
        if content is None:
            return None
        try:
            told = orjson.loads(content)
            commit = told["commit"]
            return Answer(None if commit is None else CommitRow(**commit))
        except (KeyError, TypeError, ValueError):
            return Answer()

    def _take_back(self) -> bool:
        """Withdraw the write; False if an owner has claimed it."""
        try:
            self._staged.with_suffix(READY).unlink()
        except FileNotFoundError:
            return False
        return True

    def wait(self, is_free: Callable[[], bool], turn: OsLock, wait_ms: int) -> Answer | None:
        """Wait for an answer; None if the write was withdrawn, so that its writer has to commit it.

        ``is_free`` tells whether the branch has no owner. The owner that claims a write answers
        before it releases the branch. So if the write is claimed, the branch is free and there is
        no answer, the owner has died, and recovery decides whether the write landed.

        Of the writers that wait for a free branch, one acquires ``turn`` and returns holding it;
        the others keep waiting for that one.
        """
        deadline, free_since = time.monotonic() + wait_ms / 1000, None
        for look in count():
            answer = self.answer
            if answer is not None:
                break
            if look % LOOKS_PER_CHECK:
                time.sleep(PAUSE_SECONDS)
                continue
            is_claimed = not self._staged.with_suffix(READY).exists()
            is_over = is_free()
            if is_claimed and is_over:
                return self.answer or Answer()
            now = time.monotonic()
            free_since = (free_since or now) if is_over else None
            is_impatient = now > deadline or (
                free_since is not None and (now - free_since) * 1000 > QUEUE_WAIT_MS
            )
            is_next = is_impatient or (is_over and turn.acquire(0) and is_free())
            if not is_claimed and is_next and self._take_back():
                return None
            turn.release()
            time.sleep(PAUSE_SECONDS)
        return answer

    def end(self) -> None:
        """Remove the files of this write."""
        for suffix in (READY, TAKEN, DONE):
            self._staged.with_suffix(suffix).unlink(missing_ok=True)
        self._lock.release()


def may_be_handed_over(write: MemberWrite) -> bool:
    """Whether the rows of a write can be serialized for another process: no blobs or extensions."""
    types = (field.type for table in write.tables for field in table.rows.schema)
    return not any(isinstance(each, pa.ExtensionType) or each == BLOB_STORAGE for each in types)


def _own_content(file: Path) -> bytes | None:
    """The bytes of a regular file of this user; None if there is no such file."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        found = os.fstat(opened.fileno())
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_size > FILE_BYTES_MAX:
            return None
        return opened.read()


def _encode(write: MemberWrite) -> bytes:
    intent = write.intent
    header = {
        "commit_id": write.commit_id,
        "writer_kind": intent.writer_kind,
        "commit_kind": intent.commit_kind,
        "actor_id": intent.actor_id,
        "operation_id": intent.operation_id,
        "receipt": intent.receipt_with_message,
        "ref": write.ref,
        "schema_hash": write.schema_hash,
        "prepared_on": write.prepared_on,
        "tables": [
            {
                "table_key": table.table_key,
                "identity": [*table.identity],
                "location": table.location,
                "uuid": table.uuid,
                "fragments": added_fragments(table.staged),
                "bytes": len(rows),
            }
            for table, rows in _with_bytes(write)
        ],
    }
    parts = [orjson.dumps(header), b"\n", *(rows for _, rows in _with_bytes(write))]
    return b"".join(parts)


def _with_bytes(write: MemberWrite) -> Iterator[tuple[MemberTable, bytes]]:
    for table in write.tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.rows.schema) as stream:
            stream.write_table(table.rows)
        yield table, sink.getvalue().to_pybytes()


def _decode(attempt_id: str, content: bytes) -> MemberWrite | None:
    """The write in a file; None if it does not have the format of `_encode`."""
    head, _, rows = content.partition(b"\n")
    try:
        told: dict[str, Any] = orjson.loads(head)
        tables = []
        for each in told["tables"]:
            with pa.ipc.open_stream(rows[: each["bytes"]]) as stream:
                table = stream.read_all()
            table.validate(full=True)
            rows = rows[each["bytes"] :]
            key, uuid = TableKey.parse(each["table_key"]), each["uuid"]
            staged = append_of(each["fragments"], table.num_rows, uuid)
            identity = TableIdentity(*map(int, each["identity"]))
            tables.append(MemberTable(key, identity, each["location"], table, staged, uuid))
        ids = [attempt_id, told["commit_id"], *(table.uuid for table in tables)]
        is_sound = bool(tables) and not rows and all(is_ulid(each) for each in ids)
        kinds = (told["writer_kind"], told["commit_kind"])
        if not is_sound or kinds not in (("Mutation", "mutation"), ("Load", "load")):
            return None
        intent = Intent(
            *kinds,
            actor_id=told["actor_id"],
            operation_id=told["operation_id"],
            receipt=told["receipt"],
        )
        return MemberWrite(
            attempt_id,
            told["commit_id"],
            intent,
            told["ref"],
            told["schema_hash"],
            told["prepared_on"],
            tuple(tables),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException, OmnigraphError) as error:
        log.warning("a write that was handed over cannot be read: %s", error)
        return None

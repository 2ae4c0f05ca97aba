"""Staged writes that processes of one machine hand over to the owner of a branch.

A writer that finds its branch owned by another process leaves its write as a file, locked while it
waits, below the leases of the graph. The owner claims it by renaming it, commits it as a member of
its group, and leaves the answer beside it. A writer that gets the lock of the branch first has
no owner to wait for: it takes its write back.

An answer is a hint where to look. A writer reports success only once `__manifest` itself names its
commit, whose id it has chosen. Files are believed only if they belong to this user and are of the
shape that is written here.
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
"""How often a writer looks for its answer, which costs one system call, before it looks whether the
branch still has an owner, which costs several. Those that wait must not slow the owner down."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an owner says about a write that it took."""

    commit: CommitRow | None = None
    """Its commit; None if it was not published, or not for certain."""


class HandOver:
    """The writes that wait for one branch, as files in a folder."""

    def __init__(self, locks: Path, branch: str) -> None:
        self._folder = handed_over(locks, branch)

    def leave(self, write: MemberWrite) -> LeftWrite:
        """Leave a write for the owner of the branch."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = self._folder / write.attempt_id
        # Locked before it can be seen: one that is not belongs to a process that is gone.
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
        """Claim writes that wait, oldest first."""
        taken = []
        with suppress(FileNotFoundError):
            for file in sorted(self._folder.glob(f"*{READY}"))[:count]:
                write = self._claimed(file)
                if write is not None:
                    taken.append(WaitingWriter(write))
        return taken

    def tell(self, member: WaitingWriter[MemberWrite]) -> None:
        """Leave the answer for a writer; one that cannot be left is found in the manifest."""
        file = self._folder / f"{member.write.attempt_id}{DONE}"
        told = {"commit": None if member.commit is None else asdict(member.commit)}
        try:
            staged = file.with_suffix(".part")
            staged.write_bytes(orjson.dumps(told))
            staged.rename(file)
        except OSError:
            log.warning("the answer %s could not be left", file, exc_info=True)

    def _claimed(self, file: Path) -> MemberWrite | None:
        """A write that its process still waits for, claimed; None for any other."""
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
            return None  # it was taken back
        return write


class LeftWrite:
    """A write that was left, for the writer that waits for what becomes of it."""

    def __init__(self, staged: Path, lock: OsLock) -> None:
        self._staged = staged
        self._done = staged.with_suffix(DONE)
        self._lock = lock

    @property
    def answer(self) -> Answer | None:
        """What the owner said, if it did."""
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
        """Take the write back; False if an owner has claimed it."""
        try:
            self._staged.with_suffix(READY).unlink()
        except FileNotFoundError:
            return False
        return True

    def wait(self, is_free: Callable[[], bool], turn: OsLock, wait_ms: int) -> Answer | None:
        """Wait for an answer; None if the write was taken back and is its writer's own again.

        ``is_free`` looks whether the branch has an owner. The claimant of a write owns the
        branch and answers before it gives the branch back: if the branch is free after a claim was
        seen, and there is no answer, the owner has died, and recovery decides what it did.

        Of several that wait for a free branch one takes its ``turn`` to own it, and has it when
        this returns; the others wait for that one.
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
        """Remove what was left."""
        for suffix in (READY, TAKEN, DONE):
            self._staged.with_suffix(suffix).unlink(missing_ok=True)
        self._lock.release()


def may_be_handed_over(write: MemberWrite) -> bool:
    """Whether all rows of a write can be given to another process as they are."""
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
    """A write; None if it is not of the shape that is written here."""
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

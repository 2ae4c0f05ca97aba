"""`omnigraph changes …`: following what happens to a graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from omnigraph.cli.changes_output import (
    KindOption,
    OpOption,
    PageLimitOption,
    TypeOption,
    change_filter,
    followed,
    show_feed,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import replaced_file, sync_directory, unusable
from omnigraph.cli.help import Commands, ReadCommand
from omnigraph.cli.opening import graph_to_read
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, option
from omnigraph.cli.output import Styled, counted, output_of
from omnigraph.errors import Busy, Conflict, InputError, StorageError

COMMANDS = Commands(
    "changes",
    "Follow what happens to a graph.",
    """
omnigraph changes baseline --store team.omni --out team.jsonl
omnigraph changes poll --store team.omni --start beginning --json
""",
)

CursorOption = Annotated[
    str | None, option("--cursor", "CURSOR", "go on where the last poll or a baseline ended")
]
StartOption = Annotated[
    str | None,
    option("--start", "now|beginning|after:ID", "where to begin without a cursor; now by default"),
]
BaselineOption = Annotated[
    Path, option("--out", "FILE", "write here; replaced once all of it is there")
]


@COMMANDS.add(ReadCommand)
def poll(
    ctx: typer.Context,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    cursor: CursorOption = None,
    start: StartOption = None,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    limit: PageLimitOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what the commits of a branch changed since a cursor, one block a commit.

    Pages are fetched and written one after another. The cursor to go on with comes last, and only
    when everything before it has been written: keep it when you have dealt with that. A poll
    repeated with the same cursor shows the same again.

    omnigraph changes poll --store team.omni
    omnigraph changes poll --store team.omni --cursor "$CURSOR" --json
    omnigraph changes poll --store team.omni --start after:01K3Z7M0Q8W4R6T2Y5V9B1N3XC --type Person
    """
    if cursor is not None and start is not None:
        raise UsageError(
            "`--cursor` and `--start` exclude each other", hint="a cursor knows its place itself"
        )
    fetch = partial(
        graph_to_read(ctx).poll_changes,
        branch,
        limit=limit,
        **change_filter(kinds, types, ops),
    )
    first = fetch(cursor=cursor, start=start)
    show_feed(output_of(ctx), followed(fetch, first), as_json=json)


@COMMANDS.add(ReadCommand)
def baseline(
    ctx: typer.Context,
    out: BaselineOption,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    json: JsonFlag = False,
) -> None:
    """Write every entity of a branch to a file, and show the cursor to go on with.

    The entities are those of one commit, and what is committed meanwhile is what the cursor goes on
    with. `--op` belongs to the polls with the cursor and leaves no entity out. The file is replaced
    when all of it is on disk, and only then is the cursor shown; after a failure it is what it was.

    omnigraph changes baseline --store team.omni --out team.jsonl
    omnigraph changes baseline --store team.omni --type Person --out people.jsonl --json
    """
    require_posix()
    output = output_of(ctx)
    graph = graph_to_read(ctx)
    # From the handshake, the last line of the file.
    entity_count = -1
    with baseline_file(out) as stream:
        found = graph.change_baseline(branch, **change_filter(kinds, types, ops))
        with output.progress("writing", found.entity_count, "entities") as advance:
            for block in found.blocks():
                stream.write(block)
                entity_count += block.count(b"\n")
                advance(block.count(b"\n"))
        handshake = found.handshake
        if handshake is None:
            raise StorageError("the baseline ended before its last record")
    entities = counted(entity_count, "entity", "entities")
    output.show(
        handshake,
        (
            (Styled(f"{entities} of {branch} written to {out}", "bold green"),),
            (f"commit {handshake.snapshot_commit_id}",),
            (f"cursor {handshake.resume_cursor}",),
        ),
        json=json,
    )


try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None  # type: ignore[assignment]


def require_posix() -> None:
    """Raise `InputError` on platforms without file locks and flushing of directories."""
    if fcntl is None:
        raise InputError(
            "baselines can be written on POSIX systems only",
            hint="write it in a container, or iterate over `Graph.change_baseline` yourself",
        )


@contextmanager
def baseline_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes ``path``, durably, when the block ends without a failure.

    Raises `Busy` while another process writes a baseline to the same place, and `Conflict` when
    another process put another file there at the same moment.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"`{path}` is not a file", hint="name a file, new or to be replaced")
    with _locked(target):
        with replaced_file(path) as stream:
            yield stream
            written = os.fstat(stream.fileno())
        sync_directory(target.parent)
        if not os.path.samestat(written, target.stat()):
            raise Conflict(
                f"`{path}` was replaced by another process",
                hint="find out by which, and take the baseline again",
            )


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    # The lock file is not removed: two writers could then lock two different files of one name.
    lock = target.with_name(f"{target.name}.lock")
    try:
        lock_file = lock.open("ab")
    except OSError as problem:
        raise unusable("write", lock, problem) from problem
    with lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise Busy(
                f"another baseline is being written to `{target}`",
                hint="wait for it, or write to another file",
            ) from taken
        yield

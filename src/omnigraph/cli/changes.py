"""`omnigraph changes …`: following what happens to a graph."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import typer

from omnigraph.cli.changes_output import (
    KindOption,
    OpOption,
    PageLimitOption,
    TypeOption,
    followed,
    show_feed,
)
from omnigraph.cli.failures import UsageError
from omnigraph.cli.help import Capability, Group, ReadCommand, subcommand_missing
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, JsonFlag, UriOption
from omnigraph.cli.output import Output, Styled, counted, output_of
from omnigraph.errors import Busy, Conflict, InputError, StorageError

EXAMPLES = """
omnigraph changes baseline --uri team.omni --out team.jsonl
omnigraph changes poll --uri team.omni --start beginning --json
"""
POLL_EXAMPLES = """
omnigraph changes poll --uri team.omni
omnigraph changes poll --uri team.omni --cursor "$CURSOR" --json
omnigraph changes poll --uri team.omni --start after:01K3Z7M0Q8W4R6T2Y5V9B1N3XC --type Person
"""
BASELINE_EXAMPLES = """
omnigraph changes baseline --uri team.omni --out team.jsonl
omnigraph changes baseline --uri team.omni --type Person --out people.jsonl --json
"""

CursorOption = Annotated[
    str | None,
    typer.Option(
        "--cursor", metavar="CURSOR", help="go on where the last poll or a baseline ended"
    ),
]
StartOption = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="now|beginning|after:ID",
        help="where to begin without a cursor; now by default",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option("--out", metavar="FILE", help="write here; replaced once all of it is there"),
]


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(rich_markup_mode=None)
    panel = Capability.ANY.panel
    group.command("poll", cls=ReadCommand, rich_help_panel=panel, epilog=POLL_EXAMPLES)(poll)
    group.command("baseline", cls=ReadCommand, rich_help_panel=panel, epilog=BASELINE_EXAMPLES)(
        baseline
    )
    app.add_typer(
        group,
        name="changes",
        cls=Group,
        callback=changes,
        invoke_without_command=True,
        epilog=EXAMPLES,
    )


def changes(ctx: typer.Context) -> None:
    """Follow what happens to a graph."""
    if ctx.invoked_subcommand is None:
        raise subcommand_missing(ctx)


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
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Show what the commits of a branch changed since a cursor, one block a commit.

    Pages are fetched and written one after another. The cursor to go on with comes last, and only
    when everything before it has been written: keep it when you have dealt with that. A poll
    repeated with the same cursor shows the same again.
    """
    from omnigraph.cli.opening import graph_to_read

    if cursor is not None and start is not None:
        raise UsageError(
            "`--cursor` and `--start` exclude each other", hint="a cursor knows its place itself"
        )
    fetch = partial(
        graph_to_read(ctx, uri).poll_changes,
        branch,
        limit=limit,
        kinds=kinds or (),
        types=types or (),
        ops=ops or (),
    )
    first = fetch(cursor=cursor, start=start)
    show_feed(output_of(ctx), followed(fetch, first), as_json=json)


def baseline(
    ctx: typer.Context,
    out: OutOption,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    kinds: KindOption = None,
    types: TypeOption = None,
    ops: OpOption = None,
    uri: UriOption = None,
    json: JsonFlag = False,
) -> None:
    """Write every entity of a branch to a file, and show the cursor to go on with.

    The entities are those of one commit, and what is committed meanwhile is what the cursor goes on
    with. `--op` belongs to the polls with the cursor and leaves no entity out. The file is replaced
    when all of it is on disk, and only then is the cursor shown; after a failure it is what it was.
    """
    from omnigraph.cli.opening import graph_to_read

    require_posix()
    output = output_of(ctx)
    graph = graph_to_read(ctx, uri)
    # Of the handshake, which ends the file.
    entity_count = -1
    with baseline_file(out) as stream:
        found = graph.change_baseline(branch, kinds=kinds or (), types=types or (), ops=ops or ())
        with _progress(output, found.entity_count) as progress:
            for block in found.blocks():
                stream.write(block)
                entity_count += block.count(b"\n")
                if progress is not None:
                    progress(block.count(b"\n"))
        handshake = found.handshake
        if handshake is None:
            raise StorageError("the baseline ended before its last record")
    if json:
        output.json(handshake.to_dict())
        return
    entities = counted(entity_count, "entity", "entities")
    output.line(Styled(f"{entities} of {branch} written to {out}", "bold green"))
    output.line(f"commit {handshake.snapshot_commit_id}")
    output.line(f"cursor {handshake.resume_cursor}")


def _progress(
    output: Output, total: int | None
) -> AbstractContextManager[Callable[[int], None] | None]:
    if not output.shows_progress:
        return nullcontext()
    from omnigraph.cli.progress import progress_of

    return progress_of(output, "writing", total, "entities")


try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None  # type: ignore[assignment]


def require_posix() -> None:
    """Raise `InputError` where a file cannot be locked and a directory not be flushed."""
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
        staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        with _created(staged, path) as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                staged.replace(target)
                _sync(target.parent)
                if not os.path.samestat(os.fstat(stream.fileno()), target.stat()):
                    raise Conflict(
                        f"`{path}` was replaced by somebody else",
                        hint="find out by whom, and take the baseline again",
                    )
            finally:
                with suppress(FileNotFoundError):
                    staged.unlink()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    # The lock file stays: removing it would let two writers hold locks on two files of one name.
    lock = target.with_name(f"{target.name}.lock")
    with _created(lock, lock, "ab") as lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise Busy(
                f"another baseline is being written to `{target}`",
                hint="wait for it, or write to another file",
            ) from taken
        yield


@contextmanager
def _created(path: Path, shown: Path, mode: Literal["xb", "ab"] = "xb") -> Iterator[BinaryIO]:
    try:
        stream = path.open(mode)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot write `{shown}`: {reason}") from problem
    with stream:
        yield stream


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""`omnigraph load`: records from files or stdin, as one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from omnigraph.cli.deprecated import warn_deprecated
from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import STANDARD_INPUT, require_file, standard_input
from omnigraph.cli.help import Capability, DestructiveCommand
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    JsonFlag,
    UriArgument,
    branch_name,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of
from omnigraph.model.receipts import LoadMode, LoadReceipt
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.graph import Graph

EXAMPLES = """
omnigraph load team.omni --data people.jsonl --mode merge
omnigraph load team.omni --data a.jsonl --data b.jsonl.gz --mode append
omnigraph load team.omni --data - --mode merge --branch review --from main
"""

MODES: tuple[LoadMode, ...] = get_args(LoadMode)
PLAIN_SUFFIXES = ("", ".json", ".jsonl", ".ndjson")
"""Files whose size says how much there is to read."""


def _mode(value: str) -> str:
    if value not in MODES:
        raise UsageError(
            f"`--mode` takes {', '.join(MODES)}, not `{value}`",
            hint=did_you_mean(value, MODES) or "`omnigraph load --help` explains them",
        )
    return value


DataOption = Annotated[
    list[str],
    typer.Option(
        "--data",
        metavar="FILE",
        help="JSON lines to load, also .gz, .zst, .bz2 or .lz4; - is stdin; repeatable",
    ),
]
ModeOption = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="append|merge|overwrite",
        help="append: an existing id is an error; merge: it is updated; "
        "overwrite: the types in the data are replaced",
        callback=_mode,
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="NAME",
        help="if the branch does not exist, create it from this one",
        callback=branch_name,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the command and its former name."""
    panel = Capability.ANY.panel
    app.command("load", cls=DestructiveCommand, rich_help_panel=panel, epilog=EXAMPLES)(load)
    app.command("ingest", cls=DestructiveCommand, rich_help_panel=panel, hidden=True)(ingest)


def load(
    ctx: typer.Context,
    *,
    uri: UriArgument = None,
    data: DataOption,
    mode: ModeOption,
    branch: BranchOption = DEFAULT_BRANCH,
    from_: FromOption = None,
    json: JsonFlag = False,
) -> None:
    """Load records into a branch.

    Each line of the data is one node or one edge. Everything is checked first and becomes visible
    as one commit; a single bad line means that nothing is written.
    """
    _load(ctx, Request("load", tuple(data), mode, uri, branch, from_, "strict"), json=json)


def ingest(
    ctx: typer.Context,
    *,
    uri: UriArgument = None,
    data: DataOption,
    mode: ModeOption = "merge",
    branch: BranchOption = DEFAULT_BRANCH,
    from_: FromOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Load records the way earlier versions did: objects may span lines."""
    warn_deprecated(output_of(ctx), "ingest", "load")
    request = Request("ingest", tuple(data), mode, uri, branch, from_, "compatible")
    _load(ctx, request, json=json)


# --- loading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """One load, as it was asked for."""

    verb: str
    data: tuple[str, ...]
    mode: str
    uri: str | None
    branch: str
    from_: str | None
    grammar: Literal["strict", "compatible"]

    @property
    def files(self) -> list[Path]:
        """The data that lies in files."""
        return [Path(name) for name in self.data if name != STANDARD_INPUT]

    @property
    def reads_stdin(self) -> bool:
        """Whether some of the data arrives on stdin."""
        return STANDARD_INPUT in self.data


def _load(ctx: typer.Context, request: Request, *, json: bool) -> None:
    from omnigraph.cli.addressing import actor_of
    from omnigraph.cli.opening import open_to_write

    output = output_of(ctx)
    if request.data.count(STANDARD_INPUT) > 1:
        raise UsageError("stdin can be read only once", hint="give `--data -` one time")
    for path in request.files:
        require_file(path)
    is_overwrite = request.mode == "overwrite"
    graph = open_to_write(
        ctx,
        request.verb,
        request.uri,
        destructive=f"{request.verb} --mode overwrite" if is_overwrite else None,
    )
    with _progress(output, request) as progress:
        receipt = _run(graph, request, actor_of(ctx), progress)
    if json:
        output.json(_document(graph.uri, receipt))
    else:
        output.lines(_lines(receipt))


def _run(
    graph: Graph, request: Request, actor: str | None, progress: Callable[[int], None] | None
) -> LoadReceipt:
    mode: LoadMode = next(known for known in MODES if known == request.mode)
    return graph.load(
        *request.files,
        data=standard_input() if request.reads_stdin else None,
        mode=mode,
        branch=request.branch,
        from_=request.from_,
        grammar=request.grammar,
        actor=actor,
        progress=progress,
    )


def _progress(
    output: Output, request: Request
) -> AbstractContextManager[Callable[[int], None] | None]:
    if not output.shows_progress:
        return nullcontext()
    from omnigraph.cli.progress import progress_of

    is_known = not request.reads_stdin and all(
        path.is_file() and path.suffix in PLAIN_SUFFIXES for path in request.files
    )
    total = sum(path.stat().st_size for path in request.files) if is_known else None
    return progress_of(output, "loading", total, "bytes")


# --- receipts -------------------------------------------------------------------------------------


def _document(uri: str, receipt: LoadReceipt) -> dict[str, Any]:
    document = {"uri": uri, **receipt.to_dict()}
    if receipt.base_branch is None:
        del document["base_branch"]
    return document


def _lines(receipt: LoadReceipt) -> Iterator[Line]:
    """What became of each type, then the sum and the commit."""
    from omnigraph.cli.tables import table

    loaded = [
        *(("node", entry) for entry in receipt.nodes),
        *(("edge", entry) for entry in receipt.edges),
    ]
    if loaded:
        rows = [
            (f"{kind} {entry.name}", entry.inserted, entry.updated, entry.unchanged)
            for kind, entry in loaded
        ]
        yield from table(("type", "inserted", "updated", "unchanged"), rows)
        yield ()
    if receipt.branch_created:
        yield (f"created branch {receipt.branch} from {receipt.base_branch}",)
    total = counted(sum(entry.entities_loaded for _, entry in loaded), "entity", "entities")
    yield (Styled(f"{total} loaded into {receipt.branch}", "bold green"),)
    yield (_commit_line(receipt),)


def _commit_line(receipt: LoadReceipt) -> str:
    if receipt.commit is None:
        return "nothing changed, so there is no new commit"
    return f"commit {receipt.commit.graph_commit_id}"

"""`omnigraph load`: records from files or stdin, as one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from glob import has_magic
from json import dumps
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import STANDARD_INPUT, require_file, standard_input
from omnigraph.cli.help import Capability, DestructiveCommand
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ExternalBlobsOption,
    JsonFlag,
    UriArgument,
    branch_name,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of, table, warn_deprecated
from omnigraph.errors import InputError
from omnigraph.model.receipts import LoadMode, LoadReceipt, checked_key
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph, LoadObserver
    from omnigraph.loading.executors import StageProgress, Watch
    from omnigraph.loading.inputs import EngineChoice

EXAMPLES = """
omnigraph load team.omni --data people.jsonl --mode merge
omnigraph load team.omni --data a.jsonl --data b.jsonl.gz --mode append
omnigraph load team.omni --data - --mode merge --branch review --from main
omnigraph load team.omni --node Person=people.parquet --edge Knows='knows/*.csv' --mode append
omnigraph load team.omni --data export/ --mode overwrite --engine spark --dry-run
"""

MODES: tuple[LoadMode, ...] = get_args(LoadMode)
Engine = Literal["auto", "local", "spark"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
PLAIN_SUFFIXES = ("", ".json", ".jsonl", ".ndjson")
"""Files whose size says how much there is to read."""


def _mode(value: str) -> str:
    if value not in MODES:
        raise UsageError(
            f"`--mode` takes {', '.join(MODES)}, not `{value}`",
            hint=did_you_mean(value, MODES)
            or "append adds, merge updates what is there by key, overwrite replaces all of a type",
        )
    return value


def _key(value: str | None) -> str | None:
    try:
        return checked_key(value, "--idempotency-key")
    except InputError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _errors_out(value: Path | None) -> Path | None:
    if value is not None and str(value) == STANDARD_INPUT:
        raise UsageError(
            "`--errors-out` takes a file, not `-`",
            hint="name a file; with `--json` the first problems are printed as well",
        )
    return value


DataOption = Annotated[
    list[str],
    typer.Option(
        "--data",
        metavar="FILE",
        help="JSON lines to load, also .gz, .zst, .bz2 or .lz4; a directory or a pattern; "
        "- is stdin; repeatable",
    ),
]
NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="TYPE=FILE",
        help="rows of a node type: CSV, Parquet, ORC, Avro, JSON, Arrow or Lance; repeatable",
    ),
]
EdgeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--edge",
        metavar="TYPE=FILE",
        help="rows of an edge type, with columns `from` and `to`; repeatable",
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="auto|local|spark",
        help="who loads: this process, Spark, or who suits the input; auto by default",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--spark-master", metavar="URL", help="where Spark runs; local[*] by default"),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="NAME=VALUE", help="a Spark setting; repeatable"),
]
ErrorsMaxOption = Annotated[
    int,
    typer.Option(
        "--max-errors", metavar="N", min=1, help="how many problems to print; 100 by default"
    ),
]
ErrorsOutOption = Annotated[
    Path | None,
    typer.Option(
        "--errors-out",
        metavar="FILE",
        help="write every problem there as JSON lines",
        callback=_errors_out,
    ),
]
IgnoreUnknownFlag = Annotated[
    bool, typer.Option("--ignore-unknown", help="leave out columns that are no properties")
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="check everything, and only say what would be written")
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        metavar="KEY",
        help="load this once: with the same key and data, the first receipt is printed again",
        callback=_key,
    ),
]
MessageOption = Annotated[
    str | None,
    typer.Option("--message", metavar="TEXT", help="why, kept with the commit"),
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
    data: DataOption = [],  # noqa: B006 - read only
    node: NodeOption = None,
    edge: EdgeOption = None,
    mode: ModeOption,
    branch: BranchOption = DEFAULT_BRANCH,
    from_: FromOption = None,
    engine: EngineOption = None,
    spark_master: MasterOption = None,
    spark_conf: ConfOption = None,
    max_errors: ErrorsMaxOption = 100,
    errors_out: ErrorsOutOption = None,
    ignore_unknown: IgnoreUnknownFlag = False,
    external_blobs: ExternalBlobsOption = None,
    dry_run: DryRunFlag = False,
    idempotency_key: KeyOption = None,
    message: MessageOption = None,
    json: JsonFlag = False,
) -> None:
    """Load records and tables into a branch.

    Each line of the data is one node or one edge; tables hold rows of one type. Everything is
    checked first and becomes visible as one commit; a single bad record means that nothing is
    written.
    """
    request = Request(
        "load",
        tuple(data),
        mode,
        uri,
        branch,
        from_,
        "strict",
        nodes=_tables("--node", node),
        edges=_tables("--edge", edge),
        engine=_engine(engine),
        spark_master=spark_master,
        spark_conf=tuple(spark_conf or ()),
        max_errors=max_errors,
        errors_out=errors_out,
        ignore_unknown=ignore_unknown,
        dry_run=dry_run,
        idempotency_key=idempotency_key,
        message=message,
        external_blobs=tuple(external_blobs or ()),
    )
    if not (request.data or request.nodes or request.edges):
        raise UsageError(
            "there is nothing to load", hint="name files with `--data`, `--node` or `--edge`"
        )
    _load(ctx, request, json=json)


def _tables(option: str, given: list[str] | None) -> dict[str, list[str]]:
    """Files by type."""
    tables: dict[str, list[str]] = {}
    for text in given or ():
        name, separator, path = text.partition("=")
        if not (name and separator and path):
            raise UsageError(
                f"`{option}` takes a type and a file, not `{text}`",
                hint=f"write it as `{option} Person=people.parquet`",
            )
        tables.setdefault(name, []).append(path)
    return tables


def _engine(value: str | None) -> Engine | None:
    if value is None:
        return None
    for known in ENGINES:
        if value == known:
            return known
    raise UsageError(
        f"`--engine` takes {', '.join(ENGINES)}, not `{value}`",
        hint=did_you_mean(value, ENGINES) or "leave it out to let the input decide",
    )


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
    nodes: Mapping[str, list[str]] = field(default_factory=dict)
    edges: Mapping[str, list[str]] = field(default_factory=dict)
    engine: Engine | None = None
    spark_master: str | None = None
    spark_conf: tuple[str, ...] = ()
    max_errors: int | None = None
    errors_out: Path | None = None
    ignore_unknown: bool = False
    dry_run: bool = False
    idempotency_key: str | None = None
    message: str | None = None
    external_blobs: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """The data that lies in files, here or under `s3://`."""
        return [name for name in self.data if name != STANDARD_INPUT]

    @property
    def local_files(self) -> list[Path]:
        """Those of them that are on this machine."""
        return [Path(name) for name in self.files if not name.startswith("s3://")]

    @property
    def only_stored(self) -> dict[str, bool]:
        """The flags that no server understands, and whether they were given."""
        return {
            "--node": bool(self.nodes),
            "--edge": bool(self.edges),
            "--engine": self.engine == "spark",
            "--spark-master": self.spark_master is not None,
            "--spark-conf": bool(self.spark_conf),
            "--errors-out": self.errors_out is not None,
            "--ignore-unknown": self.ignore_unknown,
            "--dry-run": self.dry_run,
            "--idempotency-key": self.idempotency_key is not None,
            "--message": self.message is not None,
        }

    @property
    def reads_stdin(self) -> bool:
        """Whether some of the data arrives on stdin."""
        return STANDARD_INPUT in self.data


def _load(ctx: typer.Context, request: Request, *, json: bool) -> None:
    from omnigraph.cli.opening import graph_to_write, writer_of
    from omnigraph.client import RemoteGraph

    output = output_of(ctx)
    if request.data.count(STANDARD_INPUT) > 1:
        raise UsageError("stdin can be read only once", hint="give `--data -` one time")
    for path in request.local_files:
        if not (path.is_dir() or has_magic(str(path))):
            require_file(path)
    is_overwrite = request.mode == "overwrite"
    graph = graph_to_write(
        ctx,
        request.verb,
        request.uri,
        destructive=f"{request.verb} --mode overwrite" if is_overwrite else None,
        external_blobs=request.external_blobs,
        only_stored=request.only_stored,
    )
    actor = writer_of(ctx, graph)
    with _progress(output, request) as progress, _stages(output, json=json) as watch:
        if isinstance(graph, RemoteGraph):
            receipt = _send(graph, request, progress)
        else:
            from omnigraph.graph import LoadObserver

            with _told_if_interrupted(graph, request.branch, output):
                observer = LoadObserver(_engine_teller(output, json=json), watch)
                receipt = _run(graph, request, actor, observer, progress)
    if json:
        output.json(_document(graph.uri, receipt))
    else:
        output.lines(_lines(receipt))


@contextmanager
def _told_if_interrupted(graph: Graph, branch: str, output: Output) -> Iterator[None]:
    """After Ctrl-C, settle what the load left behind and say what became of it."""
    started = time_ns() // 1_000
    try:
        yield
    except KeyboardInterrupt:
        output.note(_after_interrupt(graph, branch, started))
        raise


def _after_interrupt(graph: Graph, branch: str, started: int) -> str:
    from omnigraph.errors import NotFound, OmnigraphError

    unsettled, commits = [], []
    try:
        unsettled = [each for each in graph.recover() if not each.is_settled]
        commits = graph.list_commits(branch)
    except NotFound:
        pass  # the branch was to be made for the load
    except OmnigraphError as error:
        return f"interrupted; what became of the load is not known: {error.message}"
    if unsettled:
        return "interrupted; `omnigraph recover` settles what is left of the load"
    for commit in commits:
        if commit.kind == "load" and commit.created_at >= started:
            return f"interrupted too late: the load is commit {commit.graph_commit_id}"
    return "interrupted: nothing was written"


def _send(
    graph: RemoteGraph, request: Request, progress: Callable[[int], None] | None
) -> LoadReceipt:
    return graph.load(
        *request.files,
        data=standard_input() if request.reads_stdin else None,
        mode=_known_mode(request),
        branch=request.branch,
        from_=request.from_,
        grammar=request.grammar,
        progress=progress,
    )


def _known_mode(request: Request) -> LoadMode:
    return next(known for known in MODES if known == request.mode)


def _run(
    graph: Graph,
    request: Request,
    actor: str | None,
    observer: LoadObserver,
    progress: Callable[[int], None] | None,
) -> LoadReceipt:
    from omnigraph.graph import ErrorOptions, SparkOptions

    conf: dict[str, str] | None = None
    if request.spark_conf:
        from omnigraph.pipeline.spark.session import parse_conf

        conf = parse_conf(request.spark_conf)
    return graph.load(
        *request.files,
        data=standard_input() if request.reads_stdin else None,
        nodes=request.nodes,
        edges=request.edges,
        mode=_known_mode(request),
        branch=request.branch,
        from_=request.from_,
        grammar=request.grammar,
        engine=request.engine,
        dry_run=request.dry_run,
        actor=actor,
        operation_id=request.idempotency_key,
        message=request.message,
        progress=progress,
        errors=ErrorOptions(request.max_errors, request.errors_out, request.ignore_unknown),
        spark=SparkOptions(master=request.spark_master, conf=conf),
        observer=observer,
    )


def _engine_teller(output: Output, *, json: bool) -> Callable[[EngineChoice], None]:
    """Who is told which engine loads, and why: on stderr, and as an event with `--json`."""

    def tell(choice: EngineChoice) -> None:
        if output.quiet:
            return
        event = {"event": "engine", "engine": choice.engine, "reason": choice.reason}
        output.note(dumps(event) if json else f"engine: {choice}")

    return tell


@contextmanager
def _stages(output: Output, *, json: bool) -> Iterator[Watch]:
    """Who is told how the stages of a load on Spark come along."""
    if json:
        # One event per stage, on stderr: stdout is for the receipt.
        def note(progress: StageProgress) -> None:
            if (progress.finished or progress.ui) and not output.quiet:
                output.note(dumps(progress.to_dict()))

        yield note
    elif output.shows_progress:
        from omnigraph.cli.progress import stages_of

        with stages_of(output) as watch:

            def show(progress: StageProgress) -> None:
                if progress.ui:
                    output.note(_ui_line(progress.ui))
                else:
                    watch(progress)

            yield show
    else:

        def tell(progress: StageProgress) -> None:
            if progress.ui and not output.quiet:
                output.note(_ui_line(progress.ui))

        yield tell


def _ui_line(address: str) -> str:
    return f"Spark shows its work at {address}"


def _progress(
    output: Output, request: Request
) -> AbstractContextManager[Callable[[int], None] | None]:
    if not output.shows_progress:
        return nullcontext()
    from omnigraph.cli.progress import progress_of

    if request.nodes or request.edges or request.engine == "spark":
        return nullcontext()
    files = request.local_files
    is_known = len(files) == len(request.data) and all(
        path.is_file() and path.suffix in PLAIN_SUFFIXES for path in files
    )
    total = sum(path.stat().st_size for path in files) if is_known else None
    return progress_of(output, "loading", total, "bytes")


# --- receipts -------------------------------------------------------------------------------------


def _document(uri: str, receipt: LoadReceipt) -> dict[str, Any]:
    document = {"uri": uri, **receipt.to_dict()}
    if receipt.base_branch is None:
        del document["base_branch"]
    return document


def _lines(receipt: LoadReceipt) -> Iterator[Line]:
    """What became of each type, then the sum and the commit."""
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
    done = "would be loaded" if receipt.dry_run else "loaded"
    yield (Styled(f"{total} {done} into {receipt.branch}", "bold green"),)
    yield (_commit_line(receipt),)


def _commit_line(receipt: LoadReceipt) -> str:
    if receipt.dry_run and receipt.commit is not None:
        earlier = receipt.commit.graph_commit_id
        return f"this was a dry run: the key was used before, by commit {earlier}"
    if receipt.dry_run:
        return "this was a dry run: nothing was written"
    if receipt.commit is None:
        return "nothing changed, so there is no new commit"
    return f"commit {receipt.commit.graph_commit_id}"

"""`omnigraph load`: records from files or stdin, as one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import field
from glob import has_magic
from json import dumps
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import STANDARD_INPUT, require_file, standard_input
from omnigraph.cli.help import Commands, DestructiveCommand
from omnigraph.cli.opening import graph_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ExternalBlobsOption,
    JsonFlag,
    MessageOption,
    SparkConfOption,
    SparkMasterOption,
    branch_name,
    choice,
    flag,
    one_of,
    option,
    spark_arguments,
    spark_flags,
    usage,
)
from omnigraph.cli.output import Line, Output, Styled, counted, output_of, table, warn_deprecated
from omnigraph.model.ids import checked_key
from omnigraph.model.load_options import CsvOptions, ErrorOptions, OnError
from omnigraph.model.receipts import AbsentMeaning, LoadMode, LoadReceipt
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from omnigraph.graph import Graph
    from omnigraph.loading.executors import StageProgress, Watch
    from omnigraph.loading.inputs import EngineChoice

COMMANDS = Commands()
MODES: tuple[LoadMode, ...] = get_args(LoadMode)
Engine = Literal["auto", "local", "spark"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
ON_ERROR: tuple[OnError, ...] = get_args(OnError)
SKIPPED_SHOWN = 10
"""Reasons of skipped records that are printed; the error file has all of them."""
PLAIN_SUFFIXES = ("", ".json", ".jsonl", ".ndjson")
"""Suffixes of files whose size in bytes is the amount to read."""


def _errors_out(value: Path | None) -> Path | None:
    if value is not None and str(value) == STANDARD_INPUT:
        raise UsageError(
            "`--errors-out` takes a file, not `-`",
            hint="name a file; with `--json` the first problems are printed as well",
        )
    return value


DataOption = Annotated[
    list[str],
    option(
        "--data",
        "FILE",
        "JSON lines to load, also .gz, .zst, .bz2 or .lz4; a directory or a pattern; "
        "- is stdin; repeatable",
    ),
]
NodeOption = Annotated[
    list[str] | None,
    option(
        "--node",
        "TYPE=FILE",
        "rows of a node type: CSV, Parquet, ORC, Avro, JSON, Arrow or Lance; repeatable",
    ),
]
EdgeOption = Annotated[
    list[str] | None,
    option("--edge", "TYPE=FILE", "rows of an edge type, with columns `from` and `to`; repeatable"),
]
MapOption = Annotated[
    list[str] | None,
    option(
        "--map",
        "[TYPE:]COLUMN=PROPERTY",
        "which column, or expression over columns, gives a property; `#2` is the second column, "
        "an empty property leaves out the column; repeatable",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    option(
        "--where",
        "[TYPE:]COLUMN=VALUE",
        "load only rows with this value, so that one file can hold several types; repeatable",
    ),
]
DelimiterOption = Annotated[
    list[str] | None,
    option(
        "--delimiter",
        "[TYPE:]CHARACTER",
        "what separates the cells of CSV files, as | or \\t; comma by default, tab in .tsv",
    ),
]
SeparatorOption = Annotated[
    list[str] | None,
    option(
        "--list-separator",
        "[TYPE:]TEXT",
        "what separates the items of lists in CSV files; JSON arrays by default",
    ),
]
EngineOption = Annotated[
    str | None,
    option(
        "--engine",
        "auto|local|spark",
        "who loads: this process, Spark, or who suits the input; auto by default",
        check=one_of(ENGINES, "leave it out to let the input decide"),
    ),
]
ErrorsMaxOption = Annotated[
    int, option("--max-errors", "N", "how many problems to print; 100 by default", min=1)
]
ErrorsOutOption = Annotated[
    Path | None,
    option(
        "--errors-out",
        "FILE",
        "write every problem there as JSON lines, those of skipped records with the record",
        check=_errors_out,
    ),
]
OnErrorOption = Annotated[
    str,
    option(
        "--on-error",
        "fail|skip",
        "whether a bad record refuses the whole input, or is left out together with the edges of "
        "a node that is left out; fail by default",
        check=one_of(ON_ERROR, "leave it out to refuse an input with a bad record"),
    ),
]
ErrorShareOption = Annotated[
    float | None,
    option(
        "--max-error-share",
        "SHARE",
        "with skip: write nothing if a larger share of the records is bad, as 0.01",
        min=0.0,
        max=1.0,
    ),
]
IgnoreUnknownFlag = Annotated[
    bool, flag("--ignore-unknown", "leave out columns that are no properties")
]
DryRunFlag = Annotated[
    bool, flag("--dry-run", "check everything, and only say what would be written")
]
KeyOption = Annotated[
    str | None,
    option(
        "--idempotency-key",
        "KEY",
        "load this once: with the same key and data, the first receipt is printed again",
        check=lambda value: usage(checked_key, value, "--idempotency-key"),
    ),
]
ModeOption = Annotated[
    str,
    option(
        "--mode",
        "append|merge|overwrite",
        "append: an existing id is an error; merge: it is updated, and keeps what its record "
        "lacks; overwrite: the types in the data are replaced",
        check=one_of(
            MODES,
            "append adds, merge updates what is there by key, overwrite replaces all of a type",
        ),
    ),
]
ReplaceFlag = Annotated[
    bool,
    flag(
        "--replace",
        "with merge: a property that a record lacks becomes null or its default, "
        "instead of keeping the stored value",
    ),
]
FromOption = Annotated[
    str | None,
    option(
        "--from", "NAME", "if the branch does not exist, create it from this one", check=branch_name
    ),
]


@COMMANDS.add(DestructiveCommand)
def load(
    ctx: typer.Context,
    *,
    data: DataOption = [],  # noqa: B006 - read only
    node: NodeOption = None,
    edge: EdgeOption = None,
    map: MapOption = None,
    where: WhereOption = None,
    delimiter: DelimiterOption = None,
    list_separator: SeparatorOption = None,
    mode: ModeOption,
    replace: ReplaceFlag = False,
    branch: BranchOption = DEFAULT_BRANCH,
    from_: FromOption = None,
    engine: EngineOption = None,
    spark_master: SparkMasterOption = None,
    spark_conf: SparkConfOption = None,
    max_errors: ErrorsMaxOption = 100,
    errors_out: ErrorsOutOption = None,
    on_error: OnErrorOption = "fail",
    max_error_share: ErrorShareOption = None,
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
    written, unless bad records are skipped.

    omnigraph load --store team.omni --data people.jsonl --mode merge
    omnigraph load --store team.omni --data a.jsonl --data b.jsonl.gz --mode append
    omnigraph load --store team.omni --data - --mode merge --branch review --from main
    omnigraph load --store team.omni --node Person=hr.csv --edge Knows='knows/*.csv' --mode append
    omnigraph load --store team.omni --node Person=hr.csv --map "Full Name=name" --mode merge
    omnigraph load --store team.omni --data crm.jsonl --mode merge --errors-out bad.jsonl
    omnigraph load --store team.omni --data export/ --mode overwrite --engine spark --dry-run
    """
    request = LoadCommand(
        "load",
        tuple(data),
        mode,
        branch,
        from_,
        "strict",
        nodes=_tables("--node", node),
        edges=_tables("--edge", edge),
        absent="null" if replace else "keep",
        map=map,
        where=where,
        csv=CsvOptions(delimiter, list_separator),
        engine=engine,
        spark_master=spark_master,
        spark_conf=tuple(spark_conf or ()),
        errors=usage(
            ErrorOptions,
            max_errors,
            errors_out,
            ignore_unknown,
            choice("--on-error", on_error, ON_ERROR),
            max_error_share,
        ),
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


@COMMANDS.add(DestructiveCommand, is_hidden=True)
def ingest(
    ctx: typer.Context,
    *,
    data: DataOption,
    mode: ModeOption = "merge",
    branch: BranchOption = DEFAULT_BRANCH,
    from_: FromOption = DEFAULT_BRANCH,
    json: JsonFlag = False,
) -> None:
    """Load records the way earlier versions did: objects may span lines."""
    warn_deprecated(output_of(ctx), "ingest", "load")
    request = LoadCommand("ingest", tuple(data), mode, branch, from_, "compatible")
    _load(ctx, request, json=json)


# --- loading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """The options of one load."""

    verb: str
    data: tuple[str, ...]
    mode: str
    branch: str
    from_: str | None
    grammar: Literal["strict", "compatible"]
    nodes: Mapping[str, list[str]] = field(default_factory=dict)
    edges: Mapping[str, list[str]] = field(default_factory=dict)
    absent: AbsentMeaning = "keep"
    map: list[str] | None = None
    where: list[str] | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    engine: str | None = None
    spark_master: str | None = None
    spark_conf: tuple[str, ...] = ()
    errors: ErrorOptions | None = None
    dry_run: bool = False
    idempotency_key: str | None = None
    message: str | None = None
    external_blobs: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """The sources that are files, local or under `s3://`."""
        return [name for name in self.data if name != STANDARD_INPUT]

    @property
    def local_files(self) -> list[Path]:
        """The local files among `files`."""
        return [Path(name) for name in self.files if not name.startswith("s3://")]

    @property
    def only_stored(self) -> dict[str, bool]:
        """The flags that no server supports, and whether they were given."""
        return {
            "--node": bool(self.nodes),
            "--edge": bool(self.edges),
            "--where": bool(self.where),
            "--delimiter": self.csv.delimiter is not None,
            "--list-separator": self.csv.list_separator is not None,
            **spark_flags(
                "spark" if self.engine == "spark" else None, self.spark_master, self.spark_conf
            ),
            "--errors-out": self.errors is not None and self.errors.errors_out is not None,
        }

    @property
    def reads_stdin(self) -> bool:
        """Whether a source is stdin."""
        return STANDARD_INPUT in self.data


def _load(ctx: typer.Context, request: LoadCommand, *, json: bool) -> None:
    from omnigraph.graph import Graph

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
        destructive=f"{request.verb} --mode overwrite" if is_overwrite else None,
        external_blobs=request.external_blobs,
        only_stored=request.only_stored,
    )
    with ExitStack() as stack:
        progress = stack.enter_context(_progress(output, request))
        options: dict[str, Any] = {}
        if isinstance(graph, Graph):
            watch = stack.enter_context(stages(output, json=json))
            stack.enter_context(_interrupt_reported(graph, request.branch, output))
            options = _only_stored_options(request, engine_reporter(output, json=json), watch)
        receipt = graph.load(
            *request.files,
            data=standard_input() if request.reads_stdin else None,
            mode=choice("--mode", request.mode, MODES),
            absent=request.absent,
            branch=request.branch,
            from_=request.from_,
            map=request.map,
            grammar=request.grammar,
            dry_run=request.dry_run,
            operation_id=request.idempotency_key,
            message=request.message,
            errors=request.errors,
            progress=progress,
            **options,
        )
    document = {"uri": graph.uri, **receipt.to_dict()}
    if receipt.base_branch is None:
        del document["base_branch"]
    errors_out = None if request.errors is None else request.errors.errors_out
    output.show(document, receipt_lines(receipt, errors_out), json=json)


def _only_stored_options(
    request: LoadCommand, tell: Callable[[EngineChoice], None], watch: Watch
) -> dict[str, Any]:
    """The options of a load that only a graph in storage has."""
    from omnigraph.graph import LoadObserver

    return {
        "nodes": request.nodes,
        "edges": request.edges,
        "where": request.where,
        "csv": request.csv,
        **spark_arguments(request.engine, request.spark_master, request.spark_conf, default="auto"),
        "observer": LoadObserver(tell, watch),
    }


@contextmanager
def _interrupt_reported(graph: Graph, branch: str, output: Output) -> Iterator[None]:
    """After Ctrl-C, recover the interrupted load and report its outcome."""
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
        pass  # the load would have created the branch
    except OmnigraphError as error:
        return f"interrupted; what became of the load is not known: {error.message}"
    if unsettled:
        return "interrupted; `omnigraph recover` settles what is left of the load"
    for commit in commits:
        if commit.kind == "load" and commit.created_at >= started:
            return f"interrupted too late: the load is commit {commit.graph_commit_id}"
    return "interrupted: nothing was written"


def engine_reporter(output: Output, *, json: bool) -> Callable[[EngineChoice], None]:
    """A callback that prints the chosen engine and the reason to stderr; as JSON with `--json`."""

    def tell(choice: EngineChoice) -> None:
        if output.quiet:
            return
        event = {"event": "engine", "engine": choice.engine, "reason": choice.reason}
        output.note(dumps(event) if json else f"engine: {choice}")

    return tell


@contextmanager
def stages(output: Output, *, json: bool) -> Iterator[Watch]:
    """The observer that shows the progress of the stages of a load on Spark."""
    with ExitStack() as stack:
        show: Watch | None = None
        if output.shows_progress and not json:
            from omnigraph.cli.progress import stages_of

            show = stack.enter_context(stages_of(output))

        def watch(progress: StageProgress) -> None:
            is_told = progress.finished or progress.ui or progress.starts_spark
            if json and is_told and not output.quiet:
                # One event per stage, on stderr: stdout is for the receipt.
                output.note(dumps(progress.to_dict()))
            elif progress.ui and not (json or output.quiet):
                output.note(f"Spark shows its work at {progress.ui}")
            elif progress.starts_spark and show is None and not (json or output.quiet):
                output.note("starting Spark, which takes some seconds")
            elif show is not None:
                show(progress)

        yield watch


def _progress(
    output: Output, request: LoadCommand
) -> AbstractContextManager[Callable[[int], None]]:
    by_stages = bool(request.nodes or request.edges or request.engine == "spark")
    files = request.local_files
    is_known = len(files) == len(request.data) and all(
        path.is_file() and path.suffix in PLAIN_SUFFIXES for path in files
    )
    total = sum(path.stat().st_size for path in files) if is_known else None
    return output.progress("loading", total, "bytes", unless=by_stages)


# --- receipts -------------------------------------------------------------------------------------


def receipt_lines(
    receipt: LoadReceipt, errors_out: str | PathLike[str] | None = None
) -> Iterator[Line]:
    """Counts per type, skipped records, then totals and the commit."""
    loaded = [
        *(("node", entry) for entry in receipt.nodes),
        *(("edge", entry) for entry in receipt.edges),
    ]
    if loaded:
        counts = ["inserted", "updated", "unchanged"]
        counts += [name for name in ("kept", "skipped") if getattr(receipt, name)]
        rows = [
            (f"{kind} {entry.name}", *(getattr(entry, name) for name in counts))
            for kind, entry in loaded
        ]
        yield from table(("type", *counts), rows)
        yield ()
    if receipt.skipped:
        yield from _skipped_lines(receipt, errors_out)
    if receipt.branch_created:
        yield (f"created branch {receipt.branch} from {receipt.base_branch}",)
    total = counted(sum(entry.entities_loaded for _, entry in loaded), "entity", "entities")
    done = "would be loaded" if receipt.dry_run else "loaded"
    yield (Styled(f"{total} {done} into {receipt.branch}", "bold green"),)
    yield (_commit_line(receipt),)


def _skipped_lines(receipt: LoadReceipt, errors_out: str | PathLike[str] | None) -> Iterator[Line]:
    """Reasons of skipped records: the path of the error file, else the first reasons."""
    count = counted(receipt.skipped, "record")
    if errors_out is not None:
        yield (Styled(f"{count} skipped: see {errors_out}", "yellow"),)
        return
    yield (Styled(f"{count} skipped; `--errors-out FILE` keeps them", "yellow"),)
    for problem in receipt.problems[:SKIPPED_SHOWN]:
        number = problem.get("line", problem.get("record"))
        place = ":".join(str(part) for part in (problem["file"], number) if part is not None)
        subject = ".".join(filter(None, (problem["type"], problem["property"])))
        yield (f"  {': '.join(filter(None, (place, subject, problem['message'])))}",)
    if len(receipt.problems) > SKIPPED_SHOWN:
        yield ("  …",)
    yield ()


def _commit_line(receipt: LoadReceipt) -> str:
    if receipt.dry_run and receipt.commit is not None:
        earlier = receipt.commit.graph_commit_id
        return f"this was a dry run: the key was used before, by commit {earlier}"
    if receipt.dry_run:
        return "this was a dry run: nothing was written"
    if receipt.commit is None:
        return "nothing changed, so there is no new commit"
    return f"commit {receipt.commit.graph_commit_id}"

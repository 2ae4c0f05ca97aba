"""The entry point: `omnigraph …` as a user types it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Annotated, Any

import typer
import typer.main

from omnigraph import __version__
from omnigraph.cli.failures import ExitCode, UsageError, report
from omnigraph.cli.help import (
    HELP_FLAGS,
    Command,
    Commands,
    LazyCommands,
    RootGroup,
    root_help,
)
from omnigraph.cli.opening import INTERRUPTS
from omnigraph.cli.options import JsonFlag, choice, flag, option, take_texts_as_typed, usage
from omnigraph.cli.output import ColorMode, Output, output_of
from omnigraph.effects.requests import measure
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION, check_declared_actor

EXAMPLES = """
omnigraph init --schema schema.pg team.omni
omnigraph load --store team.omni --data people.jsonl --mode merge
omnigraph query friends --store team.omni --query people.gq --params '{"who": "ada"}'
omnigraph query friends --server http://localhost:8080/graphs/default --params '{"who": "ada"}'
omnigraph lint --schema examples/social/schema.pg --query examples/social/queries.gq
omnigraph schema plan --from examples/evolution/v1.pg --schema examples/evolution/v2.pg
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    output = Output.of_process()
    INTERRUPTS.install()
    # If Arrow is imported already, `main` is called from another program, which may use pandas.
    if "pyarrow" not in sys.modules:
        _keep_arrow_from_pandas()
        _let_idle_threads_sleep()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv), output)
        return _finish(code, output)
    except BrokenPipeError:
        output.abandon()
        return ExitCode.READER_GONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def server_main() -> int:
    """Run `omnigraph serve`; the entry point where only a server is installed."""
    return main(["serve", *sys.argv[1:]])


class _NoPandasForArrow(MetaPathFinder):
    """Hides pandas from `lance`, `pyarrow` and our own modules, but not from others (PySpark)."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Raise `ModuleNotFoundError` for pandas, or return None for the other finders."""
        if fullname != "pandas":
            return
        importer: FrameType | None = sys._getframe(1)
        while importer is not None and "importlib" in importer.f_code.co_filename:
            importer = importer.f_back
        name = "" if importer is None else importer.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("lance", "omnigraph", "pyarrow"):
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


@cache
def _keep_arrow_from_pandas() -> None:
    """Stop Arrow from importing pandas, which takes a third of the time of most commands.

    Arrow imports pandas, if it is installed, when it converts its first value. No command converts
    to or from pandas. Only the command line may do this, not the library: Arrow looks for pandas
    once, and would not recognise its null values afterwards.
    """
    sys.meta_path.insert(0, _NoPandasForArrow())


def _let_idle_threads_sleep() -> None:
    """Let the threads that NumPy starts for matrices sleep as soon as they have no work.

    By default each waits in a loop first, which costs 0.03 s of a processor. A variable that the
    caller has set is kept.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def _run(arguments: list[str], output: Output) -> int:
    # Set before parsing: parse errors are reported as JSON, too.
    output.failures_as_json = "--json" in _words(arguments)
    try:
        command = root_command()
        with (
            library_warnings(output),
            command.make_context(
                "omnigraph", globals_first(command, arguments), obj=output
            ) as context,
        ):
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except BrokenPipeError:
        raise
    except Exception as failure:  # nothing may escape as a traceback
        return report(failure, output)
    return ExitCode.OK


def _finish(code: int, output: Output) -> int:
    """Flush stdout while errors can still be reported, such as a full disk."""
    try:
        output.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        output.abandon()
        return code or report(problem, output)
    return code


# --- the root command -----------------------------------------------------------------------------


def _set_color(ctx: typer.Context, value: str) -> str:
    """Apply at once: an error or a help page may be printed before any command runs."""
    hint = "leave it out to colour on terminals only"
    output_of(ctx).color = choice("--color", value, ColorMode, hint)
    return value


def _print_version(ctx: typer.Context, value: bool) -> None:
    if value:
        output_of(ctx).line(f"omnigraph {__version__}")
        raise typer.Exit(ExitCode.OK)


def _require_not_empty(ctx: typer.Context, param: Any, value: str | None) -> str | None:
    """Refuse an empty value: it comes from an unset variable, and must not count as omitted."""
    if value == "":
        raise UsageError(f"`{param.opts[0]}` is empty", hint="give it a value, or leave it out")
    return value


def _checked_actor(ctx: typer.Context, param: Any, value: str | None) -> str | None:
    """Check the actor of `--as`; ids that begin with the reserved prefix are refused."""
    if _require_not_empty(ctx, param, value) is not None:
        usage(check_declared_actor, str(value), where="`--as`")
    return value


ServerOption = Annotated[
    str | None,
    option(
        "--server",
        "NAME|URL",
        "the graph, by a server: its URL, or its name in ~/.omnigraph/config.yaml",
        check=_require_not_empty,
    ),
]
ClusterOption = Annotated[
    str | None,
    option(
        "--cluster",
        "DIR|URI|NAME",
        "the graphs of a cluster: its directory, its storage root, or its name in "
        "~/.omnigraph/config.yaml",
        check=_require_not_empty,
    ),
]
GraphOption = Annotated[
    str | None,
    option(
        "--graph",
        "ID",
        "which graph of the server or the cluster, if there are several",
        check=_require_not_empty,
    ),
]
StoreOption = Annotated[
    str | None,
    option(
        "--store",
        "URI",
        "the graph, by its storage: a path, file:// or s3://",
        check=_require_not_empty,
    ),
]
UriOption = Annotated[
    str | None, option("--uri", "URI", "as `--store`", check=_require_not_empty, hidden=True)
]
ProfileOption = Annotated[
    str | None,
    option(
        "--profile",
        "NAME",
        "the graph, by a profile of ~/.omnigraph/config.yaml; OMNIGRAPH_PROFILE does the same",
        check=_require_not_empty,
    ),
]
ActorOption = Annotated[
    str | None, option("--as", "ACTOR", "who writes, for the history", check=_checked_actor)
]
YesFlag = Annotated[
    bool, flag("--yes", "consent to a destructive write on storage that is not local")
]
QuietFlag = Annotated[bool, flag("--quiet", "no notes about targets, no progress")]
ColorOption = Annotated[
    str,
    option(
        "--color",
        "auto|always|never",
        "when to colour; `auto` is on a terminal, unless NO_COLOR is set",
        check=_set_color,
        is_eager=True,
    ),
]
DebugFlag = Annotated[bool, flag("--debug", "show tracebacks of errors on stderr")]
ExplainIoFlag = Annotated[
    bool,
    flag(
        "--explain-io",
        "count the requests to storage, and those that wait for each other, on stderr",
    ),
]
VersionFlag = Annotated[
    bool,
    typer.Option(
        "--version", "-v", help="print the version", callback=_print_version, is_eager=True
    ),
]


def root(
    ctx: typer.Context,
    *,
    server: ServerOption = None,
    cluster: ClusterOption = None,
    graph: GraphOption = None,
    store: StoreOption = None,
    uri: UriOption = None,
    profile: ProfileOption = None,
    actor: ActorOption = None,
    yes: YesFlag = False,
    quiet: QuietFlag = False,
    color: ColorOption = ColorMode.AUTO.value,
    debug: DebugFlag = False,
    explain_io: ExplainIoFlag = False,
    version: VersionFlag = False,
) -> None:
    """a graph database that lives in a folder or a bucket"""
    output = output_of(ctx)
    output.quiet = quiet
    output.debug = debug
    if explain_io:
        meter = ctx.with_resource(measure())
        # Reported after a failure, too.
        ctx.call_on_close(lambda: output.note(meter.report().render()))
    if ctx.invoked_subcommand is None:
        assert isinstance(ctx.command, RootGroup)
        output.lines(root_help(ctx.command, ctx))


# --- `omnigraph version` --------------------------------------------------------------------------

VERSION = Commands()


@VERSION.add(Command)
def version(ctx: typer.Context, json: JsonFlag = False) -> None:
    """Print the version.

    The second line is the newest storage layout this version reads and writes.

    omnigraph version
    omnigraph version --json
    """
    document = {"version": __version__, "internal_schema": INTERNAL_SCHEMA_VERSION}
    lines = [[f"omnigraph {__version__}"], [f"internal-schema {INTERNAL_SCHEMA_VERSION}"]]
    output_of(ctx).show(document, lines, json=json)


SOURCES = (
    "query.COMMANDS",
    "shell.COMMANDS",
    "load.COMMANDS",
    "compute.COMMANDS",
    "infer.COMMANDS",
    "graphs.COMMANDS",
    "serve.COMMANDS",
    "lint.COMMANDS",
    "upkeep.COMMANDS",
    "health.COMMANDS",
    "copies.COMMANDS",
    "query.ALIASES",
    "settings.COMMANDS",
    "login.COMMANDS",
    "completion.COMMANDS",
    "main.VERSION",
    "pipeline.COMMANDS",
    "branch.COMMANDS",
    "review.COMMANDS",
    "blob.COMMANDS",
    "commit.COMMANDS",
    "commit.TAGS",
    "changes.COMMANDS",
    "schema.COMMANDS",
    "graphs.GRAPHS",
    "health.RECOVERY",
    "copies.BACKUP",
    "policy.COMMANDS",
    "cluster.COMMANDS",
    "settings.PROFILES",
    "settings.CONFIG",
    "policy.AUDIT",
)
"""The modules of all commands, in the order of help within each capability."""


@cache
def root_command() -> RootGroup:
    """The root command."""
    application = typer.Typer(
        cls=RootGroup,
        callback=root,
        invoke_without_command=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog=EXAMPLES,
        context_settings={"help_option_names": HELP_FLAGS},
    )
    command = take_texts_as_typed(typer.main.get_group(application))
    assert isinstance(command, RootGroup)
    command.commands = LazyCommands.read()
    return command


# --- global flags ---------------------------------------------------------------------------------


def globals_first(root_command: Any, arguments: list[str]) -> list[str]:
    """Move the global flags in front of the command, where the parser expects them.

    The flags are those of the root command; nothing behind `--` is a flag. `--help` is not moved,
    because it applies to the command before it.
    """
    takes_value = {
        name: not parameter.is_flag
        for parameter in root_command.params
        if parameter.param_type_name == "option"
        for name in parameter.opts
    }
    words = _words(arguments)
    front: list[str] = []
    back: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, equals, _ = word.partition("=")
        if name not in takes_value:
            back.append(word)
        elif equals or not takes_value[name]:
            front.append(word)
        else:
            value = next(waiting, None)
            if value is None:
                raise UsageError(f"`{name}` needs a value", hint="`omnigraph --help` explains it")
            front += [name, value]
    return [*front, *back, *arguments[len(words) :]]


def _words(arguments: list[str]) -> list[str]:
    """The arguments in front of `--`."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


class NoteHandler(logging.Handler):
    """Writes log records as warnings; their tracebacks only with `--debug`."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._output.warning(record.getMessage())
        if self._output.debug and record.exc_info:
            self._output.note(logging.Formatter().formatException(record.exc_info))


@contextmanager
def library_warnings(output: Output) -> Iterator[None]:
    """Show log records of the library as warnings while a command runs."""
    logger = logging.getLogger("omnigraph")
    handler = NoteHandler(output)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)

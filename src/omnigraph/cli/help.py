"""Help pages: what a command does, its arguments, and examples.

Typer draws boxes around its own help. Ours is plain text, the same on a terminal, in a pipe and in
the generated reference manual.
"""

from __future__ import annotations

import inspect
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from omnigraph import __version__
from omnigraph.cli.failures import UsageError
from omnigraph.cli.options import (
    Given,
    GlobalFlag,
    refuse_misplaced,
    require_one_place,
    take_as_typed,
    take_position,
    take_texts_as_typed,
)
from omnigraph.cli.output import Line, Output, Styled, output_of, warn_deprecated
from omnigraph.model.records import dataclass
from omnigraph.syntax.suggest import did_you_mean

HELP_FLAGS = ["--help", "-h"]
LEGEND = "COMMANDS BY CAPABILITY"

_HEADING = "bold"
_NAME = "cyan"


class Capability(Enum):
    """The kinds of targets of commands. Help lists the commands in this order."""

    ANY = ("any", "a graph and what it holds")
    SERVED = ("served", "a server")
    DIRECT = ("direct", "files and storage, without a server")
    CONTROL = ("control", "a cluster and what it serves")
    LOCAL = ("local", "this installation; no graph at all")

    @property
    def panel(self) -> str:
        """The name of the capability."""
        return self.value[0]

    @property
    def addresses(self) -> str:
        """The targets of commands of this capability."""
        return self.value[1]


class Command(TyperCommand):
    """A command with our help page; refuses global flags that do not apply to it."""

    takes: ClassVar[frozenset[GlobalFlag]] = frozenset()
    capability: ClassVar[Capability] = Capability.LOCAL

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; also takes a graph URI after them."""
        takes_graph = GlobalFlag.STORE in self.takes
        ctx.allow_extra_args = takes_graph
        rest = super().parse_args(ctx, args)
        if takes_graph:
            take_position(ctx)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        refuse_misplaced(ctx, self.capability.panel, self.takes)
        require_one_place(Given.of(ctx).explicit())
        return super().invoke(ctx)

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`."""
        return take_as_typed(super().get_help_option(ctx))

    def get_help(self, ctx: Any) -> str:
        """The help page, coloured if stdout is."""
        return _painted(ctx, command_help(self, ctx))


class ControlCommand(Command):
    """A command about served graphs, or about their users."""

    capability = Capability.CONTROL


class FileCommand(Command):
    """A command that works on files, or on a place that holds no graph yet."""

    capability = Capability.DIRECT


class GraphCommand(FileCommand):
    """A command that addresses a graph in storage."""

    takes = frozenset({GlobalFlag.STORE, GlobalFlag.PROFILE})


class UpkeepCommand(GraphCommand):
    """A command that maintains the storage of a graph, which may belong to a cluster."""

    takes = GraphCommand.takes | {GlobalFlag.CLUSTER, GlobalFlag.GRAPH}


class DestructiveUpkeep(UpkeepCommand):
    """A command that removes old versions, and records no author."""

    takes = UpkeepCommand.takes | {GlobalFlag.YES}


class ServerCommand(Command):
    """A command that addresses a server, but no graph of it."""

    takes = frozenset({GlobalFlag.SERVER, GlobalFlag.PROFILE})
    capability = Capability.SERVED


class ReadCommand(Command):
    """A command that reads a graph, in storage or behind a server."""

    takes = GraphCommand.takes | {GlobalFlag.SERVER, GlobalFlag.GRAPH}
    capability = Capability.ANY


class WriteCommand(ReadCommand):
    """A command that changes a graph, in storage or behind a server."""

    takes = ReadCommand.takes | {GlobalFlag.ACTOR}


class DestructiveCommand(WriteCommand):
    """A command that may remove data from a graph."""

    takes = WriteCommand.takes | {GlobalFlag.YES}


class PayloadCommand(ReadCommand):
    """A command whose stdout is a data stream, also when its arguments are wrong."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """Parse the arguments."""
        output_of(parent).stdout_is_payload = True
        return super().make_context(info_name, args, parent, **extra)


class Group(TyperGroup):
    """A group of commands with our help page and error messages."""

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`."""
        return take_as_typed(super().get_help_option(ctx))

    def get_help(self, ctx: Any) -> str:
        """The help page, coloured if stdout is."""
        lines = group_help(self, ctx) if ctx.parent else root_help(self, ctx)
        return _painted(ctx, lines)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a group below the root needs a command."""
        if not args and ctx.parent is not None:
            raise UsageError(
                f"`{ctx.command_path}` needs a command: {', '.join(self.visible_commands(ctx))}",
                hint=f"`{ctx.command_path} --help` explains them",
            )
        return super().parse_args(ctx, args)

    def visible_commands(self, ctx: Any) -> list[str]:
        """The names that help lists, in order."""
        return [name for name in self.list_commands(ctx) if not self.commands[name].hidden]

    def leaves(self, ctx: Any) -> list[Leaf]:
        """Every visible command below this group that does something, in order of definition."""
        found: list[Leaf] = []
        for name in self.visible_commands(ctx):
            command: Any = self.commands[name]
            if isinstance(command, Group):
                found += [replace(leaf, name=f"{name} {leaf.name}") for leaf in command.leaves(ctx)]
            else:
                found.append(Leaf(name, _first_line(command), command.capability))
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name; a misspelt one gets a suggestion."""
        word = args[0]
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing:
            names = self.visible_commands(ctx)
            raise UsageError(
                f"`{ctx.command_path}` has no command `{word}`",
                hint=did_you_mean(word, names) or f"its commands are {', '.join(sorted(names))}",
            )
        return super().resolve_command(ctx, args)


class RootGroup(Group):
    """The root group. Commands are imported when called; help reads summaries from an index."""

    commands: LazyCommands  # type: ignore[assignment]  # never added to

    def list_commands(self, ctx: Any) -> list[str]:
        """The names in order of definition, hidden ones included."""
        return [*self.commands]

    def visible_commands(self, ctx: Any) -> list[str]:
        """The names that help lists, in order."""
        return [name for name, about in self.commands.index.items() if "hidden" not in about]

    def leaves(self, ctx: Any) -> list[Leaf]:
        """Every visible command that does something, by capability and then in order."""
        listed = [
            Leaf(f"{name} {word}".rstrip(), summary, Capability[capability])
            for name, about in self.commands.index.items()
            if "hidden" not in about
            for word, summary, capability in about["leaves"]
        ]
        order = list(Capability)
        return sorted(listed, key=lambda leaf: order.index(leaf.capability))

    def called(self, name: str) -> Any:
        """The command with a full name, such as `branch create`; raises `KeyError`."""
        found: Any = self
        for word in name.split():
            found = found.commands[word]
        return found


INDEX = Path(__file__).with_name("commands.json")
"""The summaries of all commands, generated by `make docs`."""


class LazyCommands(Mapping[str, Any]):
    """The top-level commands by name, each imported and built on first access."""

    def __init__(self, index: Mapping[str, Any]) -> None:
        self.index = index
        self._built: dict[str, Any] = {}

    @classmethod
    def read(cls) -> LazyCommands:
        """Read the index beside this module."""
        return cls(json.loads(INDEX.read_text(encoding="utf-8")))

    def __getitem__(self, name: str) -> Any:
        """One command; raises `KeyError`."""
        if name not in self._built:
            self._built[name] = _commands_of(self.index[name]["of"]).build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        """The names, in order of definition."""
        return iter(self.index)

    def __len__(self) -> int:
        """How many names there are."""
        return len(self.index)


def _commands_of(source: str) -> Commands:
    module, _, attribute = source.partition(".")
    found = getattr(import_module(f"omnigraph.cli.{module}"), attribute)
    assert isinstance(found, Commands)
    return found


def command_index(sources: Iterable[str]) -> dict[str, Any]:
    """Build the index from the modules of all commands; a source is `module.ATTRIBUTE`."""
    found: dict[str, Any] = {}
    for source in sources:
        commands = _commands_of(source)
        for name in commands.names:
            command = commands.build(name)
            ctx = command.context_class(command, info_name=name)
            leaves = (
                command.leaves(ctx)
                if isinstance(command, Group)
                else [Leaf("", _first_line(command), command.capability)]
            )
            listed = [[leaf.name, leaf.summary, leaf.capability.name] for leaf in leaves]
            hidden = {"hidden": True} if command.hidden else {}
            found[name] = {"of": source, "leaves": listed} | hidden
    return found


Run = TypeVar("Run", bound=Callable[..., None])


class Commands:
    """The commands of a module, in the order of help: top-level ones, or one group."""

    def __init__(
        self,
        group: str | None = None,
        summary: str = "",
        examples: str = "",
        *,
        default: str | None = None,
    ) -> None:
        """``default`` is the command that runs if the first word names none."""
        self._group = group
        kind = Group if default is None else _with_default(default)
        self._typer = typer.Typer(
            name=group, cls=kind, help=summary, epilog=examples, rich_markup_mode=None
        )

    def add(
        self,
        kind: type[Command],
        *,
        name: str | None = None,
        is_hidden: bool = False,
        alias: str | None = None,
        former: str | None = None,
    ) -> Callable[[Run], Run]:
        """Register a function as a command, called as the function unless a name is given.

        Its docstring is the help; lines that begin with `omnigraph` at its end are the examples.
        ``alias`` is a second name that help does not list; ``former`` is one whose use prints a
        warning.
        """

        def register(run: Run) -> Run:
            called = name or run.__name__
            help, _, examples = inspect.cleandoc(run.__doc__ or "").partition("\n\nomnigraph ")
            about: Any = {"help": help, "epilog": examples and f"omnigraph {examples}"}
            self._typer.command(called, cls=kind, hidden=is_hidden, **about)(run)
            if alias is not None:
                self._typer.command(alias, cls=kind, hidden=True, **about)(run)
            if former is not None:
                self._typer.command(former, cls=_former(kind, called), hidden=True, **about)(run)
            return run

        return register

    @property
    def names(self) -> list[str]:
        """The words behind `omnigraph` that select this module, in order."""
        if self._group is not None:
            return [self._group]
        return [str(each.name) for each in self._typer.registered_commands]

    def build(self, name: str) -> Any:
        """Build the command with one of the names, from the signatures of its functions."""
        if self._group is not None:
            return take_texts_as_typed(typer.main.get_group(self._typer))
        alone = typer.Typer(
            add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
        )
        alone.registered_commands = [
            each for each in self._typer.registered_commands if each.name == name
        ]
        return take_texts_as_typed(typer.main.get_command(alone))


def _with_default(default: str) -> type[Group]:
    class Defaulting(Group):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if args and args[0] not in (*self.commands, "--help", "-h"):
                args = [default, *args]
            return super().parse_args(ctx, args)

    return Defaulting


def _former(kind: type[Command], now: str) -> type[Command]:
    class Former(kind):  # type: ignore[valid-type,misc]
        def invoke(self, ctx: Any) -> Any:
            warn_deprecated(output_of(ctx), str(self.name), now)
            return super().invoke(ctx)

    return Former


# --- pages ----------------------------------------------------------------------------------------


def root_help(root: Group, ctx: Any) -> Iterator[Line]:
    """The page of `omnigraph --help`."""
    entries = root.leaves(ctx)
    yield (Styled(f"omnigraph {__version__}", _HEADING), f": {_first_line(root)}")
    yield ()
    yield (Styled("Usage:", _HEADING), f" {ctx.command_path} COMMAND [FLAGS]")
    yield from _section("Commands", [(entry.name, entry.summary) for entry in entries], _width(ctx))
    yield from _section(
        "Global flags, before or after the command", _flag_rows(root, ctx), _width(ctx)
    )
    yield from _examples(root)
    yield ()
    yield (Styled(LEGEND, _HEADING),)
    rows = [
        (capability.panel, f"{capability.addresses}: {', '.join(names)}")
        for capability in Capability
        if (names := [entry.name for entry in entries if entry.capability is capability])
    ]
    yield from _table(rows, _width(ctx))


def group_help(group: Group, ctx: Any) -> Iterator[Line]:
    """The page of a group, such as `omnigraph schema --help`."""
    yield from _prose(group, _width(ctx))
    yield ()
    yield (Styled("Usage:", _HEADING), f" {ctx.command_path} COMMAND [FLAGS]")
    rows = [(name, _first_line(group.commands[name])) for name in group.visible_commands(ctx)]
    yield from _section("Commands", rows, _width(ctx))
    yield from _examples(group)
    yield from _global_note(_width(ctx))


def command_help(command: Command, ctx: Any) -> Iterator[Line]:
    """The page of one command."""
    yield from _prose(command, _width(ctx))
    yield ()
    yield (Styled("Usage:", _HEADING), f" {_usage(command, ctx)}")
    arguments = [
        (_metavar(parameter), parameter.help or "")
        for parameter in _parameters(command, ctx)
        if parameter.param_type_name == "argument"
    ]
    if arguments:
        yield from _section("Arguments", arguments, _width(ctx))
    yield from _section("Flags", _flag_rows(command, ctx), _width(ctx))
    yield from _examples(command)
    yield from _global_note(_width(ctx), command.takes)


@dataclass(frozen=True)
class Leaf:
    """A command that does something, under its full name."""

    name: str
    summary: str
    capability: Capability


def all_pages(root: RootGroup) -> dict[str, str]:
    """Every help page as plain text, by the words that lead to it; the root comes first."""
    output = Output(io.StringIO(), io.StringIO())
    return dict(_pages(root, "omnigraph", None, output))


def _pages(command: Any, name: str, parent: Any, output: Output) -> Iterator[tuple[str, str]]:
    ctx = command.context_class(
        command, info_name=name, parent=parent, obj=output, help_option_names=HELP_FLAGS
    )
    yield ctx.command_path, command.get_help(ctx)
    if isinstance(command, Group):
        for inner in command.visible_commands(ctx):
            yield from _pages(command.commands[inner], inner, ctx, output)


# --- parts ----------------------------------------------------------------------------------------


def _painted(ctx: Any, lines: Iterator[Line]) -> str:
    output = output_of(ctx)
    # Typer strips escape sequences unless `color` is set.
    ctx.color = output.is_colored
    return output.paint(lines)


def _width(ctx: Any) -> int:
    return output_of(ctx).width


def _first_line(command: Any) -> str:
    """The first sentence of a command's help, for lists of commands."""
    return (command.help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _prose(command: Any, width: int) -> Iterator[Line]:
    for at, paragraph in enumerate((command.help or "").split("\n\n")):
        if at:
            yield ()
        for line in _wrapped(" ".join(paragraph.split()), width):
            yield (line,)


def _usage(command: Command, ctx: Any) -> str:
    words = [ctx.command_path]
    for parameter in _parameters(command, ctx):
        if parameter.param_type_name == "argument":
            words.append(_metavar(parameter))
        elif parameter.required:
            words.append(f"{parameter.opts[0]} {_metavar(parameter)}")
    return " ".join([*words, "[FLAGS]"])


def _parameters(command: Any, ctx: Any) -> list[Any]:
    return list(command.get_params(ctx))


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _flag_rows(command: Any, ctx: Any) -> list[tuple[str, str]]:
    rows = []
    for parameter in _parameters(command, ctx):
        if parameter.param_type_name != "option" or parameter.hidden:
            continue
        names = ", ".join(sorted(parameter.opts, key=len))
        value = "" if parameter.is_flag else f" {_metavar(parameter)}"
        is_help = parameter.opts[0] in HELP_FLAGS
        explained = "show this page" if is_help else parameter.help or ""
        rows.append((names + value, explained + (" (required)" if parameter.required else "")))
    return rows


def _section(title: str, rows: list[tuple[str, str]], width: int) -> Iterator[Line]:
    yield ()
    yield (Styled(f"{title}:", _HEADING),)
    yield from _table(rows, width)


def _table(rows: list[tuple[str, str]], width: int) -> Iterator[Line]:
    first = max(len(name) for name, _ in rows) + 2
    for name, explained in rows:
        wrapped = _wrapped(explained, width - first - 2) or [""]
        padding = " " * (first - len(name))
        yield ("  ", Styled(name, _NAME), padding + wrapped[0])
        for line in wrapped[1:]:
            yield (" " * (first + 2) + line,)


def _examples(command: Any) -> Iterator[Line]:
    if command.epilog:
        yield ()
        yield (Styled("Examples:", _HEADING),)
        for line in command.epilog.strip().split("\n"):
            yield (f"  {line.strip()}",)


_PLACES = {
    GlobalFlag.STORE: "--store URI",
    GlobalFlag.SERVER: "--server URL|NAME",
    GlobalFlag.GRAPH: "with --graph ID",
    GlobalFlag.PROFILE: "--profile NAME",
}
"""Ways to name a graph, as the page of a command lists them."""


def _global_note(width: int, taken: frozenset[GlobalFlag] = frozenset()) -> Iterator[Line]:
    yield ()
    places = [text for flag, text in _PLACES.items() if flag in taken]
    if places:
        chosen = "the one that `omnigraph use` chose"
        listed = f"{', '.join(places)}, or {chosen}" if len(places) > 1 else places[0]
        for line in _wrapped(f"The graph: {listed}.", width):
            yield (line,)
    own = ", ".join(f.spelling for f in GlobalFlag if f in taken and f not in _PLACES)
    if own:
        yield (f"It takes the global flag{'s' if ',' in own else ''} {own}.",)
    note = "Global flags for output work here as well; `omnigraph --help` lists them."
    for line in _wrapped(note, width):
        yield (line,)


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap text; a flag such as `--if-commit` is not broken."""
    return textwrap.wrap(text, width, break_on_hyphens=False)

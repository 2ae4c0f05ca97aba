"""`omnigraph completion`: shell completion.

The shell's script calls the hidden command `complete` with the line typed so far. Names of
branches, types and queries come from the graph that the line addresses, if it is in local storage
or on a server on this machine: completion makes no network requests to other machines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from omnigraph.cli.addressing import ServedTarget, cluster_of, config_of, resolve_any
from omnigraph.cli.help import Command, Commands, Group, RootGroup
from omnigraph.cli.options import GlobalFlag, argument, one_of
from omnigraph.cli.output import Output, output_of
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph
    from omnigraph.model.signatures import TypeDescription

COMMANDS = Commands()
PROGRAM = "omnigraph"
SHELLS = ("bash", "zsh", "fish")
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SERVER_SECONDS = 2.0
"""Short, because the user waits at the prompt."""

_OPERATORS = "|&;<>()"
_CHOICES = re.compile(r"[a-z]+(\|[a-z]+)+")
_BASH_BREAKS = re.compile(r".*[=:]")
"""Bash replaces only the part of a word behind the last of these characters."""

ShellArgument = Annotated[
    str, argument("bash|zsh|fish", "which shell the script is for", check=one_of(SHELLS))
]
LineArgument = Annotated[str, argument("LINE", "the line up to the cursor")]


@COMMANDS.add(Command)
def completion(ctx: typer.Context, shell: ShellArgument) -> None:
    """Print the script that lets a shell complete commands, flags, branches, types and queries.

    Names come from the graph that the line addresses, if it lies on this machine or a server here
    serves it; nothing is asked of other machines. Bash reads `~/.bashrc` when it starts, and zsh
    `~/.zshrc`: the line `source FILE` there, behind `compinit` in zsh, takes the script in. Fish
    finds it by itself.

    omnigraph completion bash > ~/.omnigraph-completion.bash
    omnigraph completion zsh > ~/.omnigraph-completion.zsh
    omnigraph completion fish > ~/.config/fish/completions/omnigraph.fish
    """
    output_of(ctx).line(_SCRIPTS[shell].strip())


@COMMANDS.add(Command, is_hidden=True)
def complete(ctx: typer.Context, shell: ShellArgument, line: LineArgument) -> None:
    """Print the words that may stand at the end of a line, in the form that a shell reads.

    omnigraph complete bash "omnigraph branch de"
    """
    output = output_of(ctx)
    for word, about in candidates(line):
        output.line(_written(shell, line, word, about))


def _written(shell: str, line: str, word: str, about: str) -> str:
    if shell == "fish":
        return f"{word}\t{about}" if about else word
    if shell == "zsh":
        escaped = word.replace(":", r"\:")
        return f"{escaped}:{about}" if about else escaped
    current = _words_of(line)[-1]
    broken = _BASH_BREAKS.match(current)
    return shlex.quote(word[len(broken.group()) :] if broken else word)


# --- what may stand at the end of a line ----------------------------------------------------------


def candidates(line: str) -> list[tuple[str, str]]:
    """The completions for a line, each with a description.

    Empty where a file name or free text is expected, and if the graph cannot be read.
    """
    *before, current = _words_of(line) or [""]
    if PROGRAM not in before:
        return []
    # The shell expands `~` only when the line is run.
    words = [str(Path(each).expanduser()) if each.startswith("~/") else each for each in before]
    found: list[tuple[str, str]] = []
    with suppress(Exception):  # an unfinished line has mistakes
        typed = _Typed.of(words[words.index(PROGRAM) + 1 :])
        found = [(word, about) for word, about in typed.offered(current) if word != current]
    return [(word, about) for word, about in found if word.startswith(current)]


def _words_of(line: str) -> list[str]:
    """The words of the last command of a line, the unfinished one last; empty inside of quotes.

    The first word is the base name of the program.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word[0] in "|&;()":
                words = []
            else:
                words.append(PROGRAM if Path(word).name == PROGRAM else word)
    except ValueError:
        return []
    if any(word[0] in "<>" for word in words):
        return []
    return [*words, ""] if not line or line[-1].isspace() else words


@dataclass(frozen=True)
class _Typed:
    """A parsed unfinished line: the command or group, and the words behind its name."""

    root: RootGroup
    names: tuple[str, ...]
    command: Any
    of_root: tuple[str, ...]
    """Global flags and their values."""
    rest: tuple[str, ...]
    pending: Any = None
    """The flag that still needs its value."""
    positions: int = 0
    """The number of positional arguments so far."""
    output: Output = field(default_factory=Output.of_process)

    @classmethod
    def of(cls, words: Sequence[str]) -> _Typed:
        """Parse the words behind the program name; raises for an invalid line."""
        from omnigraph.cli.main import root_command

        root = root_command()
        of_root, others, pending = _split_words(root, words)
        command: Any = root
        names: list[str] = []
        while isinstance(command, Group) and others:
            command = command.commands[others[0]]
            names.append(others.pop(0))
        rest, last = others, pending
        positions = 0
        if not isinstance(command, Group):
            flags, arguments, own = _split_words(command, others)
            rest, last, positions = [*flags, *arguments], pending or own, len(arguments)
        return cls(root, tuple(names), command, tuple(of_root), tuple(rest), last, positions)

    def offered(self, current: str) -> Iterator[tuple[str, str]]:
        """The candidates at this position, not yet filtered by the prefix."""
        name, equals, _ = current.partition("=")
        of_command = _options(self.command) if self.names else {}
        known = _options(self.root) | of_command
        if self.pending is not None:
            yield from self._values(self.pending, self.pending.opts[0])
        elif equals and name in known:
            found = self._values(known[name], known[name].opts[0])
            yield from ((f"{name}={word}", about) for word, about in found)
        elif current.startswith("-"):
            yield from self._flags(of_command)
        elif isinstance(self.command, RootGroup):
            index = self.command.commands.index
            for each in self.command.visible_commands(None):
                (word, summary, _), *more = index[each]["leaves"]
                yield each, "" if more or word else summary
        elif isinstance(self.command, Group):
            for each in self.command.visible_commands(None):
                yield each, _first_line(self.command.commands[each].help)
        else:
            arguments = [each for each in self.command.params if not _is_option(each)]
            if self.positions < len(arguments):
                yield from self._values(arguments[self.positions], " ".join(self.names))
            elif arguments and arguments[-1].nargs == -1:
                yield from self._values(arguments[-1], " ".join(self.names))

    def _flags(self, of_command: dict[str, Any]) -> Iterator[tuple[str, str]]:
        taken = {flag.spelling for flag in getattr(self.command, "takes", ())}
        others = {flag.spelling for flag in GlobalFlag} - taken if self.names else set()
        for name, option in (of_command | _options(self.root)).items():
            is_given = name in self.rest or name in self.of_root
            if option.hidden or name in others or (is_given and not option.multiple):
                continue
            if name.startswith("--") and not (self.names and name == "--version"):
                yield name, option.help or ""
        yield "--help", "show this page"

    def _values(self, parameter: Any, of: str) -> Iterator[tuple[str, str]]:
        """The values of a flag, or of an argument of a command."""
        metavar = str(parameter.metavar)
        find = _VALUES.get(f"{of} {metavar}") or _VALUES.get(metavar)
        if find is not None:
            given = set(self.rest) if parameter.multiple or parameter.nargs == -1 else set()
            yield from ((word, "") for word in find(self) if word not in given)
        elif _CHOICES.fullmatch(metavar):
            yield from ((word, "") for word in metavar.split("|"))

    # --- the graph --------------------------------------------------------------------------------

    @cached_property
    def context(self) -> Any:
        """The context that the command would run in; mistakes on the line are ignored."""
        *groups, own = self.names
        words = [*self.of_root, *self.names, *self.rest]
        ctx = self.root.make_context(PROGRAM, words, obj=self.output, resilient_parsing=True)
        command: Any = self.root
        for name in groups:
            command = command.commands[name]
            ctx = command.make_context(name, [own], parent=ctx, resilient_parsing=True)
        return self.command.make_context(own, [*self.rest], parent=ctx, resilient_parsing=True)

    def graph(self) -> Graph | RemoteGraph:
        """The addressed graph; raises if there is none, or if it is not on this machine."""
        from omnigraph.cli.opening import connected, graph_to_read

        ctx = self.context
        if cluster_of(ctx) is not None:
            raise _OtherMachine
        target = resolve_any(ctx)
        if not isinstance(target, ServedTarget):
            if not target.is_local:
                raise _OtherMachine
            return graph_to_read(ctx)
        if urlsplit(target.url).hostname not in LOCAL_HOSTS:
            raise _OtherMachine
        return connected(ctx, target, SERVER_SECONDS)

    def branches(self) -> Iterable[str]:
        """The names of the branches."""
        return self.graph().list_branches()

    def tags(self) -> Iterable[str]:
        """The names of the tags."""
        return [each.name for each in self.graph().list_tags()]

    def revisions(self) -> Iterable[str]:
        """The short revisions: branches and tags."""
        graph = self.graph()
        return [*graph.list_branches(), *(each.name for each in graph.list_tags())]

    def types(self, *kinds: str) -> list[TypeDescription]:
        """The types of the given kinds."""
        return [each for each in self.graph().describe_schema().types if each.kind in kinds]

    def properties(self, kind: str) -> Iterable[str]:
        """Numeric properties of edges by name, or properties of nodes as `Type.property`."""
        if kind == "edge":
            return sorted(
                {each.name for found in self.types(kind) for each in found.properties
                 if each.kind in _NUMBERS}
            )  # fmt: skip
        return [f"{of.name}.{each.name}" for of in self.types(kind) for each in of.properties]

    def queries(self) -> Iterable[str]:
        """The queries of the file that the line names, else the stored queries of the server."""
        file = self.context.params.get("query_file")
        if file is not None:
            from omnigraph.cli.files import read_source
            from omnigraph.errors import QueryParseError
            from omnigraph.syntax.query_parser import parse_query_file

            return [
                each.name for each in parse_query_file(read_source(file, QueryParseError)).queries
            ]
        graph = self.graph()
        list_queries = getattr(graph, "list_queries", None)  # none in storage
        return [] if list_queries is None else [each.name for each in list_queries()]


class _OtherMachine(Exception):
    """The graph of a line is on another machine."""


def _split_words(command: Any, words: Sequence[str]) -> tuple[list[str], list[str], Any]:
    """Known flags with their values, the other words, and a flag that lacks its value, if any."""
    known = _options(command)
    flags: list[str] = []
    others: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, equals, _ = word.partition("=")
        option = known.get(name)
        if option is None:
            others.append(word)
        elif equals or option.is_flag:
            flags.append(word)
        else:
            value = next(waiting, None)
            if value is None:
                return flags, others, option
            flags += [word, value]
    return flags, others, None


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _options(command: Any) -> dict[str, Any]:
    """The options of a command, by every spelling."""
    return {name: each for each in command.params if _is_option(each) for name in each.opts}


def _first_line(help: str | None) -> str:
    return (help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")


def _algorithms(typed: _Typed) -> Iterable[str]:
    from omnigraph.cli.compute import ALGORITHMS

    return ALGORITHMS


def _names_of(*kinds: str) -> Callable[[_Typed], Iterable[str]]:
    return lambda typed: [each.name for each in typed.types(*kinds)]


_NUMBERS = ("int", "bigint", "float")
_VALUES: Mapping[str, Callable[[_Typed], Iterable[str]]] = {
    "--branch NAME": _Typed.branches,
    "--from NAME": _Typed.branches,
    "--into NAME": _Typed.branches,
    "--to-branch NAME": _Typed.branches,
    "branch delete NAME": _Typed.branches,
    "branch merge SOURCE": _Typed.branches,
    "review open SOURCE": _Typed.branches,
    "BRANCH": _Typed.branches,
    "branch diff SOURCE": _Typed.revisions,
    "branch diff TARGET": _Typed.revisions,
    "REVISION": _Typed.revisions,
    "[REVISION]": _Typed.revisions,
    "tag delete NAME": _Typed.tags,
    "--node TYPE": _names_of("node"),
    "--edge TYPE": _names_of("edge"),
    "--type TYPE": _names_of("node", "edge"),
    "--type NAME": _names_of("node", "edge"),
    "TYPE": _names_of("node", "edge"),
    "--into TYPE.PROPERTY": lambda typed: typed.properties("node"),
    "--weight PROPERTY": lambda typed: typed.properties("edge"),
    "query [NAME]": _Typed.queries,
    "mutate [NAME]": _Typed.queries,
    "ALGORITHM": _algorithms,
    "ALIAS": lambda typed: config_of(typed.context).aliases(),
    "[PROFILE]": lambda typed: config_of(typed.context).profiles(),
    "--profile NAME": lambda typed: config_of(typed.context).profiles(),
    "SERVER": lambda typed: config_of(typed.context).servers(),
    "--server NAME|URL": lambda typed: config_of(typed.context).servers(),
}
"""The completer of a value, by flag or command with its metavar, or by the metavar alone.

A metavar such as `append|merge` is completed with its words.
"""

_SCRIPTS = {
    "bash": r"""
_omnigraph() {
    local IFS=$'\n'
    COMPREPLY=($(command omnigraph complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
complete -o default -F _omnigraph omnigraph
""",
    "zsh": r"""
#compdef omnigraph
_omnigraph() {
    local -a found
    found=("${(@f)$(command omnigraph complete zsh "$LBUFFER" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then _describe omnigraph found; else _files; fi
}
compdef _omnigraph omnigraph
""",
    "fish": r"""
function __omnigraph_complete
    set -l found (command omnigraph complete fish (commandline -cp | string collect) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c omnigraph -f -a '(__omnigraph_complete)'
""",
}

"""`omnigraph shell`: an interactive session on a graph.

`Shell` runs one input at a time and computes completions; reading lines from a terminal or a pipe
is below it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from omnigraph.cli.addressing import config_of
from omnigraph.cli.commit import commit_lines
from omnigraph.cli.failures import report
from omnigraph.cli.files import read_source
from omnigraph.cli.graphs import snapshot_lines
from omnigraph.cli.help import Commands, WriteCommand
from omnigraph.cli.opening import graph_to_read, graph_to_write
from omnigraph.cli.operator_config import OUTPUT_FORMATS, home_of
from omnigraph.cli.options import DEFAULT_BRANCH, BranchOption, flag, read_place
from omnigraph.cli.output import Line, Output, Styled, output_of, table
from omnigraph.cli.query import mutation_lines, table_layout, write_result
from omnigraph.errors import CompileError, InputError, NotFound, OmnigraphError, QueryParseError
from omnigraph.model.records import dataclass
from omnigraph.model.text_table import TextTable
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Token, TokenKind

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph
    from omnigraph.model.signatures import SchemaDescription, TypeDescription
    from omnigraph.syntax.query_ast import Query

COMMANDS = Commands()
COMMITS_SHOWN = 10
BODY_WORDS = ("match", "insert", "update", "delete", "for")
"""First words of the body of a query, which the shell wraps in a `query`."""
PLAIN_WORDS = {"help": r"\?", "?": r"\?", "exit": r"\q", "quit": r"\q"}
"""Words that newcomers type, and their commands."""
_UNDECLARED = re.compile(r"`\$(?P<name>\w+)` is not a declared parameter")
_OPENING, _CLOSING = "{[(", "}])"

ReadOnlyFlag = Annotated[bool, flag("--read-only", "refuse every mutation")]


@COMMANDS.add(WriteCommand)
def shell(
    ctx: typer.Context,
    *,
    branch: BranchOption = DEFAULT_BRANCH,
    read_only: ReadOnlyFlag = False,
) -> None:
    r"""Ask and change a graph line by line, with completion and a history.

    A line is a query, the body of one, or a command such as `\d`, which lists the types; `\?` lists
    the commands. An input goes on over lines until its braces are closed. Lines may also come from
    a pipe; then the first error ends the shell.

    omnigraph shell --store team.omni
    omnigraph shell --server http://localhost:8080 --graph team --branch review
    omnigraph shell --store team.omni < inputs.gq
    """
    output = output_of(ctx)
    graph = graph_to_read(ctx) if read_only else graph_to_write(ctx, "shell")
    session = Shell(
        graph,
        output,
        branch=branch,
        format=config_of(ctx).output_format() or "table",
        layout=table_layout(ctx),
        is_read_only=read_only,
    )
    if sys.stdin.isatty() and output.stdout.isatty():
        _run_interactive(session, home_of(output.environment) / "history")
    else:
        _run_lines(session, sys.stdin)


# --- the shell ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Command:
    """A command of the shell: its arguments, its function, and the completion of its argument."""

    takes: str
    summary: str
    run: Callable[[Shell, str], Iterator[Line]]
    completes: Callable[[Shell], Sequence[str]] = lambda shell: ()


class Shell:
    """The session: graph, branch, parameters, and output format."""

    def __init__(
        self,
        graph: Graph | RemoteGraph,
        output: Output,
        *,
        branch: str = DEFAULT_BRANCH,
        format: str = "table",
        layout: TextTable | None = None,
        is_read_only: bool = False,
    ) -> None:
        self.graph = graph
        self.output = output
        self.branch = branch
        self.snapshot: str | None = None
        """The commit to read instead of the head of the branch."""
        self.format = format
        self.layout = layout
        self.is_read_only = is_read_only
        self.is_timed = False
        self.parameters: dict[str, Any] = {}
        self.queries: dict[str, Source] = {}
        """Queries that were read, by name, each with the whole text of its file."""
        self.has_ended = False
        self._described: SchemaDescription | None = None

    @property
    def prompt(self) -> str:
        """The prompt on a terminal."""
        at = f"@{self.snapshot[:8]}" if self.snapshot else ""
        return f"{self.branch}{at}> "

    def run(self, text: str) -> None:
        """Run one input; raises `OmnigraphError` if it is invalid or fails."""
        text = text.strip().removesuffix(";").rstrip()
        text = PLAIN_WORDS.get(text.lower(), text)
        if not text:
            return
        if text.startswith("\\"):
            self.output.lines(self._run_command(text))
            return
        self._described = None
        self._run_text(text)

    def _run_text(self, text: str, *, explain: bool = False) -> None:
        with self._queries_of(text) as whole:
            self._run_queries(Source(whole), explain=explain)

    def _run_queries(
        self, source: Source, only: str | None = None, *, explain: bool = False
    ) -> None:
        for query in _parsed(source):
            if only is None or query.name == only:
                self._run_query(source, query, explain=explain)

    def _run_query(self, source: Source, query: Query, *, explain: bool) -> None:
        from omnigraph.syntax import query_ast

        declared = {each.name for each in query.parameters}
        given = {name: value for name, value in self.parameters.items() if name in declared}
        started = perf_counter()
        if isinstance(query.body, query_ast.WriteBody):
            self._require_writable()
            receipt = self.graph.mutate(source, given, name=query.name, branch=self.branch)
            self.output.show(receipt, mutation_lines(receipt), json=self.format == "json")
        else:
            place = read_place(None if self.snapshot else self.branch, self.snapshot)
            result = self.graph.query(source, given, name=query.name, **place, explain=explain)
            write_result(self.output, result, self.format, self.layout)
        if self.is_timed:
            passed = (perf_counter() - started) * 1000
            self.output.note(Styled(f"{passed:.1f} ms", "dim"))

    def _require_writable(self) -> None:
        if self.is_read_only:
            raise InputError(
                "this shell was opened with `--read-only`", hint="start another one without it"
            )
        if self.snapshot is not None:
            raise InputError(
                f"commit {self.snapshot} is read, and no commit can be changed",
                hint=r"`\at` without a revision goes back to the head of the branch",
            )

    @contextmanager
    def _queries_of(self, text: str) -> Iterator[str]:
        """The text split into queries; errors keep the typed line numbers."""
        words = _tokens(text)
        if not words or words[0].text not in BODY_WORDS:
            try:
                yield text
            except QueryParseError as error:
                if len(words) < 2 or (words[0].text != "query" and words[1].text != "("):
                    error.hint = r"`\?` lists the commands; anything else is a query, or its body"
                raise
            return
        used = {token.text for token in words if token.kind is TokenKind.VAR}
        declared = ", ".join(
            f"${name}: {_type_of(name, value)}"
            for name, value in self.parameters.items()
            if name in used
        )
        try:
            yield f"query shell({declared}) {{\n{text}\n}}"
        except CompileError as error:
            if error.position is not None:
                error.position = replace(error.position, line=max(1, error.position.line - 1))
            if undeclared := _UNDECLARED.match(error.reason):
                error.hint = f"give it a value: `\\set {undeclared['name']} VALUE`"
            raise

    # --- completion -------------------------------------------------------------------------------

    def completions(self, text: str, at: int) -> Iterator[tuple[str, str]]:
        """Candidates at an offset, each with a description; the caller filters by prefix."""
        before = text[:at]
        if before.startswith("\\"):
            yield from self._command_completions(before)
            return
        from omnigraph.query.editing import Document

        prefix = "" if before.lstrip().startswith("query") else "query shell() {\n"
        document = Document(prefix + text, "gq", self.graph.schema_source)
        for found in document.complete(len(prefix) + at):
            yield found.label, found.detail or found.kind

    def _command_completions(self, before: str) -> Iterator[tuple[str, str]]:
        name, has_space, _ = before.partition(" ")
        if not has_space:
            yield from ((each, command.summary) for each, command in SHELL_COMMANDS.items())
        elif (command := SHELL_COMMANDS.get(name)) is not None:
            yield from ((word, "") for word in command.completes(self))

    # --- commands ---------------------------------------------------------------------------------

    def _run_command(self, text: str) -> Iterator[Line]:
        name, _, rest = text.partition(" ")
        command = SHELL_COMMANDS.get(name)
        if command is None:
            raise InputError(
                f"there is no command `{name}`",
                hint=did_you_mean(name, SHELL_COMMANDS) or r"`\?` lists them",
            )
        yield from command.run(self, rest.strip())

    def _schema(self) -> SchemaDescription:
        if self._described is None:
            self._described = self.graph.describe_schema(branch=self.branch)
        return self._described

    def _types(self) -> list[str]:
        return [each.name for each in self._schema().types]

    def _describe(self, name: str) -> Iterator[Line]:
        self._described = None
        if not name:
            yield from snapshot_lines(self.graph.snapshot(self.branch))
            return
        types = {each.name: each for each in self._schema().types}
        yield from _type_lines(types[_known("type", name, types, r"`\d` lists them")])

    def _choose_branch(self, name: str) -> Iterator[Line]:
        branches = self.graph.list_branches()
        if name:
            self.branch = _known("branch", name, branches, r"`\b` lists them")
            self.snapshot = self._described = None
            return
        for each in branches:
            yield (Styled(f"* {each}", "green") if each == self.branch else f"  {each}",)

    def _read_at(self, revision: str) -> Iterator[Line]:
        self.snapshot = self.graph.show_commit(revision).graph_commit_id if revision else None
        yield (f"reading {f'commit {self.snapshot}' if self.snapshot else self.branch}",)

    def _log(self, count: str) -> Iterator[Line]:
        if count and not (count.isascii() and count.isdigit()):
            raise InputError(f"`{count}` is no number of commits", hint=r"for example `\log 20`")
        shown = int(count) if count else COMMITS_SHOWN
        yield from commit_lines(self.graph.list_commits(self.branch)[:shown])

    def _set(self, rest: str) -> Iterator[Line]:
        name, _, value = rest.partition(" ")
        if not value.strip():
            raise InputError(
                r"`\set` takes a name and a value", hint=r'for example `\set who "ada"`'
            )
        self.parameters[name.removeprefix("$")] = _value(value.strip())
        return iter(())

    def _unset(self, rest: str) -> Iterator[Line]:
        for name in rest.split() or list(self.parameters):
            self.parameters.pop(name.removeprefix("$"), None)
        return iter(())

    def _list_parameters(self, rest: str) -> Iterator[Line]:
        yield from ((f"${name} = {json.dumps(v)}",) for name, v in self.parameters.items())

    def _choose_format(self, name: str) -> Iterator[Line]:
        if name:
            known = f"it is {', '.join(OUTPUT_FORMATS)}"
            self.format = _known("format", name, OUTPUT_FORMATS, known)
        yield (f"rows are shown as {self.format}",)

    def _time(self, state: str) -> Iterator[Line]:
        if state:
            state = _known("state", state, ("on", "off"), "it is on or off")
        self.is_timed = state == "on" if state else not self.is_timed
        yield (f"timing is {'on' if self.is_timed else 'off'}",)

    def _explain(self, text: str) -> Iterator[Line]:
        if not text:
            raise InputError(
                r"`\explain` takes a query",
                hint=r"for example `\explain match { $p: Person } return { $p }`",
            )
        self._run_text(text, explain=True)
        return iter(())

    def _read_file(self, name: str) -> Iterator[Line]:
        if name:
            source = read_source(Path(name).expanduser(), QueryParseError)
            for query in _parsed(source):
                self.queries[query.name] = source
        yield from ((each,) for each in self.queries)

    def _run_named(self, rest: str) -> Iterator[Line]:
        for name in rest.split():
            _known("query", name, self.queries, r"`\i FILE.gq` reads those of a file")
            self._run_queries(self.queries[name], name)
        return iter(())

    def _show_schema(self, rest: str) -> Iterator[Line]:
        yield from ((line,) for line in self.graph.schema_source.rstrip().split("\n"))

    def _help(self, rest: str) -> Iterator[Line]:
        rows = [(f"{name} {each.takes}", each.summary) for name, each in SHELL_COMMANDS.items()]
        width = max(len(left) for left, _ in rows)
        yield from ((Styled(left.ljust(width + 2), "cyan"), right) for left, right in rows)
        yield ()
        yield ("Anything else is a query, or its body: match { $p: Person } return { $p.name }",)

    def _end(self, rest: str) -> Iterator[Line]:
        self.has_ended = True
        return iter(())

    COMMANDS: ClassVar[Mapping[str, _Command]] = {
        "\\d": _Command("[TYPE]", "list the types, or describe one", _describe, _types),
        "\\b": _Command(
            "[BRANCH]",
            "list the branches, or go to one",
            _choose_branch,
            lambda shell: shell.graph.list_branches(),
        ),
        "\\at": _Command("[REVISION]", "read an older commit, or the head again", _read_at),
        "\\log": _Command("[COUNT]", f"list the last {COMMITS_SHOWN} commits", _log),
        "\\set": _Command("NAME VALUE", "set the parameter $NAME to JSON or a text", _set),
        "\\unset": _Command(
            "[NAME]", "forget a parameter, or all", _unset, lambda shell: [*shell.parameters]
        ),
        "\\params": _Command("", "list the parameters", _list_parameters),
        "\\i": _Command("[FILE.gq]", "read the queries of a file, or list those read", _read_file),
        "\\run": _Command(
            "NAME", "run a query that was read", _run_named, lambda shell: [*shell.queries]
        ),
        "\\explain": _Command("QUERY", "run a query, and show how it ran", _explain),
        "\\format": _Command(
            "[FORMAT]", "how rows are shown", _choose_format, lambda shell: OUTPUT_FORMATS
        ),
        "\\timing": _Command(
            "[on|off]", "show how long each query takes", _time, lambda shell: ("on", "off")
        ),
        "\\schema": _Command("", "show the text of the schema", _show_schema),
        "\\?": _Command("", "list these commands", _help),
        "\\q": _Command("", "leave; so does Ctrl-D", _end),
    }


SHELL_COMMANDS = Shell.COMMANDS


def is_complete(text: str) -> bool:
    """Whether an input is complete; if not, the next line continues it.

    Complete are commands, input that ends with a blank line, and input whose brackets and quotes
    are closed, if a `match` in it has its `return`.
    """
    if not text.strip() or text.lstrip().startswith("\\") or text.endswith("\n\n"):
        return True
    depth, has_end, words = 0, False, _tokens(text)
    for token in words:
        if token.kind is TokenKind.BAD:
            return False
        if token.kind is TokenKind.PUNCT:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
        has_end |= token.text == "return" and depth == 0
    is_read_body = bool(words) and words[0].text == "match"
    return depth <= 0 and (has_end or not is_read_body)


def _parsed(source: Source) -> tuple[Query, ...]:
    from omnigraph.syntax.query_parser import parse_query_file

    return parse_query_file(source).queries


def _tokens(text: str) -> list[Token]:
    from omnigraph.syntax.query_expressions import QueryStream

    return [each for each in QueryStream(Source(text)).tokens if each.kind is not TokenKind.END]


def _known(noun: str, name: str, among: Iterable[str], hint: str) -> str:
    names = [*among]
    if name not in names:
        raise NotFound(f"there is no {noun} `{name}`", hint=did_you_mean(name, names) or hint)
    return name


def _value(text: str) -> Any:
    """A value parsed as JSON, or else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _type_of(name: str, value: Any) -> str:
    """The type that the shell declares for a parameter of a wrapped body."""
    if isinstance(value, list) and value:
        return f"[{_type_of(name, value[0])}]"
    types = {bool: "Bool", int: "I64", float: "F64", str: "String"}
    if type(value) not in types:
        raise InputError(
            f"${name} is {json.dumps(value)}, whose type is not known",
            hint=f"write the query with its parameters: query q(${name}: …) {{ … }}",
        )
    return types[type(value)]


def _type_lines(described: TypeDescription) -> Iterator[Line]:
    ends = f": {described.source} -> {described.target}" if described.source else ""
    count = "" if described.entity_count is None else f", {described.entity_count:,} entities"
    yield (Styled(f"{described.kind} {described.name}{ends}", "bold"), count)
    rows = [
        (each.name, each.type, " ".join([*each.rules, *(f"@index({x})" for x in each.indexes)]))
        for each in described.properties
    ]
    if rows:
        yield from table(("property", "type", "rules"), rows)
    yield from ((rule,) for rule in described.rules)


# --- where lines come from ------------------------------------------------------------------------


def _run_lines(session: Shell, lines: Iterable[str]) -> None:
    """Run the lines of a pipe, up to the first error, which is raised."""
    text = ""
    for line in lines:
        text += line
        if is_complete(text):
            session.run(text)
            text = ""
            if session.has_ended:
                return
    session.run(text)


def _run_interactive(session: Shell, history: Path) -> None:
    """Run typed inputs until Ctrl-D or `\\q`; an error or Ctrl-C ends only the current input."""
    ask = _prompt(session, history)
    while not session.has_ended:
        try:
            session.run(ask())
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        except Exception as failure:  # report, and read the next input
            report(failure, session.output)


def _prompt(session: Shell, history: Path) -> Callable[[], str]:
    """A function that reads one input from the terminal."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    class Words(Completer):
        """Completions of the shell for the text before the cursor."""

        def get_completions(
            self, document: Document, complete_event: CompleteEvent
        ) -> Iterator[Completion]:
            """The candidates that continue the word before the cursor."""
            text, at = document.text, document.cursor_position
            start = len(_WORD_START.sub("", text[:at]))
            prefix = text[start:at].lower()
            with suppress(OmnigraphError):
                for word, about in session.completions(text, at):
                    if word.lower().startswith(prefix):
                        yield Completion(word, start - at, display_meta=about)

    # The history may contain parameters: only its owner may read it.
    history.parent.mkdir(parents=True, exist_ok=True)
    history.touch(mode=0o600)
    keys = KeyBindings()
    toolkit: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=Words(),
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        multiline=True,
        key_bindings=keys,
        prompt_continuation="... ",
    )

    @keys.add("enter", filter=Condition(lambda: is_complete(toolkit.default_buffer.text + "\n")))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return lambda: toolkit.prompt(session.prompt)


_WORD_START = re.compile(r"[$\\]?[\w?]*\Z")

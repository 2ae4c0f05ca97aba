"""Files that commands read and write: data, schemas, and queries."""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn

from omnigraph.cli.failures import PERMISSION_HINT, Rejected, UsageError
from omnigraph.cli.opening import INTERRUPTS
from omnigraph.cli.options import argument, exclusive, option
from omnigraph.cli.output import Output
from omnigraph.errors import CompileError, InputError, NotFound, SchemaParseError
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.schema.compile import CompiledSchema
    from omnigraph.schema.identity import IdentityWarning
    from omnigraph.syntax.tokens import Source


STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 20


def require_file(path: Path) -> None:
    """Raise `NotFound` with the nearest file name, or `InputError` for an unreadable file."""
    if path.is_dir():
        raise InputError(f"`{path}` is a directory", hint="name a file in it")
    if not path.exists():
        raise missing_file(path)


def missing_file(path: Path) -> NotFound:
    """The error for a missing file, with the nearest name in its directory."""
    return NotFound(f"there is no file `{path}`", hint=_similar_file(path))


def standard_input() -> Iterator[bytes]:
    """The bytes of stdin as they arrive; can be read once."""
    if sys.stdin is None:
        raise UsageError("stdin is closed", hint="pipe the data in, or name a file")

    def block() -> bytes:
        INTERRUPTS.raise_pending()
        return sys.stdin.buffer.read(BLOCK_BYTES)

    return iter(block, b"")


def unusable(verb: str, path: Path, problem: OSError) -> InputError:
    """The error for a file that cannot be read or written."""
    reason = (problem.strerror or str(problem)).lower()
    hint = PERMISSION_HINT if isinstance(problem, PermissionError) else None
    if not path.parent.exists():
        hint = f"there is no directory `{path.parent}`"
    return InputError(f"cannot {verb} `{path}`: {reason}", hint=hint)


@contextmanager
def replaced_file(path: Path, *, is_private: bool = False) -> Iterator[BinaryIO]:
    """A temporary file that replaces ``path`` when the block ends without a failure.

    After a failure, ``path`` keeps its previous content. A private file is readable by its owner
    only.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        if target.is_dir():
            raise InputError(f"`{path}` is a directory", hint="name a file in it")
        # A pipe or a device is written to directly; it must not be replaced by a file.
        with target.open("wb") as stream:
            yield stream
        return
    staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    mode = 0o600 if is_private else 0o666
    try:
        handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as problem:
        raise unusable("write", path, problem) from problem
    try:
        with open(handle, "wb") as stream:  # noqa: PTH123 - of a handle
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        staged.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            staged.unlink()
        raise
    # The file has its content; syncing the directory keeps its name after a power loss, best
    # effort.
    with suppress(OSError):
        sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Flush a directory, so that new names survive a power loss."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _similar_file(path: Path) -> str | None:
    """A "did you mean" question with a neighbouring file, or the directory that was searched."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return None if path.parent.exists() else f"there is no directory `{path.parent}`"
    if path.is_absolute():
        return did_you_mean(path.name, names)
    return did_you_mean(path.name, names) or f"it was looked for in {Path.cwd()}"


def read_source(path: Path, error: type[CompileError]) -> Source:
    """The text of a file; ``error`` is raised when it is not UTF-8.

    Raises `NotFound` for a file that does not exist, with the nearest name beside it, and
    `InputError` for one that cannot be read.
    """
    from omnigraph.syntax.tokens import Source

    try:
        return Source.of(path, error)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as problem:
        raise unusable("read", path, problem) from problem


def compile_schema_file(path: Path, output: Output) -> CompiledSchema:
    """Compile a schema file on its own; warnings go to stderr.

    Raises `Rejected` with every problem of the text, in source order.
    """
    from omnigraph.schema.compile import compile_schema

    source = read_schema(path)
    with every_problem_of(source):
        compiled = compile_schema(source)
    show_warnings(compiled.warnings, output)
    return compiled


@contextmanager
def every_problem_of(source: Source) -> Iterator[None]:
    """Replace the first problem of a schema, which compiling raises, by all problems."""
    try:
        yield
    except CompileError as first:
        from omnigraph.schema.compile import lint_schema

        # Errors that depend on an accepted schema, such as rename hints, are unknown to the linter.
        found = tuple(finding.error for finding in lint_schema(source))
        raise Rejected(found or (first,)) from first


def read_schema(path: Path) -> Source:
    """The text of a schema file."""
    return read_source(path, SchemaParseError)


def show_warnings(warnings: tuple[IdentityWarning, ...], output: Output) -> None:
    """Write the warnings of compiling a schema."""
    for warning in warnings:
        at = warning.position
        output.warning(f"{at.path}:{at.line}:{at.column}: {warning.message}")


NameArgument = Annotated[
    str | None,
    argument("[NAME]", "which query: one of several in the text, or a stored one of a server"),
]
QueryOption = Annotated[
    Path | None, option("--query", "FILE.gq", "a file with the query; `-` reads stdin")
]
TextOption = Annotated[str | None, option("--query-string -e", "TEXT", "the query itself")]
ParamsOption = Annotated[str | None, option("--params", "JSON", "its parameters, as a JSON object")]
ParamsFileOption = Annotated[
    Path | None, option("--params-file", "FILE", "a file with that object")
]


def source_of(verb: str, name: str | None, query: Path | None, text: str | None) -> Source | None:
    """The query text that a command runs; None to run the stored query of that name."""
    from omnigraph.errors import QueryParseError
    from omnigraph.syntax.tokens import Source

    exclusive(query=query, query_string=text)
    if query is not None and str(query) == STANDARD_INPUT:
        return Source.of(_text_of_standard_input(), QueryParseError)
    if query is not None:
        return read_source(query, QueryParseError)
    if text is not None:
        if not text.strip():
            raise UsageError("`--query-string` is empty", hint="write a query between the quotes")
        return Source.of(text, QueryParseError)
    if name is not None:
        return None
    raise UsageError(
        f"`omnigraph {verb}` needs a query",
        hint="give its text with `--query FILE.gq` or `-e TEXT`, or the name of a stored one",
    )


def from_standard_input(
    name: str | None, query: Path | None, text: str | None
) -> tuple[str | None, Path | None]:
    """The name and the file of a query; a name of `-` reads the query text from stdin."""
    if name != STANDARD_INPUT:
        return name, query
    if query is not None or text is not None:
        raise UsageError(
            "`-` reads the query from stdin, and another text was given", hint="give one of them"
        )
    return None, Path(STANDARD_INPUT)


def _text_of_standard_input() -> str:
    try:
        text = b"".join(standard_input()).decode()
    except UnicodeDecodeError:
        raise UsageError("the query on stdin is not UTF-8", hint="convert it first") from None
    if not text.strip():
        raise UsageError("there is no query on stdin", hint="pipe one in, or give it with `-e`")
    return text


def parameters_of(text: str | None, file: Path | None) -> dict[str, Any] | None:
    """The parameters of a command; raises `UsageError` unless they are one JSON object."""
    exclusive(params=text, params_file=file)
    if file is not None:
        return _json_object(read_source(file, CompileError).text, f"`{file}`")
    return None if text is None else _json_object(text, "`--params`")


def json_or_text(word: str) -> Any:
    """A word parsed as JSON, or the word itself if it is not JSON.

    >>> json_or_text("20"), json_or_text("ada"), json_or_text('"20"'), json_or_text("[1, 2]")
    (20, 'ada', '20', [1, 2])
    """
    try:
        return json.loads(word, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return word


def _json_object(text: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{where} is not JSON: {problem}", hint=_PARAMS_HINT) from None
    if not isinstance(document, dict):
        raise UsageError(f"{where} is not a JSON object", hint=_PARAMS_HINT)
    return document


_PARAMS_HINT = 'write an object with a member for each parameter, such as {"handle": "ada"}'


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number")

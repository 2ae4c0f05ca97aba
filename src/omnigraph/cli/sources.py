"""Reading the files a command names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph.cli.failures import PERMISSION_HINT, Rejected
from omnigraph.cli.files import missing_file
from omnigraph.cli.output import Output
from omnigraph.errors import CompileError, InputError, SchemaParseError
from omnigraph.schema.compile import CompiledSchema, compile_schema, lint_schema
from omnigraph.schema.identity import IdentityWarning
from omnigraph.syntax.source import Source


def read_source(path: Path, error: type[CompileError]) -> Source:
    """The text of a file; ``error`` is raised when it is not UTF-8.

    Raises `NotFound` for a file that does not exist, with the nearest name beside it, and
    `InputError` for one that cannot be read.
    """
    try:
        return Source.of(path, error)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        hint = PERMISSION_HINT if isinstance(problem, PermissionError) else None
        raise InputError(f"cannot read `{path}`: {reason}", hint=hint) from problem


def compile_schema_file(path: Path, output: Output) -> CompiledSchema:
    """Compile a schema file on its own; warnings go to stderr.

    Raises `Rejected` with every problem of the text, in source order.
    """
    source = read_schema(path)
    with every_problem_of(source):
        compiled = compile_schema(source)
    show_warnings(compiled.warnings, output)
    return compiled


@contextmanager
def every_problem_of(source: Source) -> Iterator[None]:
    """Turn the first problem of a schema, which is what compiling raises, into all of them."""
    try:
        yield
    except CompileError as first:
        # What depends on an accepted schema, such as a rename hint, the linter does not see.
        found = tuple(finding.error for finding in lint_schema(source))
        raise Rejected(found or (first,)) from first


def read_schema(path: Path) -> Source:
    """The text of a schema file."""
    return read_source(path, SchemaParseError)


def show_warnings(warnings: tuple[IdentityWarning, ...], output: Output) -> None:
    """Write what compiling a schema warns about."""
    for warning in warnings:
        at = warning.position
        output.warning(f"{at.path}:{at.line}:{at.column}: {warning.message}")

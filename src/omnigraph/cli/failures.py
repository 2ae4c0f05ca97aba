"""Exceptions as error messages and exit codes."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

import typer

from omnigraph.cli.output import Line, Output, Styled
from omnigraph.errors import (
    ChecksFailed,
    CompileError,
    InputError,
    InternalError,
    OmnigraphError,
    PreconditionFailed,
    install_command,
)
from omnigraph.syntax.suggest import did_you_mean


class ExitCode(IntEnum):
    """Every exit code the command line uses, each with its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """An integer with its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    OK = 0, "success"
    FAILURE = 1, "the command ran, and something is wrong with its input, a graph or a store"
    USAGE = 2, "the command line is wrong; nothing was read or written"
    CHECKS_FAILED = 3, "a pipeline loaded its branch and did not merge it: a check failed"
    LOST_RACE = 4, "a conditional write found another head than expected"
    # Shells report 128 and the number of the signal: SIGINT is 2, SIGPIPE is 13.
    INTERRUPTED = 130, "interrupted with Ctrl-C"
    READER_GONE = 141, "whatever read stdout went away"


def exit_code_of(error: OmnigraphError) -> ExitCode:
    """The exit code for an error of the library."""
    if isinstance(error, ChecksFailed):
        return ExitCode.CHECKS_FAILED
    return ExitCode.LOST_RACE if isinstance(error, PreconditionFailed) else ExitCode.FAILURE


PERMISSION_HINT = "check who owns it and its permissions (`ls -ld`), or name another place"


class UsageError(InputError):
    """The command line is wrong: an unknown word, a missing or a misplaced argument."""

    code = "usage"


class Rejected(Exception):
    """A text with one or more problems, all of which are shown."""

    def __init__(self, errors: tuple[OmnigraphError, ...]) -> None:
        super().__init__(errors[0].message)
        self.errors = errors


def require_library(module: str, command: str, *, extra: str) -> None:
    """Raise `InputError` if one of our modules needs a library that is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as missing:
        if missing.name is not None and missing.name.startswith("omnigraph"):
            raise
        raise InputError(
            f"`{command}` needs {missing.name}, which is not installed",
            hint=f"install it with `{install_command(extra)}`",
        ) from None


def report(failure: Exception, output: Output) -> ExitCode:
    """Write a failure to the right stream and return the exit code."""
    errors = _errors_of(failure)
    if output.failures_as_json and output.stdout_is_payload:
        output.json_note(_envelope(errors))
    else:
        _write(errors, output)
    if output.debug:
        output.note()
        output.note("".join(traceback.format_exception(failure)).rstrip())
    first = errors[0]
    return ExitCode.USAGE if isinstance(first, UsageError) else exit_code_of(first)


def _write(errors: tuple[OmnigraphError, ...], output: Output) -> None:
    for at, error in enumerate(errors):
        if at:
            output.note()
        output.notes(error_lines(error))
        # The name of the server that answered, and the id of the request in its logs.
        notes = (note for note in getattr(error, "__notes__", ()) if not note.startswith("hint:"))
        output.notes([Styled(note, "dim")] for note in notes)
    if output.failures_as_json:
        output.json(_envelope(errors))


def error_lines(error: OmnigraphError) -> Iterator[Line]:
    """An error as text: its message, the place with a caret, and the hint."""
    lines = error.render().split("\n")
    if isinstance(error, CompileError) and error.position is not None:
        at = error.position
        place = f"{at.path or '<input>'}:{at.line}:{at.column}:"
        yield Styled(place, "bold"), Styled(lines[0].removeprefix(place), "red")
    else:
        yield Styled("error:", "bold red"), f" {lines[0]}"
    for line in lines[1:]:
        gutter, bar, rest = line.partition("|")
        if line.startswith("hint:"):
            yield Styled("hint:", "cyan"), line.removeprefix("hint:")
        elif bar and rest and not rest.strip("^ \t"):
            yield Styled(gutter + bar, "dim"), Styled(rest, "bold red")
        elif bar:
            yield Styled(gutter + bar, "dim"), rest
        else:
            yield (line,)


def _envelope(errors: tuple[OmnigraphError, ...]) -> dict[str, Any]:
    envelopes = [error.envelope() | error.input_problems() for error in errors]
    return envelopes[0] | ({"errors": envelopes} if len(envelopes) > 1 else {})


def _errors_of(failure: Exception) -> tuple[OmnigraphError, ...]:
    match failure:
        case Rejected():
            return failure.errors
        case OmnigraphError():
            return (failure,)
        case OSError():
            return (_operating_system(failure),)
    if isinstance(failure, typer.TyperException):
        return (_usage(failure),)
    return (
        InternalError(
            f"something unexpected happened: {type(failure).__name__}: {failure}",
            hint="this is a bug; run it again with `--debug` and report what it prints",
        ),
    )


def _operating_system(failure: OSError) -> OmnigraphError:
    reason = (failure.strerror or str(failure)).lower()
    name = f"`{failure.filename}`: " if failure.filename is not None else ""
    is_refused = isinstance(failure, PermissionError)
    return InputError(f"{name}{reason}", hint=PERMISSION_HINT if is_refused else None)


# --- the command line -----------------------------------------------------------------------------


def _usage(problem: typer.TyperException) -> UsageError:
    """An error of the argument parser in our wording, with the nearest known word."""
    # Typer keeps the classes of these problems private; tell them apart by their attributes.
    context: Any = getattr(problem, "ctx", None)
    parameter: Any = getattr(problem, "param", None)
    option: str | None = getattr(problem, "option_name", None)
    name = context.command_path if context is not None else "omnigraph"
    help_hint = f"`{name} --help` shows what it takes"
    if parameter is not None:
        return _parameter_problem(problem, parameter, name, help_hint)
    if option is not None and context is not None and option not in _known_flags(context):
        flag = option if option.startswith("-") else f"--{option}"
        hint = did_you_mean(flag, _known_flags(context))
        return UsageError(f"`{name}` has no flag `{flag}`", hint=hint or help_hint)
    sentence = problem.format_message().rstrip(".")
    return UsageError(sentence[:1].lower() + sentence[1:], hint=help_hint)


def _parameter_problem(
    problem: typer.TyperException, parameter: Any, name: str, help_hint: str
) -> UsageError:
    is_option = parameter.param_type_name == "option"
    metavar = parameter.metavar or parameter.name.upper()
    shown = f"{parameter.opts[0]} {metavar}" if is_option else metavar
    if type(problem).__name__ == "MissingParameter":
        # `init schema.pg …`: the file was given without its flag.
        given = [
            str(each) for each in getattr(getattr(problem, "ctx", None), "params", {}).values()
        ]
        files = [each for each in given if is_option and each.endswith(Path(metavar).suffix or " ")]
        meant = f"a file has a flag: `{parameter.opts[0]} {files[0]}`" if files else help_hint
        return UsageError(f"`{name}` needs `{shown}`", hint=meant)
    label = parameter.opts[0] if is_option else metavar
    if wanted := _number_wanted(problem.__cause__):
        return UsageError(f"`{label}` takes {wanted}", hint=help_hint)
    return UsageError(f"`{label}` was given something else: {problem.message}", hint=help_hint)


def _number_wanted(cause: Any) -> str | None:
    """The expected number and the given value; None if the problem is not about a number."""
    found = cause.errors()[0] if hasattr(cause, "errors") else {}
    bounds = found.get("ctx", {})
    match found.get("type"):
        case "int_parsing":
            wanted = "a whole number"
        case "float_parsing":
            wanted = "a number"
        case "greater_than_equal":
            wanted = f"a number from {bounds['ge']} on"
        case "less_than_equal":
            wanted = f"a number up to {bounds['le']}"
        case _:
            return None
    return f"{wanted}, not `{found['input']}`"


def _known_flags(context: Any) -> list[str]:
    """The flags of a command and the global ones."""
    commands = [context.command, context.find_root().command]
    return [
        flag
        for command in commands
        for parameter in command.get_params(context)
        if parameter.param_type_name == "option"
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("--")
    ]

"""Diagnostics of clusters: one per problem, with a stable code.

A command collects them and continues where possible, so that an operator sees all mistakes of a
file at once. `ClusterRefused` is the exception for problems that end a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, Literal, TypeVar

from omnigraph.errors import ClusterRefused, CompileError, OmnigraphError
from omnigraph.model.json_object import JsonObject
from omnigraph.model.records import dataclass

Severity = Literal["error", "warning"]
Refusal = TypeVar("Refusal", bound=OmnigraphError)


@dataclass(frozen=True, slots=True)
class ClusterDiagnostic(JsonObject):
    """One problem of a cluster, or of a command."""

    code: str
    severity: Severity
    path: str
    """The subject: a key of `cluster.yaml`, an address, or an object in the storage root."""
    message: str
    """The error, with file, line and column if known, and what to do."""

    def __str__(self) -> str:
        return f"{self.severity}: {self.code} at {self.path}: {self.message}"


class ClusterFindings:
    """The diagnostics of one command, in the order they were found."""

    def __init__(self) -> None:
        self._found: dict[ClusterDiagnostic, None] = {}

    def __iter__(self) -> Iterator[ClusterDiagnostic]:
        return iter(self._found)

    def error(self, code: str, path: str, message: str) -> None:
        """Note an error, which makes the command fail."""
        self._found[ClusterDiagnostic(code, "error", path, message)] = None

    def warning(self, code: str, path: str, message: str) -> None:
        """Note a problem that does not make the command fail."""
        self._found[ClusterDiagnostic(code, "warning", path, message)] = None

    def add(self, refused: ClusterRefused) -> None:
        """Note the problem that ended the command, or one of its steps."""
        self.error(refused.diagnostic, refused.path, sentence(refused))

    @property
    def has_errors(self) -> bool:
        """Whether the command fails."""
        return any(each.severity == "error" for each in self._found)

    def collecting(self) -> Collecting[ClusterRefused]:
        """A block whose `ClusterRefused` is noted, and execution continues after it."""
        return Collecting(ClusterRefused, self.add)


class Collecting(Generic[Refusal]):
    """A block whose refusals of one kind are noted, not raised."""

    def __init__(self, kind: type[Refusal], note: Callable[[Refusal], None]) -> None:
        self._kind = kind
        self._note = note

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, self._kind):
            self._note(error)
            return True
        return False


def sentence(problem: Exception) -> str:
    """The message of an error with its position and hint, on one line."""
    if isinstance(problem, CompileError) and problem.position is not None:
        at = problem.position
        place = f"{at.path or '<text>'}:{at.line}:{at.column}: "
        return place + _with_hint(problem.message, problem.hint)
    if isinstance(problem, OmnigraphError):
        return _with_hint(problem.message, problem.hint)
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror.lower()}"
    return str(problem)


def _with_hint(message: str, hint: str | None) -> str:
    return f"{message}; {hint}" if hint else message

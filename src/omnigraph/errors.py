"""The error tree: what went wrong, where, and what the caller may do next.

Every error of the product is an `OmnigraphError`. Classes are split by what a caller can do about
them, and each carries a stable ``code`` (match on that or on the class, never on message text), one
sentence in ``message``, an optional ``hint`` naming the next step, and structured ``details``::

    OmnigraphError
    ├── InputError (ValueError)         fix the request; nothing was written
    │   ├── SchemaContractError         the accepted schema objects do not agree
    │   ├── UnsupportedSchemaChange     a migration step that cannot be applied
    │   ├── WrongVerb                   a query that writes was to be read, or the reverse
    │   ├── ParameterError              a query parameter is missing or mistyped
    │   ├── ValueConversionError        a value does not fit its property
    │   ├── ConstraintViolation         @unique, @range, @check, endpoints, @card
    │   ├── SourceChanged               a file changed while it was being loaded
    │   ├── PolicyInvalid               a policy bundle, or a file of its tests
    │   ├── PipelineInvalid             a pipeline file, with the place of each problem
    │   ├── BlobRangeError              a byte range outside the value
    │   ├── ChangeCursorRejected        a cursor or page token of another place
    │   └── CompileError                a .pg or .gq text, with its position
    │       ├── SchemaParseError        parse error: …
    │       ├── CatalogError            catalog error: …
    │       ├── IdentityError           identity error: …
    │       ├── QueryParseError         parse error: …
    │       ├── QueryTypeError          type error: T4: …
    │       └── TranslationError        a query of another language has no equivalent
    ├── NotFound                        branch, commit, type, query, entity, object
    │   └── UnresolvedRevision          a revision names no commit, or several
    ├── LimitExceeded                   over a limit; the hint names the setting
    │   ├── QueryMemoryExceeded         a query needs more memory than its budget
    │   └── QueryTimeout                a query ran until its deadline
    ├── QueryCancelled                  the caller of a query stopped it
    ├── ChecksFailed                    a pipeline loaded its branch, and did not merge it
    ├── Conflict                        nothing landed; refresh and try again
    │   ├── AlreadyExists               the name is taken
    │   │   └── AlreadyInitialized      the root holds a graph, or leftovers of one
    │   ├── ExpectedVersionMismatch     a table of the write set moved
    │   ├── ReadSetChanged              head, ref or schema moved
    │   ├── KeyConflict                 a strict insert found an existing id
    │   ├── RowLevelCasContention       the publish budget is exhausted
    │   ├── UncoveredDrift              an external writer moved a table
    │   ├── EffectFreeConflict          another writer was first; plan the write again
    │   ├── FencedOut                   another writer took over
    │   ├── PreconditionFailed          a conditional write found another head
    │   ├── MergeConflicts              a three-way merge needs a decision
    │   ├── ReviewBlocked               a change request cannot be merged yet, with every reason
    │   └── ChangeDiffRefused           the commit has no comparable parent
    ├── Busy                            wait and retry
    │   ├── InitializationClaimed       another `init` of the same root is running
    │   ├── WriterBusy                  a live writer holds the lease
    │   ├── ExportInProgress            a graph cannot be removed while exported
    │   └── TooManyRequests             admission control
    ├── RecoveryRequired                an unfinished operation must be recovered first
    │   └── UnreadableSidecar           its recovery sidecar is damaged, wrong or newer
    ├── OutcomeUnknown                  ask again with the operation id
    │   ├── InitializationIndeterminate  `init` got no answer at its commit point
    │   └── AnswerLost                  a server may or may not have done a write
    ├── ClusterRefused                  a cluster cannot be served or addressed as it is
    ├── ServerUnreachable               no server answered
    ├── UnexpectedAnswer                the reply is not from an Omnigraph server
    ├── EmbeddingError                  the provider refused, or sent no usable vector
    ├── Denied                          the actor may not do this
    │   └── PolicyDenied                no rule of the policy allows it
    ├── PolicyEvaluationFailed          the policy could not be evaluated
    ├── Unauthenticated                 no valid token
    ├── StorageError                    the store under the graph failed
    │   ├── InitializationCommitted     `init` made the graph, then failed
    │   ├── LeaseLost                   a writer's lease expired or was taken over
    │   ├── OutOfSpace                  the disk or the quota is full
    │   ├── StorageUnavailable          the store does not answer now
    │   │   └── AuditUnavailable        the required audit cannot be written
    │   ├── DamagedFile                 a file is missing, truncated or undecodable
    │   ├── HistoricalVersionReclaimed  the pinned version was cleaned up
    │   ├── ChangeFeedGap               the feed cannot be read from there
    │   ├── RootMoved                   branches refer to its former root
    │   ├── UnsupportedStorageVersion   written by a newer product
    │   └── ExternalBlobUnavailable     the object behind a blob URI
    └── InternalError                   a bug; please report it

HTTP status and exit codes are one mapping each, in ``wire`` and ``cli``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

HINT = "hint: "
"""Prefix of a hint in text output."""
FULL_TRACEBACK = "OMNIGRAPH_FULL_TRACEBACK"
"""Environment variable that makes notebooks show all frames of a traceback."""
_PACKAGE = __file__.removesuffix("errors.py")


class OmnigraphError(Exception):
    """Root of every error the product raises on purpose."""

    code: ClassVar[str] = "internal"
    """The stable name of the error: by default the class name in snake case."""
    wire_code: ClassVar[str | None] = "internal"
    """The code in the envelope's closed set; ``None`` if only the status is sent."""
    detail_key: ClassVar[str | None] = None
    """The member of the envelope for ``details``, if the wire format defines one."""

    def __init_subclass__(cls) -> None:
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(
        self, message: str, *, hint: str | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self._hint: str | None = None
        self.hint = hint
        self.details: dict[str, Any] = dict(details or {})

    @property
    def hint(self) -> str | None:
        """The next step. A traceback shows it below the message."""
        return self._hint

    @hint.setter
    def hint(self, hint: str | None) -> None:
        if self._hint:
            self.__notes__.remove(f"{HINT}{self._hint}")
        self._hint = hint
        if hint:
            self.add_note(f"{HINT}{hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with only the message, but most constructors take other
        # arguments: an error of a worker process would become a TypeError.
        return _restored, (type(self), self.args), self.__dict__

    def envelope(self) -> dict[str, Any]:
        """The error as one JSON object: ``error``, ``code?``, its detail member, ``hint?``."""
        out: dict[str, Any] = {"error": self.message}
        if self.wire_code is not None:
            out["code"] = self.wire_code
        out.update(self.wire_detail())
        if self.hint:
            out["hint"] = self.hint
        return out

    def wire_detail(self) -> dict[str, Any]:
        """The structured members of the envelope."""
        return {self.detail_key: self.details} if self.detail_key else {}

    def input_problems(self) -> dict[str, Any]:
        """The problems of an input, listed and counted by kind, if the error is about an input."""
        return {name: self.details[name] for name in ("problems", "counts") if name in self.details}

    def render(self) -> str:
        """The text for users: `str`, and the hint on its own line."""
        return f"{self}\n{HINT}{self.hint}" if self.hint else str(self)

    def _render_traceback_(self) -> list[str]:
        """Lines of a traceback in a notebook, where IPython calls this: the caller's frames only.

        The frames of this package follow if ``OMNIGRAPH_FULL_TRACEBACK`` is set.
        """
        import traceback  # costs 12 ms, and only notebooks need it

        if os.environ.get(FULL_TRACEBACK):
            return "".join(traceback.format_exception(self)).splitlines()
        frames = traceback.extract_tb(self.__traceback__)
        shown = [frame for frame in frames if not _is_hidden(frame.filename)]
        lines = ["Traceback (most recent call last):"]
        lines += "".join(traceback.format_list(shown)).splitlines()
        if any(frame.filename.startswith(_PACKAGE) for frame in frames):
            lines.append(f"  ({FULL_TRACEBACK}=1 shows the frames of omnigraph)")
        lines += f"{type(self).__name__}: {self.render()}".splitlines()
        if self.__cause__ is not None and not isinstance(self.__cause__, OmnigraphError):
            cause = str(self.__cause__).partition("\n")[0]
            lines.append(f"caused by {type(self.__cause__).__name__}: {cause}")
        return lines


def _is_hidden(filename: str) -> bool:
    """Whether a notebook hides a frame: one of this package, or of IPython itself."""
    return filename.startswith(_PACKAGE) or f"{os.sep}IPython{os.sep}" in filename


def _restored(kind: type[OmnigraphError], args: tuple[Any, ...]) -> OmnigraphError:
    """An unpickled error without its attributes; pickle restores ``__dict__`` afterwards."""
    error = kind.__new__(kind)
    error.args = args
    return error


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, from its original source.

    That is the checkout, wheel or index that `pip` recorded.
    """
    # Imported here, because every command imports this module and few need these.
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = distribution("omnigraph").read_text("direct_url.json")
    except PackageNotFoundError:
        return f"pip install '.[{extra}]'  # in a checkout of Omnigraph"
    if origin is None:
        return f"pip install 'omnigraph[{extra}]'"
    place = json.loads(origin)
    if place.get("dir_info", {}).get("editable"):
        return f"pip install --editable '{unquote(urlsplit(place['url']).path)}[{extra}]'"
    return f"pip install 'omnigraph[{extra}] @ {place['url']}'"


class InputError(OmnigraphError, ValueError):
    """The request cannot be carried out as written; nothing was changed."""

    code = "bad_request"
    wire_code = "bad_request"


class SchemaContractError(InputError):
    """The stored schema source, compiled form and state record do not agree."""


class UnsupportedSchemaChange(InputError):
    """A schema change that has no supported migration step."""


class WrongVerb(InputError):
    """A query that writes was run as a read, or the reverse."""


class ParameterError(InputError):
    """A query parameter is missing, null, or of the wrong JSON type."""

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, details={"parameter": parameter})
        self.parameter = parameter


class ValueConversionError(InputError):
    """A value does not fit the property it was given for."""

    code = "value_error"


class ConstraintViolation(InputError):
    """A change set breaks a constraint of the schema."""


class SourceChanged(InputError):
    """A file changed while it was being loaded."""


class PolicyInvalid(InputError):
    """A policy bundle, or a file of tests for one, is invalid."""


class PipelineInvalid(InputError):
    """A pipeline file is wrong, or does not fit the graph or its sources; nothing was written."""


class BlobRangeError(InputError):
    """A byte range lies outside the blob value."""

    code = "blob_range"
    detail_key = "blob_range"

    def __init__(self, start: int, end: int, length: int) -> None:
        super().__init__(
            f"bytes {start}..{end} are outside the value, which has {length} bytes",
            details={"start": start, "end": end, "length": length},
        )


class ChangeCursorRejected(InputError):
    """A cursor or a page token is damaged, or belongs to another graph, branch, filter or use."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"change cursor rejected: {reason}", hint=hint)


class NotFound(OmnigraphError, LookupError):
    """A named thing does not exist."""

    wire_code = "not_found"


class UnresolvedRevision(NotFound):
    """A revision names no commit, or several: ``reason`` and ``candidates`` in ``details``."""

    code = "unresolved_revision"

    def __init__(
        self,
        message: str,
        revision: str,
        reason: Literal["unknown", "ambiguous"] = "unknown",
        candidates: Sequence[str] = (),
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            message,
            hint=hint,
            details={"revision": revision, "reason": reason, "candidates": list(candidates)},
        )

    @classmethod
    def no_commit(cls, commit_id: str) -> UnresolvedRevision:
        """For the id of a commit that is on no branch."""
        hint = "list commits with `omnigraph commit list`"
        return cls(f"there is no commit {commit_id}", commit_id, hint=hint)


class LimitExceeded(OmnigraphError):
    """A request is over a limit; the hint names the setting that raises it."""

    code = "resource_limit"
    wire_code = "bad_request"
    detail_key = "resource_limit"

    def __init__(self, resource: str, limit: int, actual: int, *, hint: str | None = None) -> None:
        super().__init__(
            f"{resource} is {actual}, over the limit of {limit}",
            hint=hint,
            details={"resource": resource, "limit": limit, "actual": actual},
        )


class QueryMemoryExceeded(LimitExceeded):
    """A query would exceed its memory budget, and was stopped before."""

    code = "query_memory_exceeded"

    def __init__(self, limit: int, actual: int) -> None:
        super().__init__(
            "memory of this query in bytes",
            limit,
            actual,
            hint="bind fewer nodes, use smaller bounds or return less; the budget is set by the "
            "governor's `memory_bytes`, the server, or OMNIGRAPH_QUERY_BYTES",
        )


class QueryTimeout(LimitExceeded):
    """A query ran until its deadline and was stopped; it changed nothing."""

    code = "query_timeout"

    def __init__(self, timeout_s: float) -> None:
        OmnigraphError.__init__(
            self,
            f"the query was stopped at its deadline, {timeout_s:g} s after it was asked",
            hint="make the question smaller, or ask with a longer timeout",
            details={"resource": "seconds of this query", "limit": timeout_s, "actual": timeout_s},
        )


class QueryCancelled(OmnigraphError):
    """The caller of a query stopped it; it changed nothing."""

    code = "query_cancelled"
    wire_code = None

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the query was stopped: {reason}",
            hint="run it again if its rows are still wanted",
            details={"reason": reason},
        )


class ChecksFailed(OmnigraphError):
    """Checks of a pipeline failed: its branch is kept, and the target is unchanged."""

    wire_code = "conflict"
    detail_key = "checks_failed"


@dataclass(frozen=True, slots=True)
class Position:
    """Where in a source text an error points: 1-based line and column, plus the byte span."""

    path: str | None
    line: int
    column: int
    line_text: str
    width: int
    byte_start: int
    byte_end: int

    def to_dict(self) -> dict[str, Any]:
        """The machine-readable form used by ``--json`` output."""
        return {
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "byte_start": self.byte_start,
            "byte_end": self.byte_end,
        }


class CompileError(InputError):
    """A schema or query text was rejected; ``position`` points at the cause when it is known."""

    prefix: ClassVar[str] = "compile error"

    def __init__(
        self,
        message: str,
        *,
        position: Position | None = None,
        diagnostic: str | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        label = f"{self.prefix}: {diagnostic}: " if diagnostic else f"{self.prefix}: "
        super().__init__(label + message, hint=hint, details=details)
        self.reason = message
        self.position = position
        self.diagnostic = diagnostic

    def wire_detail(self) -> dict[str, Any]:
        """Position and diagnostic code, for editors."""
        out: dict[str, Any] = {}
        if self.diagnostic:
            out["diagnostic"] = self.diagnostic
        if self.position:
            out["position"] = self.position.to_dict()
        return out

    def __str__(self) -> str:
        """File, line and column, the message, and the source line with a caret."""
        if self.position is None:
            return self.message
        at = self.position
        gutter = " " * len(str(at.line))
        # Tabs before the caret are repeated, so that it stays under its character.
        indent = "".join("\t" if c == "\t" else " " for c in at.line_text[: at.column - 1])
        lines = [
            f"{at.path or '<input>'}:{at.line}:{at.column}: {self.message}",
            f"{gutter} |",
            f"{at.line} | {at.line_text}",
            f"{gutter} | {indent}{'^' * max(1, at.width)}",
        ]
        return "\n".join(lines)


class SchemaParseError(CompileError):
    """The schema text is invalid: its syntax, or a single declaration."""

    prefix = "parse error"


class CatalogError(CompileError):
    """The declarations of a schema contradict each other."""

    code = "schema_catalog_error"
    prefix = "catalog error"


class IdentityError(CompileError):
    """A rename hint cannot be resolved against the accepted schema."""

    code = "schema_identity_error"
    prefix = "identity error"


class QueryParseError(CompileError):
    """The query text does not follow the grammar."""

    prefix = "parse error"


class QueryTypeError(CompileError):
    """The query does not fit the schema; ``diagnostic`` is its T code when it has one."""

    prefix = "type error"


class TranslationError(CompileError):
    """A query of another language cannot be translated; the position is in its own text."""

    prefix = "translation error"


class Conflict(OmnigraphError):
    """The write was not applied because the graph moved; read again and retry."""

    wire_code: ClassVar[str | None] = "conflict"


class AlreadyExists(Conflict):
    """The name or the root is already taken."""


class AlreadyInitialized(AlreadyExists):
    """The root already holds a graph, or schema objects without one."""


class ExpectedVersionMismatch(Conflict):
    """A table this write depends on was changed by another commit."""

    def __init__(self, table_key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{table_key} is at version {actual}, but this write was prepared on {expected}",
            hint="read the branch again and repeat the write",
            details={"table_key": table_key, "expected": expected, "actual": actual},
        )

    def wire_detail(self) -> dict[str, Any]:
        """The current detail member and the one for older clients."""
        kind, _, name = str(self.details["table_key"]).partition(":")
        return {
            "published_dataset_version_conflict": {
                "entity_kind": kind,
                "type_name": name,
                "expected_published_dataset_version": self.details["expected"],
                "actual_published_dataset_version": self.details["actual"],
            },
            "manifest_conflict": self.details,
        }


class ReadSetChanged(Conflict):
    """The branch head, its ref or the schema moved while the write was prepared."""

    detail_key = "read_set_conflict"

    def __init__(self, member: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"{member} moved from {expected} to {actual} while the write was prepared",
            hint="read the branch again and repeat the write",
            details={"member": member, "expected": expected, "actual": actual},
        )


class KeyConflict(Conflict):
    """A strict insert found an existing id."""

    detail_key = "key_conflict"

    def __init__(
        self,
        entity_kind: str,
        type_name: str,
        entity_id: str | None = None,
        *,
        place: str | None = None,
        message: str | None = None,
    ) -> None:
        details = {"entity_kind": entity_kind, "type_name": type_name}
        if entity_id is not None:
            details["entity_id"] = entity_id
        shown = f" with id '{entity_id}'" if entity_id is not None else ""
        where = f"{place}: " if place is not None else ""
        super().__init__(
            message or f"{where}{entity_kind} {type_name}{shown} already exists",
            hint="use mode merge to update existing entities",
            details=details,
        )

    def wire_detail(self) -> dict[str, Any]:
        """Only the entity: details of a load's source are not sent."""
        sent = ("entity_kind", "type_name", "entity_id")
        return {"key_conflict": {name: self.details[name] for name in sent if name in self.details}}


class RowLevelCasContention(Conflict):
    """Other writers won every attempt to publish."""


class UncoveredDrift(Conflict):
    """A table's newest version is not the published one, and no pending operation explains it."""

    def __init__(self, table_key: str, branch: str, pin: int, head: int, advice: str) -> None:
        super().__init__(
            f"{table_key} on {branch} is at version {head}, but version {pin} is published",
            hint=advice,
            details={"table_key": table_key, "branch": branch, "pin": pin, "head": head},
        )


class EffectFreeConflict(Conflict):
    """Another writer committed first, and this attempt had no effect: plan it again."""


class FencedOut(Conflict):
    """Another writer took over the lease; this one must not publish."""


class PreconditionFailed(Conflict):
    """A conditional write found another head than expected."""

    wire_code = None
    detail_key = "precondition_failure"

    def __init__(self, expected: str, actual: str | None) -> None:
        details = {"expected": expected} | ({"actual": actual} if actual is not None else {})
        super().__init__(
            f"the branch head is {actual}, not {expected}; nothing was written",
            hint="read the branch again and decide whether the write still applies",
            details=details,
        )


class MergeConflicts(Conflict):
    """Source and target changed the same entities, or the merged graph breaks a constraint."""

    def __init__(self, message: str, conflicts: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, details={"merge_conflicts": [dict(c) for c in conflicts]})

    def wire_detail(self) -> dict[str, Any]:
        """The conflicts as a list."""
        return self.details


class ReviewBlocked(Conflict):
    """A change request cannot be merged now; lists every reason."""

    def __init__(self, review_id: str, reasons: Sequence[Mapping[str, str]]) -> None:
        told = "; ".join(reason["text"] for reason in reasons)
        super().__init__(
            f"{review_id} cannot be merged: {told}",
            hint=f"`omnigraph review show {review_id}` shows where it stands",
            details={"review_id": review_id, "reasons": [dict(each) for each in reasons]},
        )


class ChangeDiffRefused(Conflict):
    """A commit cannot be shown as entity changes."""

    detail_key = "change_diff_refusal"

    _HINTS: ClassVar[Mapping[str, str]] = {
        "parentless_commit": "the first commit of a graph has nothing before it",
        "schema_boundary": "the schema changed the data here; start again behind it, "
        "with `omnigraph changes baseline`",
    }

    def __init__(self, reason: str, graph_commit_id: str, type_name: str | None = None) -> None:
        details = {"reason": reason, "graph_commit_id": graph_commit_id}
        if type_name is not None:
            details["type_name"] = type_name
        super().__init__(
            f"commit {graph_commit_id} has no diff: {reason}",
            hint=self._HINTS.get(reason),
            details=details,
        )


class Busy(OmnigraphError):
    """The resource is in use; the same request may succeed later."""

    wire_code: ClassVar[str | None] = None


class InitializationClaimed(Busy):
    """Another `init` of the same root is running."""


class WriterBusy(Busy):
    """A live writer held its lease beyond the wait limit."""

    detail_key = "writer_busy"

    def __init__(self, scope: str, owner: str, retry_after_ms: int) -> None:
        super().__init__(
            f"{scope} is being written by {owner}",
            hint=f"try again in {retry_after_ms} ms",
            details={"scope": scope, "owner": owner, "retry_after_ms": retry_after_ms},
        )


class ExportInProgress(Busy):
    """A graph cannot be removed while another process or thread exports it."""


class TooManyRequests(Busy):
    """Admission control rejected the request."""

    wire_code = "too_many_requests"


class RecoveryRequired(OmnigraphError):
    """An unfinished operation must be recovered before this request can run."""

    wire_code = None

    def __init__(
        self,
        operation_id: str | None,
        reason: str,
        advice: str,
        *,
        outcome: Literal["not_begun", "unknown"] = "not_begun",
    ) -> None:
        super().__init__(
            reason,
            hint=advice,
            details={"operation_id": operation_id, "reason": reason, "outcome": outcome},
        )

    @property
    def outcome(self) -> Literal["not_begun", "unknown"]:
        """The outcome of the refused request.

        `not_begun`: it had no effect, because another operation must be recovered first. `unknown`:
        it stopped after its first effect, and recovery will publish it or undo it.
        """
        found: Literal["not_begun", "unknown"] = self.details["outcome"]
        return found

    def wire_detail(self) -> dict[str, Any]:
        """Only the operation id is sent; the reason is in the message."""
        return {"recovery_required": {"operation_id": self.details["operation_id"]}}


class UnreadableSidecar(RecoveryRequired):
    """A recovery sidecar is damaged, contradicts the graph, or is newer; it is kept."""

    def __init__(
        self, name: str, problem: str, *, is_newer: bool = False, branch: str | None = None
    ) -> None:
        self.name = name
        self.problem = problem
        self.is_newer = is_newer
        """Whether a newer version of the product wrote it, which alone can settle it."""
        self.branch = branch
        """The branch that a newer sidecar names."""
        advice = "run `omnigraph recover`: it sets the file aside, and `omnigraph doctor` names it"
        if is_newer:
            advice = (
                "run `omnigraph recover` of the version that wrote it; if none did, move the file "
                "away"
            )
        super().__init__(
            name.rpartition("/")[2].removesuffix(".json"),
            f"recovery sidecar {name} {problem}",
            advice,
        )

    def concerns(self, branch: str) -> bool:
        """Whether it blocks writes to this branch."""
        return self.branch in (None, branch)


class OutcomeUnknown(OmnigraphError):
    """The store did not report whether the operation was applied; query it by its operation id."""

    wire_code = None

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(
            reason,
            hint="repeat the request with the same operation id to learn its outcome",
            details={"operation_id": operation_id},
        )


class InitializationIndeterminate(OutcomeUnknown):
    """`init` got no reply at its commit point; all files it wrote are kept."""


class AnswerLost(OutcomeUnknown):
    """The connection broke after a write was sent; the server may have applied it."""

    def __init__(self, reason: str, operation_id: str | None = None) -> None:
        # A stored query takes no id; the list of commits shows whether it was applied.
        look = "look at the newest commits of the branch before you repeat the write"
        ask = f"repeat it with operation_id={operation_id!r} to learn its outcome"
        OmnigraphError.__init__(
            self,
            reason,
            hint=look if operation_id is None else ask,
            details={} if operation_id is None else {"operation_id": operation_id},
        )


class ClusterRefused(OmnigraphError):
    """A cluster cannot be read, served or changed as it is; nothing was applied.

    ``diagnostic`` is the stable code of the reason, and ``path`` the part of the cluster it is
    about: an address, a key of `cluster.yaml`, or an object of the storage root.
    """

    wire_code = None

    def __init__(
        self, diagnostic: str, path: str, message: str, *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint, details={"diagnostic": diagnostic, "path": path})
        self.diagnostic = diagnostic
        self.path = path


class ServerUnreachable(OmnigraphError):
    """No server answered in time; a read can be repeated."""

    wire_code = None


class UnexpectedAnswer(OmnigraphError):
    """The reply is not from an Omnigraph server, or from an incompatible version."""

    wire_code = None


class EmbeddingError(OmnigraphError):
    """The embedding provider refused, did not answer, or sent no usable vector."""


class Denied(OmnigraphError, PermissionError):
    """Policy refused the action."""

    code = "forbidden"
    wire_code = "forbidden"


class PolicyDenied(Denied):
    """No rule of the graph's policy allows the action for the actor, or there is no actor."""

    def __init__(
        self,
        message: str,
        *,
        action: str,
        actor: str | None,
        branch: str | None = None,
        target_branch: str | None = None,
        hint: str | None = None,
    ) -> None:
        facts = {"branch": branch, "target_branch": target_branch}
        given = {name: value for name, value in facts.items() if value is not None}
        super().__init__(message, hint=hint, details={"action": action, "actor_id": actor, **given})
        self.action = action
        self.actor = actor
        self.branch = branch
        self.target_branch = target_branch


class PolicyEvaluationFailed(OmnigraphError):
    """The policy could not be evaluated: the action was neither allowed nor denied, nor done."""


class Unauthenticated(OmnigraphError):
    """No valid credential came with the request."""

    code = "unauthorized"
    wire_code = "unauthorized"


class StorageError(OmnigraphError):
    """The storage of the graph failed or contains something unexpected."""


class InitializationCommitted(StorageError):
    """`init` created the graph and failed afterwards; nothing was rolled back."""

    def __init__(self, graph_commit_id: str, reason: str) -> None:
        super().__init__(
            f"the graph was created, but `init` failed afterwards: {reason}",
            hint="open the graph; running `init` again is not needed",
            details={"graph_commit_id": graph_commit_id},
        )


class LeaseLost(StorageError):
    """The lease of a writer expired or was taken over; the writer stops."""


class OutOfSpace(StorageError):
    """The disk or the quota is full."""

    wire_code = None


class StorageUnavailable(StorageError):
    """The store does not answer or rejects requests for now; try again later."""

    wire_code = None


class AuditUnavailable(StorageUnavailable):
    """The required audit cannot be written, so nothing is read or written."""


class DamagedFile(StorageError):
    """A file of the graph is missing, truncated or cannot be decoded."""

    def __init__(self, file: str, hint: str, problem: str) -> None:
        super().__init__(f"{file} is damaged: {problem}", hint=hint, details={"file": file})


class HistoricalVersionReclaimed(StorageError):
    """Cleanup removed the version that a snapshot pins."""

    wire_code = "not_found"


class ChangeFeedGap(StorageError):
    """The change feed cannot continue from the given cursor."""

    wire_code = None
    detail_key = "change_feed_gap"

    def __init__(self, first_unreadable_commit_id: str, cursor: str | None = None) -> None:
        details = {"first_unreadable_commit_id": first_unreadable_commit_id}
        if cursor is not None:
            details["cursor"] = cursor
        super().__init__(
            f"the change feed is not readable from commit {first_unreadable_commit_id} on",
            hint="take a new baseline with `omnigraph changes baseline`",
            details=details,
        )


class RootMoved(StorageError):
    """The graph was moved or copied while branches still refer to its former root."""


class UnsupportedStorageVersion(StorageError):
    """The graph has a storage format that this version does not support."""


class ExternalBlobUnavailable(StorageError):
    """The object behind an external blob URI cannot be read."""

    wire_code = None
    detail_key = "external_blob_source"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"external blob {uri} is not readable: {reason}", details={"uri": uri, "reason": reason}
        )


class InternalError(OmnigraphError):
    """An invariant of the product does not hold; this is a bug."""

    code = "internal"

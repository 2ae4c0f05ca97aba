"""Errors on the wire: statuses, the envelope, and recreating the error in a client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from omnigraph import errors
from omnigraph.errors import InputError, OmnigraphError


class MethodNotAllowed(InputError):
    """The path exists, but not with this method."""

    wire_code = "method_not_allowed"


class UnsupportedMedia(InputError):
    """The body has a type that the route does not accept."""


STATUSES: tuple[tuple[type[OmnigraphError], int], ...] = (
    (MethodNotAllowed, 405),
    (UnsupportedMedia, 415),
    (errors.BlobRangeError, 416),
    (errors.InputError, 400),
    (errors.Unauthenticated, 401),
    (errors.Denied, 403),
    (errors.NotFound, 404),
    (errors.HistoricalVersionReclaimed, 404),
    (errors.PreconditionFailed, 412),
    (errors.Conflict, 409),
    (errors.ChangeFeedGap, 410),
    (errors.QueryTimeout, 408),
    (errors.LimitExceeded, 413),
    (errors.ExternalBlobUnavailable, 424),
    (errors.TooManyRequests, 429),
    (errors.Busy, 503),
    (errors.QueryCancelled, 503),
    (errors.RecoveryRequired, 503),
    (errors.StorageUnavailable, 503),
    (errors.OutOfSpace, 507),
)
"""The first matching class decides; anything else is 500."""

_TELLING = (
    errors.ParameterError,
    errors.PolicyDenied,
    errors.OutcomeUnknown,
    errors.ReviewBlocked,
    errors.UnresolvedRevision,
)
"""Errors without a structured detail whose `details` callers need and may see."""

_BY_DETAIL: Mapping[str, type[OmnigraphError]] = {
    "merge_conflicts": errors.MergeConflicts,
    "manifest_conflict": errors.ExpectedVersionMismatch,
    "read_set_conflict": errors.ReadSetChanged,
    "key_conflict": errors.KeyConflict,
    "change_diff_refusal": errors.ChangeDiffRefused,
    "change_feed_gap": errors.ChangeFeedGap,
    "precondition_failure": errors.PreconditionFailed,
    "resource_limit": errors.LimitExceeded,
    "blob_range": errors.BlobRangeError,
    "external_blob_source": errors.ExternalBlobUnavailable,
    "recovery_required": errors.RecoveryRequired,
    "writer_busy": errors.WriterBusy,
}
_BY_STATUS: Mapping[int, type[OmnigraphError]] = {
    400: errors.InputError,
    401: errors.Unauthenticated,
    403: errors.Denied,
    404: errors.NotFound,
    405: MethodNotAllowed,
    409: errors.Conflict,
    412: errors.Conflict,
    413: errors.LimitExceeded,
    415: UnsupportedMedia,
    429: errors.TooManyRequests,
    503: errors.Busy,
}


def status_of(error: OmnigraphError) -> int:
    """The status of an error; that of a full disk if one interrupted a write."""
    if _full_store_behind(error):
        error = errors.OutOfSpace.__new__(errors.OutOfSpace)
    return next((status for kind, status in STATUSES if isinstance(error, kind)), 500)


def envelope_of(error: OmnigraphError) -> dict[str, Any]:
    """The envelope of an error, with the code from which a client recreates it."""
    envelope = error.envelope()
    envelope["error_code"] = error.code
    if status_of(error) >= 500:
        if _full_store_behind(error):
            envelope["error_code"] = errors.OutOfSpace.code
        for name in ("error", "hint"):
            if name in envelope:
                envelope[name] = without_places(envelope[name])
    if isinstance(error, _TELLING):
        envelope["details"] = {k: v for k, v in error.details.items() if v is not None}
    elif found := error.input_problems():
        envelope["details"] = found
    return envelope


_CAUSES_MAX = 8
"""Bounds the walk, because an error can be its own cause."""


def _full_store_behind(error: OmnigraphError) -> bool:
    """Whether a write was interrupted because the store was full."""
    if not isinstance(error, errors.RecoveryRequired | errors.OutOfSpace):
        return False
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if isinstance(cause, errors.OutOfSpace):
            return True
        cause = None if cause is None else cause.__cause__
    return False


_PLACE = re.compile(
    r"""[a-z][a-z0-9+.-]*://[^\s'"`]+"""  # a URL: a bucket, an endpoint
    r"""|(?<![\w.])(?:/[^\s/'"`:,;]+){2,}/?"""  # an absolute path
    r"""|(?<![\w/])(?:__?[a-z_]+|nodes|edges)/[^\s'"`:,;]+"""  # an object below the root
)


def without_places(text: str) -> str:
    """A message without URLs, paths and object names, which only the server's log may contain."""
    return _PLACE.sub("[not shown]", text)


def error_of(status: int, envelope: Mapping[str, Any]) -> OmnigraphError:
    """Recreate the error from a server's answer, with the class it has in process."""
    message = str(envelope.get("error") or f"the server answered with status {status}")
    hint = envelope.get("hint")
    details = envelope.get("details")
    named = _named(envelope.get("error_code"), status)
    for key, kind in _BY_DETAIL.items():
        if key in envelope:
            detail = envelope[key]
            facts = detail if isinstance(detail, Mapping) else {key: detail}
            more = details if isinstance(details, Mapping) else {}
            narrow = named if named is not None and issubclass(named, kind) else kind
            return _rebuilt(narrow, message, hint, {**facts, **more})
    if named is not None and issubclass(named, errors.CompileError):
        return _compile_error(named, message, hint, envelope)
    known = ("error", "code", "error_code", "hint", "details", "outcome")
    rest = {name: value for name, value in envelope.items() if name not in known}
    return _rebuilt(
        named or _BY_STATUS.get(status, errors.StorageError),
        message,
        hint,
        details if isinstance(details, Mapping) else rest,
    )


def _named(code: object, status: int) -> type[OmnigraphError] | None:
    """The error class with this code, if it is known and has this status.

    A server may be newer than its client, and a proxy may change the status.
    """
    found = _by_code().get(code) if isinstance(code, str) else None
    return found if found is not None and status_of(found.__new__(found)) == status else None


@cache
def _by_code() -> Mapping[str, type[OmnigraphError]]:
    found: dict[str, type[OmnigraphError]] = {}
    waiting = [OmnigraphError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            # Private subclasses share the code of their public parent class.
            if kind.__module__ == errors.__name__:
                found[kind.code] = kind
            waiting.append(kind)
    return found


def _compile_error(
    kind: type[errors.CompileError], message: str, hint: object, envelope: Mapping[str, Any]
) -> errors.CompileError:
    diagnostic = envelope.get("diagnostic")
    label = f"{kind.prefix}: {diagnostic}: " if diagnostic else f"{kind.prefix}: "
    return kind(
        message.removeprefix(label),
        diagnostic=diagnostic if isinstance(diagnostic, str) else None,
        hint=hint if isinstance(hint, str) else None,
    )


def _rebuilt(
    kind: type[OmnigraphError], message: str, hint: object, details: Mapping[str, Any]
) -> OmnigraphError:
    # Skip the constructor, which would compose the message: it is already known.
    error = kind.__new__(kind)
    OmnigraphError.__init__(
        error, message, hint=hint if isinstance(hint, str) else None, details=details
    )
    if isinstance(error, errors.ParameterError):
        error.parameter = str(details.get("parameter", ""))
    if isinstance(error, errors.PolicyDenied):
        error.action = str(details.get("action", ""))
        error.actor = details.get("actor_id")
        error.branch = details.get("branch")
        error.target_branch = details.get("target_branch")
    return error

"""The request cannot be carried out as it is: wrong, about nothing that exists, or too large."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


class InputError(OmnigraphError, ValueError):
    """The request cannot be carried out as written; nothing was changed."""

    code = "bad_request"
    wire_code = "bad_request"


class SchemaContractError(InputError):
    """The stored schema source, compiled form and state record do not agree."""

    code = "schema_contract_error"


class UnsupportedSchemaChange(InputError):
    """A schema change that has no supported migration step."""

    code = "unsupported_schema_change"


class WrongVerb(InputError):
    """A query that writes was to be run as a read, or the other way round."""

    code = "wrong_verb"


class ParameterError(InputError):
    """A query parameter is missing, null, or of the wrong JSON type."""

    code = "parameter_error"

    def __init__(self, parameter: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, details={"parameter": parameter})
        self.parameter = parameter


class ValueConversionError(InputError):
    """A value does not fit the property it was given for."""

    code = "value_error"


class ConstraintViolation(InputError):
    """A change set breaks a constraint of the schema."""

    code = "constraint_violation"


class SourceChanged(InputError):
    """A file is not the one that its load began with."""

    code = "source_changed"


class PolicyInvalid(InputError):
    """A policy bundle, or a file of tests for one, is not what it must be."""

    code = "policy_invalid"


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

    code = "change_cursor_rejected"

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"change cursor rejected: {reason}", hint=hint)


class NotFound(OmnigraphError, LookupError):
    """A named thing does not exist."""

    code = "not_found"
    wire_code = "not_found"


class LimitExceeded(OmnigraphError):
    """A request is over a limit; the hint names the knob."""

    code = "resource_limit"
    wire_code = "bad_request"
    detail_key = "resource_limit"

    def __init__(self, resource: str, limit: int, actual: int, *, hint: str | None = None) -> None:
        super().__init__(
            f"{resource} is {actual}, over the limit of {limit}",
            hint=hint,
            details={"resource": resource, "limit": limit, "actual": actual},
        )

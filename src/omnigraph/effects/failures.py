"""Failures of a store, in six classes and without secrets.

No class implies that repeating the request is safe: a write that failed with `Transient` may have
landed, which its caller has to find out.

S3 repeats access keys and signed headers in its error bodies. So only the HTTP status and the error
code of a reply are used, and the original exception is not chained.
"""

from __future__ import annotations

import errno
import re
from enum import StrEnum
from typing import NamedTuple

from omnigraph.errors import OutOfSpace, StorageError, StorageUnavailable


class FailureClass(StrEnum):
    """Why a request to a store failed."""

    TRANSIENT = "Transient"
    """Unreachable, overloaded or contended: a later request may succeed."""
    CONFIGURATION = "Configuration"
    """Credentials, permissions, address or capabilities of the store have to be corrected."""
    NOT_FOUND = "NotFound"
    """The object is proven absent."""
    PRECONDITION = "Precondition"
    """A condition of the request did not hold."""
    PERMANENT = "Permanent"
    """The store refuses this request and will refuse it again."""
    UNKNOWN = "Unknown"
    """The reply cannot be interpreted, or does not say whether the request took effect."""


class StorageFailure(StorageError):
    """A request to a store failed; class, operation and object are attributes."""

    code = StorageError.code

    def __init__(
        self,
        failure_class: FailureClass,
        operation: str,
        target: str,
        reason: str,
        *,
        hint: str | None = None,
    ) -> None:
        done = "write to" if operation == "probe" else operation
        super().__init__(
            f"cannot {done} '{target}': {reason}",
            hint=hint,
            details={
                "failure_class": failure_class.value,
                "operation": operation,
                "object": target,
            },
        )
        self.failure_class = failure_class
        self.operation = operation
        self.target = target
        self.reason = reason


class StoreFull(OutOfSpace, StorageFailure):
    """A write failed because the disk or the quota is full."""

    code = OutOfSpace.code


class StoreUnavailable(StorageUnavailable, StorageFailure):
    """A request failed because the store cannot be reached or is overloaded."""

    code = StorageUnavailable.code


# --- the local file system ------------------------------------------------------------------------

_CLASS_OF_ERRNO = {
    **dict.fromkeys((errno.ENOENT,), FailureClass.NOT_FOUND),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENOTSUP, errno.EOPNOTSUPP),
        FailureClass.CONFIGURATION,
    ),
    **dict.fromkeys(
        (
            *(errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EMFILE, errno.ENFILE),
            *(errno.ENOLCK, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT),
        ),
        FailureClass.TRANSIENT,
    ),
    errno.EEXIST: FailureClass.PRECONDITION,
    **dict.fromkeys(
        (
            *(errno.EDQUOT, errno.EFBIG, errno.EINVAL, errno.EIO, errno.EISDIR, errno.EXDEV),
            *(errno.ENAMETOOLONG, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY),
        ),
        FailureClass.PERMANENT,
    ),
}

_PERMISSION = (
    "check the owner and the permissions of the directory (`ls -ld`), or use another place"
)
_HINT_OF_ERRNO = {
    errno.ENOTDIR: "a part of the path is a file; name a directory",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "the file system is mounted read-only; open the graph read-only",
    errno.ENOSPC: "free some disk space and try again",
    errno.EDQUOT: "free some disk space and try again",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EIO: "check the health of the disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
}


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""EFBIG is a quota, too: the largest file that this process may write."""
NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)


def hint_for(number: int) -> str | None:
    """The hint for an error of the operating system."""
    return _HINT_OF_ERRNO.get(number)


def from_os_error(error: OSError, operation: str, target: str) -> StorageFailure:
    """The failure for an error of the operating system."""
    number = error.errno or 0
    name = errno.errorcode.get(number, "no error number")
    failure_class = _CLASS_OF_ERRNO.get(number, FailureClass.UNKNOWN)
    return _kind_of(failure_class, number)(
        failure_class,
        operation,
        target,
        f"{(error.strerror or 'unknown error').lower()} ({name})",
        hint=hint_for(number),
    )


def _kind_of(failure_class: FailureClass, number: int = 0) -> type[StorageFailure]:
    if failure_class is FailureClass.TRANSIENT:
        return StoreUnavailable
    return StoreFull if number in FULL else StorageFailure


# --- remote stores --------------------------------------------------------------------------------

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
_METADATA_SERVICE = re.compile(r"https?://(169\.254\.|\[?fd00:ec2)|/latest/(api/token|meta-data)")


class StoreReply(NamedTuple):
    """HTTP status and error code of a store's reply, parsed from the text of its exception."""

    status: int | None
    code: str | None

    @classmethod
    def of(cls, error: BaseException) -> StoreReply:
        """Parse the reply in ``error``."""
        text = str(error)
        status = _STATUS.search(text)
        code = _CODE.search(text)
        return cls(int(status[1]) if status else None, code[1] if code else None)

    def __str__(self) -> str:
        parts = [f"HTTP {self.status}" if self.status else "", self.code or ""]
        return " ".join(filter(None, parts)) or "no answer"


_CREDENTIALS_HINT = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may access"


def from_store_error(error: Exception, operation: str, target: str) -> StorageFailure:
    """The failure for an exception of the object-store library, without its text."""
    failure_class, reason, hint = _judge(error, StoreReply.of(error))
    return _kind_of(failure_class)(failure_class, operation, target, reason, hint=hint)


def _judge(error: Exception, reply: StoreReply) -> tuple[FailureClass, str, str | None]:
    # Exception classes are matched by name, so that this module does not import the library.
    kind = type(error).__name__
    text = str(error)
    if reply.code == "NoSuchBucket":  # does not prove that the object is absent
        return (
            FailureClass.CONFIGURATION,
            "the bucket does not exist",
            "create the bucket, or check its name and AWS_ENDPOINT_URL",
        )
    if _METADATA_SERVICE.search(text):
        return FailureClass.CONFIGURATION, "no credentials were found", _CREDENTIALS_HINT
    if kind in {"FileNotFoundError", "NotFoundError"}:
        return FailureClass.NOT_FOUND, "there is no such object", None
    if kind in {"AlreadyExistsError", "PreconditionError", "NotModifiedError"}:
        return FailureClass.PRECONDITION, f"the condition does not hold ({reply})", None
    if kind in {"PermissionDeniedError", "UnauthenticatedError"} or reply.status in (401, 403):
        return FailureClass.CONFIGURATION, f"access was refused ({reply})", _CREDENTIALS_HINT
    if kind in {"NotSupportedError", "NotImplementedError"} or reply.status == 501:
        return (
            FailureClass.CONFIGURATION,
            f"the store does not support this request ({reply})",
            "use a store with conditional writes (If-Match and If-None-Match)",
        )
    if "incorrectly configured region" in text or reply.code == "AuthorizationHeaderMalformed":
        return FailureClass.CONFIGURATION, "the bucket is in another region", "set AWS_REGION"
    if kind == "UnknownConfigurationKeyError" or "builder error" in text:
        return FailureClass.CONFIGURATION, "the store's settings are not usable", None
    if reply.status in (408, 429) or (reply.status or 0) >= 500:
        return FailureClass.TRANSIENT, f"the store is not available ({reply})", None
    if reply.status:
        return FailureClass.PERMANENT, f"the store refused the request ({reply})", None
    if "HTTP error" in text or "timed out" in text:
        return (
            FailureClass.TRANSIENT,
            "the connection failed or timed out",
            "check the network and AWS_ENDPOINT_URL",
        )
    return FailureClass.UNKNOWN, f"unexpected {kind}", None

"""Classes of failures of the operating system."""

from __future__ import annotations

import errno
import os

import pytest

from omnigraph.effects.failures import FailureClass, from_os_error, from_store_error
from omnigraph.errors import StorageError


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOENT, FailureClass.NOT_FOUND),
        (errno.EACCES, FailureClass.CONFIGURATION),
        (errno.EROFS, FailureClass.CONFIGURATION),
        (errno.EOPNOTSUPP, FailureClass.CONFIGURATION),
        (errno.EMFILE, FailureClass.TRANSIENT),
        (errno.ESTALE, FailureClass.TRANSIENT),
        (errno.EEXIST, FailureClass.PRECONDITION),
        (errno.ENOSPC, FailureClass.PERMANENT),
        (errno.EIO, FailureClass.PERMANENT),
        (errno.ENAMETOOLONG, FailureClass.PERMANENT),
        (errno.EPIPE, FailureClass.UNKNOWN),
    ],
)
def test_errors_of_the_system_have_a_class(number: int, expected: FailureClass):
    failure = from_os_error(OSError(number, os.strerror(number)), "write", "/graph/x")
    assert isinstance(failure, StorageError)
    assert failure.failure_class is expected
    assert failure.details == {
        "failure_class": expected.value,
        "operation": "write",
        "object": "/graph/x",
    }
    assert failure.message.startswith("cannot write '/graph/x': ")
    assert errno.errorcode[number] in failure.message


def test_an_error_without_a_number_is_unknown():
    failure = from_os_error(OSError("odd"), "read", "x")
    assert failure.failure_class is FailureClass.UNKNOWN


def test_missing_credentials_are_a_matter_of_configuration():
    """Without credentials the client asks the metadata service of the machine, if there is one."""
    text = "Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: timed out"
    failure = from_store_error(RuntimeError(text), "read", "s3://bucket/x")
    assert failure.failure_class is FailureClass.CONFIGURATION
    assert "AWS_ACCESS_KEY_ID" in (failure.hint or "")


def test_an_unknown_exception_shows_its_type_and_not_its_text():
    failure = from_store_error(RuntimeError("hunter2"), "read", "s3://bucket/x")
    assert failure.failure_class is FailureClass.UNKNOWN
    assert "RuntimeError" in failure.message
    assert "hunter2" not in failure.render()

"""Environment variables: numeric settings, and the `AWS_*` options of S3.

An invalid number is logged once and the default used, so that a typing error in the environment of
a service does not keep it from starting. Lance and the object-store client take the same S3
options, which are read at each call and never stored, so that no object can expose a credential.
Spark's processes, which may have another environment, take over the variables of the process that
sent their work.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.errors import InputError

log = logging.getLogger(__name__)

_reported: set[tuple[str, str]] = set()


def positive_number(
    name: str,
    default: int,
    environment: Mapping[str, str] = os.environ,
    *,
    least: int = 1,
    strict: bool = False,
) -> int:
    """The value of a variable, at least ``least``; ``default`` if it is not set or invalid.

    With ``strict``, an invalid value raises `InputError`.
    """
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isascii() and text.isdecimal() and int(text) >= least:
        return int(text)
    if strict:
        raise InputError(f"{name} is '{text}', not a positive integer", hint=f"unset {name}")
    report_unusable(name, text, f"a number from {least} on; {default} is used")
    return default


def report_unusable(name: str, text: str, expected: str) -> None:
    """Log once that a variable has an invalid value."""
    if (name, text) not in _reported:
        _reported.add((name, text))
        log.warning("%s is '%s', not %s", name, text, expected)


_PLAIN = {
    "AWS_REGION": "aws_region",
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""In order of precedence, as in the AWS tools: the service's own, then the general one."""
_FLAGS = ("AWS_ALLOW_HTTP", "AWS_S3_FORCE_PATH_STYLE")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}
_NOT_HEADER_SAFE = re.compile(r"[^\x21-\x7e]")

_taken_over: Mapping[str, str] | None = None


def s3_variables() -> dict[str, str]:
    """The S3 variables of this process, credentials included, to send to another process."""
    environ = os.environ if _taken_over is None else _taken_over
    known = (*_PLAIN, *_FLAGS, *_ENDPOINTS)
    return {name: environ[name] for name in known if environ.get(name)}


def take_over_s3_variables(variables: Mapping[str, str]) -> None:
    """Use the S3 variables of another process; if empty, those of this process.

    For Spark's processes, which run one task at a time. Does not change the environment, which
    threads of Lance may be reading.
    """
    global _taken_over  # noqa: PLW0603 - as global as the environment it stands for
    _taken_over = dict(variables) or None


def s3_options(bucket: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options for the store of ``bucket``, by ``environ`` or by the environment of this process.

    Raises `StorageFailure` of class `Configuration` for a variable that cannot be used. The message
    names the variable and never shows a credential.
    """
    environ = s3_variables() if environ is None else environ
    options: dict[str, str] = {}
    for variable, option in _PLAIN.items():
        value = environ.get(variable)
        if value:
            # These become request headers, and a line break in one crashes the client.
            if _NOT_HEADER_SAFE.search(value):
                raise _unusable(bucket, variable, "has a blank or a control character")
            options[option] = value
    allow_http = _flag(bucket, environ, "AWS_ALLOW_HTTP")
    path_style = _flag(bucket, environ, "AWS_S3_FORCE_PATH_STYLE")
    if allow_http is not None:
        options["allow_http"] = str(allow_http).lower()
    if path_style is not None:
        options["aws_virtual_hosted_style_request"] = str(not path_style).lower()
    for variable in _ENDPOINTS:
        endpoint = environ.get(variable)
        if endpoint:
            options["aws_endpoint"] = _endpoint(
                bucket, variable, endpoint, allow_http=allow_http, in_host=path_style is False
            )
            break
    return options


def _endpoint(
    bucket: str, variable: str, endpoint: str, *, allow_http: bool | None, in_host: bool
) -> str:
    """The checked endpoint; with virtual-hosted style the bucket becomes part of its host."""
    try:
        parts = urlsplit(endpoint)
        host = parts.hostname
        _ = parts.port  # raises if it is not a number
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or _NOT_HEADER_SAFE.search(endpoint):
        raise _unusable(bucket, variable, "is not an http or https URL")
    if parts.username or parts.password:
        raise _unusable(bucket, variable, "carries credentials, which belong in AWS_* variables")
    if parts.scheme == "http" and not allow_http:
        raise _unusable(
            bucket, variable, "is a plain http URL", hint="set AWS_ALLOW_HTTP=true to allow it"
        )
    if in_host and not host.startswith(f"{bucket}."):
        parts = parts._replace(netloc=f"{bucket}.{parts.netloc}")
    return parts.geturl().rstrip("/")


def _flag(bucket: str, environ: Mapping[str, str], variable: str) -> bool | None:
    value = environ.get(variable, "").strip().lower()
    if not value:
        return None
    if value not in _TRUE | _FALSE:
        raise _unusable(bucket, variable, "is neither true nor false")
    return value in _TRUE


def _unusable(bucket: str, variable: str, problem: str, hint: str | None = None) -> StorageFailure:
    return StorageFailure(
        FailureClass.CONFIGURATION,
        "open",
        f"s3://{bucket}",
        f"{variable} {problem}",
        hint=hint or f"correct the environment variable {variable}",
    )

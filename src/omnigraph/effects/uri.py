"""Addresses: roots of graphs and the keys of objects below them.

All spellings of a root have the same canonical URI, which is the key of locks, leases and caches. A
root contains no credentials: they come from the environment when a store is opened.

Keys are relative, separated by `/`, and cannot lead out of their root. The same rules apply to
every backend, so a key that works in a test works on every store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from omnigraph.effects.environment import s3_options
from omnigraph.errors import InputError
from omnigraph.model.records import dataclass

HIDDEN_PREFIX = ".omnigraph-"
"""The prefix of path segments reserved for the store: staged files, lock files, probes.

`list` does not return them, and keys cannot contain them.
"""

_CONTROL = re.compile("[\x00-\x1f\x7f]")


def is_hidden(segment: str) -> bool:
    """Whether a path segment is reserved for the store."""
    return segment.startswith(HIDDEN_PREFIX)


def check_key(key: str) -> str:
    """``key`` itself; raises `InputError` if it cannot name an object."""
    problem = _problem(key)
    if problem:
        raise InputError(
            f"'{key}' is not an object name: it {problem}",
            hint="write it relative to the root, as segments joined by '/'",
            details={"object": key},
        )
    return key


def check_prefix(prefix: str) -> str:
    """The prefix without its trailing slash; the empty prefix is the whole root."""
    return check_key(prefix.removesuffix("/")) if prefix else ""


def _problem(key: str) -> str | None:
    if not key:
        return "is empty"
    if key.startswith("/"):
        return "is absolute"
    if _CONTROL.search(key):
        return "has a control character"
    for segment in key.split("/"):
        if not segment:
            return "has an empty segment"
        if segment in (".", ".."):
            return f"has the segment '{segment}'"
        if is_hidden(segment):
            return f"has a segment starting with '{HIDDEN_PREFIX}', which is reserved"
    return None


Scheme = Literal["file", "s3", "memory"]

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = re.compile(r"file:", re.IGNORECASE)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# Lance decodes an s3 URI as a URL; the object client uses keys literally. Without these characters
# both address the same object.
_AMBIGUOUS_IN_PREFIX = re.compile(r"[%?#\\\x00-\x1f\x7f]")
_USER_INFO = re.compile(r"(?<=://)[^/?#]*@")


@dataclass(frozen=True, slots=True)
class Root:
    """The root address of a graph, in canonical form.

    >>> Root.parse("s3://lake//graphs/./knowledge/").uri
    's3://lake/graphs/knowledge'
    """

    uri: str
    """The canonical URI. For a local root the absolute path, as Lance expects it."""
    scheme: Scheme
    path: Path | None = None
    """The directory of a local root."""

    @classmethod
    def parse(cls, uri: str | os.PathLike[str]) -> Root:
        """The root that ``uri`` names: a path, `file://`, `s3://bucket/prefix` or `memory://name`.

        Raises `InputError` for anything else; for a served graph (`http://`) with a hint how to
        connect to it.
        """
        if not isinstance(uri, str):
            return _local(_spelled_path(os.fspath(uri)))
        if _FILE.match(uri):
            return _local(_path_of_file_uri(uri))
        match = _URI.match(uri)
        if match is None:
            return _local(_spelled_path(uri))
        scheme = match["scheme"].lower()
        if scheme == "s3":
            return _s3(uri, uri[match.end() :])
        if scheme == "memory":
            return cls(f"memory://{_segments(uri, uri[match.end() :])}", "memory")
        if scheme in ("http", "https"):
            shown = _shown(uri)
            raise InputError(
                f"'{shown}' is a served graph, not a storage root",
                hint=f'use omnigraph.connect("{shown}"), or --server {shown} on the command line',
                details={"uri": shown},
            )
        raise _refused(uri, f"has the unknown scheme '{scheme}'")

    @property
    def is_local(self) -> bool:
        """Whether the root is a directory of this machine."""
        return self.path is not None

    @property
    def bucket(self) -> str:
        """The bucket of an s3 root."""
        return self.uri.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """The key prefix of an s3 root inside its bucket; may be empty."""
        return self.uri.removeprefix("s3://").partition("/")[2]

    def join(self, *parts: str) -> str:
        """The address of an object or dataset below the root, for Lance and for messages."""
        key = check_key("/".join(parts))
        return f"{self.uri.rstrip('/')}/{key}"

    def storage_options(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The options of Lance and the object client for the root; empty unless it is on S3.

        Read from the environment at each call. They contain credentials: do not store or show them.
        """
        if self.scheme != "s3":
            return {}
        return s3_options(self.bucket, environ)

    def __str__(self) -> str:
        return self.uri


def _local(spelled: str) -> Root:
    try:
        # Resolves only existing parts: a root may not have been created yet.
        path = Path(spelled).resolve()
    except (OSError, RuntimeError) as error:  # a loop of symlinks, or no working directory
        raise InputError(
            f"'{spelled}' cannot be resolved to a directory", hint="check its symbolic links"
        ) from error
    return Root(str(path), "file", path)


def _spelled_path(text: str) -> str:
    if not text or "\0" in text:
        raise _refused(text, "is empty" if not text else "has a NUL character")
    # Path("s3://bucket/x") silently becomes "s3:/bucket/x", a directory named "s3:".
    if re.match(r"(s3|https?|memory|file):/", text, re.IGNORECASE):
        raise _refused(text, "is a URI that was turned into a path; pass it as a string")
    return text


def _path_of_file_uri(uri: str) -> str:
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise _refused(uri, "cannot be read as a URI") from None
    path = unquote(parts.path, errors="surrogateescape")  # names need not be UTF-8
    if parts.netloc not in ("", "localhost"):
        raise _refused(uri, "names a host; write file:/// and an absolute path")
    if parts.query or parts.fragment:
        raise _refused(uri, "has a '?' or '#'; write them as %3F and %23")
    if not path.startswith("/") or "\0" in path:
        raise _refused(uri, "has no absolute path")
    return path


def _s3(uri: str, rest: str) -> Root:
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket:
        raise _refused(uri, "carries credentials, which belong in the AWS_* variables")
    if not _BUCKET.fullmatch(bucket):
        raise _refused(uri, "has no valid bucket name: 3 to 63 of a-z, 0-9, '-' and '.'")
    return Root("/".join(filter(None, [f"s3://{bucket}", _segments(uri, prefix)])), "s3")


def _segments(uri: str, path: str) -> str:
    """The path without empty and `.` segments; refuses what stores could read differently."""
    if _AMBIGUOUS_IN_PREFIX.search(path):
        raise _refused(uri, "has one of the characters % ? # \\ or a control character")
    segments = [s for s in path.split("/") if s not in ("", ".")]
    if ".." in segments:
        raise _refused(uri, "has the segment '..'")
    return check_key("/".join(segments)) if segments else ""


def _shown(uri: str) -> str:
    """``uri`` without user, password and query."""
    return re.split(r"[?#]", _USER_INFO.sub("", uri), maxsplit=1)[0]


def _refused(uri: str, problem: str) -> InputError:
    shown = _shown(uri)
    return InputError(
        f"'{shown}' is not a storage root: it {problem}",
        hint="use a path, file:///path or s3://bucket/prefix",
        details={"uri": shown},
    )

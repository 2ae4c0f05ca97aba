"""URIs of objects outside of a graph, and the base folders that contain them.

The right to write to a graph must not grant the right to read any file of its machine. So a URI is
admitted only below a base that an operator has allowed. Comparing texts is not enough: `a/../b`,
`%2e%2e`, a tab that a parser drops or a second decoding mean different places to different parsers.
A URI is therefore parsed into a place, and an ambiguous one is refused. The places themselves are
not accessed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from omnigraph.errors import InputError
from omnigraph.model.records import dataclass
from omnigraph.model.values import BLOB_URI_BYTES_MAX

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_AMBIGUOUS = re.compile(r"[?#\\\x00-\x1f\x7f]")
"""Queries and fragments, which carry signatures; and characters that parsers disagree about."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER_INFO = re.compile(r"(?<=://)[^/?#\\]*@")


@dataclass(frozen=True, slots=True)
class ExternalPlace:
    """The unambiguous location of an object or a folder."""

    scheme: Literal["file", "s3"]
    bucket: str
    """Empty for files."""
    segments: tuple[str, ...]
    """The parts of its path, decoded."""

    @classmethod
    def parse(cls, uri: str) -> ExternalPlace:
        """The location of ``uri``; raises `InputError` with the reason if it is ambiguous."""
        if len(uri.encode("utf-8", "surrogatepass")) > BLOB_URI_BYTES_MAX:
            raise _refused(uri, f"has more than {BLOB_URI_BYTES_MAX} bytes")
        if uri != uri.strip():
            raise _refused(uri, "begins or ends with a space")
        if _AMBIGUOUS.search(uri):
            raise _refused(uri, "has a ?, a #, a \\ or a control character")
        found = _URI.fullmatch(uri)
        if found is None:
            raise _refused(uri, "does not begin with a scheme and ://")
        scheme, authority = found["scheme"].lower(), found["authority"]
        segments = _segments(uri, found["path"] or "")
        if "@" in authority:
            raise _refused(uri, "carries credentials")
        if scheme == "s3" and _BUCKET.fullmatch(authority):
            return cls("s3", authority, segments)
        if scheme == "file" and authority.lower() in ("", "localhost"):
            return cls("file", "", segments)
        if scheme in ("s3", "file"):
            what = "no bucket" if scheme == "s3" else "a host"
            raise _refused(uri, f"has {what} between :// and the path")
        raise _refused(uri, f"has the scheme '{scheme}', which is neither s3 nor file")

    @property
    def key(self) -> str:
        """Its path within the bucket or the file system, without a leading slash."""
        return "/".join(self.segments)

    def contains(self, other: ExternalPlace) -> bool:
        """Whether the other place is this one, or lies in it."""
        return (self.scheme, self.bucket) == (
            other.scheme,
            other.bucket,
        ) and self.segments == other.segments[: len(self.segments)]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{quote(self.key)}"


@dataclass(frozen=True, slots=True)
class ExternalBases:
    """The folders whose objects a blob may refer to; none by default."""

    places: tuple[ExternalPlace, ...] = ()

    @classmethod
    def of(cls, bases: Iterable[str]) -> ExternalBases:
        """The bases with these URIs; raises `InputError` for one that is unsafe or overlaps."""
        places: list[ExternalPlace] = []
        for text in bases:
            place = ExternalPlace.parse(text.removesuffix("/") if text.count("/") > 2 else text)
            for other in places:
                if place.contains(other) or other.contains(place):
                    raise InputError(
                        f"the bases {other} and {place} overlap",
                        hint="name each folder once, and none inside another",
                    )
            places.append(place)
        return cls(tuple(places))

    def base_of(self, place: ExternalPlace) -> ExternalPlace | None:
        """The base that contains an object; None if there is none. A base itself is no object."""
        for base in self.places:
            if base.contains(place) and place != base:
                return base
        return None

    def allow(self, uri: str) -> bool:
        """Whether ``uri`` is an object below one of the bases."""
        try:
            return self.base_of(ExternalPlace.parse(uri)) is not None
        except InputError:
            return False


def without_credentials(uri: str) -> str:
    """``uri`` without user, password and signature, as it may be shown."""
    return re.split(r"[?#]", _USER_INFO.sub("", uri), maxsplit=1)[0]


def _segments(uri: str, path: str) -> tuple[str, ...]:
    if not path or path == "/":
        return ()
    segments = []
    for spelled in path[1:].split("/"):
        if _BROKEN_ESCAPE.search(spelled):
            raise _refused(uri, "has a % that is not followed by two digits")
        try:
            segment = unquote_to_bytes(spelled).decode()
        except UnicodeError:
            raise _refused(uri, "has escapes that are not UTF-8") from None
        if segment in ("", ".", ".."):
            raise _refused(uri, "has an empty part, or one that is . or ..")
        if "%" in segment:
            raise _refused(uri, "has an escaped %, which some would decode twice")
        if "/" in segment or _AMBIGUOUS.search(segment):
            raise _refused(uri, "has an escaped /, ?, #, \\ or control character")
        segments.append(segment)
    return tuple(segments)


def _refused(uri: str, reason: str) -> InputError:
    shown = without_credentials(uri)
    return InputError(
        f"'{shown[:200]}' cannot be used as the URI of an external object: it {reason}",
        hint="write s3://bucket/key or file:///path, with credentials in the environment",
        details={"uri": shown, "reason": reason},
    )

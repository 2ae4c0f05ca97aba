"""The page of Studio: static files, sent with headers that confine them to this server.

The page itself is written in `studio/` and built into the folder `page` beside this module, which a
wheel contains. It knows only the public API.
"""

from __future__ import annotations

import gzip
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import RedirectResponse, Response

from omnigraph.errors import InputError, NotFound
from omnigraph.server.call import Call
from omnigraph.wire.operations import Operation

PLACE = "/studio/"
FILES = Path(__file__).with_name("page")
INDEX = "index.html"
NAMED = frozenset({INDEX, "THIRD-PARTY.txt"})
"""Files whose names stay as they are when their content changes."""

OPERATIONS = (
    Operation("studio", f"GET {PLACE}", "The page", is_public=True),
    Operation("studio_file", f"GET {PLACE}{{file}}", "A file of the page", is_public=True),
    Operation("studio_redirect", f"GET {PLACE.rstrip('/')}", "To the page", is_public=True),
)
"""Served when it is configured; not a part of the description."""

HEADERS = {
    # No inline script or style sheet, no other host, no frame around it. The text editor sets the
    # width of tabs as an attribute.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_GOOD = "public, max-age=31536000, immutable"
"""The name of any other file changes with its content."""


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    media: str
    cache: str


class Page:
    """The files of the page, read and compressed once."""

    def __init__(self, folder: Path = FILES) -> None:
        if not (folder / INDEX).is_file():
            raise InputError(
                "the page of Studio is not built", hint="run `make studio` in the checkout"
            )
        self._files = {path.name: _read(path) for path in folder.iterdir()}

    async def answer(self, call: Call) -> Response:
        """The page, one of its files, or the way to it."""
        if not call.operation.path.endswith(("/", "}")):
            # Relative to the path, so that it holds behind a proxy that adds a prefix.
            return RedirectResponse(PLACE.strip("/") + "/", 308)
        name = call.values.get("file", INDEX)
        file = self._files.get(name)
        if file is None:
            raise NotFound("the page has no such file", hint=f"the page is at {PLACE}")
        headers = {**HEADERS, "Cache-Control": file.cache, "Vary": "Accept-Encoding"}
        if "gzip" not in (call.header("accept-encoding") or ""):
            return Response(file.content, headers=headers, media_type=file.media)
        headers["Content-Encoding"] = "gzip"
        return Response(file.compressed, headers=headers, media_type=file.media)


def _read(path: Path) -> _File:
    content = path.read_bytes()
    media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    cache = "no-cache" if path.name in NAMED else FOR_GOOD
    return _File(content, gzip.compress(content, mtime=0), media, cache)

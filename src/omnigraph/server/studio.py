"""Studio: static files, with headers that restrict them to this server.

The sources are in `studio/`, and are built into the folder `page` beside this module, which a wheel
contains. The page uses only the public API.
"""

from __future__ import annotations

import gzip
import mimetypes
from pathlib import Path

from starlette.responses import RedirectResponse, Response

from omnigraph.errors import InputError, NotFound
from omnigraph.model.records import dataclass
from omnigraph.server.call import Call
from omnigraph.wire.operations import Operation

PLACE = "/studio/"
FILES = Path(__file__).with_name("page")
INDEX = "index.html"
NAMED = frozenset({INDEX, "THIRD-PARTY.txt"})
"""Files whose names do not change with their content."""

OPERATIONS = (
    Operation("studio", f"GET {PLACE}", "The page", is_public=True),
    Operation("studio_file", f"GET {PLACE}{{file}}", "A file of the page", is_public=True),
    Operation("studio_redirect", f"GET {PLACE.rstrip('/')}", "To the page", is_public=True),
)
"""Served if configured; not part of the description."""

HEADERS = {
    # No inline script or style sheet, no other host, no embedding in frames. Inline style
    # attributes are allowed for the text editor, which sets the width of tabs.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "style-src-attr 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_GOOD = "public, max-age=31536000, immutable"
"""For all other files, whose names change with their content."""


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
        """The page, one of its files, or a redirect to it."""
        if not call.operation.path.endswith(("/", "}")):
            # Relative, so that it works behind a proxy that adds a prefix.
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

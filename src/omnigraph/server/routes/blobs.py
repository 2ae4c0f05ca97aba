"""Blobs, whole or in part, with the conditions of HTTP."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from starlette.responses import Response

from omnigraph.errors import BlobRangeError, Conflict, InputError, InternalError
from omnigraph.graph.blobs import Blob
from omnigraph.model.blobs import ByteRange
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import block_response, error_response
from omnigraph.wire import operations
from omnigraph.wire.requests import OCTETS, SNAPSHOT_ID

SENT_BYTES = 256 * 1024
"""Bytes per send: a slow client must read them within `client_seconds`."""


async def get_blob(call: Call) -> Response:
    """The bytes of a blob, or a range of them."""
    blob = await _find(call)
    if blob.uri is not None:
        return _redirect(blob)
    assert blob.size is not None and blob.etag is not None
    refused = _refused(call, blob)
    if refused is not None:
        return refused
    try:
        span = _span(call, blob.size, blob.etag)
    except BlobRangeError as outside:
        return error_response(outside, {**_headers(blob), "Content-Range": f"bytes */{blob.size}"})
    return await _bytes(call, blob, span)


async def head_blob(call: Call) -> Response:
    """The metadata of a blob, without reading it."""
    blob = await _find(call)
    if blob.uri is not None:
        return _redirect(blob)
    refused = _refused(call, blob)
    if refused is not None:
        return refused
    return Response(b"", 200, {**_headers(blob), "Content-Length": str(blob.size)}, OCTETS)


async def _find(call: Call) -> Blob:
    missing = [
        each.name
        for each in call.operation.parameters
        if each.required and not call.parameter(each.name)
    ]
    if missing:
        raise InputError(f"parameter `{missing[0]}` is missing")
    branch, snapshot = call.branch_parameter(), call.parameter("snapshot")
    if branch is not None and snapshot is not None:
        raise InputError("`branch` and `snapshot` exclude each other", hint="give one of them")
    return await call.read(
        call.graph.blob,
        str(call.parameter("entity")),
        str(call.parameter("type")),
        str(call.parameter("id")),
        str(call.parameter("property")),
        branch=branch,
        snapshot=snapshot,
    )


def _refused(call: Call, blob: Blob) -> Response | None:
    """The answer if a precondition fails: 412, then 304."""
    assert blob.etag is not None
    if_match = call.headers("if-match")
    if if_match and not matches(if_match, blob.etag, weak=False):
        refused = error_response(
            Conflict("the blob is not the one that `If-Match` names"), _headers(blob)
        )
        refused.status_code = 412
        return refused
    if_none_match = call.headers("if-none-match")
    if if_none_match and matches(if_none_match, blob.etag, weak=True):
        # The length is that of the client's copy. uvicorn would wait for as many bytes, except in
        # an answer to `HEAD`.
        call.request.scope["method"] = "HEAD"
        return Response(b"", 304, {**_headers(blob), "Content-Length": str(blob.size)})
    return None


def _span(call: Call, size: int, etag: str) -> ByteRange | None:
    ranges = call.headers("range")
    if len(ranges) != 1 or not if_range_holds(call.headers("if-range"), etag):
        return None
    return requested_span(ranges[0], size)


async def _bytes(call: Call, blob: Blob, span: ByteRange | None) -> Response:
    assert blob.size is not None
    start, end = (0, blob.size) if span is None else (span.start, span.end)
    headers = {**_headers(blob), "Content-Length": str(end - start)}
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    status = 200 if span is None else 206
    if start == end:
        return Response(b"", status, headers, OCTETS)
    return await block_response(
        call,
        blob.chunks(start, end - start),
        OCTETS,
        status=status,
        headers=headers,
        chunk_bytes=SENT_BYTES,
    )


def _headers(blob: Blob) -> Mapping[str, str]:
    assert blob.etag is not None
    return {"ETag": blob.etag, "Accept-Ranges": "bytes", SNAPSHOT_ID: blob.snapshot_id}


def _redirect(blob: Blob) -> Response:
    """Redirect to an external object, whose own server answers a `Range`."""
    assert blob.uri is not None
    if not blob.uri.isascii() or not blob.uri.isprintable():
        raise InternalError("the URI of an external blob does not fit a header")
    headers = {
        "Location": blob.uri,
        "Cache-Control": "no-store",
        SNAPSHOT_ID: blob.snapshot_id,
    }
    return Response(b"", 302, headers)


# --- conditions and ranges ------------------------------------------------------------------------

_TAG = re.compile(r'(?P<weak>W/)?(?P<tag>"[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"bytes=(?P<first>[0-9]*)-(?P<last>[0-9]*)", re.ASCII)
_DIGITS_MAX = 19
"""Longer numbers exceed the size of any blob."""


def matches(headers: Sequence[str], etag: str, *, weak: bool) -> bool:
    """Whether a list of tags, or `*`, matches this tag; a malformed list matches none.

    ``weak`` comparison ignores `W/`; strong comparison never matches tags that have it.
    """
    text = ", ".join(headers).strip()
    if text == "*":
        return True
    found = False
    for item in _items(text):
        tag = _TAG.fullmatch(item)
        if tag is None:
            return False
        if tag["tag"] == etag and (weak or tag["weak"] is None):
            found = True
    return found


def if_range_holds(headers: Sequence[str], etag: str) -> bool:
    """Whether a range may be served: without a condition, or with exactly this strong tag."""
    return not headers or (len(headers) == 1 and headers[0].strip() == etag)


def requested_span(header: str, size: int) -> ByteRange | None:
    """The bytes that a `Range` header requests; None unless it is a single byte range.

    Raises `BlobRangeError` for a range outside of the value.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not (asked["first"] or asked["last"]):
        return None
    if max(len(asked["first"]), len(asked["last"])) > _DIGITS_MAX:
        return None
    if not asked["first"]:
        wanted = int(asked["last"])
        if wanted == 0 or size == 0:
            raise BlobRangeError(size, size, size)
        return ByteRange(max(0, size - wanted), size)
    first = int(asked["first"])
    last = int(asked["last"]) if asked["last"] else size - 1
    if asked["last"] and last < first:
        return None
    if first >= size:
        raise BlobRangeError(first, max(first, last) + 1, size)
    return ByteRange(first, min(last, size - 1) + 1)


def _items(text: str) -> list[str]:
    """Split a list at commas that are not inside quotes."""
    return [item.strip() for item in re.findall(r'(?:[^,"]|"[^"]*"?)+', text) if item.strip()]


HANDLERS: Handlers = {
    operations.GET_BLOB.id: get_blob,
    operations.HEAD_BLOB.id: head_blob,
}

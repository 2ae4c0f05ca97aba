"""A bug of the product."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


class InternalError(OmnigraphError):
    """An invariant of the product does not hold; this is a bug."""

    code = "internal"

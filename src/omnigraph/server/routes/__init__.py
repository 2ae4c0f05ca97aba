"""Handlers, one module per noun. Each parses, asks policy, is admitted, and runs, in this order."""

from __future__ import annotations

from omnigraph.server.call import Handlers
from omnigraph.server.routes import (
    blobs,
    branches,
    changes,
    loads,
    queries,
    reviews,
    schemas,
    service,
)

HANDLERS: Handlers = {
    **service.HANDLERS,
    **queries.HANDLERS,
    **schemas.HANDLERS,
    **loads.HANDLERS,
    **branches.HANDLERS,
    **changes.HANDLERS,
    **reviews.HANDLERS,
    **blobs.HANDLERS,
}

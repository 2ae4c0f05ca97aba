"""Handlers, by noun. Each does four things in this order: read, ask policy, be admitted, run."""

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

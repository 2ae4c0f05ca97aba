"""Handlers, by noun. Each does four things in this order: read, ask policy, be admitted, run."""

from __future__ import annotations

from omnigraph.server.call import Handlers
from omnigraph.server.routes import (
    blobs,
    branches,
    changes,
    commits,
    exports,
    loads,
    queries,
    reviews,
    schemas,
    service,
    stored,
)

HANDLERS: Handlers = {
    **service.HANDLERS,
    **queries.HANDLERS,
    **stored.HANDLERS,
    **schemas.HANDLERS,
    **loads.HANDLERS,
    **exports.HANDLERS,
    **branches.HANDLERS,
    **commits.HANDLERS,
    **changes.HANDLERS,
    **reviews.HANDLERS,
    **blobs.HANDLERS,
}

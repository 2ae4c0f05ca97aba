"""The audit: policy decisions, reads and writes, as JSON lines in a file.

The gate of a graph and its verbs use `Auditor`; this room does not depend on policies, requests and
storage. `omnigraph audit` reads the files without opening a graph.
"""

from __future__ import annotations

from omnigraph.audit.auditor import AccessLine, Asked, Auditor
from omnigraph.audit.log import AuditLog, AuditSettings
from omnigraph.audit.reading import AuditEntry, AuditFilter, read_entries

__all__ = [
    "AccessLine",
    "Asked",
    "AuditEntry",
    "AuditFilter",
    "AuditLog",
    "AuditSettings",
    "Auditor",
    "read_entries",
]

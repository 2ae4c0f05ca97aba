"""The audit: who decided, read and wrote what, as JSON lines in a file.

The gate of a graph and its verbs have one way in, `Auditor`; nothing here knows of policies,
requests and storage. `omnigraph audit` reads the files again, without a database.
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

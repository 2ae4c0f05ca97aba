"""Copies of a graph: backups in a folder or bucket, and clones that can be written to.

A copy is taken while writers go on. Files never change once a version lists them, so it is enough
to know one moment of all branches, and to copy what they name at that moment.
"""

from __future__ import annotations

from omnigraph.copies.backups import (
    create_backup,
    list_backups,
    prune_backups,
    restore_backup,
    verify_backup,
)
from omnigraph.copies.placing import clone

__all__ = [
    "clone",
    "create_backup",
    "list_backups",
    "prune_backups",
    "restore_backup",
    "verify_backup",
]

"""Copies of a graph: backups in a folder or bucket, and clones that can be written to.

A copy is made while writers continue. Files never change once a version lists them, so it is enough
to capture the heads of all branches at one moment, and to copy the files that they list.
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

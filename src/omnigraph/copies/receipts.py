"""The receipts of copies, transfers and backups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import ScrubFinding


@dataclass(frozen=True, slots=True)
class CopyReceipt(JsonObject):
    """The result of `clone` or of restoring a backup: a graph at a new root."""

    uri: str
    heads: Mapping[str, str]
    """By branch: its newest commit."""
    files: int
    bytes: int
    files_copied: int
    """The number of files written; fewer than all if an interrupted run was continued."""
    bytes_copied: int


@dataclass(frozen=True, slots=True)
class TransferReceipt(JsonObject):
    """The result of `push` or `pull`."""

    verb: str
    source: str
    destination: str
    branch: str
    outcome: str
    """`already_up_to_date`, `fast_forward` or `merged`."""
    head: str
    """The newest commit of the branch at the destination."""
    commits: tuple[str, ...]
    """The commits created there, oldest first; for a merge, only that commit."""
    branch_created: bool
    """Whether the branch was created at the destination."""


@dataclass(frozen=True, slots=True)
class BackupInfo(JsonObject):
    """One finished backup."""

    backup_id: str
    source: str
    created_at: int
    """Microseconds since 1970."""
    heads: Mapping[str, str]
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BackupReceipt(JsonObject):
    """The result of making a backup."""

    destination: str
    backup: BackupInfo
    is_unchanged: bool
    """Whether the state was backed up already: the receipt then names the last backup."""
    files_copied: int
    bytes_copied: int


@dataclass(frozen=True, slots=True)
class BackupReport(JsonObject):
    """The result of comparing the files of backups with their digests."""

    destination: str
    backups: tuple[str, ...]
    files_checked: int
    bytes_read: int
    findings: tuple[ScrubFinding, ...] = ()

    computed: ClassVar[Mapping[str, Json]] = {"is_clean": Json("clean")}

    @property
    def is_clean(self) -> bool:
        """Whether every backup can be restored unchanged."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class PruneReceipt(JsonObject):
    """The result of removing old backups, or what it would be."""

    destination: str
    dry_run: bool
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    files_removed: int
    bytes_removed: int

"""What copying says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import ScrubFinding


@dataclass(frozen=True, slots=True)
class CopyReceipt(JsonObject):
    """A graph that was put at a new place, by `clone` or from a backup."""

    uri: str
    heads: Mapping[str, str]
    """By branch, its newest commit."""
    files: int
    bytes: int
    files_copied: int
    """Less than all, if an interrupted run was continued."""
    bytes_copied: int


@dataclass(frozen=True, slots=True)
class TransferReceipt(JsonObject):
    """What `push` or `pull` brought from one graph to another."""

    verb: str
    source: str
    destination: str
    branch: str
    outcome: str
    """`already_up_to_date`, `fast_forward` or `merged`."""
    head: str
    """The newest commit of the branch at the destination."""
    commits: tuple[str, ...]
    """The commits that were made there, oldest first; of a merge, that one."""
    branch_created: bool
    """Whether the destination did not have the branch."""


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
    """What making a backup did."""

    destination: str
    backup: BackupInfo
    is_unchanged: bool
    """Whether the last backup is of the same state: then it is the one that is named."""
    files_copied: int
    bytes_copied: int


@dataclass(frozen=True, slots=True)
class BackupReport(JsonObject):
    """What reading the files of backups against their digests showed."""

    destination: str
    backups: tuple[str, ...]
    files_checked: int
    bytes_read: int
    findings: tuple[ScrubFinding, ...] = ()

    computed: ClassVar[Mapping[str, Json]] = {"is_clean": Json("clean")}

    @property
    def is_clean(self) -> bool:
        """Whether every backup can be restored as it was made."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class PruneReceipt(JsonObject):
    """What removing old backups freed, or would free."""

    destination: str
    dry_run: bool
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    files_removed: int
    bytes_removed: int

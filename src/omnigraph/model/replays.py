"""What reverting or picking a commit says once it is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.model.receipts import CommitInfo


@dataclass(frozen=True, slots=True)
class ReplayReceipt:
    """What the changes of one commit, done again or undone, came to on a branch."""

    verb: Literal["revert", "cherry-pick"]
    of_commit_id: str
    branch: str
    inserted: int
    updated: int
    deleted: int
    actor_id: str | None
    commit: CommitInfo | None
    """None when there was nothing to do."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "verb": self.verb,
            "of_commit_id": self.of_commit_id,
            "branch": self.branch,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "actor_id": self.actor_id,
            "commit": None if self.commit is None else self.commit.to_dict(),
        }

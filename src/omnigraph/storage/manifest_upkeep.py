"""Keeping `__manifest` small, so that its cost does not grow with the number of commits.

History is rows, not Lance versions: old versions of `__manifest` carry no information and can go.
"""

from __future__ import annotations

import logging

from omnigraph.effects.io_counters import count
from omnigraph.effects.settings import positive_number
from omnigraph.storage.compaction import fragment_count
from omnigraph.storage.datasets import StagedTransaction
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.table_upkeep import KeepVersions, cleanup_settings, stage_compaction

log = logging.getLogger(__name__)

COMPACT_EVERY_VARIABLE = "OMNIGRAPH_MANIFEST_COMPACT_EVERY"
COMPACT_EVERY = 64
VERSIONS_KEPT = 32
"""Enough for readers that opened an older version a moment ago, while others write on."""
VERSIONS_KEPT_MIN = 4
"""The same while nobody writes."""


def maintain_manifest(branch: ManifestBranch, uuid: str) -> None:
    """Compact and prune a branch's manifest if it is time; never fails the write it follows.

    Called under the branch's lease, after a publish: each publish adds one fragment.
    """
    try:
        if fragment_count(branch.handle) < _compact_every():
            return
        transaction = stage_compaction(branch.handle, uuid)
        if transaction is not None:
            _commit(branch, transaction)
        count("lance", "cleanup", branch.where.address)
        branch.handle.cleanup_old_versions(
            retain_versions=VERSIONS_KEPT, error_if_tagged_old_versions=False
        )
    except Exception:
        log.warning("the manifest of %s was not compacted", branch.branch, exc_info=True)


def keep_manifest_versions(branch: ManifestBranch, uuid: str) -> None:
    """Remove settings by which Lance would remove old versions of a manifest with every commit."""
    settings = cleanup_settings(branch.handle)
    if settings:
        _commit(branch, KeepVersions(settings).stage(branch.handle, uuid))


def compact_manifest(branch: ManifestBranch, uuid: str) -> tuple[int, int]:
    """Compact a branch's manifest now; how many fragments it lost and got.

    Content and versions stay. Called under the branch's lease, so that nobody competes: a conflict
    is raised.
    """
    before = {fragment.fragment_id for fragment in branch.handle.get_fragments()}
    compaction = stage_compaction(branch.handle, uuid)
    if compaction is None:
        return 0, 0
    _commit(branch, compaction)
    after = {fragment.fragment_id for fragment in branch.handle.get_fragments()}
    return len(before - after), len(after - before)


def _commit(branch: ManifestBranch, transaction: StagedTransaction) -> None:
    landed = branch.lance.commit(branch.handle, transaction)
    branch.adopt(landed, branch.state.with_rows(landed.version, []))


def _compact_every() -> int:
    return positive_number(COMPACT_EVERY_VARIABLE, COMPACT_EVERY, least=2)

"""What is known of the fragments of a dataset when they are to be rewritten.

Lance's own compaction commits twice, cannot be owned by uuid, and breaks indexes that a branch
inherited. So its tasks are executed and their results put into a rewrite of our own
(`table_upkeep`), with fragment ids assigned beforehand: left to Lance, indexes would claim to cover
fragments that are gone.
"""

from __future__ import annotations

import re

from lance import LanceDataset
from lance.debug import format_manifest

from omnigraph.errors import InternalError

_MAX_FRAGMENT_ID = re.compile(r"max_fragment_id: Some\(\s*(\d+)")

TARGET_ROWS_PER_FRAGMENT = 1_000_000


def fragment_count(handle: LanceDataset) -> int:
    """How many fragments a version has; known from its metadata."""
    return len(handle.get_fragments())


def next_fragment_id(handle: LanceDataset) -> int:
    """One above every fragment id ever used; Lance shows it only in its debug text."""
    found = _MAX_FRAGMENT_ID.search(format_manifest(handle))
    if found is None:
        raise InternalError(f"the largest fragment id of {handle.uri} is not known")
    return int(found[1]) + 1

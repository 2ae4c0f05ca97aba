"""Row addresses: where a row lies in one version of a table.

An address is the id of a fragment in the upper half, and the offset of the row in it in the lower.
"""

from __future__ import annotations

FRAGMENT_SHIFT = 32
OFFSET_MASK = (1 << FRAGMENT_SHIFT) - 1

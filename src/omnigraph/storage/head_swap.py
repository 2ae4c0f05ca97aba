"""The transaction of a publish: new rows in, and the head row exchanged.

A merge by key would look for the old head row among the keys of the whole manifest. The branch
knows where the row lies, so the transaction is put together here and a publish costs the same
however long the history is.

It stays a compare-and-swap: every publish takes the old head row out of the fragment that holds it,
and of two transactions that change one fragment from one version Lance commits only the first.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.effects.io_counters import count
from omnigraph.errors import InternalError
from omnigraph.model.virtual_columns import ROW_ADDRESS
from omnigraph.storage.addresses import FRAGMENT_SHIFT, OFFSET_MASK
from omnigraph.storage.manifest_rows import head_object_id


def stage_head_swap(handle: LanceDataset, head_address: int, rows: pa.Table) -> Transaction:
    """Insert ``rows``, the new head row last, and remove the head row at ``head_address``."""
    count("lance", "stage", handle.uri)
    fragment_id, offset = head_address >> FRAGMENT_SHIFT, head_address & OFFSET_MASK
    fragment = handle.get_fragment(fragment_id)
    if fragment is None:
        raise InternalError(f"{handle.uri} has no fragment {fragment_id} to hold its head row")
    left = fragment.delete_rows([offset])
    operation = LanceOperation.Update(
        removed_fragment_ids=[fragment_id] if left is None else [],
        updated_fragments=[] if left is None else [left],
        new_fragments=write_fragments(rows, handle),
        update_mode="rewrite_rows",
    )
    return Transaction(handle.version, operation)


def swapped_head_address(landed: LanceDataset, rows: pa.Table) -> int:
    """Where the head row lies after `stage_head_swap` landed: last in the newest fragment."""
    newest: int = max(landed.fragment_ids())
    offset: int = rows.num_rows - 1
    return (newest << FRAGMENT_SHIFT) + offset


def find_head_address(handle: LanceDataset, branch: str) -> int:
    """Look the head row of a branch up."""
    count("lance", "lookup", handle.uri)
    key = head_object_id(branch).replace("'", "''")
    found = handle.to_table(["object_id"], f"object_id = '{key}'", with_row_address=True)
    if found.num_rows != 1:
        raise InternalError(f"branch {branch} has {found.num_rows} head rows")
    return int(found[ROW_ADDRESS][0].as_py())


def head_address_among(rows: pa.Table, branch: str) -> int | None:
    """The address of a branch's head row in a scan with row addresses; None if it is not in it."""
    at: int = pc.index(rows["object_id"], head_object_id(branch)).as_py()
    return None if at < 0 else int(rows[ROW_ADDRESS][at].as_py())

"""Staged new rows, carried over to a newer version of their table without writing them again.

A write that was staged beside others and lost its turn has its data files already. They can be
committed on the newer version as they are if they only add rows, and if no row that came since has
one of their ids. Both are proved here; where they cannot be, the caller stages anew.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph.effects.io_counters import count
from omnigraph.storage.datasets import lance_failure
from omnigraph.storage.tables import ID, LOOKUP_VALUES_MAX, rows_where_in

SCANNED_ROWS_MAX = 10_000
"""So many ids are read faster than a filter for them is planned."""


def restage_new_rows(
    staged: Transaction, on: LanceDataset, newer: LanceDataset, ids: pa.Array | None, uuid: str
) -> Transaction | None:
    """The rows that ``staged`` adds to the version ``on``, as a change of ``newer``.

    None if the transaction does more than add rows, or if ``newer`` has got one of ``ids`` since;
    None for ``ids`` means that they are known to be new. Both versions are of one ref, and have the
    same columns.
    """
    added = _added_fragments(staged)
    if added is None or (ids is not None and _holds_any(_changed(on, newer), newer, ids)):
        return None
    # Row ids are given out by the commit, and those of the older version may be taken by now.
    fragments = [replace(fragment, row_id_meta=None) for fragment in added]
    return Transaction(newer.version, LanceOperation.Append(fragments), uuid=uuid)


def holds_any(table: LanceDataset, ids: pa.Array) -> bool:
    """Whether a table has a row with one of ``ids``."""
    if table.count_rows() > SCANNED_ROWS_MAX:
        return bool(rows_where_in(table, ID, ids, [ID]).num_rows)
    return _holds_any(table.get_fragments(), table, ids)


def _added_fragments(staged: Transaction) -> list[FragmentMetadata] | None:
    """The fragments of a transaction that only adds some."""
    match staged.operation:
        case LanceOperation.Append(fragments=added):
            return list(added)
        case LanceOperation.Update(
            removed_fragment_ids=[], updated_fragments=[], new_fragments=added
        ):
            return list(added)
        case _:
            return None


def _changed(on: LanceDataset, newer: LanceDataset) -> list[LanceFragment]:
    """The fragments of ``newer`` that may hold rows which ``on`` does not have.

    The rows of a fragment never change, and its id is never used again. But a restore can bring
    deleted rows back: it shows in the deletion file, which is another one or none.
    """
    known = {(each.fragment_id, each.deletion_file()) for each in on.get_fragments()}
    return [
        each
        for each in newer.get_fragments()
        if (each.fragment_id, each.deletion_file()) not in known
    ]


def _holds_any(fragments: list[LanceFragment], table: LanceDataset, ids: pa.Array) -> bool:
    if not fragments:
        return False
    count("lance", "lookup", table.uri)
    is_selective = sum(each.physical_rows for each in fragments) > SCANNED_ROWS_MAX
    wanted = pc.field(ID).isin(ids) if is_selective and len(ids) <= LOOKUP_VALUES_MAX else None
    try:
        found = table.scanner(
            columns=[ID], filter=wanted, fragments=fragments, use_scalar_index=False
        ).to_table()
    except (OSError, ValueError) as error:
        raise lance_failure(table, error) from error
    return bool(pc.any(pc.is_in(found[ID], value_set=ids)).as_py())

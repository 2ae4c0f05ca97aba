"""An upsert of rows that are larger than what Lance joins in."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import OmnigraphError
from omnigraph.storage import transactions

ROWS, NUMBERS = 2_000, 1_024


def vectors(seed: int) -> pa.Table:
    values = np.random.default_rng(seed).random(ROWS * NUMBERS, np.float32)
    return pa.table(
        {
            "id": [f"k{i}" for i in range(ROWS)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(values), NUMBERS),
        }
    )


def test_rows_that_do_not_fit_the_pool_are_found_without_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = str(tmp_path / "v.lance")
    lance.write_dataset(vectors(1), table).create_scalar_index("id", "BTREE")
    handle = lance.dataset(table)
    monkeypatch.setenv("LANCE_MEM_POOL_SIZE", "4000000")
    with pytest.raises(OmnigraphError, match="Resources exhausted"):
        transactions.stage_upsert(handle, vectors(2), "01")
    monkeypatch.setattr(transactions, "INDEXED_BYTES_MAX", 4_000_000)
    assert transactions.stage_upsert(handle, vectors(2), "02").uuid == "02"

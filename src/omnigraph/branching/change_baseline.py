"""Baselines: every entity at one commit, and then the cursor from which the feed goes on.

The head is looked at once, and everything comes from there. The cursor is given out behind the last
entity and never before, so that whoever has it has the whole of what it continues.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.change_feed import feed_scope
from omnigraph.branching.change_tokens import Cursor
from omnigraph.branching.diff import ordered_types, public_type_id
from omnigraph.branching.export import in_blocks
from omnigraph.branching.moments import Moment, SchemaHistory, moments, reclaimed_told
from omnigraph.branching.table_rows import TableRows, chunked
from omnigraph.branching.wanted_types import WantedTypes
from omnigraph.commit.kernel import Kernel
from omnigraph.model.changes import ChangeFilter, EntityRecord, Handshake


class ChangeBaseline:
    """The entities of one commit, read as they are asked for, once.

    Iterating gives the entities: nodes before edges, then by type and id. After the last one
    `handshake` says where the feed goes on; as long as it is None, the baseline is not complete.
    """

    def __init__(
        self, kernel: Kernel, schemas: SchemaHistory, moment: Moment, wanted: ChangeFilter
    ) -> None:
        self._kernel = kernel
        self._moment = moment
        catalog = schemas.catalog_of(moment.commit)
        self._reader = moment.reader(catalog)
        types = WantedTypes.of(wanted, [catalog])
        self._types = [type for type in ordered_types(catalog) if types.wants(type)]
        self._cursor = Cursor(moment.commit.commit_id).to_text(feed_scope(moment.state, wanted))
        self._records = self._read()
        self.handshake: Handshake | None = None

    @property
    def entity_count(self) -> int:
        """How many entities there are in all."""
        return sum(self._reader.snapshot.table(type.table_key).row_count for type in self._types)

    def __iter__(self) -> Iterator[EntityRecord]:
        return self._records

    def blocks(self) -> Iterator[bytes]:
        """JSON lines in blocks of whole lines: every entity, and at the very end the handshake."""
        yield from in_blocks(orjson.dumps(each.to_dict()) + b"\n" for each in self)
        if self.handshake is not None:
            yield orjson.dumps({"baseline": self.handshake.to_dict()}) + b"\n"

    def _read(self) -> Iterator[EntityRecord]:
        # Whoever would remove what is read waits until it has been.
        with self._kernel.gates.stream(), reclaimed_told(self._moment):
            for type in self._types:
                yield from _records(TableRows(self._reader, type))
        self.handshake = Handshake(self._moment.commit.commit_id, self._cursor)


def change_baseline(
    kernel: Kernel, schemas: SchemaHistory, branch: str, wanted: ChangeFilter
) -> ChangeBaseline:
    """A baseline of the head of a branch as it is now.

    ``wanted`` says which kinds and types of entities it has; its operations only belong to the
    cursor. Raises `NotFound` for a branch or a type there is not.
    """
    state = kernel.manifest.refreshed(branch).state
    (moment,) = moments(kernel, state, [state.commits[state.head.commit_id]])
    return ChangeBaseline(kernel, schemas, moment, wanted)


def _records(rows: TableRows) -> Iterator[EntityRecord]:
    if rows.reader.is_empty(rows.key):
        return
    ids = pa.concat_arrays(rows.reader.ids(rows.key).chunks)
    order = pc.sort_indices(ids).to_numpy().astype(np.int64)
    type_id = public_type_id(rows.type)
    for positions in chunked(order):
        found = zip(ids.take(pa.array(positions)).to_pylist(), rows.images(positions), strict=True)
        for id, image in found:
            yield EntityRecord(rows.kind, type_id, rows.type.name, id, image)

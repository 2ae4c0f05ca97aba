"""Applies change-feed rows of another graph in process, as one commit.

The rows may come from one commit or from many. Only the last change of each entity is applied: its
image is written, or the entity is deleted if it exists. As for a `delete`, the edges of a deleted
node are deleted with it, also edges that only this graph has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Exchanged, TableChange, WriteLimits
from omnigraph.commit.validation import validate
from omnigraph.errors import InputError
from omnigraph.loading.files import Files
from omnigraph.loading.in_process import plan_load
from omnigraph.loading.input_tables import ReadRecords, read_input
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.records.framing import RecordSource
from omnigraph.loading.records.ids import minted_by
from omnigraph.loading.records.problems import problems_of
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.sources import type_of
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import TableKey
from omnigraph.model.references import qualified
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.row_places import positions_of

CHANGE_COLUMNS = ("sequence", "kind", "type", "id", "op", "after")
"""The columns of a feed that are read: the order of the changes, and what each one does."""

_CHANGES = pa.schema(
    [(name, pa.int64() if name == "sequence" else pa.string()) for name in CHANGE_COLUMNS]
)
_KEY = ["kind", "type", "id"]
_NAME = "<changes>"


class ChangesLoad(LoadExecutor):
    """Applies the changes in Arrow files, whose rows may be in any order."""

    engine = "local"

    def __init__(
        self, kernel: Kernel, request: LoadSpec, paths: Sequence[str], limits: WriteLimits
    ) -> None:
        super().__init__(kernel, request)
        self._paths = paths
        self._limits = limits
        self._written: ReadRecords | None = None
        self._deleted: dict[str, pa.Array] = {}

    @property
    def rows(self) -> int:
        """How many entities are written or deleted."""
        tables = {} if self._written is None else self._written.tables
        written = sum(table.records_read for table in tables.values())
        return written + sum(map(len, self._deleted.values()))

    def plan(self) -> None:
        """Nothing to find: the caller names the files."""
        self.request.forget_problems()

    def start(self) -> None:
        """Read the changes."""
        started = perf_counter()
        last = last_changes([batch for path in self._paths for batch in read_batches(path)])
        is_delete = pc.equal(last["op"], "delete")
        self._deleted = self._by_type(last.filter(is_delete))
        images = last.filter(pc.invert(is_delete)).select([*_KEY, "after"]).to_pylist()
        data = b"".join(_record(**row) for row in images)
        self._written = read_input(
            [RecordSource.of(data, _NAME)],
            catalog=self.catalog,
            mode="merge",
            keeps_absent=True,
            grammar="strict",
            mint=minted_by(self.kernel.ids.ulid),
            external=self.request.external,
            limits=self._limits,
        )
        self.note("read", perf_counter() - started)

    def close(self) -> None:
        """No scratch files."""

    def changes(self, capture: Capture) -> LoadChanges:
        """The changes that a captured head does not have yet."""
        assert self._written is not None
        started = perf_counter()
        findings = self.request.findings([_NAME])
        for problem in self._written.problems:
            findings.note(problem)
        written = self._written.with_ends(capture.reader)
        plan = plan_load(written, capture.reader, limits=self._limits)
        for _, problem in plan.missing:
            findings.note(problem)
        changes = self._with_deletions(plan.changes.tables, capture.reader)
        violations = validate(
            changes, self.catalog, capture.reader, given=plan.given, collect=True, values=False
        )
        for problem in problems_of(violations, lambda *_, **__: None):
            findings.note(problem)
        findings.raise_if_any()
        self.note("check", perf_counter() - started)
        return LoadChanges(changes, plan.counts)

    def _by_type(self, deleted: pa.Table) -> dict[str, pa.Array]:
        found: dict[str, list[str]] = {}
        for row in deleted.select(_KEY).to_pylist():
            key = type_of(TableKey.of(row["kind"], row["type"]), self.catalog).table_key
            found.setdefault(key, []).append(row["id"])
        return {key: pa.array(ids, pa.string()) for key, ids in found.items()}

    def _with_deletions(
        self, written: Mapping[str, TableChange], view: SnapshotReader
    ) -> ChangeSet:
        gone = {key: _existing(view, key, ID, ids) for key, ids in self._deleted.items()}
        for edge in self.catalog.edges.values():
            key = edge.table_key
            parts = [gone.get(key, pa.array([], pa.string()))]
            for column, end in ((SRC, edge.source), (DST, edge.target)):
                for node in self.catalog.node_types(end):
                    ids = gone.get(node.table_key)
                    if ids is not None:
                        nodes = qualified(ids, self.catalog.end_prefix(edge, column, node))
                        parts.append(_existing(view, key, column, nodes))
            gone[key] = pc.unique(pa.concat_arrays(parts))
            if key in written:  # an edge that is written has other ends now
                is_kept = pc.is_in(gone[key], value_set=written[key].ids)
                gone[key] = gone[key].filter(pc.invert(is_kept))
        deletions = {key: ids for key, ids in gone.items() if len(ids)}
        keys = sorted({*written, *deletions})
        return ChangeSet(
            {key: _change(key, written.get(key), deletions.get(key), view) for key in keys}
        )


def last_changes(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The last change of each entity."""
    rows = (batch.select(CHANGE_COLUMNS).cast(_CHANGES) for batch in batches)
    changes = pa.Table.from_batches(rows, _CHANGES).sort_by("sequence")
    changes = changes.append_column("at", pa.array(range(changes.num_rows), pa.int64()))
    last = changes.group_by(_KEY).aggregate([("at", "max")])["at_max"]
    return changes.take(last.combine_chunks().sort())


def read_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of an Arrow file."""
    with Files.of_environment([path]).open(path) as opened:
        reader = pa.ipc.open_file(opened)
        for at in range(reader.num_record_batches):
            yield reader.get_batch(at)


def _record(kind: str, type: str, id: str, after: str | None) -> bytes:
    """The image of an entity as a graph record."""
    if after is None:
        raise InputError(
            f"the change of {kind} {type} '{id}' has no image",
            hint="leave the column `after` of the feed as it is",
        )
    image = orjson.loads(after)
    data = {"id": id, **image["properties"]}
    if kind == "node":
        return orjson.dumps({"type": type, "data": data}) + b"\n"
    record = {"edge": type, **image["endpoints"], "data": data}
    return orjson.dumps(record) + b"\n"


def _existing(view: SnapshotReader, key: str, column: str, values: pa.Array) -> pa.Array:
    """The ids of committed rows whose ``column`` has one of ``values``."""
    if view.is_empty(key) or not len(values):
        return pa.array([], pa.string())
    return view.rows_where_in(key, column, values, [ID])[ID].combine_chunks()


def _change(
    key: str, written: TableChange | None, deleted: pa.Array | None, view: SnapshotReader
) -> TableChange:
    if deleted is None:
        assert written is not None
        return written
    if written is None:
        ids = pa.table([deleted], schema=pa.schema([view.handle(key).schema.field(ID)]))
        return TableChange(key, "delete", ids)
    gone = pa.concat_arrays([deleted, *written.ids.chunks])
    exchanged = Exchanged(positions_of(view.handle(key), gone), deleted)
    return TableChange(key, "exchange", written.rows, exchanged=exchanged)

"""The Spark data source `omnigraph`: rows of one type, read from a snapshot or written as a commit.

Spark runs each method in a process of its own: the source where a frame is made, the reader and the
writer's `commit` where a job is planned and ended, everything else in workers. What they share
travels with them by pickling. A source therefore pins its snapshot when it is made, and a frame
shows the same rows however often it is used and whoever writes meanwhile.

Filters of Spark are not pushed down: Spark 4.3 remembers a pushed filter for the frame, so that the
next query on the same frame silently misses rows. The options `filter` and `columns` reach Lance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.load_problems import checked_plan
from omnigraph.commit.opening import open_for_reading, open_for_writing
from omnigraph.commit.receipts import AlreadyWritten
from omnigraph.commit.records.findings import MAX_ERRORS, Findings
from omnigraph.commit.records.problems import Place
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.commit.writer import Intent
from omnigraph.effects.ids import MINT
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError, ReadSetChanged
from omnigraph.model.actors import check_declared_actor
from omnigraph.model.receipts import LoadMode
from omnigraph.pipeline.merging import MergeRows
from omnigraph.pipeline.minting import Minting
from omnigraph.pipeline.reading import PieceReader, Reading, mapped_columns
from omnigraph.pipeline.sources import Piece, type_of
from omnigraph.pipeline.staging import StageJob, Staging, decoded_problem
from omnigraph.storage.layout import MAIN, load_scratch_name
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.written import TablePlace, committed_batches

if TYPE_CHECKING:
    from omnigraph.commit.kernel import Capture
    from omnigraph.schema.catalog import Catalog

SHORT_NAME = "omnigraph"
PARTITION_ROWS = 500_000
MODES: tuple[LoadMode, ...] = get_args(LoadMode)


class OmnigraphSource(DataSource):
    """`spark.read.format("omnigraph")` and `frame.write.format("omnigraph")`.

    Options: `path` (the graph), `type` (`Person`, or `node:Person`), `branch`; to read, `snapshot`
    (a commit), `columns` (names with commas between them) and `filter` (SQL, as Lance reads it); to
    write, `mode` (append, merge or overwrite), `actor` and `idempotency_key`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._where = _Where.of(options)
        self._pinned: _Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """What users call it."""
        return SHORT_NAME

    def schema(self) -> StructType:
        """The columns of the type, or those asked for, in types that Spark has."""
        self._pinned = self._where.pin(self.options)
        return spark_schema(self._pinned.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the pinned snapshot."""
        pinned = self._pinned or self._where.pin(self.options)
        return _Reader(pinned, self.options.get("filter"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes rows of one type as one commit."""
        return _Writer(self._where, self.options, schema, overwrite=overwrite)


@dataclass(frozen=True, slots=True)
class _Where:
    """The type of a graph that a frame is about."""

    uri: str
    type: str
    branch: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Where:
        path, type = options.get("path"), options.get("type")
        if not path or not type:
            missing = "path" if not path else "type"
            raise InputError(
                f"the data source omnigraph needs the option '{missing}'",
                hint='spark.read.format("omnigraph").option("type", "Person").load("graph.omni")',
            )
        return cls(path, type, options.get("branch") or MAIN)

    def key(self, catalog: Catalog) -> str:
        """The table key, from the name of a type or the key itself."""
        if ":" in self.type:
            return type_of(self.type, catalog).table_key
        kind = "node" if self.type in catalog.nodes else "edge"
        if kind == "edge" and catalog.edge_named(self.type) is None:
            kind = "node"
        return type_of(f"{kind}:{self.type}", catalog).table_key

    def pin(self, options: Mapping[str, str]) -> _Pinned:
        """The rows to read, fixed now."""
        kernel = Kernel.of(Root.parse(self.uri), serve_older=True)
        open_for_reading(kernel)
        key = self.key(kernel.accepted_schema().catalog)
        snapshot = _snapshot(kernel, self.branch, options.get("snapshot"))
        reader = SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
        entry = snapshot.table(key)
        handle = reader.handle(key)
        schema = handle.schema
        if columns := options.get("columns"):
            wanted = [name.strip() for name in columns.split(",")]
            for name in wanted:
                if name not in schema.names:
                    raise InputError(
                        f"{key} has no column '{name}'",
                        hint=f"its columns are {', '.join(schema.names)}",
                    )
            schema = pa.schema([schema.field(name) for name in wanted])
        groups: list[tuple[int, ...]] = []
        held: list[int] = []
        rows = 0
        for fragment in handle.get_fragments():
            held.append(fragment.fragment_id)
            rows += fragment.physical_rows
            if rows >= PARTITION_ROWS:
                groups.append(tuple(held))
                held, rows = [], 0
        if held:
            groups.append(tuple(held))
        return _Pinned(self.uri, reader.where(entry).address, entry.version, schema, tuple(groups))


def _snapshot(kernel: Kernel, branch: str, commit_id: str | None) -> Snapshot:
    state = kernel.manifest.refreshed(branch).state
    return state.head_snapshot() if commit_id is None else state.snapshot_at(commit_id)


@dataclass(frozen=True, slots=True)
class _Pinned:
    """One version of one table."""

    root: str
    address: str
    version: int
    schema: pa.Schema
    groups: tuple[tuple[int, ...], ...]
    """Fragments that are read together."""


# --- types ----------------------------------------------------------------------------------------

_SPARK_TYPES = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC"),
}


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of a table in types that Spark has: it knows no unsigned numbers."""
    return from_arrow_schema(
        pa.schema([pa.field(f.name, _spark_type(f.type), nullable=f.nullable) for f in schema])
    )


def _spark_type(type: pa.DataType) -> pa.DataType:
    if isinstance(type, pa.BaseExtensionType):
        type = type.storage_type
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(_spark_type(type.value_type))
    if pa.types.is_struct(type):
        # Of a blob, where it lies: its bytes are read by those who want them.
        return pa.struct([pa.field(f.name, _spark_type(f.type)) for f in type])
    if pa.types.is_unsigned_integer(type) and type not in _SPARK_TYPES:
        return pa.int32()
    return _SPARK_TYPES.get(type, type)


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_uint64(column.type) and pa.types.is_decimal(target):
        # Arrow widens only what fits 19 digits.
        return pa.array(column.to_pylist(), target)
    return column.cast(target)


# --- reading --------------------------------------------------------------------------------------


class _Part(InputPartition):
    def __init__(self, fragment_ids: tuple[int, ...]) -> None:
        super().__init__(None)
        self.fragment_ids = fragment_ids


class _Reader(DataSourceReader):
    def __init__(self, pinned: _Pinned, filter: str | None, schema: StructType) -> None:
        self._pinned = pinned
        self._filter = filter
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [_Part(group) for group in self._pinned.groups] or [_Part(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        target = to_arrow_schema(self._schema, timezone="UTC")
        if not partition.fragment_ids:
            return
        pinned = self._pinned
        options = Root.parse(pinned.root).storage_options()
        for batch in committed_batches(
            pinned.address,
            pinned.version,
            partition.fragment_ids,
            target.names,
            filter=self._filter,
            storage_options=options or None,
        ):
            columns = [_cast(batch.column(field.name), field.type) for field in target]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


# --- writing --------------------------------------------------------------------------------------


@dataclass
class _Message(WriterCommitMessage):
    answers: list[tuple[str, str]]


class _Writer(DataSourceArrowWriter):
    """Workers write rows aside; `commit` plans, checks and commits them as any other load."""

    def __init__(
        self, where: _Where, options: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> None:
        asked = options.get("mode", "overwrite" if overwrite else "append")
        found = [mode for mode in MODES if mode == asked]
        if not found:
            raise InputError(
                f"there is no mode '{asked}'", hint=f"the modes are {', '.join(MODES)}"
            )
        self._mode: LoadMode = found[0]
        self._where = where
        self._actor = options.get("actor")
        if self._actor is not None:
            check_declared_actor(self._actor, where="the option `actor`")
        self._key_option = options.get("idempotency_key")
        self._operation = MINT.operation_id()
        kernel = self._kernel()
        accepted = kernel.accepted_schema()
        self._table_key = where.key(accepted.catalog)
        self._reading = Reading(accepted.contract, "strict", self._mode, Minting(self._operation))
        mapped_columns(
            to_arrow_schema(schema, timezone="UTC"),
            type_of(self._table_key, accepted.catalog),
            accepted.catalog,
            "<frame>",
            are_texts=False,
            ignore_unknown=False,
        )
        address = kernel.root.join(self._scratch, self._table_key.replace(":", "-"))
        self._place = TablePlace(address)

    def _kernel(self) -> Kernel:
        kernel = Kernel.of(Root.parse(self._where.uri))
        open_for_writing(kernel)
        return kernel

    @property
    def _scratch(self) -> str:
        return load_scratch_name(self._operation)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        piece = Piece(number, f"<frame>[{number}]", "arrow", self._table_key)
        options = Root.parse(self._where.uri).storage_options()
        job = StageJob(self._reading, {self._table_key: self._place}, (), MAX_ERRORS, options, True)
        staged, reader = Staging(job), PieceReader(self._reading)
        type = type_of(self._table_key, self._reading.catalog)
        with staged:
            for batch in iterator:
                if batch.num_rows:
                    staged.take(piece, *reader.table_rows(batch, type, piece))
        return _Message([(each.kind, json.dumps(each.payload)) for each in staged.answers])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        kernel = self._kernel()
        try:
            self._commit(kernel, messages)
        finally:
            kernel.store.delete_prefix(self._scratch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._kernel().store.delete_prefix(self._scratch)

    def _commit(self, kernel: Kernel, messages: list[WriterCommitMessage | None]) -> None:
        answers = [
            (kind, json.loads(payload))
            for message in messages
            if isinstance(message, _Message)
            for kind, payload in message.answers
        ]
        accepted = kernel.accepted_schema()
        catalog = self._reading.catalog
        findings = Findings(MAX_ERRORS)
        for kind, payload in answers:
            if kind == "counts":
                findings.counts.update(payload)
            elif kind == "problem":
                findings.add((payload["piece"], 0), decoded_problem(payload, 0))
        fragments = [payload["fragment"] for kind, payload in answers if kind == "fragment"]
        rows = MergeRows(
            catalog,
            {self._table_key: self._place},
            kernel.root.storage_options(),
            WriteLimits.from_environment(os.environ),
            lambda piece, number: Place(f"<frame>[{piece}]", number, "record"),
            "record",
            self._mode,
        )
        loaded, problems = rows.read(
            {self._table_key: fragments} if fragments else {}, self._reading.minting.prefix
        )

        def prepare(capture: Capture, current: Catalog) -> Prepared[None]:
            if current.schema_hash != accepted.schema_hash:
                raise ReadSetChanged("schema_hash", accepted.schema_hash, current.schema_hash)
            plan = checked_plan(loaded, capture.reader, (), problems, findings, values=False)
            said = {
                "base_branch": None,
                "mode": self._mode,
                "nodes": [astuple(count) for count in plan.nodes],
                "edges": [astuple(count) for count in plan.edges],
                "engine": "spark",
            }
            intent = Intent("Load", "load", self._actor, None, self._key_option, said)
            return Prepared(plan.changes, None, intent)

        # A key that was used before means that these very rows are there already.
        with suppress(AlreadyWritten):
            WritePath(kernel).write(
                self._where.branch,
                prepare,
                kind="load",
                accepted=accepted,
                may_prepare_again=self._mode != "overwrite",
                operation_id=self._key_option,
            )


def register(spark: Any) -> None:
    """Make the data source `omnigraph` known to a session."""
    spark.dataSource.register(OmnigraphSource)

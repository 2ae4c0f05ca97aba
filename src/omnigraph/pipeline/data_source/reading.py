"""Reading a type as a Spark DataFrame: rows of one snapshot, in Spark's types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.opening import open_for_reading
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError
from omnigraph.loading.inputs import SIGNED
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, ShownEnds
from omnigraph.pipeline.data_source.options import SentToProcesses, SourceActor, SourceOptions
from omnigraph.schema.catalog import table_schema
from omnigraph.storage.blobs import DESCRIPTION, described
from omnigraph.storage.failures import sentence_of
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.written import committed_batches, fragment_groups
from omnigraph.views import RowGrant, View, ViewedReader
from omnigraph.views.rows import columns_tested, granted, hiding_ends

if TYPE_CHECKING:
    from lance import LanceDataset
    from pyspark.sql import DataFrame

PARTITION_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class Pinned:
    """The rows and columns of a frame, from one version of one table."""

    root: str
    address: str
    version: int
    schema: pa.Schema
    """The schema in Spark's types."""
    groups: tuple[tuple[int, ...], ...]
    """Fragments by partition of the frame."""
    filter: str | None
    end_types: Mapping[str, Mapping[str, str]]
    """`EdgeType.end_types` of an edge type."""
    seen: SeenRows | None = None
    """The rows that the actor sees; None for all."""

    @classmethod
    def of(cls, options: SourceOptions) -> Pinned:
        """Pin the current version; raises `InputError` for an unknown column or a bad filter."""
        if options.acting is not None:
            return cls._of_actor(options, options.acting)
        kernel = Kernel.of(Root.parse(options.path), serve_older=True)
        open_for_reading(kernel)
        catalog = kernel.accepted_on(options.branch).catalog
        key = options.table_key(catalog)
        state = kernel.manifest.refreshed(options.branch).state
        commit = options.snapshot
        snapshot = state.head_snapshot() if commit is None else state.snapshot_at(commit)
        reader = SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
        handle = reader.handle(key)
        edge = catalog.edges.get(TableKey(key).type_name)
        end_types: dict[str, dict[str, str]] = {}
        if edge is not None and TableKey(key).kind == "edge":
            end_types = {end: dict(each) for end, each in edge.end_types.items()}
        return cls._of_reader(options, reader, key, ShownEnds(end_types), schema=handle.schema)

    @classmethod
    def _of_actor(cls, options: SourceOptions, acting: SourceActor) -> Pinned:
        """`of` for an actor: pins what it sees; raises `PolicyDenied`."""
        reader, type, sees_all = acting.pinned(
            options.path, options.type, options.branch, options.snapshot
        )
        key, ends, snapshot = type.table_key, ShownEnds.of(type), reader.snapshot
        if options.filter is not None and not sees_all:
            # Lance would evaluate the filter on hidden rows and columns, too.
            raise InputError(
                "the option 'filter' is for actors who see all of a branch",
                hint="filter the frame: it has the rows that the actor sees",
            )
        seen = None
        if isinstance(reader, ViewedReader) and reader.restricts(key):
            commit = snapshot.commit
            seen = SeenRows(acting, snapshot.branch, commit.commit_id, commit.schema_hash, key)
        return cls._of_reader(options, reader, key, ends, schema=table_schema(type), seen=seen)

    @classmethod
    def _of_reader(
        cls,
        options: SourceOptions,
        reader: SnapshotReader,
        key: str,
        ends: ShownEnds,
        *,
        schema: pa.Schema,
        seen: SeenRows | None = None,
    ) -> Pinned:
        entry, handle = reader.snapshot.table(key), reader.handle(key)
        chosen = _chosen(ends.schema(schema), options.columns, key)
        if options.filter is not None:
            _require_filter(handle, options.filter, key)
        return cls(
            options.path,
            reader.where(entry).address,
            entry.version,
            pa.schema([f.with_type(spark_type(f.type)).remove_metadata() for f in chosen]),
            tuple(group for group, _ in fragment_groups(handle, PARTITION_ROWS)),
            options.filter,
            {end: dict(each) for end, each in ends.prefixes.items()},
            seen,
        )


@dataclass(frozen=True, slots=True)
class SeenRows:
    """The rows of a type that an actor sees, in a form that tasks can open by themselves."""

    acting: SourceActor
    branch: str
    commit_id: str
    schema_hash: str
    key: str

    def reader(self, path: str) -> ViewedReader:
        """A reader that hides the other rows."""
        found = self.acting.again(path, self.branch, self.commit_id, self.schema_hash)
        assert isinstance(found, ViewedReader)
        return found


def _chosen(schema: pa.Schema, columns: Sequence[str] | None, key: str) -> pa.Schema:
    for name in columns or ():
        if name not in schema.names:
            raise InputError(
                f"{key} has no column '{name}'", hint=name_hint(name, schema.names, "columns")
            )
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _require_filter(handle: LanceDataset, filter: str, key: str) -> None:
    """Let Lance plan the filter now, so that a bad one fails here and not in every task."""
    try:
        handle.scanner(filter=filter).explain_plan()
    except (OSError, ValueError) as error:
        reason = sentence_of(error).removeprefix("Invalid user input: ")
        raise InputError(
            f"'{filter}' is not a filter for {key}: {reason}",
            hint="a filter is a condition in SQL over the columns of the type",
        ) from error


# --- types ----------------------------------------------------------------------------------------

_OTHER = {**SIGNED, pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC")}


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema as Spark's type."""
    return from_arrow_schema(schema)


def spark_type(type: pa.DataType) -> pa.DataType:
    """The Spark type that holds the values of a column; Spark has no unsigned integers."""
    if isinstance(type, pa.BaseExtensionType):
        return DESCRIPTION
    if pa.types.is_list(type) or pa.types.is_fixed_size_list(type):
        return pa.list_(spark_type(type.value_type))
    return _OTHER.get(type, type)


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(target) and pa.types.is_struct(column.type):
        return described(column).cast(target)
    return column.cast(target)


# --- reading --------------------------------------------------------------------------------------


class _Part(InputPartition):
    def __init__(self, fragment_ids: tuple[int, ...]) -> None:
        super().__init__(None)
        self.fragment_ids = fragment_ids


class PinnedReader(SentToProcesses, DataSourceReader):
    """Reads a pinned version, one group of fragments per task."""

    def __init__(self, pinned: Pinned, schema: StructType) -> None:
        self._pinned = pinned
        self._schema = schema
        _require_types(pinned.schema, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The groups of fragments; Spark needs at least one partition."""
        return [_Part(group) for group in self._pinned.groups] or [_Part(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a group."""
        assert isinstance(partition, _Part)
        target = to_arrow_schema(self._schema, timezone="UTC")
        if not partition.fragment_ids:
            return
        pinned, ends = self._pinned, ShownEnds(self._pinned.end_types)
        options = Root.parse(pinned.root).storage_options()
        seen, names = pinned.seen, list(dict.fromkeys(map(ends.stored, target.names)))
        reader = None if seen is None else seen.reader(pinned.root)
        if seen is not None and reader is not None:
            names = reader.with_columns_read(seen.key, names)
        for whole in committed_batches(
            pinned.address,
            pinned.version,
            partition.fragment_ids,
            names,
            filter=pinned.filter,
            storage_options=options or None,
        ):
            batch = whole
            if seen is not None and reader is not None:
                batch = whole.filter(reader.mask(seen.key, whole))
            columns = [_cast(ends.column(field.name, batch), field.type) for field in target]
            yield pa.RecordBatch.from_arrays(columns, schema=target)


def _require_types(known: pa.Schema, asked: StructType) -> None:
    """Refuse a caller's schema with other columns or types: a cast may lose information."""
    types = {field.name: field.dataType for field in spark_schema(known)}
    for field in asked:
        if field.name not in types:
            raise InputError(
                f"the frame has no column '{field.name}'",
                hint=name_hint(field.name, types, "columns"),
            )
        if field.dataType != types[field.name]:
            found = types[field.name].simpleString()
            raise InputError(
                f"column '{field.name}' is {found}, not {field.dataType.simpleString()}",
                hint="leave out the schema, and cast the frame",
            )


# --- what a view shows ----------------------------------------------------------------------------


def visible_frame(whole: Callable[[str], DataFrame], view: View, key: str) -> DataFrame:
    """The rows and columns of a type that a view shows; ``whole`` returns all rows of a type key.

    Edges are joined with the visible nodes; then tasks evaluate the conditions. Spark moves a
    caller's condition on the frame below a join, but not below such tasks: one that fails on a
    hidden row would tell that the row exists.
    """
    type, grants, frame = view.types[key].type, view.conditions(key), whole(key)
    shown = ShownEnds.of(type).schema(table_schema(type)).names
    hiding = hiding_ends(view, key)
    for end in hiding:
        on = [end, END_TYPES[end]] if END_TYPES[end] in shown else [end]
        nodes = [
            visible_frame(whole, view, node.table_key)
            .select(F.col("id").alias(end), F.lit(node.name).alias(END_TYPES[end]))
            .select(*on)
            for node in view.ends(key)[end]
        ]
        every = nodes[0]
        for more in nodes[1:]:
            every = every.union(more)
        frame = frame.join(every, on, "left_semi")
    if grants is not None:
        columns = columns_tested(grants, ShownEnds({}))
        frame = frame.mapInArrow(_Granted(grants, columns), frame.schema)
    elif hiding:
        frame = frame.mapInArrow(_unchanged, frame.schema)
    return frame.select(*shown)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@dataclass(frozen=True)
class _Granted:
    """Filters rows by the conditions of a view, in a task."""

    grants: tuple[RowGrant, ...]
    columns: Mapping[str, pa.DataType]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of some batches."""
        for batch in batches:
            read = {name: batch[name].cast(type) for name, type in self.columns.items()}
            rows = pa.table(read or {"id": batch["id"]})
            yield batch.filter(granted(self.grants, ShownEnds({}), rows))

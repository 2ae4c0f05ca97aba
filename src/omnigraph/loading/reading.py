"""Reading pieces in tasks: from bytes and columns to typed rows.

`loading.records` converts and checks values, as for a load in process; `loading.formats` decodes
the formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.commit.external_blobs import NOT_ON_SPARK, ExternalBlobs
from omnigraph.commit.validation.evaluation import with_resolved_ends
from omnigraph.errors import InputError, ValueConversionError
from omnigraph.loading.check_plan import CommittedPart, Part
from omnigraph.loading.files import Files
from omnigraph.loading.formats.csv_rows import csv_header, csv_rows
from omnigraph.loading.formats.json_rows import typed_records, with_type_hint
from omnigraph.loading.formats.table_batches import (
    BATCH_ROWS,
    arrow_reader,
    avro_objects,
    avro_schema,
    table_batches,
)
from omnigraph.loading.formats.table_columns import UNKNOWN_LEFT_OUT, end_type, mapped_columns
from omnigraph.loading.mapping import TableMapping
from omnigraph.loading.pieces import InputPlan, Piece, blocks_of, require_unchanged
from omnigraph.loading.records.framing import Chunk, RecordSource, read_chunks, read_line_chunks
from omnigraph.loading.records.ids import Minting, Renames, with_renames
from omnigraph.loading.records.problems import (
    Grammar,
    Problem,
    RefusedValue,
    name_hint,
    value_hint,
    with_inputs,
)
from omnigraph.loading.records.rows import (
    RowBuilder,
    TypedRows,
    typed_chunks,
    value_problems,
    without_bad,
)
from omnigraph.loading.sources import FoundFile, corrupt, type_of
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.arrow_columns import values_from_text
from omnigraph.model.receipts import LoadMode
from omnigraph.model.records import dataclass
from omnigraph.model.values import property_value
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType
from omnigraph.schema.contract import SchemaContract, open_contract
from omnigraph.storage.written import (
    TablePlace,
    committed_batches,
    read_written,
    write_rows,
    written_columns,
)

_Rows = tuple[list[TypedRows], list[Problem]]
"""Rows by type, and the problems of all records, also of those that gave no row."""

if TYPE_CHECKING:
    from omnigraph.loading.staging import BufferedRows


@dataclass(frozen=True, slots=True)
class Reading:
    """How the pieces of one load are read."""

    contract: SchemaContract
    grammar: Grammar
    mode: LoadMode
    minting: Minting
    keeps_absent: bool = False
    """Whether rows record which properties are absent: `LoadSpec.keeps_absent`."""
    ignore_unknown: bool = False
    files: Files = field(default_factory=Files)
    """Access to the input files."""
    renames: Renames = field(default_factory=dict)
    mappings: Mapping[str, TableMapping] = field(default_factory=dict)
    """By table key: the mapping of `data` of graph records."""
    external: ExternalBlobs = NOT_ON_SPARK
    """The external objects that blobs may refer to."""
    nodes: LoadedNodeIds | None = None
    """For finding the types of nodes that edges refer to by id alone; None until all nodes have
    been read."""
    skips: bool = False
    """Whether records with problems are skipped, and problems carry their records."""
    skipped: Mapping[int, pa.Int64Array] = field(default_factory=dict)
    """By piece: the numbers of further records to skip, found by checks."""
    named: Catalog | None = None
    """The types and properties that the input may name, if not all of the graph."""

    @property
    def catalog(self) -> Catalog:
        """The types of the graph; decoded once per process."""
        if self.named is not None:
            return self.named
        contract = self.contract
        return open_contract(contract.source, contract.ir, contract.state).catalog


@dataclass(slots=True)
class PieceReader:
    """Reads pieces one after another, and counts records."""

    reading: Reading
    records: int = 0
    """Records of the current piece so far, by the unit of the grammar."""
    _builders: dict[tuple[str, int], RowBuilder] = field(default_factory=dict)

    def read(self, piece: Piece) -> Iterator[_Rows]:
        """The rows of a piece and their problems, numbered from 1 within the piece.

        Raises `InputError` naming the file if it cannot be read, and `framing.NotOnLines`.
        """
        self.records = 0
        require_unchanged(piece, self.reading.files)
        if piece.file.format == "records":
            yield from self._records(piece)
        else:
            try:
                yield from self._rows(
                    piece, type_of(piece.file.table_key or "", self.reading.catalog)
                )
            except (OSError, pa.ArrowException) as error:
                raise corrupt(piece.file.shown, error) from error
        require_unchanged(piece, self.reading.files)

    def _rows(self, piece: Piece, type: TableType) -> Iterator[_Rows]:
        match piece.file.format:
            case "json":
                return self._json(piece, type)
            case "avro":
                return self._avro(piece, type)
            case "csv":
                return self._csv(piece, type)
            case _:
                batches = table_batches(piece, self.reading.files)
                return (self.table_rows(batch, type, piece) for batch in batches)

    # --- graph records ---

    def _records(self, piece: Piece) -> Iterator[_Rows]:
        reading, unit = self.reading, piece.unit(self.reading.grammar)
        chunks = self._chunks(piece, reading.grammar)
        for rows, problems in typed_chunks(
            chunks,
            piece.file.shown,
            reading.catalog,
            reading.grammar,
            partial(self._builder, piece),
            mappings=reading.mappings,
            skips=reading.skips,
        ):
            if reading.renames:
                renamed = [with_renames(each, reading.renames, unit) for each in rows]
                rows = [each for each, _ in renamed]  # noqa: PLW2901
                problems += [problem for _, found in renamed for problem in found]
            yield self._kept(rows, problems, piece)

    def _kept(
        self,
        rows: list[TypedRows],
        problems: list[Problem],
        piece: Piece,
        inputs: Callable[[int], object] | None = None,
    ) -> _Rows:
        """The rows without those that are skipped; problems get their records from ``inputs``."""
        if self.reading.nodes is not None:
            rows = [self._with_ends(each, self.reading.nodes) for each in rows]
        if not self.reading.skips:
            return rows, problems
        if inputs is not None and problems:
            problems = with_inputs(problems, inputs)
        return without_bad(rows, problems, self.reading.skipped.get(piece.index)), problems

    def _with_ends(self, rows: TypedRows, nodes: LoadedNodeIds) -> TypedRows:
        if not isinstance(rows.type, EdgeType) or not rows.type.end_types:
            return rows
        catalog = self.reading.catalog
        return replace(rows, rows=with_resolved_ends(rows.rows, rows.type, catalog, nodes.existing))

    def _chunks(self, piece: Piece, grammar: Grammar) -> Iterator[Chunk]:
        source = RecordSource(piece.file.shown, lambda: blocks_of(piece, self.reading.files))
        if grammar == "strict":
            # The items of an array are numbered as records, not lines.
            unit = piece.unit(grammar)
            source = RecordSource(piece.file.shown, lambda: self._counting_lines(piece), unit)
        is_part = grammar == "compatible" and piece.is_range
        for chunk in read_line_chunks(source) if is_part else read_chunks(source, grammar):
            self.records = max(self.records, chunk.numbers[-1] if len(chunk.numbers) else 0)
            yield chunk

    def _counting_lines(self, piece: Piece) -> Iterator[bytes]:
        ends_open = False
        for block in blocks_of(piece, self.reading.files):
            self.records += block.count(b"\n")
            ends_open = not block.endswith(b"\n")
            yield block
        self.records += ends_open

    # --- objects of one type ---

    def _json(self, piece: Piece, type: TableType) -> Iterator[_Rows]:
        # Always strict: the compatible grammar is for older files of graph records only.
        for chunk in self._chunks(piece, "strict"):
            yield self._objects(chunk.values, chunk.numbers, type, piece, chunk.problems)

    def _avro(self, piece: Piece, type: TableType) -> Iterator[_Rows]:
        for objects in avro_objects(piece, self.reading.files):
            first = self.records + 1
            self.records += len(objects)
            yield self._objects(objects, range(first, self.records + 1), type, piece)

    def _objects(
        self,
        objects: Sequence[Any],
        numbers: Sequence[int],
        type: TableType,
        piece: Piece,
        known: Sequence[Problem] = (),
    ) -> _Rows:
        unit, mapping = piece.unit("strict"), piece.file.mapping
        refused: Sequence[RefusedValue] = ()
        given: Mapping[int, object] = {}
        if self.reading.skips:
            # `typed_records` takes members out of its objects.
            copies = [dict(each) if isinstance(each, dict) else each for each in objects]
            given = dict(zip(numbers, copies, strict=True))
        if not mapping.is_plain:
            objects, numbers, refused = mapping.objects(objects, numbers, type, piece.file.shown)
        records, problems = typed_records(
            objects,
            numbers,
            type,
            self.reading.catalog,
            source=piece.file.shown,
            unit=unit,
            ignore_unknown=self.reading.ignore_unknown,
        )
        rows, found = self._builder(piece, type).build(records, piece.file.shown, refused)
        problems = [*known, *problems, *map(with_type_hint, found), *value_problems(rows, unit)]
        return self._kept([rows], problems, piece, given.get)

    # --- rows of one type ---

    def _csv(self, piece: Piece, type: TableType) -> Iterator[_Rows]:
        for some in csv_rows(piece, self.reading.files):
            self.records = some.records
            problems = some.problems
            for start in range(0, max(1, some.cells.num_rows), BATCH_ROWS):
                cells = some.cells.slice(start, BATCH_ROWS)
                numbers = some.numbers[start : start + BATCH_ROWS]
                yield self._cells(cells, numbers, type, piece, problems)
                problems = ()

    def table_rows(self, batch: pa.RecordBatch, type: TableType, piece: Piece) -> _Rows:
        """The typed rows of one batch of a table."""
        first = self.records + 1
        self.records += batch.num_rows
        return self._cells(batch, range(first, self.records + 1), type, piece)

    def _cells(
        self,
        batch: pa.RecordBatch,
        numbers: Sequence[int],
        type: TableType,
        piece: Piece,
        known: Sequence[Problem] = (),
    ) -> _Rows:
        found, given = piece.file, batch
        mapped = found.mapping.rows(
            batch, numbers, type, found.shown, are_texts=found.format == "csv"
        )
        batch = mapped.batch
        columns = mapped_columns(
            batch.schema,
            type,
            self.reading.catalog,
            found.shown,
            texts=mapped.texts,
            ignore_unknown=self.reading.ignore_unknown,
            folder_values=dict(found.folder_values),
            keeps_absent=self.reading.keeps_absent,
        )
        names = batch.schema.names
        is_edge = isinstance(type, EdgeType)
        rows, problems = self._builder(piece, type).build_from_columns(
            {name: batch.column(index) for name, index in columns.items()},
            mapped.numbers,
            found.shown,
            texts=[name for name, index in columns.items() if names[index] in mapped.texts],
            ends={name: end_type(type, name, self.reading.catalog) for name in (SRC, DST)}
            if is_edge
            else None,
            refused=mapped.refused,
        )
        problems = [*known, *problems, *value_problems(rows, "record")]
        return self._kept([rows], problems, piece, partial(_row_of, given, numbers))

    # --- records as they are ---

    def inputs(self, piece: Piece) -> dict[int, object]:
        """By number: the skipped records of a piece, as the input has them."""
        self.records = 0
        wanted = set(self.reading.skipped[piece.index].to_pylist())
        found: dict[int, object] = {}
        for numbers, record_of in self._given(piece):
            found |= {number: record_of(number) for number in wanted.intersection(numbers)}
        return found

    def _given(self, piece: Piece) -> Iterator[tuple[Sequence[int], Callable[[int], object]]]:
        files = self.reading.files
        match piece.file.format:
            case "records" | "json":
                is_typed = piece.file.format == "json"
                grammar: Grammar = "strict" if is_typed else self.reading.grammar
                for chunk in self._chunks(piece, grammar):
                    values = dict(zip(chunk.numbers, chunk.values, strict=True))
                    yield chunk.numbers, values.get
            case "avro":
                for objects in avro_objects(piece, files):
                    first = self.records + 1
                    self.records += len(objects)
                    yield (
                        range(first, self.records + 1),
                        dict(enumerate(objects, start=first)).get,
                    )
            case "csv":
                for some in csv_rows(piece, files):
                    yield some.numbers, partial(_row_of, some.cells, some.numbers)
            case _:
                for batch in table_batches(piece, files):
                    first = self.records + 1
                    self.records += batch.num_rows
                    numbers = range(first, self.records + 1)
                    yield numbers, partial(_row_of, batch, numbers)

    def _builder(self, piece: Piece, type: TableType) -> RowBuilder:
        known = self._builders.get((type.table_key, piece.index))
        if known is None:
            reading, is_typed = self.reading, piece.file.format != "records"
            known = self._builders[type.table_key, piece.index] = RowBuilder(
                type,
                # The compatible grammar is for graph records only.
                "strict" if is_typed else reading.grammar,
                lambda _source, numbers: reading.minting.ids(piece.index, numbers),
                reading.external,
                copy_external=reading.mode != "overwrite",
                keeps_absent=reading.keeps_absent,
                skips=reading.skips,
                unit=piece.unit(reading.grammar),
                folder_values=dict(piece.file.folder_values),
            )
        return known


def _row_of(batch: pa.RecordBatch, numbers: Sequence[int], number: int) -> object:
    """The row of record ``number`` as a dictionary; None if the batch does not have it."""
    if number not in numbers:
        return None
    (row,) = batch.slice(numbers.index(number), 1).to_pylist()
    return row


def check_headers(plan: InputPlan, reading: Reading) -> None:
    """Raise `InputError` for the first unknown or missing column of the planned files."""
    catalog, files, ignore_unknown = reading.catalog, reading.files, reading.ignore_unknown
    keeps_absent = reading.keeps_absent
    for found in plan.files:
        if found.table_key is None or not found.size:
            continue
        type = type_of(found.table_key, catalog)
        _check_folders(found, type, ignore_unknown=ignore_unknown)
        schema = _schema(found, files)
        if schema is not None:
            check_columns(
                schema, found, catalog, ignore_unknown=ignore_unknown, keeps_absent=keeps_absent
            )
    for source in plan.frames:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(source.rows.schema, timezone="UTC")
        check_columns(
            schema, source.found, catalog, ignore_unknown=ignore_unknown, keeps_absent=keeps_absent
        )


def check_columns(
    schema: pa.Schema,
    found: FoundFile,
    catalog: Catalog,
    *,
    ignore_unknown: bool,
    keeps_absent: bool = False,
) -> None:
    """Raise `InputError` for the first column that is unknown, missing or wrongly mapped."""
    type = type_of(found.table_key or "", catalog)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    mapped = found.mapping.rows(nothing, (), type, found.shown, are_texts=found.format == "csv")
    mapped_columns(
        mapped.batch.schema,
        type,
        catalog,
        found.shown,
        texts=mapped.texts,
        ignore_unknown=ignore_unknown,
        folder_values=dict(found.folder_values),
        keeps_absent=keeps_absent,
    )


def _check_folders(found: FoundFile, type: TableType, *, ignore_unknown: bool) -> None:
    """Refuse a partition folder that names no property, or a value that does not fit it."""
    for name, text in found.folder_values:
        prop = type.properties.get(name)
        if prop is None and ignore_unknown:
            continue
        folder = f"{found.shown}: {type.name}: the folder '{name}={text or ''}'"
        details = {"file": found.shown, "type": type.name, "property": name}
        if prop is None:
            known = name_hint(name, type.properties, f"properties of {type.name}")
            raise InputError(
                f"{folder} is no property", hint=f"{known}; {UNKNOWN_LEFT_OUT}", details=details
            )
        (value,) = values_from_text(pa.array([text], pa.string()), prop.type)
        try:
            property_value(value, prop.type, name, strict=True)
        except ValueConversionError as error:
            hint = error.hint or value_hint(prop.type)
            raise InputError(f"{folder}: {error.message}", hint=hint, details=details) from error


def _schema(found: FoundFile, files: Files) -> pa.Schema | None:
    try:
        match found.format:
            case "parquet":
                import pyarrow.parquet as pq

                with files.open(found.path) as stream:
                    return pq.read_schema(stream)
            case "csv":
                names = csv_header(found, files)
                return pa.schema([(name, pa.string()) for name in names])
            case "avro":
                with files.open(found.path) as stream:
                    return avro_schema(stream)
            case "orc":
                from pyarrow import orc

                with files.open(found.path) as stream:
                    return orc.ORCFile(stream).schema
            case "arrow":
                with files.open(found.path) as source:
                    return arrow_reader(source).schema
            case "lance":
                import lance

                options = dict(files.s3) or None
                dataset = lance.dataset(found.path, storage_options=options)
                # `table_batches` reads blobs as bytes, too.
                return dataset.scanner(blob_handling="all_binary").projected_schema
            case _:
                return None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise corrupt(found.shown, error) from error


# --- ends of edges --------------------------------------------------------------------------------
#
# Edges at an interface that refer to nodes by id alone need the types of these nodes. Their rows
# were written before all nodes were read, so tasks read the rows again, look up the ids among
# written and committed nodes, and write the rows anew, in the same order.


@dataclass(slots=True)
class LoadedNodeIds:
    """The ids of all nodes after a bulk load, those of refused records included; read on demand."""

    parts: Mapping[str, tuple[Part, ...]]
    """By type key: the rows of node types."""
    refused: Mapping[str, tuple[str, ...]]
    """By type key: ids of records that were refused for problems of their own."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    _known: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False)

    def existing(self, node: NodeType, ids: pa.Array) -> pa.ChunkedArray:
        """All ids of a type, read on first use; ``ids``, the wanted ones, are not used."""
        key = node.table_key
        known = self._known.get(key)
        if known is None:
            parts = [pa.array(self.refused.get(key, ()), pa.string())]
            for part in self.parts.get(key, ()):
                parts += [batch[ID] for batch in self._batches(part)]
            known = self._known[key] = pa.chunked_array(parts, pa.string())
        return known

    def _batches(self, part: Part) -> Iterable[pa.RecordBatch]:
        options = self.storage_options or None
        if not isinstance(part, CommittedPart):
            return part.batches([ID], options)
        return committed_batches(
            part.address, part.version, part.fragment_ids, [ID], storage_options=options
        )


@dataclass(frozen=True, slots=True)
class EndsJob:
    """The arguments of the tasks that resolve ends."""

    reading: Reading
    places: Mapping[str, TablePlace]
    """By type key: where edges are written."""
    tasks: tuple[tuple[tuple[str, str], ...], ...]
    """By task: the type keys and fragments of edges."""
    nodes: LoadedNodeIds
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    buffer: BufferedRows | None = None
    """Rows that are in memory; only within one process."""


def resolve_ends(job: EndsJob) -> Callable[[int], list[list[str]]]:
    """The function that rewrites the edges of one task: the new fragments, by old fragment."""

    def run(number: int) -> list[list[str]]:
        return [_written_anew(job, *each) for each in job.tasks[number]]

    return run


def _written_anew(job: EndsJob, key: str, fragment: str) -> list[str]:
    catalog = job.reading.catalog
    edge = next(each for each in catalog.edges.values() if each.table_key == key)
    buffered = None if job.buffer is None else job.buffer.get(fragment)
    options = job.storage_options or None
    if buffered is not None:
        rows = with_resolved_ends(buffered, edge, catalog, job.nodes.existing)
        assert job.buffer is not None
        return [fragment if rows is buffered else job.buffer.keep(rows.to_batches())]
    place = job.places[key]
    columns = written_columns(place, fragment, storage_options=options)
    stored = pa.Table.from_batches(
        list(read_written(place, fragment, columns, storage_options=options))
    )
    rows = with_resolved_ends(stored, edge, catalog, job.nodes.existing)
    if rows is stored:
        return [fragment]
    return write_rows(place, rows.schema, rows.to_batches(), storage_options=options)

"""Reading pieces in workers: from bytes and columns to typed rows.

What a value means and what is wrong with it is decided by `commit.records`, as for a load in
process. This module only knows how the rows of each format are reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.load_problems import value_problems
from omnigraph.commit.records.blobs import NOT_ON_SPARK, ExternalBlobs
from omnigraph.commit.records.envelope import EnvelopeReader, TableType
from omnigraph.commit.records.framing import Chunk, read_chunks, read_line_chunks
from omnigraph.commit.records.hints import name_hint
from omnigraph.commit.records.problems import Grammar, Place, Problem, Unit, unit_of
from omnigraph.commit.records.rows import RowBuilder, TypedRows, ambiguous_rename
from omnigraph.commit.records.source import CHUNK_BYTES, RecordSource, line_blocks
from omnigraph.errors import InputError, NotFound, SourceChanged
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.arrow_columns import accepts, column_from_arrow
from omnigraph.model.columns import spell_column
from omnigraph.model.receipts import LoadMode
from omnigraph.model.types import Scalar, ValueType
from omnigraph.pipeline.files import Files
from omnigraph.pipeline.minting import Minting
from omnigraph.pipeline.sources import Piece, corrupt, type_of
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.contract import SchemaContract, open_contract
from omnigraph.schema.table_schema import table_schema

BATCH_ROWS = 65_536
_LINE_BYTES = 4_096
_ENDS = {"from": SRC, "to": DST, SRC: SRC, DST: DST}
_TEXT = ValueType(Scalar.STRING, nullable=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the pieces of one load are read."""

    contract: SchemaContract
    grammar: Grammar
    mode: LoadMode
    minting: Minting
    ignore_unknown: bool = False
    files: Files = field(default_factory=Files)
    """The way to the files of the input."""
    renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By node type, the canonical ids of nodes that the input names in an older way."""
    external: ExternalBlobs = NOT_ON_SPARK
    """Which objects blobs may refer to."""

    @property
    def catalog(self) -> Catalog:
        """The types of the graph; decoded once per process."""
        contract = self.contract
        return open_contract(contract.source, contract.ir, contract.state).catalog


@dataclass(slots=True)
class PieceReader:
    """Reads pieces one after another, and counts what it reads."""

    reading: Reading
    records: int = 0
    """Records of the current piece so far, by the unit of the grammar."""
    _builders: dict[tuple[str, int], RowBuilder] = field(default_factory=dict)

    def read(self, piece: Piece) -> Iterator[tuple[TypedRows, list[Problem]]]:
        """The rows of a piece and their problems, numbered from 1 within the piece.

        Raises `InputError` naming the file if it cannot be read, and `framing.NotOnLines`.
        """
        self.records = 0
        require_unchanged(piece, self.reading.files)
        if piece.format == "records":
            yield from self._records(piece)
        else:
            type = type_of(piece.table_key or "", self.reading.catalog)
            try:
                for batch in _table_batches(piece, self.reading.files):
                    yield self.table_rows(batch, type, piece)
            except (OSError, pa.ArrowException) as error:
                raise corrupt(piece.shown, error) from error
        require_unchanged(piece, self.reading.files)

    # --- graph records ---

    def _records(self, piece: Piece) -> Iterator[tuple[TypedRows, list[Problem]]]:
        grammar = self.reading.grammar
        envelopes = EnvelopeReader(self.reading.catalog, grammar)
        source = RecordSource(piece.shown, lambda: _blocks(piece, self.reading.files))
        for chunk in self._chunks(source, piece):
            self.records = max(self.records, chunk.numbers[-1] if len(chunk.numbers) else 0)
            groups, problems = envelopes.sort(chunk, piece.shown)
            problems.extend(chunk.problems)
            for records in groups:
                builder = self._builder(records.type, piece)
                rows, found = builder.build(records, piece.shown)
                rows = self._renamed(rows, found, unit_of(grammar))
                yield _checked(rows, [*problems, *found], unit_of(grammar))
                problems = []
            if problems:
                yield _no_rows(self.reading.catalog, piece.shown), problems

    def _chunks(self, source: RecordSource, piece: Piece) -> Iterator[Chunk]:
        if self.reading.grammar == "compatible" and piece.is_range:
            return read_line_chunks(source)
        if self.reading.grammar == "strict":
            source = RecordSource(source.name, lambda: self._counting_lines(piece))
        return read_chunks(source, self.reading.grammar)

    def _counting_lines(self, piece: Piece) -> Iterator[bytes]:
        ends_open = False
        for block in _blocks(piece, self.reading.files):
            self.records += block.count(b"\n")
            ends_open = not block.endswith(b"\n")
            yield block
        self.records += ends_open

    def _renamed(self, rows: TypedRows, problems: list[Problem], unit: Unit) -> TypedRows:
        """Rows whose endpoints have the canonical ids of the nodes they mean."""
        renames = self.reading.renames
        if not renames:
            return rows
        if isinstance(rows.type, EdgeType):
            batch = rows.rows
            for column, node in ((SRC, rows.type.source), (DST, rows.type.target)):
                batch = _with_ends(batch, column, renames.get(node, {}))
            return replace(rows, rows=batch)
        canonical = renames.get(rows.type.name, {})
        taken = pc.is_in(rows.rows[ID], value_set=pa.array(list(canonical), pa.string()))
        for i in pc.indices_nonzero(taken).to_pylist():
            # An older spelling of one node can be the canonical id of another.
            old = rows.rows[ID][i].as_py()
            problems.append(
                Problem(
                    "bad_id",
                    ambiguous_rename(old, canonical[old], old),
                    Place(rows.source, rows.numbers[i].as_py(), unit),
                    rows.type.name,
                    ID,
                    "give these nodes their canonical ids",
                )
            )
        return rows

    # --- rows of one type ---

    def table_rows(
        self, batch: pa.RecordBatch, type: TableType, piece: Piece
    ) -> tuple[TypedRows, list[Problem]]:
        """The typed rows of one batch of a table."""
        numbers = range(self.records + 1, self.records + batch.num_rows + 1)
        self.records += batch.num_rows
        are_texts = piece.format == "csv"
        columns = mapped_columns(
            batch.schema,
            type,
            self.reading.catalog,
            piece.shown,
            are_texts=are_texts,
            ignore_unknown=self.reading.ignore_unknown,
        )
        arrays = {
            name: _ends(batch.column(index), type, name, self.reading.catalog)
            if name in (SRC, DST) and isinstance(type, EdgeType)
            else batch.column(index)
            for name, index in columns.items()
        }
        rows, problems = self._builder(type, piece).build_from_columns(
            arrays, numbers, piece.shown, are_texts=are_texts
        )
        return _checked(rows, problems, "record")

    def _builder(self, type: TableType, piece: Piece) -> RowBuilder:
        known = self._builders.get((type.table_key, piece.index))
        if known is None:
            reading, is_table = self.reading, piece.format != "records"
            known = self._builders[type.table_key, piece.index] = RowBuilder(
                type,
                # Values of a table have types: nothing is left to be forgiving about.
                "strict" if is_table else reading.grammar,
                lambda _source, numbers: reading.minting.ids(piece.index, numbers),
                reading.external,
                copy_external=reading.mode != "overwrite",
                unit="record" if is_table else None,
            )
        return known


def _checked(
    rows: TypedRows, problems: list[Problem], unit: Unit
) -> tuple[TypedRows, list[Problem]]:
    """Rows with the problems of values that their properties may not hold.

    Such rows stay among the others: whatever else is wrong with them is to be found as well.
    """
    return rows, [*problems, *value_problems(rows, unit)]


def _with_ends(rows: pa.RecordBatch, column: str, renames: Mapping[str, str]) -> pa.RecordBatch:
    if not renames:
        return rows
    olds = pa.array(list(renames), pa.string())
    news = pa.array(list(renames.values()), pa.string())
    found = news.take(pc.index_in(rows[column], value_set=olds))
    index = rows.schema.get_field_index(column)
    return rows.set_column(index, rows.schema.field(index), pc.coalesce(found, rows[column]))


def _no_rows(catalog: Catalog, source: str) -> TypedRows:
    """Nothing, for records of no known type."""
    types: list[TableType] = [*catalog.nodes.values(), *catalog.edges.values()]
    type = types[0]
    nothing = pa.nulls(0, pa.string())
    empty = pa.RecordBatch.from_pylist([], table_schema(type))
    return TypedRows(
        type, source, empty, pa.nulls(0, pa.int64()), pa.nulls(0, pa.bool_()), {}, nothing
    )


# --- bytes ----------------------------------------------------------------------------------------


def require_unchanged(piece: Piece, files: Files) -> None:
    """Refuse a file that is not the one the load was planned with."""
    if piece.stamp is None:
        return
    found = files.stat(piece.path)
    if found is None:
        raise NotFound(f"{piece.shown} vanished while it was loaded", details={"file": piece.path})
    if found != piece.stamp:
        raise SourceChanged(
            f"{piece.shown} changed while it was loaded",
            hint="load a file once its writer is done with it",
            details={"file": piece.path},
        )


def _blocks(piece: Piece, files: Files) -> Iterator[bytes]:
    """The bytes of a piece: of a range, the lines that start in it."""
    try:
        if piece.end is None:
            with files.stream(piece.path) as stream:
                while block := stream.read(CHUNK_BYTES):
                    yield block
            return
        with files.open(piece.path) as stream:
            yield from _range(stream, piece.start, piece.end)
    except OSError as error:
        raise corrupt(piece.shown, error) from error


def _range(stream: Any, start: int, end: int) -> Iterator[bytes]:
    if start:
        stream.seek(start - 1)
        start += len(_line(stream)) - 1
    while start < end:
        stream.seek(start)
        block = stream.read(min(end - start, CHUNK_BYTES))
        if not block:
            return
        start += len(block)
        if start == end and not block.endswith(b"\n"):
            block += _line(stream)
        yield block


def _line(stream: Any) -> bytes:
    """What is left of a line."""
    held: list[bytes] = []
    while block := stream.read(_LINE_BYTES):
        end = block.find(b"\n") + 1
        if end:
            return b"".join([*held, block[:end]])
        held.append(block)
    return b"".join(held)


# --- tables ---------------------------------------------------------------------------------------


def _table_batches(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    match piece.format:
        case "parquet":
            return _parquet(piece, files)
        case "csv":
            return _csv(piece, files)
        case "json":
            return _json_rows(piece, files)
        case "orc":
            return _orc(piece, files)
        case "avro":
            return _avro(piece, files)
        case "lance":
            return _lance(piece, files)
        case "arrow":
            return _arrow(piece, files)
        case _:
            raise AssertionError(piece.format)


def _parquet(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with files.open(piece.path) as stream, pq.ParquetFile(stream) as file:
        yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=list(piece.parts))


def _orc(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(files.open(piece.path))
    for stripe in range(file.nstripes):
        yield from _sliced(file.read_stripe(stripe))


def _arrow(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    with files.open(piece.path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield from _sliced(reader.get_batch(number))


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)


def _lance(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import lance

    options = dict(files.s3) or None
    dataset = lance.dataset(piece.path, version=piece.start, storage_options=options)
    wanted = set(piece.parts)
    chosen = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
    yield from dataset.scanner(fragments=chosen, blob_handling="all_binary").to_batches()


def _avro(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import fastavro

    with files.open(piece.path) as stream:
        try:
            rows: list[Any] = []
            for row in fastavro.reader(stream):
                rows.append(row)
                if len(rows) == BATCH_ROWS:
                    yield pa.RecordBatch.from_pylist(rows)
                    rows = []
            if rows:
                yield pa.RecordBatch.from_pylist(rows)
        except (ValueError, EOFError, KeyError) as error:
            raise corrupt(piece.shown, error) from error


def _json_rows(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    """Objects on lines, each the properties of one entity."""
    import pyarrow.json as paj

    source = RecordSource(piece.shown, lambda: _blocks(piece, files))
    for block in line_blocks(source):
        if block.strip():
            yield from paj.read_json(pa.BufferReader(block)).combine_chunks().to_batches()


def csv_header(path: str, files: Files) -> list[str]:
    """The column names of a CSV file."""
    import pyarrow.csv as pac

    options = pac.ParseOptions(delimiter="\t" if ".tsv" in Path(path).suffixes else ",")
    try:
        with files.stream(path) as stream:
            first = _line(stream)
        return list(pac.read_csv(pa.BufferReader(first), parse_options=options).column_names)
    except pa.ArrowInvalid as error:
        raise corrupt(path, error) from error


def _csv(piece: Piece, files: Files) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as pac

    names = csv_header(piece.path, files)
    stream: Any
    if piece.end is None:
        stream = files.stream(piece.path)
    else:
        with files.open(piece.path) as file:
            file.seek(piece.start)
            stream = pa.BufferReader(file.read(piece.end - piece.start))
    reader = pac.open_csv(
        stream,
        read_options=pac.ReadOptions(
            column_names=names,
            skip_rows=0 if piece.start else 1,
            block_size=4 << 20,
            use_threads=False,
        ),
        parse_options=pac.ParseOptions(
            delimiter="\t" if ".tsv" in Path(piece.path).suffixes else ",",
            newlines_in_values=True,
        ),
        convert_options=pac.ConvertOptions(
            column_types={name: pa.string() for name in names},
            # An empty cell is null, an empty text in quotes is a text.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in reader:
        yield from _sliced(batch)


# --- columns --------------------------------------------------------------------------------------


def mapped_columns(
    schema: pa.Schema,
    type: TableType,
    catalog: Catalog,
    source: str,
    *,
    are_texts: bool,
    ignore_unknown: bool,
) -> dict[str, int]:
    """Which column of a table holds which property, endpoint or id.

    Raises `InputError` naming the first column that is unknown, missing or of a type that cannot
    hold such values: that is settled before any row is looked at.
    """
    is_edge = isinstance(type, EdgeType)
    mapped: dict[str, int] = {}
    for index, column in enumerate(schema):
        name = _ENDS.get(column.name, column.name) if is_edge else column.name
        if name not in type.properties and name != ID and not (is_edge and name in (SRC, DST)):
            if ignore_unknown:
                continue
            known = [*type.properties, ID, *(("from", "to") if is_edge else ())]
            raise _refused(
                source,
                type,
                column.name,
                f"unknown column '{column.name}'",
                name_hint(column.name, known, f"columns of {type.name}")
                + "; or leave unknown columns out with --ignore-unknown",
            )
        if name in mapped:
            raise _refused(
                source, type, column.name, f"column '{name}' is there twice", "keep one of them"
            )
        mapped[name] = index
        if not are_texts:
            _check_type(column, name, type, catalog, source)
    for name, prop in type.properties.items():
        if name not in mapped and not prop.type.nullable and prop.default is None:
            raise _refused(
                source,
                type,
                name,
                f"there is no column '{name}', which is required",
                f"its type is {prop.type}",
            )
    for name, shown in ((SRC, "from"), (DST, "to")):
        if is_edge and name not in mapped:
            raise _refused(
                source,
                type,
                shown,
                f"there is no column '{shown}'",
                "every edge names both its nodes",
            )
    return mapped


def _check_type(
    column: pa.Field, name: str, type: TableType, catalog: Catalog, source: str
) -> None:
    given = column.type.storage_type if hasattr(column.type, "storage_type") else column.type
    if name in type.properties:
        wanted: ValueType = type.properties[name].type
        fits = accepts(wanted, given)
    elif name == ID:
        wanted, fits = _TEXT, accepts(_TEXT, given)
    else:
        wanted = _end_type(type, name, catalog)
        fits = accepts(wanted, given) or accepts(_TEXT, given)
    if not fits:
        raise _refused(
            source,
            type,
            column.name,
            f"column '{column.name}' has type {column.type}, which cannot hold {wanted}",
            "convert it where it comes from",
        )


def _refused(
    source: str, type: TableType, column: str, message: str, hint: str | None
) -> InputError:
    return InputError(
        f"{source}: {type.name}: {message}",
        hint=hint,
        details={"file": source, "type": type.name, "property": column},
    )


def _end_type(type: TableType, name: str, catalog: Catalog) -> ValueType:
    """What an endpoint may be given as: the key of its node, if that is one property."""
    assert isinstance(type, EdgeType)
    node: NodeType = catalog.nodes[type.source if name == SRC else type.target]
    return node.properties[node.key[0]].type if len(node.key) == 1 else _TEXT


def _ends(column: pa.Array, type: TableType, name: str, catalog: Catalog) -> pa.Array:
    """Endpoints as ids: texts are ids already, values of the node's key are spelled as such."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if accepts(_TEXT, column.type):
        return column.cast(pa.string())
    wanted = _end_type(type, name, catalog).with_nullable(True)
    return spell_column(column_from_arrow(column, wanted, name=name, strict=True), wanted)

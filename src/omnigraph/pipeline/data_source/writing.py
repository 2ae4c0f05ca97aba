"""Writing a frame of Spark as rows of one type: what tasks leave behind is loaded as files are.

Spark runs a task on any machine, perhaps twice, and the end of the job in a process that has no
session. So each task writes its rows aside, in files of its own, and tells their names; the end of
the job loads those of the tasks that count, by threads, with every check and as one commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.opening import open_for_writing
from omnigraph.commit.write_path import WritePath
from omnigraph.effects.clock import MINT
from omnigraph.effects.uri import Root
from omnigraph.loading.files import Files
from omnigraph.loading.formats.table_columns import mapped_columns
from omnigraph.loading.load import load
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.loading.sources import FileSource, type_of
from omnigraph.loading.task_load import TaskLoad
from omnigraph.model.receipts import checked_key
from omnigraph.pipeline.data_source.options import SourceOptions
from omnigraph.storage.layout import load_scratch_name

_DIGEST_BITS = 64
_NOTHING_TO_MAKE = LoadBranch(ensure=lambda: None, drop=lambda _: None)
"""The branch of a write has to be there."""


@dataclass
class _Left(WriterCommitMessage):
    """What a task left behind."""

    path: str
    rows_digest: int


class FrameWriter(DataSourceArrowWriter):
    """Writes the rows of a frame as one commit."""

    def __init__(self, options: SourceOptions, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._mode = options.load_mode(overwrite=overwrite)
        self._actor = options.checked_actor()
        self._key = checked_key(options.idempotency_key, "idempotency_key")
        self._scratch = load_scratch_name(MINT.attempt_id())
        kernel = self._kernel()
        catalog = kernel.accepted_schema().catalog
        self._table_key = options.table_key(catalog)
        self._folder = kernel.root.join(self._scratch)
        mapped_columns(
            to_arrow_schema(schema, timezone="UTC"),
            type_of(self._table_key, catalog),
            catalog,
            "<frame>",
            are_texts=False,
            ignore_unknown=False,
        )
        # Made here and not by tasks: one that goes on after the write was given up shall not.
        Files.of_environment([self._folder]).make_folder(self._folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of a task aside, in a file that no other attempt writes to."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        path = f"{self._folder}/{context.partitionId()}-{uuid4().hex}.arrow"
        digest = 0
        writer: pa.RecordBatchFileWriter | None = None
        with Files.of_environment([path]).create(path) as sink:
            for batch in iterator:
                writer = writer or pa.ipc.new_file(sink, batch.schema)
                writer.write_batch(batch)
                if self._key is not None:
                    digest = _added(digest, rows_digest(batch))
            if writer is None:
                return _Left("", 0)
            writer.close()
        return _Left(path, digest)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load what the tasks that count have left behind."""
        left = [each for each in messages if isinstance(each, _Left)]
        kernel = self._kernel()
        digest = 0
        for each in left:
            digest = _added(digest, each.rows_digest)
        request = LoadRequest(
            self._options.branch,
            self._mode,
            # Spark's own sources are empty after an empty frame has overwritten them.
            replace_types=(self._table_key,) if self._mode == "overwrite" else (),
            actor_id=self._actor,
            operation_id=self._key,
            input_digest=f"rows:{digest:x}",
        )
        sources = [
            FileSource(each.path, self._table_key, "arrow", f"<frame>[{number}]")
            for number, each in enumerate(left)
            if each.path
        ]
        try:
            load(WritePath(kernel), _NOTHING_TO_MAKE, TaskLoad(kernel, request, sources, None))
        finally:
            kernel.store.delete_prefix(self._scratch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what tasks have left behind."""
        self._kernel().store.delete_prefix(self._scratch)

    def _kernel(self) -> Kernel:
        kernel = Kernel.of(Root.parse(self._options.path))
        open_for_writing(kernel)
        return kernel


def rows_digest(batch: pa.RecordBatch) -> int:
    """A digest of rows that does not depend on their order, or on how they are cut into batches."""
    total = 0
    for row in batch.to_pylist():
        text = orjson.dumps(row, default=str, option=orjson.OPT_SORT_KEYS)
        hashed = hashlib.blake2b(text, digest_size=_DIGEST_BITS // 8).digest()
        total = _added(total, int.from_bytes(hashed))
    return total


def _added(one: int, other: int) -> int:
    return (one + other) % (1 << _DIGEST_BITS)

"""Writing a Spark DataFrame as rows of one type: tasks write scratch files, `commit` loads them.

Spark may run a task twice and on any machine, and runs `commit` in a process without a session. So
each attempt of a task writes a file of its own and returns its path; `commit` loads the files of
the successful attempts on threads, with all checks and as one commit.
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
from omnigraph.loading.inputs import checked_errors_out
from omnigraph.loading.load import load
from omnigraph.loading.reading import check_columns
from omnigraph.loading.request import LoadBranch, LoadSpec
from omnigraph.loading.sources import FileSource, FoundFile, type_of
from omnigraph.loading.task_load import TaskLoad
from omnigraph.model.receipts import checked_key
from omnigraph.pipeline.data_source.options import SourceOptions
from omnigraph.storage.layout import load_scratch_name

_DIGEST_BITS = 64
_EXISTING_BRANCH = LoadBranch(ensure=lambda: None, drop=lambda _: None)
"""The branch of a write has to exist."""


@dataclass
class _ScratchFile(WriterCommitMessage):
    """The file that a task wrote; an empty path if it had no rows."""

    path: str
    rows_digest: int


class FrameWriter(DataSourceArrowWriter):
    """Writes the rows of a frame as one commit."""

    def __init__(self, options: SourceOptions, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._mode = options.load_mode(overwrite=overwrite)
        self._absent = options.absent_meaning(self._mode)
        self._actor = options.checked_actor()
        self._key = checked_key(options.idempotency_key, "idempotency_key")
        errors = options.error_options()
        self._on_error, self._error_share = errors.on_error, errors.max_error_share
        self._errors_out = checked_errors_out(errors.errors_out, (), options.path)
        self._scratch = load_scratch_name(MINT.ulid())
        kernel = self._kernel()
        catalog = kernel.accepted_schema().catalog
        self._table_key = options.table_key(catalog)
        self._folder = kernel.root.join(self._scratch)
        type = type_of(self._table_key, catalog)
        self._mapping = options.mapping(self._table_key, catalog).checked(type, "<frame>")
        found = FoundFile("<frame>", "arrow", self._table_key, 0, (0, 0), mapping=self._mapping)
        columns = to_arrow_schema(schema, timezone="UTC")
        keeps_absent = self._mode == "merge" and self._absent == "keep"
        check_columns(columns, found, catalog, ignore_unknown=False, keeps_absent=keeps_absent)
        # Created here, not by tasks: a task that outlives an aborted write then fails.
        Files.of_environment([self._folder]).make_folder(self._folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to a scratch file of this attempt."""
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
                return _ScratchFile("", 0)
            writer.close()
        return _ScratchFile(path, digest)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load the files of the successful tasks."""
        written = [each for each in messages if isinstance(each, _ScratchFile)]
        kernel = self._kernel()
        digest = 0
        for each in written:
            digest = _added(digest, each.rows_digest)
        request = LoadSpec(
            self._options.branch,
            self._mode,
            # As for Spark's own sources, overwriting with an empty frame empties the type.
            replace_types=(self._table_key,) if self._mode == "overwrite" else (),
            actor_id=self._actor,
            operation_id=self._key,
            input_digest=f"rows:{digest:x}" + (f":{self._mapping}" if self._options.map else ""),
            absent=self._absent,
            on_error=self._on_error,
            max_error_share=self._error_share,
            errors_out=self._errors_out,
        )
        sources = [
            FileSource(each.path, self._table_key, "arrow", f"<frame>[{number}]", self._mapping)
            for number, each in enumerate(written)
            if each.path
        ]
        try:
            load(WritePath(kernel), _EXISTING_BRANCH, TaskLoad(kernel, request, sources, None))
        finally:
            kernel.store.delete_prefix(self._scratch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the scratch files."""
        self._kernel().store.delete_prefix(self._scratch)

    def _kernel(self) -> Kernel:
        kernel = Kernel.of(Root.parse(self._options.path))
        open_for_writing(kernel)
        return kernel


def rows_digest(batch: pa.RecordBatch) -> int:
    """A digest of rows, independent of their order and of batch boundaries."""
    total = 0
    for row in batch.to_pylist():
        text = orjson.dumps(row, default=str, option=orjson.OPT_SORT_KEYS)
        hashed = hashlib.blake2b(text, digest_size=_DIGEST_BITS // 8).digest()
        total = _added(total, int.from_bytes(hashed))
    return total


def _added(one: int, other: int) -> int:
    return (one + other) % (1 << _DIGEST_BITS)

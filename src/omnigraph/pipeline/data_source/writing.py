"""Writing a Spark DataFrame as rows of one type: tasks write scratch files, `commit` loads them.

Spark may run a task twice and on any machine, and runs `commit` in a process without a session.
Therefore each attempt of a task writes its own file and returns the path; `commit` loads the files
of the successful attempts on threads, with all checks and as one commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.branching.branches import list_branches
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.opening import open_for_writing
from omnigraph.commit.write_path import WritePath
from omnigraph.effects.clock import MINT
from omnigraph.effects.uri import Root
from omnigraph.loading.files import Files
from omnigraph.loading.inputs import checked_errors_out
from omnigraph.loading.load import load
from omnigraph.loading.reading import check_columns
from omnigraph.loading.request import EXISTING_BRANCH, LoadSpec
from omnigraph.loading.sources import FileSource, FoundFile, type_of
from omnigraph.loading.staging import ScratchFile
from omnigraph.loading.task_load import TaskLoad
from omnigraph.model.ids import checked_key
from omnigraph.model.records import dataclass
from omnigraph.pipeline.data_source.options import SentToProcesses, SourceOptions
from omnigraph.storage.layout import load_scratch_name

_DIGEST_BITS = 64


@dataclass
class _WrittenFile(WriterCommitMessage):
    """The file that a task wrote; an empty path if it had no rows."""

    path: str
    rows_digest: int


def schema_branch(kernel: Kernel, branch: str, from_: str | None) -> str:
    """The branch whose schema applies to rows for ``branch``: ``from_`` if that is missing."""
    is_missing = from_ is not None and branch not in list_branches(kernel)
    return from_ if is_missing and from_ is not None else branch


class FrameRows:
    """The rows of a frame as input of a load of one type, with checked columns."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        overwrite: bool,
        from_: str | None = None,
    ) -> None:
        """``from_`` is the branch that a missing branch will be created from."""
        self.options = options
        self.mode = options.load_mode(overwrite=overwrite)
        self.absent = options.absent_meaning(self.mode)
        self.actor = options.checked_actor()
        if options.acting is not None:
            options.acting.require_writer(options.path, options.branch, from_)
        self.errors = options.error_options()
        self.errors_out = checked_errors_out(self.errors.errors_out, (), options.path)
        self.scratch = load_scratch_name(MINT.ulid())
        kernel = self.kernel()
        catalog = kernel.accepted_on(schema_branch(kernel, options.branch, from_)).catalog
        self.table_key = options.table_key(catalog)
        self.folder = kernel.root.join(self.scratch)
        self.files = Files.of_environment([self.folder])
        type = type_of(self.table_key, catalog)
        self.mapping = options.mapping(self.table_key, catalog).checked(type, "<frame>")
        found = FoundFile("<frame>", "arrow", self.table_key, 0, (0, 0), mapping=self.mapping)
        columns = to_arrow_schema(schema, timezone="UTC")
        keeps_absent = self.mode == "merge" and self.absent == "keep"
        check_columns(columns, found, catalog, ignore_unknown=False, keeps_absent=keeps_absent)

    def kernel(self) -> Kernel:
        """The graph, opened in this process."""
        kernel = Kernel.of(Root.parse(self.options.path))
        open_for_writing(kernel)
        return kernel

    def sources(self, paths: Sequence[str], name: str = "<frame>") -> list[FileSource]:
        """Scratch files in the order of their tasks; a path is empty if there were no rows."""
        return [
            FileSource(path, self.table_key, "arrow", f"{name}[{number}]", self.mapping)
            for number, path in enumerate(paths)
            if path
        ]


class FrameWriter(SentToProcesses, DataSourceArrowWriter):
    """Writes the rows of a frame as one commit."""

    def __init__(self, options: SourceOptions, schema: StructType, *, overwrite: bool) -> None:
        self._key = checked_key(options.idempotency_key, "idempotency_key")
        self._rows = FrameRows(options, schema, overwrite=overwrite)
        # Created here and not by tasks, so that a task that outlives an aborted write fails.
        self._rows.files.make_folder(self._rows.folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task to a scratch file of this attempt."""
        digest = 0
        with ScratchFile(self._rows.folder, self._rows.files) as file:
            for batch in iterator:
                file.add(batch)
                if self._key is not None:
                    digest = _added(digest, rows_digest(batch))
        return _WrittenFile(file.path, digest)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load the files of the successful tasks."""
        written = [each for each in messages if isinstance(each, _WrittenFile)]
        rows = self._rows
        kernel = rows.kernel()
        digest = 0
        for each in written:
            digest = _added(digest, each.rows_digest)
        request = LoadSpec(
            rows.options.branch,
            rows.mode,
            # As for Spark's own sources, overwriting with an empty frame empties the type.
            replace_types=(rows.table_key,) if rows.mode == "overwrite" else (),
            actor_id=rows.actor,
            operation_id=self._key,
            input_digest=f"rows:{digest:x}" + (f":{rows.mapping}" if rows.options.map else ""),
            absent=rows.absent,
            on_error=rows.errors.on_error,
            max_error_share=rows.errors.max_error_share,
            errors_out=rows.errors_out,
        )
        sources = rows.sources([each.path for each in written])
        try:
            load(WritePath(kernel), EXISTING_BRANCH, TaskLoad(kernel, request, sources, None))
        finally:
            kernel.store.delete_prefix(rows.scratch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the scratch files."""
        self._rows.kernel().store.delete_prefix(self._rows.scratch)


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

"""Commits each micro-batch of a stream exactly once, and merges the branch it is written to.

Spark repeats a batch if the driver ended before the batch was in the checkpoint. Each commit
therefore has the ids of the query and of the batch as its idempotency key: a batch that is
committed already is not loaded again. A merge that is due after a batch runs before the batch is
reported as done; repeating it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import get_args

from omnigraph.branching.branches import create_branch, list_branches
from omnigraph.branching.merge import MergeSpec, merge
from omnigraph.branching.three_way import ConflictRules
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.write_path import WritePath
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import InputError, NotFound, ReadSetChanged
from omnigraph.loading.load import LoadExecutor, load
from omnigraph.loading.records.problems import name_hint
from omnigraph.loading.request import EXISTING_BRANCH, LoadSpec, load_receipt
from omnigraph.model.load_options import ErrorOptions
from omnigraph.model.merging import ConflictPolicy
from omnigraph.model.receipts import AbsentMeaning, LoadMode, LoadReceipt
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import MAIN

CONFLICT_POLICIES: tuple[ConflictPolicy, ...] = get_args(ConflictPolicy)

MERGES_MAX = 10
"""Attempts at a merge whose target moves meanwhile."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of a streaming query, as Spark names it."""

    query_id: str
    number: int

    @property
    def key(self) -> str:
        """The idempotency key of its commit."""
        return f"stream:{self.query_id}:{self.number}"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A folder for the records of a stream that are not written, with the reasons.

    Each batch with such records has a file, which is complete before the batch is committed.
    """

    folder: Path
    max_error_share: float | None = None

    @classmethod
    def of(
        cls, folder: str | PathLike[str] | None, max_error_share: float | None, graph_uri: str
    ) -> Quarantine | None:
        """The quarantine in a folder, which is created if missing; None if ``folder`` is None.

        Raises `InputError` for a folder that cannot be used.
        """
        if folder is None:
            if max_error_share is not None:
                raise InputError(
                    "`max_error_share` needs a `quarantine` for the bad records",
                    hint="name a folder, or leave the share out",
                )
            return None
        ErrorOptions(on_error="skip", max_error_share=max_error_share)
        path = Path(folder).expanduser().resolve()
        if path.exists() and not path.is_dir():
            raise InputError(f"the quarantine {path} is a file", hint="name a folder")
        if "://" not in graph_uri and path.is_relative_to(Path(graph_uri).resolve()):
            raise InputError(f"the quarantine {path} lies in the graph", hint="name another folder")
        path.mkdir(parents=True, exist_ok=True)
        return cls(path, max_error_share)

    def file(self, batch: Batch, of: str = "bad") -> Path:
        """The file of a batch."""
        return self.folder / f"{batch.query_id}-{batch.number:08}-{of}.jsonl"


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """Where the batches of a stream are written, and how."""

    branch: str = MAIN
    mode: LoadMode = "append"
    absent: AbsentMeaning = "keep"
    actor: str | None = None
    from_: str | None = None
    """The branch that a missing ``branch`` is created from, at the first batch of a query."""
    merge_every: int | None = None
    """Merge ``branch`` after this many batches; None: never."""
    merge_into: str = MAIN
    on_conflict: ConflictPolicy = "fail"
    quarantine: Quarantine | None = None
    """The quarantine for bad records; None: a bad record ends the stream."""
    types: tuple[str, ...] = ()
    """Type keys that an overwrite empties if a batch has no rows of them."""

    def __post_init__(self) -> None:
        if self.merge_every is not None and self.merge_into == self.branch:
            raise InputError(
                f"a stream into branch `{self.branch}` cannot be merged into it",
                hint="let the stream write to a branch of its own",
            )
        if self.merge_every is not None and self.merge_every < 1:
            raise InputError(
                f"`merge_every` is {self.merge_every}", hint="it is a number of batches from 1 on"
            )
        if self.on_conflict not in CONFLICT_POLICIES:
            raise InputError(
                f"a merge knows no `{self.on_conflict}`",
                hint=name_hint(self.on_conflict, CONFLICT_POLICIES, "rules"),
            )


class BatchWriter:
    """Writes the batches of streams to one graph."""

    def __init__(self, kernel: Kernel, target: StreamTarget, path: WritePath | None = None) -> None:
        self._kernel = kernel
        self._path = path or WritePath(kernel)
        self._target = target

    def write(self, batch: Batch, executor: Callable[[LoadSpec], LoadExecutor]) -> LoadReceipt:
        """Commit a batch, unless it is committed already, and merge the branch if that is due.

        ``executor`` reads the rows of the batch. A batch that changes nothing has no commit. Raises
        what a load raises, `NotFound` if the branch was deleted, and `MergeConflicts`; Spark
        repeats the batch when the query is restarted.
        """
        receipt, every = self.written(batch), self._target.merge_every
        if receipt is None:
            self._ensure_branch(batch)
            if every is not None and batch.number and batch.number % every == 0:
                self._take_over()
            receipt = self._load(batch, executor)
        hit(Failpoint.STREAM_POST_COMMIT_PRE_CHECKPOINT)
        if every is not None and (batch.number + 1) % every == 0:
            self._merge(self._target.branch, self._target.merge_into, self._target.on_conflict)
        return receipt

    def written(self, batch: Batch) -> LoadReceipt | None:
        """The receipt of a batch that was committed before, by any actor."""
        target = self._target
        if target.branch != MAIN and target.branch not in list_branches(self._kernel):
            return None
        operations = self._kernel.manifest.refreshed(target.branch).state.operations
        found = (row for (_, key), row in operations.items() if key == batch.key)
        row = next(found, None)
        return None if row is None else load_receipt(row)

    def _load(self, batch: Batch, executor: Callable[[LoadSpec], LoadExecutor]) -> LoadReceipt:
        request = self._request(batch)
        try:
            return load(self._path, EXISTING_BRANCH, executor(request))
        finally:
            file = request.errors_out
            if file is not None and file.exists() and not file.stat().st_size:
                file.unlink()

    def _request(self, batch: Batch) -> LoadSpec:
        target = self._target
        request = LoadSpec(
            target.branch,
            target.mode,
            actor_id=target.actor,
            operation_id=batch.key,
            # Not a digest of rows: functions such as rand() change them when Spark replays a batch.
            input_digest=batch.key,
            absent=target.absent,
            replace_types=target.types if target.mode == "overwrite" else (),
        )
        quarantine = target.quarantine
        if quarantine is None:
            return request
        return replace(
            request,
            on_error="skip",
            errors_out=quarantine.file(batch),
            max_error_share=quarantine.max_error_share,
        )

    def _ensure_branch(self, batch: Batch) -> None:
        target, kernel = self._target, self._kernel
        if target.branch == MAIN or target.branch in list_branches(kernel):
            return
        if target.from_ is None:
            raise NotFound(
                f"there is no branch `{target.branch}`",
                hint=f"create it with `omnigraph branch create {target.branch}`,"
                " or say which branch it starts `from`",
            )
        if batch.number:
            # A new branch of this name would lack the rows of earlier batches.
            raise NotFound(
                f"branch `{target.branch}` was deleted while the stream wrote to it: batch"
                f" {batch.number} has no place",
                hint=f"create it with `omnigraph branch create {target.branch}` to go on without"
                " what was not merged, or start the stream with a new checkpoint",
            )
        create_branch(kernel, target.branch, target.from_, actor_id=target.actor)

    def _take_over(self) -> None:
        """Merge commits of the target since the last merge into the branch of the stream."""
        wins: dict[ConflictPolicy, ConflictPolicy] = {"source": "target", "target": "source"}
        target = self._target
        rule = wins.get(target.on_conflict, target.on_conflict)
        self._merge(target.merge_into, target.branch, rule)

    def _merge(self, source: str, into: str, on_conflict: ConflictPolicy) -> None:
        kernel = self._kernel
        spec = MergeSpec(source, into, ConflictRules(on_conflict), self._target.actor)
        for attempt in range(1, MERGES_MAX + 1):
            try:
                merge(kernel, spec)
                return
            except ReadSetChanged:
                if attempt == MERGES_MAX:
                    raise

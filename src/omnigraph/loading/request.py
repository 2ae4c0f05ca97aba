"""The request of one load, independent of its engine, and the receipt built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.commit.external_blobs import NOT_ON_SPARK, ExternalBlobs
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.mutate import WriterRights, everything
from omnigraph.commit.plan import Intent
from omnigraph.commit.write_path import AlreadyWritten, key_taken, refuse_repetition
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.loading.records.problems import MAX_ERRORS, Findings, Grammar
from omnigraph.model.load_options import OnError
from omnigraph.model.receipts import (
    AbsentMeaning,
    LoadedType,
    LoadMode,
    LoadReceipt,
    LoadStage,
    check_absent,
)
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow, commit_info

if TYPE_CHECKING:
    from omnigraph.loading.mapping import TableMapping

Counts = Sequence[LoadedType]


@dataclass(frozen=True, slots=True)
class LoadBranch:
    """The target branch of a load: an existing one, or one created now and deleted on failure."""

    ensure: Callable[[], str | None]
    """Creates the branch if it is missing and returns its first commit; None if it exists."""
    drop: Callable[[str], None]
    """Deletes the branch, unless its head is no longer that commit."""

    @contextmanager
    def made(self) -> Iterator[bool]:
        """Create the branch for a block, and drop it on failure; yields whether it is new."""
        start = self.ensure()
        try:
            yield start is not None
        except RecoveryRequired:
            raise  # keep the branch: its pending write has to be recovered first
        except BaseException:
            if start is not None:
                with suppress(OmnigraphError):
                    self.drop(start)
            raise


EXISTING_BRANCH = LoadBranch(ensure=lambda: None, drop=lambda _: None)
"""The target of writes that create no branch."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """The options of one load."""

    branch: str
    mode: LoadMode
    grammar: Grammar = "strict"
    starts_from: str | None = None
    """The branch to create ``branch`` from; None if ``branch`` exists."""
    replace_types: tuple[str, ...] = ()
    """Type keys that an overwrite empties if the input has no records of them."""
    base_branch: str | None = None
    actor_id: str | None = None
    expected_head: str | None = None
    operation_id: str | None = None
    """The idempotency key: a repeated load with the same key returns the first receipt."""
    input_digest: str | None = None
    """Detects another input under the same key; None for a stream, which can be read only once."""
    message: str | None = None
    """Kept with the commit."""
    metadata: Mapping[str, Any] | None = None
    """Kept with the commit; says where the input comes from."""
    dry_run: bool = False
    max_errors: int = MAX_ERRORS
    """How many problems are shown; all are counted."""
    errors_out: Path | None = None
    on_error: OnError = "fail"
    max_error_share: float | None = None
    ignore_unknown: bool = False
    external: ExternalBlobs = NOT_ON_SPARK
    record_mappings: Mapping[str, TableMapping] = field(default_factory=dict)
    """By table key: the mapping of `data` of graph records."""
    rights: Callable[[Catalog], WriterRights | None] = everything
    """What the actor may write and see, if its rules are limited to types; such a load runs in this
    process."""
    absent: AbsentMeaning = "keep"
    """Whether a merge keeps the stored values of absent properties; other modes ignore it."""

    def __post_init__(self) -> None:
        check_absent(self.absent, self.mode)

    @property
    def keeps_absent(self) -> bool:
        """Whether properties that records lack keep their stored values."""
        return self.mode == "merge" and self.absent == "keep"

    @property
    def skips(self) -> bool:
        """Whether bad records are skipped."""
        return self.on_error == "skip"

    def findings(self, sources: Sequence[str | None] = ()) -> Findings:
        """A collector of problems; ``sources`` are the names of the input, in its order."""
        return Findings(self.max_errors, self.errors_out, sources, self.skips)

    def forget_problems(self) -> None:
        """Truncate the error file, which may hold problems of an earlier load."""
        if self.errors_out is not None:
            self.errors_out.write_bytes(b"")

    @property
    def seen_branch(self) -> str:
        """The branch whose rows the load starts from."""
        return self.starts_from or self.branch

    # --- keys ---

    def refuse_repetition(self, kernel: Kernel) -> None:
        """Raise `AlreadyWritten` if a commit of `seen_branch` has this idempotency key."""
        if self.operation_id is not None:
            state = kernel.manifest.refreshed(self.seen_branch).state
            refuse_repetition(state, self.operation_id, self.actor_id, "load")

    def repeated(self, earlier: AlreadyWritten) -> LoadReceipt:
        """The receipt of the first load under this key; for a dry run, a receipt without changes.

        Raises `Conflict` naming the differences if the first load was another one.
        """
        assert self.operation_id is not None
        row = earlier.commit
        if others := list(self._differences(row)):
            raise key_taken(self.operation_id, f"a load {' and '.join(others)}", row)
        first = load_receipt(row)
        if not self.dry_run:
            return first
        return self.receipt((), (), first.engine, commit=row)

    def _differences(self, row: CommitRow) -> Iterator[str]:
        """The options in which the first load differs; older commits do not record all of them."""
        first = row.receipt or {}
        if (branch := row.branch or MAIN) != self.branch:
            yield f"into branch {branch}, not {self.branch}"
        if first["mode"] != self.mode:
            yield f"with mode {first['mode']}, not {self.mode}"
        ours = self._identity()
        differs = {name for name in ours.keys() & first.keys() if first[name] != ours[name]}
        if "replace_types" in differs:
            yield f"that replaced {', '.join(first['replace_types']) or 'no type'} by name"
        if "ignore_unknown" in differs:
            yield f"that {'left out' if first['ignore_unknown'] else 'refused'} unknown columns"
        if "absent" in differs:
            yield f"with absent='{first['absent']}', not '{self.absent}'"
        if "on_error" in differs:
            yield f"with on_error='{first['on_error']}', not '{self.on_error}'"
        if "input_digest" in differs:
            yield "of another input"

    def _identity(self) -> dict[str, Any]:
        """The options that must be equal for a repetition, besides branch and mode."""
        if self.operation_id is None:
            return {}
        identity: dict[str, Any] = {
            "replace_types": sorted(self.replace_types),
            "ignore_unknown": self.ignore_unknown,
            "absent": self.absent,
            "on_error": self.on_error,
        }
        if self.input_digest is not None:
            identity["input_digest"] = self.input_digest
        return identity

    # --- intent and receipt ---

    def intent(self, nodes: Counts, edges: Counts, engine: str, skipped: int = 0) -> Intent:
        """The intent to store with the commit."""
        receipt = {
            "base_branch": self.base_branch,
            "mode": self.mode,
            "nodes": [astuple(count) for count in nodes],
            "edges": [astuple(count) for count in edges],
            "engine": engine,
            **({"skipped": skipped} if skipped else {}),
            **self._identity(),
        }
        if self.metadata is not None:
            receipt["metadata"] = dict(self.metadata)
        return Intent(
            "Load",
            "load",
            self.actor_id,
            self.expected_head,
            self.operation_id,
            receipt,
            message=self.message,
        )

    def receipt(
        self,
        nodes: Counts,
        edges: Counts,
        engine: Literal["local", "spark"],
        *,
        commit: CommitRow | None,
        branch_created: bool = False,
        stages: Sequence[LoadStage] = (),
        skipped: int = 0,
        problems: Sequence[Mapping[str, Any]] = (),
    ) -> LoadReceipt:
        """The receipt for the caller."""
        return LoadReceipt(
            self.branch,
            self.base_branch,
            branch_created,
            self.mode,
            tuple(nodes),
            tuple(edges),
            self.actor_id,
            None if commit is None else commit_info(commit),
            engine,
            tuple(stages),
            self.dry_run,
            skipped=skipped,
            problems=tuple(problems),
        )


def load_receipt(row: CommitRow) -> LoadReceipt:
    """The receipt of a load, restored from its commit."""
    stored = row.receipt or {}
    return LoadReceipt(
        row.branch or MAIN,
        stored["base_branch"],
        False,
        stored["mode"],
        tuple(LoadedType(*counts) for counts in stored["nodes"]),
        tuple(LoadedType(*counts) for counts in stored["edges"]),
        row.actor_id,
        commit_info(row),
        stored["engine"],
        skipped=stored.get("skipped", 0),
    )

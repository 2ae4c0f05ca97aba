"""`with graph.branch(name) as b`: work on a new branch, which is merged if the block succeeds.

It calls only the verbs in `BranchVerbs`, so that embedded and served graphs share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from omnigraph.errors import AlreadyExists
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.model.receipts import MergeReceipt
from omnigraph.model.records import dataclass


class BranchVerbs(Protocol):
    """The verbs of a graph that a branch scope calls; those of an async graph are awaited."""

    @property
    def create_branch(self) -> Callable[..., Any]:
        """Fork a branch; raises `AlreadyExists`."""

    @property
    def merge_branch(self) -> Callable[..., Any]:
        """Merge a branch; raises `MergeConflicts`."""

    @property
    def on_branch(self) -> Callable[..., Self]:
        """The same graph with another default branch."""


@dataclass(frozen=True, slots=True)
class BranchTask:
    """The branch of one `with` block, and the options of its merge."""

    name: str
    from_: str
    into: str
    on_conflict: ConflictPolicy
    on_conflict_of: Mapping[str, ConflictPolicy] | None
    granularity: MergeGranularity
    delete_branch: bool
    resume: bool
    actor: str | None

    @property
    def by(self) -> dict[str, str]:
        """The actor argument, if one was given: a served graph takes it from the token instead."""
        return {} if self.actor is None else {"actor": self.actor}

    @property
    def merge_options(self) -> dict[str, Any]:
        """The arguments of `merge_branch`."""
        return {
            "into": self.into,
            "on_conflict": self.on_conflict,
            "on_conflict_of": self.on_conflict_of,
            "granularity": self.granularity,
            "delete_branch": self.delete_branch,
            **self.by,
        }

    def require_resume(self, error: AlreadyExists) -> None:
        """Raise for a branch that exists, unless the caller asked to continue on it."""
        if not self.resume:
            raise AlreadyExists(
                error.message,
                hint="continue on it with `resume=True`, delete it, or choose a new name",
            ) from None

    def note_kept(self, error: BaseException) -> None:
        """Add a note to an error that the branch was kept."""
        error.add_note(f"branch `{self.name}` was kept: continue with `resume=True`, or delete it")


Branched = TypeVar("Branched", bound=BranchVerbs)


class _BranchBlock(Generic[Branched]):
    receipt: MergeReceipt | None
    """The receipt of the merge; None until the block has succeeded."""

    def __init__(self, graph: Branched, task: BranchTask) -> None:
        self.receipt = None
        self._graph = graph
        self.task = task


class BranchScope(_BranchBlock[Branched]):
    """A branch for the work of one `with` block.

    Entering forks the branch and returns a graph whose verbs use it. Leaving merges it, unless the
    block raised: then the branch is kept. It is kept as well if the merge fails.
    """

    def __enter__(self) -> Branched:
        task = self.task
        try:
            self._graph.create_branch(task.name, task.from_, **task.by)
        except AlreadyExists as error:
            task.require_resume(error)
        return self._graph.on_branch(task.name, **task.by)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        task = self.task
        if error is not None:
            task.note_kept(error)
            return
        try:
            self.receipt = self._graph.merge_branch(task.name, **task.merge_options)
        except BaseException as failure:
            task.note_kept(failure)
            raise


class AsyncBranchScope(_BranchBlock[Branched]):
    """The same for `async with`, on a graph whose verbs are awaited."""

    async def __aenter__(self) -> Branched:
        task = self.task
        try:
            await self._graph.create_branch(task.name, task.from_, **task.by)
        except AlreadyExists as error:
            task.require_resume(error)
        return self._graph.on_branch(task.name, **task.by)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        task = self.task
        if error is not None:
            task.note_kept(error)
            return
        try:
            self.receipt = await self._graph.merge_branch(task.name, **task.merge_options)
        except BaseException as failure:
            task.note_kept(failure)
            raise

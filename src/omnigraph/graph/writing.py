"""Mutations and loads of an open graph, each one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.branching.branches import create_branch, delete_branch, list_branches
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.errors import InputError, NotFound, OmnigraphError, WrongVerb
from omnigraph.graph.opened import OpenGraph
from omnigraph.loading.load import load_with_engine
from omnigraph.loading.request import LoadBranch, LoadSpec
from omnigraph.model.load_options import (
    ErrorOptions,
    LoadObserver,
    MappingArguments,
    SparkOptions,
)
from omnigraph.model.receipts import LoadReceipt
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source

if TYPE_CHECKING:
    from omnigraph.loading.inputs import LoadEngine, Paths
    from omnigraph.loading.mapping_arguments import Mappings
    from omnigraph.loading.sources import Frame

Data = bytes | str | Iterable[bytes]
Written = TypeVar("Written")


def compiled_mutation(
    opened: OpenGraph, source: str | Path | Source, name: str | None, catalog: Catalog
) -> MutationPlan:
    """The plan of a write query; raises `WrongVerb` for one that only reads."""
    plan = opened.compiled(source, name, catalog)
    if not isinstance(plan, MutationPlan):
        raise WrongVerb(
            f"query '{plan.name}' only reads", hint="run it with `query` instead of `mutate`"
        )
    return plan


def with_newest_schema(
    opened: OpenGraph,
    branch: str,
    operation: str,
    write: Callable[[], Written],
    *,
    repeatable: bool = True,
) -> Written:
    """Run a write, and again if it failed because it began with an outdated schema.

    On main that is one whose successor was interrupted late: its apply is completed first, so that
    the write can use its types. On another branch, one that was brought forward meanwhile. A write
    whose input can be read only once is not ``repeatable``: it raises, and the caller's next
    attempt succeeds.
    """
    try:
        done = write()
    except InputError:
        if branch != MAIN:
            if not _is_brought_forward(opened, branch, operation):
                raise
        elif opened.kernel.store.exists(LAST_STAGED_OBJECT):
            Recoverer(opened.kernel).barrier(MAIN, operation)
        else:
            raise
        if not repeatable:
            raise
        done = write()
    opened.notify_auto_optimizer()
    return done


def _is_brought_forward(opened: OpenGraph, branch: str, operation: str) -> bool:
    """Whether a branch has another schema than when it was last read, or gets it by recovery."""
    known = opened.kernel.manifest.known_state(branch)
    if known is None:
        return False
    try:
        newest = Recoverer(opened.kernel).barrier(branch, operation).state
    except OmnigraphError:
        return False  # the input is what the caller has to hear about
    return newest.head_schema != known.head_schema


@dataclass(frozen=True, slots=True)
class LoadInput:
    """What a load reads, as the caller named it."""

    paths: Sequence[str | os.PathLike[str]]
    data: Data | None = None
    nodes: Mapping[str, Paths] | None = None
    edges: Mapping[str, Paths] | None = None
    frames: Mapping[str, Any] | None = None
    replace_types: Iterable[str] = ()
    mapping: MappingArguments = field(default_factory=MappingArguments)

    @property
    def is_stream(self) -> bool:
        """Whether some of it can be read only once."""
        return self.data is not None and not isinstance(self.data, bytes | str)


def run_load(
    opened: OpenGraph,
    given: LoadInput,
    request: LoadSpec,
    *,
    engine: LoadEngine | None,
    errors: ErrorOptions,
    spark: SparkOptions,
    observer: LoadObserver,
    progress: Callable[[int], None] | None,
) -> LoadReceipt:
    """Load as one commit; ``request`` is completed with what follows from the input.

    Names of branches, types and files are checked before any input is read.
    """
    from omnigraph.loading import inputs

    files = inputs.file_sources(given.paths, given.nodes, given.edges)
    frames: Sequence[Frame] = ()
    mappings: Mappings | None = None
    starts_from = _start_of(opened, request.branch, request.base_branch)
    seen_branch = starts_from or request.branch
    if given.mapping.is_given:
        mappings = inputs.table_mappings(
            given.mapping,
            files,
            given.frames,
            opened.accepted(seen_branch).catalog,
            has_records=bool(given.paths) or given.data is not None,
        )
        files = [mappings.applied(each) for each in files]
    if given.frames is not None:
        catalog = opened.accepted(seen_branch).catalog
        frames = inputs.named_frames(
            given.frames,
            catalog,
            mappings,
            ignore_unknown=errors.ignore_unknown,
            keeps_absent=request.keeps_absent,
        )
    choice = inputs.choose_engine(
        engine,
        files,
        frames,
        has_stream=given.data is not None,
        is_spark_named=spark.is_named,
        environment=os.environ,
    )
    replaced: tuple[str, ...] = ()
    emptied: Iterable[str] = given.replace_types
    if request.mode == "overwrite" and not isinstance(emptied, str):
        emptied = [*emptied, *inputs.types_of_exports(given.paths)]
    if emptied:
        catalog = opened.accepted(seen_branch).catalog
        replaced = inputs.replaced_types(emptied, request.mode, catalog)
    is_local = choice.engine == "local"
    request = replace(
        request,
        starts_from=starts_from,
        replace_types=replaced,
        max_errors=inputs.checked_max_errors(errors.max_errors),
        errors_out=inputs.checked_errors_out(errors.errors_out, files, opened.kernel.root.uri),
        on_error=errors.on_error,
        max_error_share=errors.max_error_share,
        ignore_unknown=errors.ignore_unknown,
        record_mappings={} if mappings is None else mappings.of_records(),
        external=opened.external if is_local else opened.external.on_spark(request.mode),
    )
    if observer.on_engine is not None:
        observer.on_engine(choice)
    branch = LoadBranch(
        partial(ensure_branch, opened, request.branch, request.base_branch, request.actor_id),
        # The branch is kept if another writer has committed to it meanwhile.
        lambda start: delete_branch(opened.kernel, request.branch, expected_head=start),
    )
    work = partial(
        load_with_engine,
        opened.kernel,
        opened.path,
        files,
        request,
        branch,
        choice=choice,
        limits=opened.limits,
        data=given.data,
        frames=frames,
        progress=progress,
        spark=spark,
        watch=observer.on_stage,
    )
    return with_newest_schema(
        opened, request.seen_branch, "load", work, repeatable=not given.is_stream
    )


def ensure_branch(opened: OpenGraph, name: str, from_: str | None, actor: str | None) -> str | None:
    """Create a missing branch if the caller said from where; the commit it starts with."""
    if from_ is None or name in list_branches(opened.kernel):
        return None
    opened.gate.branch_create("load", actor, from_, name)
    return create_branch(opened.kernel, name, from_, actor_id=actor)


def _start_of(opened: OpenGraph, name: str, from_: str | None) -> str | None:
    """The branch a missing one is to be made from; None for a branch that exists.

    Raises `NotFound` if the branch is missing and ``from_`` names none.
    """
    if name == MAIN or name in (known := list_branches(opened.kernel)):
        return None
    if from_ is None:
        raise NotFound(
            f"there is no branch `{name}`",
            hint=did_you_mean(name, known)
            or 'add `--from main` (from_="main" in Python) to create it',
        )
    opened.kernel.manifest.branch(from_)
    return from_

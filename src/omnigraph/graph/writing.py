"""Mutations and loads of an open graph, each one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.branching.branches import create_branch, delete_branch, list_branches
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.errors import InputError, NotFound, WrongVerb
from omnigraph.graph.opened import OpenGraph
from omnigraph.loading.record_load import load_records
from omnigraph.loading.records.framing import RecordSource
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.model.load_options import ErrorOptions, LoadObserver, SparkOptions
from omnigraph.model.receipts import LoadReceipt
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.source import Source
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.loading.engine import LoadEngine
    from omnigraph.loading.inputs import Frame, Paths
    from omnigraph.loading.sources import FileSource

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
    opened: OpenGraph, operation: str, write: Callable[[], Written], *, repeatable: bool = True
) -> Written:
    """Run a write, and again if it failed for a schema apply that was interrupted late.

    Such an apply is completed first, so that the write can use its types. A write whose input can
    be read only once is not ``repeatable``: it raises, and the caller's next attempt succeeds.
    """
    try:
        done = write()
    except InputError:
        if not opened.kernel.store.exists(LAST_STAGED_OBJECT):
            raise
        Recoverer(opened.kernel).barrier(MAIN, operation)
        if not repeatable:
            raise
        done = write()
    opened.notify_auto_optimizer()
    return done


@dataclass(frozen=True, slots=True)
class LoadInput:
    """What a load reads, as the caller named it."""

    paths: Sequence[str | os.PathLike[str]]
    data: Data | None = None
    nodes: Mapping[str, Paths] | None = None
    edges: Mapping[str, Paths] | None = None
    frames: Mapping[str, Any] | None = None
    replace_types: Iterable[str] = ()

    @property
    def is_stream(self) -> bool:
        """Whether some of it can be read only once."""
        return self.data is not None and not isinstance(self.data, bytes | str)


def run_load(
    opened: OpenGraph,
    given: LoadInput,
    request: LoadRequest,
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
    from omnigraph.loading.engine import choose_engine

    files = inputs.file_sources(given.paths, given.nodes, given.edges)
    held: Sequence[Frame] = ()
    if given.frames is not None:
        catalog = opened.accepted().catalog
        held = inputs.named_frames(given.frames, catalog, ignore_unknown=errors.ignore_unknown)
    choice = choose_engine(
        engine,
        files,
        held,
        has_stream=given.data is not None,
        is_spark_named=spark.is_named,
        environment=os.environ,
    )
    replaced: tuple[str, ...] = ()
    starts_from = _start_of(opened, request.branch, request.base_branch)
    if given.replace_types:
        catalog = opened.accepted().catalog
        replaced = inputs.replaced_types(given.replace_types, request.mode, catalog)
    is_local = choice.engine == "local"
    request = replace(
        request,
        starts_from=starts_from,
        replace_types=replaced,
        max_errors=inputs.checked_max_errors(errors.max_errors),
        errors_out=inputs.checked_errors_out(errors.errors_out, files, opened.kernel.root.uri),
        ignore_unknown=errors.ignore_unknown,
        external=opened.external if is_local else opened.external.on_spark(request.mode),
    )
    if observer.on_engine is not None:
        observer.on_engine(choice)
    branch = LoadBranch(
        partial(ensure_branch, opened, request.branch, request.base_branch, request.actor_id),
        # The branch is kept if another writer has committed to it meanwhile.
        lambda start: delete_branch(opened.kernel, request.branch, expected_head=start),
    )
    if not choice.is_bulk:
        return _load_records(opened, files, given, request, branch, progress=progress)
    from omnigraph.loading.run import run_bulk_load

    receipt = run_bulk_load(
        opened.kernel,
        opened.path,
        files,
        request,
        branch,
        frames=held,
        engine=choice.engine,
        spark=spark,
        watch=observer.on_stage,
    )
    opened.notify_auto_optimizer()
    return receipt


def ensure_branch(opened: OpenGraph, name: str, from_: str | None, actor: str | None) -> str | None:
    """Create a missing branch if the caller said from where; the commit it starts with."""
    if from_ is None or name in list_branches(opened.kernel):
        return None
    opened.gate.branch_create("load", actor, from_, name)
    return create_branch(opened.kernel, name, from_, actor_id=actor).source_commit_id


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


def _load_records(
    opened: OpenGraph,
    files: Sequence[FileSource],
    given: LoadInput,
    request: LoadRequest,
    branch: LoadBranch,
    *,
    progress: Callable[[int], None] | None,
) -> LoadReceipt:
    """Load graph records in this process."""
    from omnigraph.loading.sources import find_all, input_digest, record_source

    found = find_all(files)
    sources = [record_source(each) for each in found]
    data = given.data
    if isinstance(data, bytes | str):
        sources.append(RecordSource.of(data))
    elif data is not None:
        sources.append(RecordSource.stream(data))
    if progress is not None:
        sources = [_watched(source, progress) for source in sources]
    if request.operation_id is not None and not given.is_stream:
        digest = input_digest(found)
        if isinstance(data, bytes | str):
            digest += sha256(data.encode() if isinstance(data, str) else data).hexdigest()
        request = replace(request, input_digest=digest)
    request.forget_problems()
    work = partial(
        load_records, opened.kernel, opened.path, sources, request, branch, limits=opened.limits
    )
    return with_newest_schema(opened, "load", work, repeatable=not given.is_stream)


def _watched(source: RecordSource, progress: Callable[[int], None]) -> RecordSource:
    """The same source; ``progress`` gets the bytes of every block."""

    def blocks() -> Iterator[bytes]:
        for block in source.blocks():
            progress(len(block))
            yield block

    return RecordSource(source.name, blocks)

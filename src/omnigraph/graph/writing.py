"""Writing to an open graph: mutations and loads, each one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.branching.branches import create_branch, delete_branch
from omnigraph.commit.change_set import WriteLimits
from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.mutate import mutate
from omnigraph.commit.receipts import checked_message
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.write_path import WritePath
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, NotFound, WrongVerb
from omnigraph.graph.gate import WriteGate
from omnigraph.graph.upkeep import GraphUpkeep
from omnigraph.loading.record_load import load_records
from omnigraph.loading.records.framing import RecordSource
from omnigraph.loading.records.problems import Grammar
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.model.receipts import (
    LoadMode,
    LoadReceipt,
    MutationReceipt,
    check_load_mode,
    checked_key,
)
from omnigraph.policy import Policy
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.source import Source
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from omnigraph.loading.engine import EngineChoice, LoadEngine
    from omnigraph.loading.executors import Watch
    from omnigraph.loading.inputs import Frame, Paths
    from omnigraph.loading.sources import FileSource

Written = TypeVar("Written")


class GraphWriting(GraphUpkeep):
    """What changes the entities of one open graph."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool = False,
        embedding: EmbeddingConfig | None = None,
        policy: Policy | None = None,
        external_blobs: Iterable[str] = (),
        auto_optimize: bool | int | None = None,
    ) -> None:
        super().__init__(kernel, read_only=read_only, embedding=embedding)
        self._gate = WriteGate(policy, read_only=read_only)
        self._path = WritePath(kernel)
        if not read_only:
            self._look_after(auto_optimize)
        self._limits = WriteLimits.from_environment(os.environ)
        self._external = ExternalBlobs.below(external_blobs, self._limits.bytes_max)

    def mutate(
        self,
        source: str | Path | Source,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        expected_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        ``operation_id`` names the write: repeating it with the same id returns the first receipt.
        ``message`` is kept with the commit.
        """
        self._gate.change("mutate", actor, branch or MAIN)
        message = checked_message(message)
        operation_id = checked_key(operation_id)
        return self._with_newest_schema(
            "mutation",
            lambda: mutate(
                self._kernel,
                self._path,
                lambda catalog: self._compiled_mutation(source, name, catalog),
                params,
                accepted=self._accepted(),
                branch=branch or MAIN,
                limits=self._limits,
                actor_id=actor,
                expected_head=expected_head,
                operation_id=operation_id,
                message=message,
                external=self._external,
            ),
        )

    def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        data: bytes | str | Iterable[bytes] | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        replace_types: Iterable[str] = (),
        actor: str | None = None,
        operation_id: str | None = None,
        message: str | None = None,
        progress: Callable[[int], None] | None = None,
        nodes: Mapping[str, Paths] | None = None,
        edges: Mapping[str, Paths] | None = None,
        frames: Mapping[str, Any] | None = None,
        engine: LoadEngine | None = None,
        dry_run: bool = False,
        max_errors: int | None = None,
        errors_out: str | os.PathLike[str] | None = None,
        ignore_unknown: bool = False,
        spark: Any = None,
        spark_master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        on_engine: Callable[[EngineChoice], None] | None = None,
        watch: Watch | None = None,
    ) -> LoadReceipt:
        """Load graph records, and tables of one type each, as one commit.

        ``paths`` are JSONL files, directories or patterns with graph records; ``data`` are records
        themselves and may arrive in blocks. ``nodes`` and ``edges`` map type names to Parquet, CSV,
        ORC, Avro, JSON, Arrow or Lance files, ``frames`` to Spark, pandas or Polars frames, Arrow
        tables, or anything else with `__arrow_c_stream__`. A missing ``branch`` is created from
        ``from_`` if that is given. See the guide for the modes `append`, `merge` and `overwrite`;
        ``replace_types`` are types that an overwrite empties if it has no records of them.

        ``engine`` is `local`, this process, or `spark`, or `auto`, which takes Spark for what this
        process would not have loaded before Spark has started (`OMNIGRAPH_SPARK_THRESHOLD_BYTES`),
        for frames of Spark, and where ``spark`` or ``spark_master`` says that there is one;
        ``on_engine`` is told which it is, and why. ``operation_id`` names the load:
        repeating it with the same input returns the first receipt. ``message`` is kept with the
        commit. ``dry_run`` says what would be written. ``max_errors`` problems of a bad input are
        shown, and with ``errors_out`` all of them written to a file. ``progress`` is told the bytes
        of each block of records that was read in process, ``watch`` how the stages of all other
        loads come along.
        """
        from omnigraph.loading import inputs
        from omnigraph.loading.engine import choose_engine

        check_load_mode(mode)
        target = branch or MAIN
        self._gate.load(actor, target, from_, self.list_branches)
        files = inputs.file_sources(paths, nodes, edges)
        held: Sequence[Frame] = ()
        if frames is not None:
            catalog = self._kernel.accepted_schema().catalog
            held = inputs.named_frames(frames, catalog, ignore_unknown=ignore_unknown)
        choice = choose_engine(
            engine,
            files,
            held,
            has_stream=data is not None,
            is_spark_named=spark is not None or spark_master is not None,
            environment=os.environ,
        )
        request = LoadRequest(
            target,
            mode,
            grammar,
            starts_from=self._start_of(target, from_),
            replace_types=self._replaced_types(replace_types, mode),
            base_branch=from_,
            actor_id=actor,
            operation_id=checked_key(operation_id),
            message=checked_message(message),
            dry_run=dry_run,
            max_errors=inputs.checked_max_errors(max_errors),
            errors_out=inputs.checked_errors_out(errors_out, files, self.uri),
            ignore_unknown=ignore_unknown,
            external=(
                self._external if choice.engine == "local" else self._external.on_spark(mode)
            ),
        )
        if on_engine is not None:
            on_engine(choice)
        made = LoadBranch(
            partial(self._ensure_branch, target, from_, actor),
            partial(self._drop_branch, target),
        )
        if not choice.is_bulk:
            return self._load_records(files, data, request, made, progress)
        from omnigraph.loading.run import run_bulk_load

        receipt = run_bulk_load(
            self._kernel,
            self._path,
            files,
            request,
            made,
            frames=held,
            engine=choice.engine,
            spark=spark,
            master=spark_master,
            conf=spark_conf,
            watch=watch,
        )
        return self._counted(receipt)

    # --- inside -----------------------------------------------------------------------------------

    def _compiled_mutation(
        self, source: str | Path | Source, name: str | None, catalog: Catalog
    ) -> MutationPlan:
        plan = self._compiled(source, name, catalog)
        if not isinstance(plan, MutationPlan):
            raise WrongVerb(
                f"query '{plan.name}' only reads", hint="run it with `query` instead of `mutate`"
            )
        return plan

    def _load_records(
        self,
        files: Sequence[FileSource],
        data: bytes | str | Iterable[bytes] | None,
        request: LoadRequest,
        branch: LoadBranch,
        progress: Callable[[int], None] | None,
    ) -> LoadReceipt:
        """Load graph records in this process."""
        from omnigraph.loading.sources import find_all, input_digest, record_source

        found = find_all(files)
        sources = [record_source(each) for each in found]
        is_stream = data is not None and not isinstance(data, bytes | str)
        if isinstance(data, bytes | str):
            sources.append(RecordSource.of(data))
        elif data is not None:
            sources.append(RecordSource.stream(data))
        if progress is not None:
            sources = [_watched(source, progress) for source in sources]
        if request.operation_id is not None and not is_stream:
            digest = input_digest(found)
            if isinstance(data, bytes | str):
                digest += sha256(data.encode() if isinstance(data, str) else data).hexdigest()
            request = replace(request, input_digest=digest)
        request.forget_problems()
        work = partial(
            load_records,
            self._kernel,
            self._path,
            sources,
            request,
            branch,
            limits=self._limits,
        )
        return self._with_newest_schema("load", work, repeatable=not is_stream)

    def _replaced_types(self, given: Iterable[str], mode: LoadMode) -> tuple[str, ...]:
        if not given:
            return ()
        from omnigraph.loading.inputs import replaced_types

        return replaced_types(given, mode, self._kernel.accepted_schema().catalog)

    def _start_of(self, name: str, from_: str | None) -> str | None:
        """The branch a missing one is to be made from; raises `NotFound` if there is none.

        None for a branch that exists. Told before any input is read.
        """
        if name == MAIN or name in (known := self.list_branches()):
            return None
        if from_ is None:
            raise NotFound(
                f"there is no branch `{name}`",
                hint=did_you_mean(name, known)
                or 'add `--from main` (from_="main" in Python) to create it',
            )
        self._kernel.manifest.branch(from_)
        return from_

    def _ensure_branch(self, name: str, from_: str | None, actor: str | None) -> str | None:
        """Create a missing branch if the caller said from where; the commit it starts with."""
        if from_ is None or name in self.list_branches():
            return None
        self._gate.branch_create("load", actor, from_, name)
        return create_branch(self._kernel, name, from_, actor_id=actor).source_commit_id

    def _drop_branch(self, name: str, start: str) -> None:
        """Delete a branch that was made for a load, unless somebody has written to it since."""
        delete_branch(self._kernel, name, expected_head=start)

    def _with_newest_schema(
        self, operation: str, write: Callable[[], Written], *, repeatable: bool = True
    ) -> Written:
        """Run a write, and again if it failed for a schema apply that was interrupted late.

        Such an apply is completed before, so that the write can use its types. What cannot be read
        twice is not ``repeatable``: then only the next attempt can.
        """
        try:
            return self._counted(write())
        except InputError:
            if not self._kernel.store.exists(LAST_STAGED_OBJECT):
                raise
            Recoverer(self._kernel).barrier(MAIN, operation)
            if not repeatable:
                raise
        return self._counted(write())


def _watched(source: RecordSource, progress: Callable[[int], None]) -> RecordSource:
    """The same source, telling ``progress`` of every block."""

    def blocks() -> Iterator[bytes]:
        for block in source.blocks():
            progress(len(block))
            yield block

    return RecordSource(source.name, blocks)

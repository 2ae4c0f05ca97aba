"""Writing to an open graph: mutations and loads, each one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.branching.branches import create_branch, delete_branch
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.load_records import load_records
from omnigraph.commit.messages import checked_message
from omnigraph.commit.mutate import mutate
from omnigraph.commit.records.blobs import ExternalBlobs
from omnigraph.commit.records.problems import Grammar
from omnigraph.commit.records.source import RecordSource
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema_contract import LAST_STAGED_OBJECT
from omnigraph.commit.write_path import WritePath
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import InputError, WrongVerb
from omnigraph.graph.gate import WriteGate
from omnigraph.graph.upkeep import GraphUpkeep
from omnigraph.model.receipts import (
    LoadMode,
    LoadReceipt,
    MutationReceipt,
    check_load_mode,
)
from omnigraph.policy import Policy
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.source import Source

if TYPE_CHECKING:
    from omnigraph.pipeline.engine import EngineChoice, LoadEngine, Paths
    from omnigraph.pipeline.jobs import Watch

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
        ORC, Avro, JSON, Arrow or Lance files, ``frames`` to Spark, pandas or Polars frames or Arrow
        tables. A missing ``branch`` is created from ``from_`` if that is given. See the guide for
        the modes `append`, `merge` and `overwrite`.

        ``engine`` is `local`, this process, or `spark`, or `auto`, which takes Spark for what this
        process would not have loaded before Spark has started (`OMNIGRAPH_SPARK_THRESHOLD_BYTES`),
        for frames of Spark, and where ``spark`` or ``spark_master`` says that there is one;
        ``on_engine`` is told which it is, and why. ``operation_id`` names the load:
        repeating it with the same input returns the first receipt. ``message`` is kept with the
        commit. ``dry_run`` says what would be written. ``max_errors`` problems of a bad input are
        shown, and with ``errors_out`` all of them written to a file. ``progress`` is told the bytes
        of each block that was read in process, ``watch`` how the stages of a load on Spark come
        along.
        """
        check_load_mode(mode)
        self._gate.load(actor, branch or MAIN, from_, self.list_branches)
        message = checked_message(message)
        from omnigraph.commit.records.findings import MAX_ERRORS, Findings
        from omnigraph.pipeline.engine import choose_engine, file_sources, named_frames
        from omnigraph.pipeline.sources import find_files, input_digest, record_source

        files = file_sources(paths, nodes, edges)
        held = named_frames(frames, self._kernel.accepted_schema().catalog) if frames else []
        choice = choose_engine(
            engine,
            files,
            held,
            has_stream=data is not None,
            is_spark_named=spark is not None or spark_master is not None,
            environment=os.environ,
        )
        if on_engine is not None:
            on_engine(choice)
        if errors_out is not None:
            Path(errors_out).write_bytes(b"")  # what an earlier load found is not true any more
        target = branch or MAIN
        if dry_run and from_ is not None and target not in self.list_branches():
            target = from_  # what the branch would start with
        if from_ is None:
            self._kernel.manifest.branch(target)  # a missing branch is told before reading input
        if choice.is_bulk:
            from omnigraph.pipeline.load import BulkRequest
            from omnigraph.pipeline.run import run_bulk_load

            request = BulkRequest(
                files,
                target,
                mode,
                grammar,
                replace_types=tuple(replace_types),
                base_branch=from_,
                actor_id=actor,
                operation_id=operation_id,
                message=message,
                dry_run=dry_run,
                max_errors=MAX_ERRORS if max_errors is None else max_errors,
                errors_out=None if errors_out is None else Path(errors_out),
                ignore_unknown=ignore_unknown,
                external=(
                    self._external if choice.engine == "local" else self._external.on_spark(mode)
                ),
            )
            receipt = run_bulk_load(
                self._kernel,
                self._path,
                request,
                held,
                engine=choice.engine,
                spark=spark,
                master=spark_master,
                conf=spark_conf,
                ensure_branch=partial(self._ensure_branch, target, from_, actor),
                drop_branch=partial(delete_branch, self._kernel, target),
                watch=watch,
            )
            return self._counted(receipt)
        found = [each for source in files for each in find_files(source)]
        sources = [record_source(each) for each in found]
        if isinstance(data, bytes | str):
            sources.append(RecordSource.of(data))
        elif data is not None:
            sources.append(RecordSource.stream(data))
        if progress is not None:
            sources = [_watched(source, progress) for source in sources]
        findings: Findings | None = None
        if max_errors is not None or errors_out is not None:
            findings = Findings(
                MAX_ERRORS if max_errors is None else max_errors,
                None if errors_out is None else Path(errors_out),
            )
        work = partial(
            load_records,
            self._kernel,
            self._path,
            sources,
            branch=target,
            mode=mode,
            grammar=grammar,
            limits=self._limits,
            external=self._external,
            replace_types=replace_types,
            base_branch=from_,
            ensure_branch=partial(self._ensure_branch, target, from_, actor),
            actor_id=actor,
            operation_id=operation_id,
            message=message,
            input_digest=input_digest(found) if operation_id and data is None else None,
            dry_run=dry_run,
            findings=findings,
        )
        is_stream = data is not None and not isinstance(data, bytes | str)
        return self._with_newest_schema("load", work, repeatable=not is_stream)

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

    def _ensure_branch(self, name: str, from_: str | None, actor: str | None) -> bool:
        """Create a missing branch if the caller said from where; whether it was created."""
        if from_ is None or name in self.list_branches():
            return False
        self._gate.branch_create("load", actor, from_, name)
        create_branch(self._kernel, name, from_, actor_id=actor)
        return True

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

"""A load in this process, from records to receipt."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter

from omnigraph.commit.change_set import WriteLimits
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.receipts import AlreadyWritten
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.commit.write_path import Prepared, WriteOutcome, WritePath
from omnigraph.errors import ReadSetChanged
from omnigraph.loading.record_input import LoadInput, read_input
from omnigraph.loading.record_plan import LoadPlan
from omnigraph.loading.record_problems import checked_plan
from omnigraph.loading.records.framing import RecordSource
from omnigraph.loading.records.ids import minted_by
from omnigraph.loading.records.problems import Findings, ProblemLog
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.model.receipts import LoadReceipt, LoadStage
from omnigraph.schema.catalog import Catalog


def load_records(
    kernel: Kernel,
    path: WritePath,
    sources: Sequence[RecordSource],
    request: LoadRequest,
    branch: LoadBranch,
    *,
    limits: WriteLimits,
) -> LoadReceipt:
    """Load graph records and publish them as one commit; no commit if nothing changes.

    The whole input is checked in every respect before it fails. ``branch`` is made once the records
    have been read, and taken back if the load fails.
    """
    try:
        request.refuse_repetition(kernel)
        return _RecordLoad(kernel, sources, request, limits).run(path, branch)
    except AlreadyWritten as earlier:
        return request.repeated(earlier)


class _RecordLoad:
    def __init__(
        self,
        kernel: Kernel,
        sources: Sequence[RecordSource],
        request: LoadRequest,
        limits: WriteLimits,
    ) -> None:
        self._kernel = kernel
        self._sources = sources
        self._request = request
        self._limits = limits
        self._accepted = kernel.accepted_schema()
        self._log = ProblemLog(keep=sys.maxsize)

    def run(self, path: WritePath, branch: LoadBranch) -> LoadReceipt:
        request, started = self._request, perf_counter()
        # Read once: a second attempt meets the same records, with the ids minted for the first.
        loaded = self._read()
        if self._log.first and self._kernel.store.exists(LAST_STAGED_OBJECT):
            # An apply that was interrupted late may bring what is missing: the caller completes it.
            self._log.raise_if_any()
        read_seconds = perf_counter() - started

        def prepare(capture: Capture, catalog: Catalog) -> Prepared[LoadPlan]:
            return self._prepared(loaded, capture, catalog)

        is_new = False
        if request.dry_run:
            manifest = Recoverer(self._kernel).barrier(request.seen_branch)
            seen = self._kernel.capture(manifest, self._accepted.schema_hash)
            written = WriteOutcome(prepare(seen, self._accepted.catalog).result, None)
        else:
            with branch.made() as is_new:
                written = path.write(
                    request.branch,
                    prepare,
                    kind="load",
                    accepted=self._accepted,
                    may_prepare_again=request.mode != "overwrite",
                    expected_head=request.expected_head,
                    operation_id=request.operation_id,
                )
        plan = written.result
        rows = sum(count.records_read for count in (*plan.nodes, *plan.edges))
        stages = (
            LoadStage("read", rows, read_seconds),
            LoadStage("commit", rows, perf_counter() - started - read_seconds),
        )
        return request.receipt(
            plan.nodes,
            plan.edges,
            "local",
            commit=written.commit,
            branch_created=is_new,
            stages=stages,
        )

    def _read(self) -> LoadInput:
        return read_input(
            self._sources,
            catalog=self._accepted.catalog,
            mode=self._request.mode,
            grammar=self._request.grammar,
            mint=minted_by(self._kernel.ids.ulid),
            external=self._request.external,
            limits=self._limits,
            problems=self._log,
            goes_on=True,
        )

    def _prepared(
        self, loaded: LoadInput, capture: Capture, catalog: Catalog
    ) -> Prepared[LoadPlan]:
        if catalog is not self._accepted.catalog:
            # The records were read as the former schema wanted them, and cannot be read again.
            raise ReadSetChanged("schema_hash", self._accepted.schema_hash, catalog.schema_hash)
        request = self._request
        plan = checked_plan(
            loaded, capture.reader, request.replace_types, self._log.first, self._findings()
        )
        return Prepared(plan.changes, plan, request.intent(plan.nodes, plan.edges, "local"))

    def _findings(self) -> Findings:
        return self._request.findings([source.name for source in self._sources])

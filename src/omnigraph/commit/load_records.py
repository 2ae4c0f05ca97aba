"""A load in this process, from records to receipt."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from time import perf_counter
from typing import Any

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.load import LoadPlan, plan_load
from omnigraph.commit.load_input import read_input
from omnigraph.commit.load_problems import checked_plan
from omnigraph.commit.receipts import AlreadyWritten, commit_info, repeated_load
from omnigraph.commit.records.blobs import ExternalBlobs
from omnigraph.commit.records.findings import Findings
from omnigraph.commit.records.ids import minted_by
from omnigraph.commit.records.problems import Grammar, ProblemLog
from omnigraph.commit.records.source import RecordSource
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.validation import validate
from omnigraph.commit.write_path import Prepared, WritePath, Written
from omnigraph.commit.writer import Intent
from omnigraph.errors import ReadSetChanged
from omnigraph.model.receipts import LoadMode, LoadReceipt, LoadStage
from omnigraph.schema.catalog import Catalog


def load_records(
    kernel: Kernel,
    path: WritePath,
    sources: Sequence[RecordSource],
    *,
    branch: str,
    mode: LoadMode,
    grammar: Grammar,
    limits: WriteLimits,
    external: ExternalBlobs | None = None,
    replace_types: Iterable[str] = (),
    base_branch: str | None = None,
    ensure_branch: Callable[[], bool] | None = None,
    actor_id: str | None = None,
    expected_head: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    input_digest: str | None = None,
    dry_run: bool = False,
    findings: Findings | None = None,
) -> LoadReceipt:
    """Load graph records and publish them as one commit; no commit if nothing changes.

    Without ``findings`` the first problem raises; with it, the whole input is checked in every
    respect before it fails. ``input_digest`` tells two inputs under one ``operation_id`` apart.
    With ``dry_run`` everything is checked and nothing written.

    ``ensure_branch`` creates the branch if it is missing, and says whether it did. It is called
    once the records have been read, so that bad input leaves no branch behind.
    """
    started = perf_counter()
    emptied = tuple(replace_types)
    accepted = kernel.accepted_schema()
    log = ProblemLog(keep=sys.maxsize)
    # Read once: a second attempt meets the same records, with the ids minted for the first.
    loaded = read_input(
        sources,
        catalog=accepted.catalog,
        mode=mode,
        grammar=grammar,
        mint=minted_by(kernel.ids.ulid),
        external=external,
        limits=limits,
        problems=None if findings is None else log,
        goes_on=findings is not None,
    )
    read_seconds = perf_counter() - started
    branch_created = ensure_branch() if ensure_branch is not None and not dry_run else False

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[LoadPlan]:
        if catalog is not accepted.catalog:
            # The records were read as the former schema wanted them, and cannot be read again.
            raise ReadSetChanged("schema_hash", accepted.schema_hash, catalog.schema_hash)
        if findings is None:
            plan = plan_load(loaded, capture.reader, replace_types=emptied)
            validate(plan.changes, catalog, capture.reader, given=plan.given)
        else:
            plan = checked_plan(loaded, capture.reader, emptied, log.first, findings)
        said: dict[str, Any] = {
            "base_branch": base_branch,
            "mode": mode,
            "nodes": [astuple(count) for count in plan.nodes],
            "edges": [astuple(count) for count in plan.edges],
            "engine": "local",
        }
        if input_digest is not None:
            said["input_digest"] = input_digest
        intent = Intent(
            "Load", "load", actor_id, expected_head, operation_id, said, message=message
        )
        return Prepared(plan.changes, plan, intent)

    def receipt(written: Written[LoadPlan]) -> LoadReceipt:
        plan = written.result
        rows = sum(count.records_read for count in (*plan.nodes, *plan.edges))
        return LoadReceipt(
            branch,
            base_branch,
            branch_created,
            mode,
            plan.nodes,
            plan.edges,
            actor_id,
            commit_info(written.commit) if written.commit is not None else None,
            "local",
            (
                LoadStage("read", rows, read_seconds),
                LoadStage("commit", rows, perf_counter() - started - read_seconds),
            ),
            dry_run,
        )

    if dry_run:
        manifest = Recoverer(kernel).barrier(branch)
        seen = kernel.capture(manifest, accepted.schema_hash)
        written = Written(prepare(seen, accepted.catalog).result, None)
        return receipt(written)
    try:
        written = path.write(
            branch,
            prepare,
            kind="load",
            accepted=accepted,
            may_prepare_again=mode != "overwrite",
            expected_head=expected_head,
            operation_id=operation_id,
        )
    except AlreadyWritten as earlier:
        return repeated_load(earlier, operation_id, input_digest)
    return receipt(written)

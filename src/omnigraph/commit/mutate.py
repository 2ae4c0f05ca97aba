"""A mutation from compiled plan to receipt."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.limits import WriteLimits
from omnigraph.commit.mutation import MutationOutcome, run_mutation
from omnigraph.commit.receipts import AlreadyWritten, commit_info, mutation_receipt
from omnigraph.commit.validation import validate
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.commit.writer import Intent
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.temporal import datetime_from_ms
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.contract import AcceptedSchema


def mutate(
    kernel: Kernel,
    path: WritePath,
    compile_for: Callable[[Catalog], MutationPlan],
    params: Mapping[str, Any] | None,
    *,
    accepted: AcceptedSchema,
    branch: str,
    limits: WriteLimits,
    actor_id: str | None = None,
    expected_head: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    external: ExternalBlobs | None = None,
) -> MutationReceipt:
    """Run a mutation and publish it as one commit; no commit if it changes nothing.

    It is compiled again should the schema change before the commit. Blobs may be given by URI only
    as far as ``external`` allows it; their bytes are copied.
    """
    plan, parameters = _bound(compile_for, accepted.catalog, params)
    # One instant and the same new ids per request, however often it is prepared again.
    now: dt.datetime = datetime_from_ms(kernel.clock.wall_us() // 1000)
    minted: list[str] = []

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[MutationOutcome]:
        nonlocal plan, parameters
        if catalog is not accepted.catalog:
            plan, parameters = _bound(compile_for, catalog, params)
        outcome = run_mutation(
            plan,
            parameters,
            catalog,
            capture.reader,
            now=now,
            mint_id=_again(minted, kernel.ids.ulid),
            limits=limits,
            external=external,
        )
        validate(outcome.change_set, catalog, capture.reader)
        counts = {
            "query_name": plan.name,
            "affected_nodes": outcome.affected_nodes,
            "affected_edges": outcome.affected_edges,
        }
        intent = Intent(
            "Mutation", "mutation", actor_id, expected_head, operation_id, counts, message=message
        )
        return Prepared(outcome.change_set, outcome, intent)

    try:
        written = path.write(
            branch,
            prepare,
            kind="mutation",
            accepted=accepted,
            may_prepare_again=plan.is_insert_only,
            expected_head=expected_head,
            operation_id=operation_id,
        )
    except AlreadyWritten as earlier:
        return mutation_receipt(earlier.commit)
    return MutationReceipt(
        branch,
        plan.name,
        written.result.affected_nodes,
        written.result.affected_edges,
        actor_id,
        commit_info(written.commit) if written.commit is not None else None,
    )


def _again(minted: list[str], mint: Callable[[], str]) -> Callable[[], str]:
    """The ids minted before, in their order, and then new ones, which are added to them."""
    at = count()

    def next_id() -> str:
        if (number := next(at)) == len(minted):
            minted.append(mint())
        return minted[number]

    return next_id


def _bound(
    compile_for: Callable[[Catalog], MutationPlan],
    catalog: Catalog,
    params: Mapping[str, Any] | None,
) -> tuple[MutationPlan, Mapping[str, Any]]:
    plan = compile_for(catalog)
    return plan, bind_parameters({each.name: each.type for each in plan.parameters}, params)

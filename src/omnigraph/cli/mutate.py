"""`omnigraph mutate`: run a query that writes, as one commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from omnigraph.cli.failures import UsageError
from omnigraph.cli.files import (
    NameArgument,
    ParamsFileOption,
    ParamsOption,
    QueryOption,
    TextOption,
    parameters_of,
    source_of,
)
from omnigraph.cli.help import Commands, WriteCommand
from omnigraph.cli.opening import graph_to_write
from omnigraph.cli.options import (
    DEFAULT_BRANCH,
    BranchOption,
    ExternalBlobsOption,
    JsonFlag,
    option,
)
from omnigraph.cli.output import Line, Styled, counted, output_of
from omnigraph.model.receipts import MutationReceipt

COMMANDS = Commands()


def _commit_id(value: str | None) -> str | None:
    if value is not None and not value.isalnum():
        raise UsageError(
            f"`--if-commit` takes one commit id, not `{value}`",
            hint="`omnigraph commit list` shows them",
        )
    return value


IfCommitOption = Annotated[
    str | None,
    option(
        "--if-commit",
        "ID",
        "write only if this commit is the head of the branch; exit code 4 if not",
        check=_commit_id,
    ),
]


@COMMANDS.add(WriteCommand, former="change")
def mutate(
    ctx: typer.Context,
    *,
    name: NameArgument = None,
    query: QueryOption = None,
    text: TextOption = None,
    params: ParamsOption = None,
    params_file: ParamsFileOption = None,
    branch: BranchOption = DEFAULT_BRANCH,
    if_commit: IfCommitOption = None,
    external_blobs: ExternalBlobsOption = None,
    json: JsonFlag = False,
) -> None:
    """Run a query that inserts, updates or deletes.

    All of it becomes visible as one commit, or nothing does. With `--if-commit`, a branch that has
    moved on ends the command with exit code 4, and nothing is written.

    omnigraph mutate sign_up --store team.omni --query people.gq --params '{"handle": "ada"}'
    omnigraph mutate --store team.omni -e 'query q() { delete Person where handle = "ada" }'
    omnigraph mutate --store team.omni --query q.gq --if-commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC
    omnigraph mutate sign_up --server prod --graph team --params '{"handle": "ada"}'
    """
    from omnigraph.client import RemoteGraph

    source = source_of("mutate", name, query, text)
    values = parameters_of(params, params_file)
    graph = graph_to_write(
        ctx,
        "mutate",
        external_blobs=external_blobs or (),
        stored_query=name if source is None else None,
    )
    if source is None:
        assert isinstance(graph, RemoteGraph) and name is not None
        found = graph.invoke(
            name, values, branch=branch, expect_mutation=True, expected_head=if_commit
        )
        assert isinstance(found, MutationReceipt)
        receipt = found
    else:
        receipt = graph.mutate(source, values, name=name, branch=branch, expected_head=if_commit)
    output_of(ctx).show(receipt, _lines(receipt), json=json)


def _lines(receipt: MutationReceipt) -> Iterator[Line]:
    if receipt.commit is None:
        yield (f"{receipt.query_name} changed nothing on {receipt.branch}",)
        return
    nodes = counted(receipt.affected_nodes, "node")
    edges = counted(receipt.affected_edges, "edge")
    summary = f"{receipt.query_name} changed {nodes} and {edges} on {receipt.branch}"
    yield (Styled(summary, "bold green"),)
    yield (f"commit {receipt.commit.graph_commit_id}",)

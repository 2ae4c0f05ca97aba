"""The verbs of the asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import omnigraph as og
from omnigraph.client import AsyncRemoteGraph
from omnigraph.errors import AlreadyExists, AnswerLost, NotFound, ServerUnreachable
from omnigraph.graph import Graph
from tests.client.test_failures import BRANCHES, answering, unused_url
from tests.server.live import ADD, PEOPLE


def on(url: str, work: Callable[[AsyncRemoteGraph], Awaitable[None]]) -> None:
    async def main() -> None:
        async with og.connect_async(url) as graph:
            await work(graph)

    asyncio.run(main())


def test_reads_and_writes_are_awaited(url: str, local: Graph):
    async def work(graph: AsyncRemoteGraph) -> None:
        await graph.mutate(ADD, {"name": "cy"})
        rows = await graph.query(PEOPLE)
        assert rows.to_arrow().equals(local.query(PEOPLE).to_arrow())
        assert await graph.schema_source == local.schema_source
        assert await graph.snapshot() == local.snapshot()
        receipt = await graph.load(data='{"type": "City", "data": {"name": "A"}}', mode="append")
        assert receipt.commit is not None
        found = await graph.commit_changes_page(receipt.commit.graph_commit_id)
        assert found == local.commit_changes_page(receipt.commit.graph_commit_id)
        assert [entry.name for entry in await graph.list_queries()]
        with pytest.raises(NotFound):
            await graph.show_commit("01K3Z7M0Q8W4R6T2Y5V9B1N3XC")

    on(url, work)


def test_a_branch_for_one_piece_of_work(url: str, local: Graph):
    async def work(graph: AsyncRemoteGraph) -> None:
        async with graph.branch("agent/7") as b:
            await b.mutate(ADD, {"name": "cy"})
            assert len(await b.query(PEOPLE)) == len(local.query(PEOPLE)) + 1
            with pytest.raises(AlreadyExists, match="already exists"):
                await graph.branch("agent/7").__aenter__()
        assert local.entity_at("node:Person", "cy") is not None
        with pytest.raises(ZeroDivisionError):
            async with graph.branch("agent/7"):
                raise ZeroDivisionError
        assert "agent/7" in await graph.list_branches()

    on(url, work)


def test_streams_are_iterated(url: str, local: Graph):
    async def work(graph: AsyncRemoteGraph) -> None:
        blocks = [block async for block in await graph.export()]
        assert b"".join(blocks) == b"".join(local.export())
        baseline = await graph.change_baseline()
        assert [record async for record in baseline] == list(local.change_baseline())
        assert baseline.handshake is not None
        put = 'query q($d: Blob) { update Person set { photo: $d } where name = "ada" }'
        await graph.mutate(put, {"d": b"0123456789"})
        blob = await graph.blob("node", "Person", "ada", "photo")
        await graph.mutate(put, {"d": b"abcdefghij"})
        assert await blob.read(2, 3) == b"234"

    on(url, work)


def test_many_requests_run_side_by_side(url: str):
    async def work(graph: AsyncRemoteGraph) -> None:
        names = [f"n{number}" for number in range(12)]
        await asyncio.gather(*(graph.mutate(ADD, {"name": name}) for name in names))
        everybody = await asyncio.gather(*(graph.query(PEOPLE) for _ in range(12)))
        assert {len(rows) for rows in everybody} == {14}

    on(url, work)


def test_failures_are_the_same():
    async def gone(graph: AsyncRemoteGraph) -> None:
        with pytest.raises(ServerUnreachable):
            await graph.list_branches()

    on(unused_url(), gone)

    async def repeated(graph: AsyncRemoteGraph) -> None:
        assert await graph.list_branches() == ["main"]

    with answering(lambda number: BRANCHES if number == 2 else None) as (url, seen):
        on(url, repeated)
        assert len(seen) == 2

    async def lost(graph: AsyncRemoteGraph) -> None:
        with pytest.raises(AnswerLost):
            await graph.create_branch("x")

    with answering(lambda _number: None) as (url, seen):
        on(url, lost)
        assert len(seen) == 3

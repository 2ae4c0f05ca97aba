"""Checks that a server runs by itself: when a request is opened, and when its head has moved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import open_graph
from omnigraph.model.reviews import CHECK_ROWS_MAX, Review, ReviewCheck
from omnigraph.server.config import GraphSpec
from tests.server.live import (
    ADD,
    PATIENCE_SECONDS,
    POLICY,
    Live,
    new_graph,
    serving,
    with_tokens,
)

QUERIES = """
query without_age { match { $p: Person  $p.age is null } return { $p.name } order { $p.name } }
query everybody { match { $p: Person } return { $p.name } }
"""

ENDS_SECONDS_MAX = PATIENCE_SECONDS / 2
"""A watch that does not stop in this time never does."""

CHECKS = """\
checks:
  - { name: ages, query: without_age }
  - { name: late, query: everybody, expect: { min: 1 }, timeout_seconds: 0.000001 }
"""


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[Live]:
    """A server with checks, and a branch with something to review."""
    root = tmp_path / "team.omni"
    graph = new_graph(root)
    graph.create_branch("side")
    people = "".join(f'{{"type": "Person", "data": {{"name": "p{n:03}"}}}}\n' for n in range(120))
    graph.load(data=people, mode="append", branch="side", engine="local")
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "people.gq").write_text(QUERIES)
    (queries / "checks.yaml").write_text(CHECKS)
    with serving(GraphSpec("default", str(root), (queries,)), waits=False) as live:
        yield live


def ran(live: Live, id: str, head: str | None = None, *, checks: int = 2) -> Review:
    """The request once its checks have run on its head."""
    reviews, until = live.graph().reviews, time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        live.loop.call_soon_threadsafe(live.server.services.reviews_touched.set)
        review = reviews.get(id)
        fresh = [each for each in review.checks if not each.stale]
        if len(fresh) == checks and (
            head is None or {each.graph_commit_id for each in fresh} == {head}
        ):
            return review
    raise AssertionError(f"no checks ran: {reviews.get(id).checks}")


def events(live: Live, id: str) -> list[Any]:
    return [
        (each.body["name"], each.body["source_commit_id"])
        for each in live.graph().reviews.export()
        if each.kind == "check_reported" and each.request_id == id
    ]


def test_c_rev_012_the_server_runs_checks_once_per_head_and_says_why_they_failed(checked: Live):
    opened = checked.client().post("/reviews", json={"source": "side"}).json()
    review = ran(checked, opened["id"])
    found: dict[str, ReviewCheck] = {each.name: each for each in review.checks}
    assert {each.state for each in review.checks} == {"failed"}
    assert {each.actor_id for each in review.checks} == {None}
    assert found["ages"].text == "`without_age` returned 120 rows, expected none"
    assert [row["p.name"] for row in found["ages"].rows][:2] == ["p000", "p001"]
    assert len(found["ages"].rows) == CHECK_ROWS_MAX
    assert "stopped at its deadline" in (found["late"].text or "")
    # Neither looking again nor upkeep runs them again.
    checked.graph().optimize()
    for _ in range(3):
        ran(checked, review.id)
    assert len(events(checked, review.id)) == 2

    # Another process moves the head.
    other = open_graph(checked.graph().uri)
    commit = other.mutate(ADD, {"name": "zoe"}, branch="side").commit
    assert commit is not None
    moved = ran(checked, review.id, commit.graph_commit_id)
    assert "121 rows" in str([each.text for each in moved.checks])
    assert len(events(checked, review.id)) == 4


def test_c_rev_012_a_reopened_server_runs_what_is_missing_and_nothing_twice(
    checked: Live, tmp_path: Path
):
    graph = checked.graph()
    id = graph.reviews.open("side", actor="act-x").id
    ran(checked, id)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)  # it grants the server nothing, and its own checks need nothing
    ruled = GraphSpec("default", graph.uri, (tmp_path / "queries",), policy)
    with serving(ruled, environment=with_tokens(), waits=False) as second:
        ran(second, id)
        assert len(events(checked, id)) == 2
        more = CHECKS + "  - { name: anybody, query: everybody, expect: nonempty }\n"
        (tmp_path / "queries" / "checks.yaml").write_text(more)
        assert second.call(second.server.reloader.reload)
        assert {each.name for each in ran(second, id, checks=3).checks} == {
            "ages",
            "late",
            "anybody",
        }
    assert len(events(checked, id)) == 3


@pytest.mark.parametrize("steps", range(4))
def test_a_server_that_stops_right_after_a_request_has_changed_ends(checked: Live, steps: int):
    async def change_and_stop() -> None:
        checked.server.services.reviews_touched.set()
        for _ in range(steps):  # of the event loop: the watch is waking up
            await asyncio.sleep(0)
        async with asyncio.timeout(ENDS_SECONDS_MAX):
            await checked.server.watch.stop()

    checked.call(change_and_stop)

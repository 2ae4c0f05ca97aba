"""C-STU-007: what an actor may not see is in nothing that the page gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Response, expect

import omnigraph as og
from omnigraph.server.config import GraphSpec
from tests.access.test_hidden_names import BUNDLE, RECORDS, SCHEMA
from tests.server.live import TOKENS, serving, with_tokens
from tests.studio.conftest import watching

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

HIDDEN = ("Secret", "Hides", "hides", "salary", "persons", "Rome", '"bo"', '"Bo"', "red fox fox")
"""Types, properties and values of rows that the actor does not see."""

QUERIES = """
query everybody() { match { $p: Person } return { $p } }
query paid() { match { $p: Person } return { $p.salary } }
"""


def test_c_stu_007_actions_follow_the_policy_and_nothing_hidden_is_in_the_traffic(
    browser: Browser, tmp_path: Path
):
    graph = og.init(tmp_path / "g.omni", schema=SCHEMA)
    graph.load(data=RECORDS, mode="append")
    graph.create_branch("side")
    graph.mutate(
        'query q() { update Person set { salary: 1, city: "Rome" } where slug = "ada" }',
        branch="side",
        actor="act-own",
    )
    graph.reviews.open("side", title="Pay", description="all the same", actor="act-own")
    policy, queries = tmp_path / "policy.yaml", tmp_path / "queries.gq"
    policy.write_text(BUNDLE.replace('"$row.city = $actor.city"', "'$row.city = \"Oslo\"'"))
    queries.write_text(QUERIES)
    spec = GraphSpec("default", graph.uri, (queries,), policy)
    bodies: list[tuple[str, str]] = []

    def keep(response: Response) -> None:
        if "/graphs/" in response.url:
            bodies.append((response.url, response.text()))

    with serving(spec, environment=with_tokens(), studio=True) as live:
        context = browser.new_context()
        with watching(context, live) as studio:
            page = studio.page
            page.on(
                "requestfinished",
                lambda request: keep(found) if (found := request.response()) else None,
            )
            page.goto(f"{live.url}/studio/#/default/schema")
            page.get_by_label("Token").fill(TOKENS["act-ana"])
            page.get_by_role("button", name="Sign in").click()
            expect(studio.main()).to_contain_text("WorksAt")
            studio.go("schema", type="Person")
            expect(page.get_by_role("region", name="node Person")).to_be_visible()
            studio.go("query", q="query q { match { $p: Person } return { $p } }")
            page.get_by_role("button", name="Run").click()
            expect(studio.main()).to_contain_text("2 rows")
            for name, fields in (
                ("explore", {"type": "Person"}),
                ("entity", {"type": "Person", "id": "ada"}),
                ("branches", {}),
                ("compare", {"target": "main", "source": "side"}),
                ("reviews", {}),
                ("health", {}),
            ):
                studio.go(name, **fields)
                studio.main()
            studio.go("entity", type="Person", id="bo")
            expect(page.get_by_role("alert")).to_contain_text("There is no Person 'bo'")
            studio.go("query", q='query add { insert Company { slug: "x", name: "x" } }')
            expect(page.get_by_text("you may not change branch main")).to_be_visible()
            expect(page.get_by_role("button", name="Write to main")).to_have_count(0)
        context.close()
        assert len(bodies) > 15
        for url, body in bodies:
            for word in HIDDEN:
                if word != '"bo"' or "id=bo" not in url:
                    assert word not in body, (url, word, body[:2000])
        with live.client("act-ana") as client:
            listed = client.get("/queries").json()["queries"]
            assert [each["name"] for each in listed] == ["everybody"]
            denied = client.post("/queries/paid", json={}), client.post("/queries/none", json={})
            assert denied[0].status_code == denied[1].status_code == 404
            assert denied[0].json() == denied[1].json()

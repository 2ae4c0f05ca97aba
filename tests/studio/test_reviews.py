"""A whole review in the browser, by two people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from omnigraph.server.config import GraphSpec
from tests.server.live import POLICY, TOKENS, Live, new_graph, serving, with_tokens
from tests.studio.conftest import MARKUP, Studio, signed_in, watching

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

AGE = 'query age($age: I32) { update Person set { age: $age } where name = "ada" }'


@contextmanager
def looking(browser: Browser, live: Live, actor: str) -> Iterator[Studio]:
    """The page of one of several people."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    signed_in(context, TOKENS[actor])
    with watching(context, live) as studio:
        yield studio
    context.close()


def test_c_stu_004_a_review_with_a_conflict_from_its_opening_to_its_merge(
    browser: Browser, tmp_path: Path
):
    root = tmp_path / "team.omni"
    graph = new_graph(root)
    graph.create_branch("fix", actor="act-ana")
    graph.mutate(AGE, {"age": 37}, branch="fix", actor="act-ana")
    graph.mutate('query add { insert Person { name: "cy" } }', branch="fix", actor="act-ana")
    graph.mutate(AGE, {"age": 40}, actor="act-ana")  # main goes another way
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    spec = GraphSpec("default", str(root), policy=policy)
    with (
        serving(spec, environment=with_tokens(), studio=True) as live,
        looking(browser, live, "act-ana") as ana,
        looking(browser, live, "act-bo") as bo,
    ):
        # Ana sees what a review is, and opens one.
        ana.go("reviews")
        expect(ana.main()).to_contain_text("A change request asks to merge a branch")
        ana.page.get_by_text("Ask to merge a branch").click()
        ana.page.get_by_label("Title").fill("Ages and Cy")
        ana.page.get_by_label("Description").fill(MARKUP)
        ana.page.get_by_role("button", name="Open", exact=True).click()
        expect(ana.page.get_by_role("heading", level=1)).to_contain_text("Ages and Cy open")
        expect(ana.main()).to_contain_text(MARKUP)
        # Bo finds it, sees the changes and the conflict, comments and asks for changes.
        bo.go("reviews")
        bo.page.get_by_role("link", name="Ages and Cy").click()
        difference = bo.page.get_by_role("region", name="Person ada changed")
        expect(difference.get_by_role("row").nth(1)).to_contain_text("age3637")
        merge = bo.page.get_by_role("region", name="Merge", exact=True)
        expect(merge.get_by_role("row").nth(1)).to_contain_text("age363740")
        expect(merge.get_by_role("button", name="Merge into main")).to_be_disabled()
        bo.page.get_by_label("Comment", exact=True).fill("Is 37 right?")
        bo.page.get_by_role("button", name="Send comment").click()
        expect(bo.page.get_by_role("region", name="Comments")).to_contain_text("Is 37 right?")
        bo.page.get_by_label("Reason").fill("The age is off by one")
        bo.page.get_by_role("button", name="Request changes").click()
        verdicts = bo.page.get_by_role("region", name="Verdicts")
        expect(verdicts).to_contain_text("act-bo changes requested")
        # Ana answers, mends the branch on the page Query, and Bo approves what is there now.
        ana.page.reload()
        comments = ana.page.get_by_role("region", name="Comments")
        comments.get_by_role("button", name="Reply").click()
        ana.page.get_by_label("Reply", exact=True).fill("No, it is 38.")
        ana.page.get_by_role("button", name="Send reply").click()
        expect(comments).to_contain_text("No, it is 38.")
        comments.get_by_role("button", name="Resolve").click()
        expect(comments.get_by_role("button", name="Open again")).to_be_visible()
        request = ana.page.url
        ana.go("query", branch="fix", q=AGE, params='{"age":"38"}')
        ana.page.get_by_role("button", name="Write to fix").click()
        expect(ana.page.get_by_text("1 node and 0 edges changed on fix")).to_be_visible()
        bo.page.reload()
        expect(verdicts).to_contain_text("before the branch changed")
        expect(difference.get_by_role("row").nth(1)).to_contain_text("age3638")
        bo.page.get_by_role("button", name="Approve").click()
        expect(verdicts).to_contain_text("act-bo approved")
        # Ana settles the conflict and merges.
        ana.page.goto(request)
        merge = ana.page.get_by_role("region", name="Merge", exact=True)
        merge.get_by_label("Where both changed an entity").select_option("source")
        merge.get_by_role("button", name="Merge into main").click()
        expect(merge).to_contain_text("Merged, in commit")
        expect(ana.page.get_by_role("heading", level=1)).to_contain_text("Ages and Cy merged")
        found = live.graph().query(
            "query all { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
        )
        assert [tuple(row.values()) for row in found] == [("ada", 38), ("bo", 41), ("cy", None)]
        assert live.graph().list_commits()[0].actor_id == "act-ana"

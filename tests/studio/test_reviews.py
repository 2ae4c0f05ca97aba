"""A whole review in the browser, by two people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import omnigraph as og
from omnigraph.server.config import GraphSpec
from tests.server.live import POLICY, TOKENS, Live, serving, with_tokens
from tests.studio.conftest import MARKUP, Studio, signed_in, watching

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

SCHEMA = "node Person { name: String @key  age: I32?  home: String? }"
CHANGE = """query change($name: String, $age: I32, $home: String?) {
    update Person set { age: $age, home: $home } where name = $name
}"""
PEOPLE = """\
{"type": "Person", "data": {"name": "ada", "age": 36}}
{"type": "Person", "data": {"name": "bo", "age": 41}}
"""


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
    graph = og.init(root, SCHEMA)

    def change(branch: str, name: str, age: int, home: str | None) -> None:
        params = {"name": name, "age": age, "home": home}
        graph.mutate(CHANGE, params, branch=branch, actor="act-ana")

    graph.load(data=PEOPLE, mode="append", actor="act-ana")
    graph.create_branch("fix", actor="act-ana")
    change("fix", "ada", 37, "Rome")
    change("fix", "bo", 42, None)
    graph.mutate('query add { insert Person { name: "cy" } }', branch="fix", actor="act-ana")
    change("main", "ada", 40, "Oslo")  # main goes another way
    change("main", "bo", 50, None)
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
        values = merge.get_by_role("region", name="Values of Person ada")
        expect(values.get_by_role("row").nth(1)).to_contain_text("age363740")
        expect(values.get_by_role("row").nth(2)).to_contain_text("homenullRomeOslo")
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
        mended = '{"name":"ada","age":"38","home":"Rome"}'
        ana.go("query", branch="fix", q=CHANGE, params=mended)
        ana.page.get_by_role("button", name="Write to fix").click()
        expect(ana.page.get_by_text("1 node and 0 edges changed on fix")).to_be_visible()
        bo.page.reload()
        expect(verdicts).to_contain_text("before the branch changed")
        expect(difference.get_by_role("row").nth(1)).to_contain_text("age3638")
        bo.page.get_by_role("button", name="Approve").click()
        expect(verdicts).to_contain_text("act-bo approved")
        # Ana settles the conflicts, one property from each side, and merges.
        ana.page.goto(request)
        merge = ana.page.get_by_role("region", name="Merge", exact=True)
        merge.get_by_label("take fix for Person bo").check()
        expect(merge).to_contain_text("1 choice left")
        merge.get_by_role("button", name="By property").click()
        ada = merge.get_by_role("group", name="Person ada")
        ada.get_by_label("take fix for age").check()
        ada.get_by_label("keep main for home").check()
        expect(merge.get_by_role("button", name="Merge into main")).to_be_disabled()
        merge.get_by_role("group", name="Person bo").get_by_label("keep main for age").check()
        expect(merge).to_contain_text("Everything is settled")
        # Bo is looking at it, too.
        bo.page.reload()
        bos = bo.page.get_by_role("region", name="Merge", exact=True)
        bos.get_by_role("button", name="take fix").click()
        merge.get_by_role("button", name="Merge into main").click()
        expect(merge).to_contain_text("Merged, in commit")
        expect(ana.page.get_by_role("heading", level=1)).to_contain_text("Ages and Cy merged")
        everybody = "match { $p: Person } return { $p.name, $p.age, $p.home } order { $p.name }"
        found = live.graph().query(f"query all {{ {everybody} }}")
        people = [tuple(row.values()) for row in found]
        assert people == [("ada", 38, "Oslo"), ("bo", 50, None), ("cy", None, None)]
        assert live.graph().list_commits()[0].actor_id == "act-ana"
        # Bo comes too late: a message, and the request as it is now.
        bos.get_by_role("button", name="Merge into main").click()
        expect(bos).to_contain_text("Merged, in commit")
        assert live.graph().list_commits()[0].actor_id == "act-ana"

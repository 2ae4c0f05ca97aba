"""C-STU-013: what goes wrong ends in a message with a way on, never in a blank page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from omnigraph.server.config import GraphSpec
from tests.server.live import POLICY, TOKENS, new_graph, serving, with_tokens
from tests.studio.conftest import OWNER, Studio, signed_in, watching

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]


def test_c_stu_013_a_branch_that_was_deleted(studio: Studio):
    page, graph = studio.page, studio.live.graph()
    graph.create_branch("short", actor=OWNER)
    studio.go("schema", branch="short")
    expect(studio.main()).to_contain_text("Person")
    graph.delete_branch("short", actor=OWNER)
    page.get_by_role("link", name="Query").click()
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("There is no branch `short`")
    page.get_by_role("link", name="Look at the branches").click()
    expect(page.get_by_role("heading", level=1, name="Branches")).to_be_visible()


def test_c_stu_013_a_lost_connection_and_an_unknown_page(studio: Studio):
    page = studio.page
    studio.go("schema")
    studio.main()
    page.context.set_offline(True)
    page.get_by_role("link", name="Health").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server does not answer")
    page.context.set_offline(False)
    alert.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("region", name="Findings")).to_be_visible()
    studio.go("nowhere")
    expect(alert).to_contain_text("There is no page 'nowhere'")
    studio.go("entity", type="Person", id="nobody")
    expect(alert).to_contain_text("There is no Person 'nobody' on branch main")


def test_c_stu_013_and_007_tokens_of_a_policy_end_and_actions_are_offered_by_it(
    browser: Browser, tmp_path: Path
):
    """A server with a policy: what a reader is offered, and what becomes of a token that ended."""
    root = tmp_path / "team.omni"
    new_graph(root).create_branch("side")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    spec = GraphSpec("default", str(root), policy=policy)
    with serving(spec, environment=with_tokens(), studio=True) as live:
        context = browser.new_context()
        with watching(context, live) as studio:
            page = studio.page
            # A token that the server does not know, then one of a reader.
            page.goto(f"{live.url}/studio/#/default/branches")
            page.get_by_label("Token").fill("wrong")
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("No valid bearer token")
            page.get_by_label("Token").fill(TOKENS["act-bo"])
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("heading", level=1, name="Branches")).to_be_visible()
            expect(page.get_by_text("act-bo", exact=True)).to_be_visible()
            # Bo may create branches, and neither delete them nor write to main.
            page.get_by_role("link", name="side", exact=True).click()
            expect(page.get_by_role("button", name="Create")).to_be_visible()
            expect(page.get_by_role("button", name="Delete")).to_have_count(0)
            studio.go("query", q='query add { insert Person { name: "x" } }')
            expect(page.get_by_text("you may not change branch main")).to_be_visible()
            expect(page.get_by_role("button", name="Write to main")).to_have_count(0)
            studio.go("query", branch="side", q='query add { insert Person { name: "x" } }')
            expect(page.get_by_role("button", name="Write to side")).to_be_visible()
        context.close()
        # The token of a tab ends, as when the server was started again.
        context = browser.new_context()
        signed_in(context, "a-token-of-yesterday")
        with watching(context, live) as studio:
            studio.go("schema")
            expect(studio.page.get_by_label("Token")).to_be_visible()
            assert studio.page.get_by_text("asks for a token").is_visible()
        context.close()

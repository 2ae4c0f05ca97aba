"""The pages of Studio in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from omnigraph.server.auth import OwnerSession
from omnigraph.server.config import GraphSpec
from tests.server.live import new_graph, serving
from tests.studio.conftest import MARKUP, OWNER, Studio, watching

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

FOLLOWED = """query followed($handle: String) {
    match { $p: Person { handle: $handle }  $p knows $f }
    return { $f.name as name, $f.home as home }
    order { name }
}"""


def test_c_stu_001_and_008_the_printed_address_opens_the_graph_and_no_secret_stays_in_it(
    browser: Browser, tmp_path: Path
):
    root = tmp_path / "team.omni"
    new_graph(root)
    owner = OwnerSession(OWNER)
    spec = GraphSpec("default", str(root))
    with serving(spec, environment={}, studio=True, owner=owner) as live:
        address = f"{live.url}/studio/#code={owner.code}&graph=default"
        context = browser.new_context()
        with watching(context, live) as studio:
            page = studio.page
            page.goto(address)
            expect(page.get_by_role("heading", level=1, name="Schema")).to_be_visible()
            assert owner.code not in page.url
            token = page.evaluate("sessionStorage.getItem('omnigraph.token')")
            assert owner.has(token)
            assert page.evaluate("localStorage.length") == 0
            assert not any(owner.code in url or token in url for url in studio.requests)
            assert all(url.startswith((live.url, "data:")) for url in studio.requests)
            # A link that is opened in another tab shows the same, without another code.
            second = context.new_page()
            second.goto(page.url)
            expect(second.get_by_role("heading", level=1, name="Schema")).to_be_visible()
            # Opened once more in another browser, it ends in a message with a way on.
            stranger = browser.new_page()
            stranger.goto(address)
            expect(stranger.get_by_role("alert")).to_contain_text("was used before")
            expect(stranger.get_by_label("Token")).to_be_visible()
            stranger.close()
        context.close()


def test_a_query_is_written_run_and_linked(studio: Studio):
    page = studio.page
    studio.go("query")
    editor = page.get_by_role("textbox", name="Query text")
    editor.fill(FOLLOWED.replace("knows", "knwos"))
    expect(page.get_by_text("did you mean `knows`?")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_have_text("knwos")
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    editor.fill(FOLLOWED)
    page.get_by_role("textbox", name="handle").fill("ada")
    page.get_by_role("button", name="Run").click()
    rows = page.get_by_role("region", name="Rows")
    expect(rows.get_by_role("row")).to_have_count(2)
    expect(rows.get_by_role("row").nth(1)).to_contain_text("Chiara Lenz")
    page.get_by_role("button", name="JSON").click()
    expect(page.locator("pre.json")).to_contain_text('"name": "Chiara Lenz"')
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("region", name="Steps")).to_contain_text("Expand")
    # C-STU-005: the link alone shows the text, the parameters, the view and the answer.
    page.reload()
    expect(page.get_by_role("region", name="Steps")).to_contain_text("Expand")
    expect(page.get_by_role("textbox", name="handle")).to_have_value("ada")


def test_c_stu_008_markup_is_shown_as_text_on_every_page(studio: Studio):
    page = studio.page
    studio.go("entity", type="Post", id="markup")
    expect(page.get_by_role("region", name="Properties")).to_contain_text(MARKUP)
    studio.go("branches")
    expect(page.get_by_role("region", name="Commits")).to_contain_text(MARKUP)
    studio.go("query", q='query q { match { $p: Post { slug: "markup" } } return { $p.text } }')
    expect(page.get_by_role("region", name="Rows")).to_contain_text(MARKUP)
    assert "Omnigraph Studio" in page.title(), "no script of an entity has run"
    assert page.locator("main img").count() == 0


def test_branches_are_created_looked_at_and_deleted(studio: Studio):
    page = studio.page
    studio.go("branches")
    commits = page.get_by_role("region", name="Commits")
    expect(commits.get_by_role("link", name="Bruno is sure now")).to_be_visible()
    page.get_by_label("New branch").fill("tmp/<b>")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("Branch name 'tmp/<b>' has the segment '<b>'")
    page.get_by_label("New branch").fill("tmp/x")
    page.get_by_role("button", name="Create").click()
    page.get_by_role("link", name="tmp/x").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="tmp/x")).to_have_count(0)
    commits.get_by_role("link", name="Finn joins").click()
    panel = page.get_by_role("complementary", name="Commit")
    expect(panel).to_contain_text("home: Lyon → Turin")
    panel.get_by_role("link", name="finn", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Finn Aalto")


def test_c_stu_006_an_entity_is_shown_as_it_was_at_an_older_commit(studio: Studio):
    page = studio.page
    studio.go("entity", type="Person", id="bruno")
    properties = page.get_by_role("region", name="Properties")
    expect(properties).to_contain_text("Bread, always")
    expect(page.get_by_role("region", name="Edges")).to_contain_text("Ada Moreau")
    page.get_by_role("region", name="History").get_by_role("link", name="Insert").click()
    expect(properties).to_contain_text("Bread, mostly")
    expect(page.get_by_text("as it was at commit")).to_be_visible()
    page.get_by_role("link", name="Back to now").click()
    expect(properties).to_contain_text("Bread, always")

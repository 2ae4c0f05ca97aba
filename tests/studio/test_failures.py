"""C-STU-013: what goes wrong ends in a message with a way on, never in a blank page."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

import omnigraph as og
from omnigraph.server.auth import TOKENS_JSON
from omnigraph.server.config import GraphSpec
from tests.server.live import POLICY, TOKENS, new_graph, serving, with_tokens
from tests.studio.conftest import MARKUP, OWNER, Studio, watching

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


def test_c_stu_013_tokens_of_a_policy_end_and_actions_are_offered_by_it(
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


def test_c_stu_013_a_server_that_is_started_again_under_an_open_page(
    browser: Browser, tmp_path: Path
):
    """The same server again goes on; one that does not know the token asks for another."""
    root = tmp_path / "team.omni"
    new_graph(root)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    spec = GraphSpec("default", str(root), policy=policy)
    context = browser.new_context()
    with serving(spec, environment=with_tokens(), studio=True) as first:
        bind = first.url.removeprefix("http://")
        page = context.new_page()
        page.goto(f"{first.url}/studio/#/default/schema?type=Person")
        page.get_by_label("Token").fill(TOKENS["act-bo"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("region", name="node Person")).to_be_visible()
    # It is gone: pages say so, a query that runs does, and nothing is blank.
    page.get_by_role("link", name="Health").click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server does not answer")
    expect(alert).to_contain_text("Start it again, then try again")
    with serving(spec, environment=with_tokens(), studio=True, bind=bind):
        alert.get_by_role("button", name="Try again").click()
        expect(page.get_by_role("region", name="Findings")).to_be_visible()
        expect(alert).to_have_count(0)
    others = {**with_tokens(), TOKENS_JSON: '{"act-bo": "another-token-of-bo"}'}
    with serving(spec, environment=others, studio=True, bind=bind):
        page.get_by_role("button", name="Look again").click()
        expect(alert).to_contain_text("No valid bearer token")
        page.get_by_label("Token").fill("another-token-of-bo")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("region", name="Findings")).to_be_visible()
        assert page.url.endswith("#/default/health"), "back to where it was"
    context.close()


def test_bad_input_is_shown_as_text_on_every_page(browser: Browser, tmp_path: Path):
    """Right-to-left and emoji names, texts of megabytes, messages and titles with markup."""
    names = [
        "\u202egnp.exe",
        "\u0634\u0627\u0645",
        "\U0001f9d1\u200d\U0001f680",
        "a,b%2C:c/<b>",
        MARKUP,
    ]
    schema = "node Note { name: String @key  text: String? } edge Next: Note -> Note"
    graph = og.init(tmp_path / "odd.omni", schema)
    add = "query add($name: String, $text: String) { insert Note { name: $name, text: $text } }"
    for name in names:
        graph.mutate(add, {"name": name, "text": "x" * 10_000_000 if name == names[0] else name})
    link = "query link($a: String, $b: String) { insert Next { from: $a, to: $b } }"
    for one, other in pairwise(names):
        graph.mutate(link, {"a": one, "b": other}, message=MARKUP)
    graph.create_branch("agent/0--._x")
    graph.mutate(add, {"name": "new", "text": MARKUP}, branch="agent/0--._x")
    graph.reviews.open("agent/0--._x", title=MARKUP, description=names[1], actor=OWNER)
    with serving(GraphSpec("default", graph.uri), studio=True) as live:
        context = browser.new_context()
        with watching(context, live) as studio:
            page = studio.page
            shown = ",".join(quote(f"Note:{name}", safe=":") for name in names)
            studio.go("explore", show=shown, select=quote(f"Note:{names[3]}", safe=":"))
            table = page.get_by_role("region", name="Nodes on the canvas")
            expect(table.get_by_role("row")).to_have_count(1 + len(names))
            assert studio.drawn() == {f"Note:{name}" for name in names}
            expect(page.get_by_role("region", name="Selected node")).to_contain_text(names[3])
            for name in names:
                studio.go("entity", type="Note", id=name)
                expect(page.get_by_role("heading", level=1)).to_contain_text(name)
            studio.go("entity", type="Note", id=names[0])
            properties = page.get_by_role("region", name="Properties")
            expect(properties).to_contain_text("(10,000,000 characters)")
            everything = (
                "query q { match { $n: Note } return { $n.name, $n.text } order { $n.name } }"
            )
            studio.go("query", q=everything)
            rows = page.get_by_role("region", name="Rows")
            expect(rows).to_contain_text("(10,000,000 characters)")
            expect(rows).to_contain_text(MARKUP)
            page.get_by_role("button", name="JSON").click()
            expect(page.get_by_label("Rows as JSON")).to_contain_text("cut:")
            studio.go("compare", source="agent/0--._x")
            expect(page.get_by_role("region", name="Note new added")).to_contain_text(MARKUP)
            studio.go("reviews")
            page.get_by_role("link", name=MARKUP).click()
            expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP)
            assert "Omnigraph Studio" in page.title(), "no script has run"
            assert page.locator("main img, main script").count() == 0
        context.close()

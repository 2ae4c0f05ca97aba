"""The pages of Studio in a real browser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from bench.studio import EDGES, NODES
from omnigraph.cli.main import main
from omnigraph.server.auth import OwnerSession
from omnigraph.server.config import GraphSpec
from tests.server.live import new_graph, serving
from tests.studio.conftest import BIG_NODES, MARKUP, OWNER, Studio, signed_in, watching
from tests.support.browser import wait_until

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
            expect(page.get_by_role("heading", level=1, name="Explore")).to_be_visible()
            assert owner.code not in page.url
            token = page.evaluate("sessionStorage.getItem('omnigraph.token')")
            assert owner.has(token)
            assert page.evaluate("localStorage.length") == 0
            assert not any(owner.code in url or token in url for url in studio.requests)
            assert all(url.startswith((live.url, "data:")) for url in studio.requests)
            # A link that is opened in another tab shows the same, without another code.
            second = context.new_page()
            second.goto(page.url)
            expect(second.get_by_role("heading", level=1, name="Explore")).to_be_visible()
            # Opened once more in another browser, it ends in a message with a way on.
            stranger = browser.new_page()
            stranger.goto(address)
            expect(stranger.get_by_role("alert")).to_contain_text("was used before")
            expect(stranger.get_by_label("Token")).to_be_visible()
            stranger.close()
        context.close()


def test_c_stu_003_a_query_is_completed_checked_while_it_is_written_run_and_linked(studio: Studio):
    page = studio.page
    studio.go("query")
    editor = page.get_by_role("textbox", name="Query text")
    options = page.locator(".cm-tooltip-autocomplete li")
    # Words come from the language service: types, then the properties of what a variable is.
    editor.fill("query q { match { $p: ")
    page.keyboard.press("Control+End")
    page.keyboard.type("Pers")
    expect(options).to_have_count(1)
    options.get_by_text("Person").click()
    expect(editor).to_contain_text("$p: Person")
    page.keyboard.type(" } return { $p.")
    expect(options.get_by_text("handle")).to_be_visible()
    expect(options.get_by_text("Group")).to_have_count(0)
    page.keyboard.press("Escape")
    assert any(url.endswith("/graphs/default/language") for url in studio.requests)
    # Errors stand under their words, wherever characters of several bytes are before them.
    editor.fill(FOLLOWED.replace("$p knows", "/* \U0001f642 \u00e9 */ $p knwos"))
    expect(page.get_by_text("did you mean `knows`?")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_have_text("knwos")
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    editor.fill(FOLLOWED.replace("\n    return", "\nreturn"))
    page.get_by_role("button", name="Format").click()
    expect(editor).to_contain_text("    return")
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    page.get_by_role("textbox", name="handle").fill("ada")
    page.get_by_role("button", name="Run").click()
    rows = page.get_by_role("region", name="Rows")
    expect(rows.get_by_role("row")).to_have_count(2)
    expect(rows.get_by_role("row").nth(1)).to_contain_text("Chiara Lenz")
    page.get_by_role("button", name="JSON").click()
    expect(page.locator("pre.json")).to_contain_text('"name": "Chiara Lenz"')
    page.get_by_role("button", name="Plan").click()
    steps = page.get_by_role("region", name="Steps")
    expect(steps).to_contain_text("Expand")
    assert steps.get_by_role("columnheader").all_inner_texts() == ["step", "strategy", "rows", "ms"]
    scan = steps.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()
    assert scan[2] == "1" and float(scan[3]) >= 0
    # C-STU-005: the link alone shows the text, the parameters, the view and the answer.
    page.reload()
    expect(page.get_by_role("region", name="Steps")).to_contain_text("Expand")
    expect(page.get_by_role("textbox", name="handle")).to_have_value("ada")


BY_TYPE = """query liked {
    match { $p: Person  $p $l:likes $o }
    return { $p.name as name, count($l) as likes }
}"""
ENTITIES = "query q { match { $p: Person  $p $k:knows $f } return { $p.*, $k.*, $f.* } }"
PATHS = """query ways {
    match { $a: Person { handle: "elif" }  $b: Person { handle: "ada" }  $a follows{1,4} $b via $w }
    return { $w.nodes as nodes, $w.length as steps }
}"""


def test_c_stu_003_an_answer_is_a_chart_or_a_graph_where_it_can_be_one(studio: Studio):
    page = studio.page
    studio.go("query", q=BY_TYPE, view="chart")
    expect(page.get_by_role("img", name="bar chart of likes by name")).to_be_visible()
    expect(page.get_by_role("button", name="Graph")).to_have_count(0)
    studio.go("query", q=ENTITIES, view="graph")
    expect(page.get_by_role("img", name="nodes and 4 edges of the answer")).to_be_visible()
    assert {"ada", "bruno", "chiara"} <= studio.drawn()
    expect(page.get_by_role("button", name="Chart")).to_have_count(0)
    studio.go("query", q=PATHS, view="graph")
    expect(page.get_by_role("img", name="2 nodes and 1 edges of the answer")).to_be_visible()
    assert studio.drawn() == {"elif", "ada"}


def test_c_stu_003_a_query_copied_as_python_as_curl_and_as_a_command_runs(
    studio: Studio, token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = studio.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    studio.go("query", q=FOLLOWED, params='{"handle":"ada"}')
    expect(page.get_by_role("region", name="Rows")).to_contain_text("Chiara Lenz")
    page.get_by_text("Copy as").click()

    def copied(name: str) -> str:
        page.get_by_role("button", name=name).click()
        expect(page.get_by_role("button", name="Copied").first).to_be_visible()
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    python, curl, command = copied("Python"), copied("curl"), copied("Command line")
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token)
    in_a_thread(lambda: exec(python, {}))
    assert "Chiara Lenz" in capsys.readouterr().out
    program, _, url, *rest = shlex.split(curl)
    headers = dict(each.split(": ") for each in (rest[1], rest[3]))
    headers["Authorization"] = headers["Authorization"].replace("$OMNIGRAPH_BEARER_TOKEN", token)
    assert (program, rest[::2]) == ("curl", ["-H", "-H", "-d"])
    assert (
        httpx.post(url, headers=headers, content=rest[5]).json()["rows"][0]["name"] == "Chiara Lenz"
    )
    program, *words = shlex.split(command)
    assert program == "omnigraph"
    in_a_thread(lambda: main(words))
    assert "Chiara Lenz" in capsys.readouterr().out


def in_a_thread(work: Callable[[], object]) -> None:
    """Run what has an event loop of its own: the driver of the browser has one in this thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


SLOWLY = """() => {
    const send = window.fetch;
    window.fetch = async (url, ...rest) => {
        const response = await send(url, ...rest);
        if (!String(url).endsWith('/query')) return response;
        // The first part of an answer arrives, and the rest when it is let go.
        const bytes = new Uint8Array(await response.arrayBuffer());
        const part = Math.floor(bytes.length / 3);
        const body = new ReadableStream({
            async start(out) {
                out.enqueue(bytes.slice(0, part));
                rest[0].signal.addEventListener('abort', () => out.error(new Error('aborted')));
                await new Promise((go) => { window.letGo = go; });
                out.enqueue(bytes.slice(part));
                out.close();
            },
        });
        return new Response(body, response);
    };
}"""


def test_c_stu_003_rows_are_shown_while_they_arrive_and_a_long_query_is_cancelled(studio: Studio):
    page = studio.page
    everybody = "query q { match { $p: Person } return { $p.handle, $p.name } limit 30000 }"
    studio.go("query", graph="big")
    page.evaluate(SLOWLY)
    editor = page.get_by_role("textbox", name="Query text")
    editor.fill(everybody)
    run, rows = (
        page.get_by_role("button", name="Run", exact=True),
        page.get_by_role("region", name="Rows"),
    )
    run.click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer).to_contain_text("of 30,000 rows")
    expect(rows.get_by_role("row")).to_have_count(1 + 200)
    expect(page.get_by_text("running for")).to_be_visible()
    page.evaluate("letGo()")
    expect(answer).to_contain_text("30,000 rows in")
    # Cancelled half way, the rows that were there stay, and it can be run again.
    run.click()
    expect(answer).to_contain_text("of 30,000 rows")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled")).to_be_visible()
    expect(rows.get_by_role("row")).to_have_count(1 + 200)
    expect(page.get_by_role("button", name="Run again")).to_be_visible()


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


def test_c_stu_002_search_expand_path_and_table_in_a_graph_of_200_000_nodes(studio: Studio):
    page = studio.page
    studio.go("explore", graph="big")
    search = page.get_by_role("region", name="Search")
    expect(search.get_by_role("option", name=f"Person ({BIG_NODES:,})")).to_be_attached()
    search.get_by_role("searchbox").fill("p199999")
    search.get_by_role("button", name="Search").click()
    search.get_by_role("button", name="Person 199999").click()
    # Counts are shown before anything is expanded.
    node = page.get_by_role("region", name="Selected node")
    expect(node.get_by_role("button", name="→ Knows (1)")).to_be_visible()
    node.get_by_role("button", name="→ Knows (1)").click()
    table = page.get_by_role("region", name="Nodes on the canvas")
    expect(table.get_by_role("row")).to_have_count(1 + 2)
    assert studio.drawn() == {"Person:p199999", "Person:p0"}
    # What is selected in the table is selected on the canvas, and the other way round.
    table.get_by_label("Select Person 0").check()
    expect(table.get_by_role("checkbox", checked=True)).to_have_count(2)
    assert page.evaluate("studioCanvas.nodes('.chosen').length") == 2
    page.evaluate("void studioCanvas.getElementById('Person:p0').emit('tap')")
    expect(table.get_by_role("checkbox", checked=True)).to_have_count(1)
    expect(node.get_by_role("heading")).to_contain_text("Person 0")
    node.get_by_role("button", name="Hide").click()
    expect(table.get_by_role("row")).to_have_count(1 + 1)
    # A path between two nodes brings those on the way.
    studio.go("explore", graph="big", show="Person:p3,Person:p7", select="Person:p3,Person:p7")
    path = page.get_by_role("region", name="Path")
    path.get_by_role("button", name="Find a shortest path").click()
    expect(path).to_contain_text("4 steps")
    expect(table.get_by_role("row")).to_have_count(1 + 5)
    assert studio.drawn() == {f"Person:p{number}" for number in range(3, 8)}
    # Many neighbours are counted, and the first of them shown.
    studio.go("explore", graph="big", show="Person:p7", select="Person:p7")
    node.get_by_role("button", name="→ Knows (301)").click()
    expect(page.get_by_text("101 nodes, ")).to_be_visible()
    assert len(studio.drawn()) == 101


def test_c_stu_002_a_path_leads_over_edges_of_several_types_in_either_direction(studio: Studio):
    page = studio.page
    studio.go("explore", show="Person:ada,Post:rain", select="Person:ada,Post:rain")
    path = page.get_by_role("region", name="Path")
    path.get_by_role("button", name="Find a shortest path").click()
    expect(path.get_by_role("status")).to_contain_text("3 steps: Ada Moreau")
    expect(page.get_by_text("4 nodes, ")).to_be_visible()
    drawn = studio.drawn()
    assert {"Person:ada", "Post:rain"} < drawn and len(drawn) == 4
    # Without the edges it needs, it is longer, or there is none.
    for name in ("Follows", "Knows", "Likes", "RepliesTo", "PostedIn", "MemberOf"):
        path.get_by_label(name).uncheck()
    path.get_by_role("button", name="Find a shortest path").click()
    expect(path).to_contain_text("No path of at most 8 steps")


def test_c_stu_010_thousands_of_nodes_and_edges_are_drawn_in_slices_and_moved(studio: Studio):
    """How fast is measured by `make bench ARGS=studio`."""
    page = studio.page
    everybody = ",".join(f"Person:p{number}" for number in range(NODES))
    studio.go("explore", graph="crowd", show=everybody)
    expect(page.get_by_text("2,000 nodes, 5,000 edges")).to_be_visible()
    wait_until(page, "window.studioCanvas?.scratch('layout')?.isSettled")
    counts = page.evaluate("[studioCanvas.nodes().length, studioCanvas.edges().length]")
    assert counts == [NODES, EDGES]
    layout = page.evaluate("studioCanvas.scratch('layout')")
    assert layout["slices"] > 3, "the page answers while the nodes find their places"
    assert layout["ticks"] == 60
    # Every node has its own place, inside of what is shown.
    places = "studioCanvas.nodes().map((node) => Object.values(node.renderedPosition()).join())"
    assert len(set(page.evaluate(places))) == NODES
    canvas = page.get_by_role("img", name="2,000 nodes and 5,000 edges")
    width, height = page.evaluate("[studioCanvas.width(), studioCanvas.height()]")
    box = page.evaluate("studioCanvas.elements().renderedBoundingBox({includeLabels: false})")
    assert box["x1"] >= 0 and box["y1"] >= 0 and box["x2"] <= width and box["y2"] <= height
    # Moving the canvas draws it again, and moves nothing but the view.
    page.evaluate(
        "() => { window.drawn = 0; studioCanvas.on('render', () => void window.drawn++); }"
    )
    before = page.evaluate("studioCanvas.pan()")
    canvas.hover(position={"x": 8, "y": 8})
    page.mouse.down()
    place = canvas.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 120, place["y"] + 60, steps=5)
    page.mouse.up()
    after = page.evaluate("studioCanvas.pan()")
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((112, 52), abs=3)
    wait_until(page, "window.drawn > 0")
    # The table has its first rows at once, and the others when they are asked for.
    table = page.get_by_role("region", name="Nodes on the canvas")
    expect(table.get_by_role("row")).to_have_count(1 + 200)


STATES = {
    "explore": {"show": "Person:ada,Person:bruno,Group:north-face", "select": "Person:ada"},
    "query": {"q": FOLLOWED, "params": '{"handle":"ada"}', "view": "json"},
    "schema": {"type": "Person"},
    "branches": {"branch": "review/june"},
    "compare": {"source": "review/june", "view": "graph"},
    "entity": {"type": "Person", "id": "finn", "branch": "review/june"},
    "reviews": {"state": "all"},
    "health": {},
}
MILLISECONDS = re.compile(r"\d+ ms")


def test_c_stu_005_an_address_shows_the_same_after_a_reload_and_in_another_browser(
    studio: Studio, browser: Browser, token: str
):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    signed_in(context, token)
    with watching(context, studio.live) as other:
        for name, fields in STATES.items():
            studio.go(name, **fields)
            texts = [shown_text(studio, name)]
            studio.page.reload()
            texts.append(shown_text(studio, name))
            other.page.goto(studio.page.url)
            texts.append(shown_text(other, name))
            assert len(set(texts)) == 1, name
    context.close()


def shown_text(studio: Studio, name: str) -> str:
    main = studio.main()
    expected = {"query": "Chiara Lenz", "compare": "node Person", "explore": "3 nodes"}
    expect(main).to_contain_text(expected.get(name, ""))
    if name == "explore":
        # The panel of the selected node asks for its counts once the canvas is there.
        expect(main.get_by_role("button", name="→ MemberOf (1)")).to_be_visible()
    expect(main.locator(".waiting")).to_have_count(0)
    return MILLISECONDS.sub("", main.inner_text())


def test_c_stu_006_every_page_is_shown_as_it_was_at_an_older_commit(studio: Studio):
    page = studio.page
    commits = studio.live.graph().list_commits()
    load = next(each for each in commits if each.message == "First people").graph_commit_id
    studio.go("explore", at=load, show="Person:bruno", label="bio")
    expect(studio.main()).to_contain_text("Bread, mostly")
    bio = 'query q { match { $p: Person { handle: "bruno" } } return { $p.bio } }'
    studio.go("query", at=load, q=bio)
    expect(page.get_by_role("region", name="Rows")).to_contain_text("Bread, mostly")
    studio.go("schema", at=load)
    expect(page.get_by_role("region", name="node Post", exact=True)).to_contain_text("5 nodes")
    studio.go("schema")
    expect(page.get_by_role("region", name="node Post", exact=True)).to_contain_text("6 nodes")
    studio.go("compare", at=load, target="main")
    expect(studio.main()).to_contain_text("No differences")
    studio.go("branches", at=load)
    expect(page.get_by_text("as it was at commit")).to_be_visible()
    studio.go("health", at=load)
    expect(studio.main()).to_contain_text("as it is now, not of the commit")


def test_a_branch_is_compared_and_merged(studio: Studio):
    page, graph = studio.page, studio.live.graph()
    graph.create_branch("merge-me", actor=OWNER)
    change = 'query c { update Person set { home: "Oslo" } where handle = "elif" }'
    graph.mutate(change, branch="merge-me", actor=OWNER)
    studio.go("compare", source="merge-me")
    card = page.get_by_role("region", name="Person elif changed")
    expect(card.get_by_role("row").nth(1)).to_contain_text("homePortoOslo")
    merge = page.get_by_role("region", name="Merge", exact=True)
    merge.get_by_label("Message").fill("Elif moves")
    merge.get_by_role("button", name="Merge into main").click()
    expect(merge).to_contain_text("There is nothing to merge.")
    head = graph.list_commits()[0]
    assert (head.message, head.actor_id) == ("Elif moves", OWNER)
    graph.mutate(change.replace("Oslo", "Riga"), actor=OWNER)
    graph.mutate(change.replace("Oslo", "Brno"), branch="merge-me", actor=OWNER)
    page.reload()
    expect(merge).to_contain_text("1 conflict must be settled first")
    expect(merge.get_by_role("row").nth(1)).to_contain_text("homeOsloBrnoRiga")
    expect(merge.get_by_role("button", name="Merge into main")).to_be_disabled()
    merge.get_by_label("take merge-me for Person elif").check()
    # Somebody else is faster: a message, and what is there now.
    faster = graph.merge_branch("merge-me", on_conflict="target", actor="act-bo")
    assert faster.outcome == "merged"
    merge.get_by_role("button", name="Merge into main").click()
    expect(merge).to_contain_text("There is nothing to merge.")
    graph.delete_branch("merge-me", actor=OWNER)
    graph.mutate(change.replace("Oslo", "Porto"), actor=OWNER)


def test_an_empty_graph_shows_how_to_load_a_file_and_what_a_review_is(
    studio: Studio, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = studio.page
    studio.go("reviews", graph="empty")
    expect(studio.main()).to_contain_text("A change request asks to merge a branch into another")
    studio.go("explore", graph="empty")
    help = page.get_by_role("region", name="The graph is empty")
    (tmp_path / "records.jsonl").write_text(help.get_by_label("A record").inner_text())
    program, *words = shlex.split(help.get_by_label("The command").inner_text())
    assert program == "omnigraph"
    # What it says is done, and it says so no more.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token)
    in_a_thread(lambda: main(words))
    page.reload()
    expect(page.get_by_role("link", name="Group 1")).to_be_visible()
    expect(help).to_have_count(0)


def test_an_entity_is_shown_as_it_was_at_an_older_commit(studio: Studio):
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

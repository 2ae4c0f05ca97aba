"""One graph, one server and one browser for all tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

import omnigraph as og
from bench.studio import new_graph as crowd
from omnigraph.graph import Graph
from omnigraph.server.auth import OwnerSession
from omnigraph.server.config import GraphSpec
from studio.build import build
from tests.server.live import Live, serving
from tests.support.browser import browsing

SOCIAL = Path(__file__).parents[2] / "examples" / "social"
MARKUP = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
"""What an entity holds that must be shown as text."""
OWNER = "act-ana"

expect.set_options(timeout=30_000)


@dataclass
class Studio:
    """The page of a server, and what it did that a test has to know."""

    page: Page
    live: Live
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Errors of scripts, and what the policy of the page refused."""

    def go(self, page: str, graph: str = "default", **fields: str) -> None:
        """Open an address and wait for its page."""
        query = f"?{urlencode(fields)}" if fields else ""
        self.page.goto(f"{self.live.url}/studio/#/{graph}/{page}{query}")

    def main(self) -> Locator:
        """The page without the frame around it, once nothing is on its way."""
        main = self.page.locator("#main")
        expect(main.locator(".waiting")).to_have_count(0)
        expect(main.locator("h1")).to_be_visible()
        return main

    def drawn(self) -> set[str]:
        """The nodes on the canvas."""
        return set(self.page.evaluate("studioCanvas.nodes().map((node) => node.id())"))


def story(root: Path) -> Graph:
    """A social network with two branches and a history."""
    graph = og.init(root, schema=SOCIAL / "schema.pg")
    graph.load(SOCIAL / "data.jsonl", mode="append", actor="act-loader", message="First people")
    graph.create_branch("review/june", actor=OWNER)
    change = """query change {
        update Person set { home: "Turin" } where handle = "ada"
        insert Person {
            handle: "finn", name: "Finn Aalto", joined: datetime("2025-06-01T10:00:00Z") }
        insert Follows { from: "finn", to: "ada" } }"""
    graph.mutate(change, branch="review/june", actor=OWNER, message="Finn joins, Ada moves")
    update = 'query bio { update Person set { bio: "Bread, always" } where handle = "bruno" }'
    graph.mutate(update, actor="act-bo", message="Bruno is sure now")
    graph.reviews.open("review/june", title="June", description="Finn joins", actor=OWNER)
    return graph


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server that only its owner uses."""
    build()
    root = tmp_path_factory.mktemp("studio") / "social.omni"
    graph = story(root)
    graph.mutate(
        "query add($text: String) { insert Post { slug: 'markup', text: $text, "
        'created: datetime("2025-06-02T10:00:00Z") } }'.replace("'", '"'),
        {"text": MARKUP},
        actor=OWNER,
        message=MARKUP,
    )
    specs = (
        GraphSpec("default", str(root), (SOCIAL / "queries.gq",)),
        GraphSpec("big", str(big_graph(root.with_name("big.omni")))),
        GraphSpec("crowd", str(crowd(root.with_name("crowd.omni")))),
        GraphSpec("empty", og.init(root.with_name("empty.omni"), SOCIAL / "schema.pg").uri),
    )
    with serving(*specs, environment={}, studio=True, owner=OwnerSession(OWNER)) as live:
        yield live


BIG_NODES = 200_000


def big_graph(root: Path) -> Path:
    """A ring of people who know the next one, and some of whom know many."""
    schema = "node Person { handle: String @key  name: String @index } edge Knows: Person -> Person"
    handles = [f"p{number}" for number in range(BIG_NODES)]
    people = pa.table({"handle": handles, "name": [f"Person {each[1:]}" for each in handles]})
    sources = [*handles, *("p7" for _ in range(300))]
    targets = [*handles[1:], "p0", *handles[100:400]]
    knows = pa.table({"src": sources, "dst": targets})
    og.init(root, schema).load(
        frames={"Person": people, "Knows": knows}, mode="append", engine="local"
    )
    return root


@pytest.fixture(scope="package")
def token(live: Live) -> str:
    """The token of the owner: the code is exchanged once."""
    owner = live.server.config.owner
    assert owner is not None
    given = owner.exchange(owner.code)
    assert given is not None
    return given


_browser = ExitStack()


@pytest.fixture(scope="package")
def browser() -> Browser:
    return _browser.enter_context(browsing())


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Close the browser behind the last test of it.

    Playwright's event loop runs in this thread, where other tests have to run theirs.
    """
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _browser.close()


@contextmanager
def watching(context: BrowserContext, live: Live) -> Iterator[Studio]:
    """A page whose requests and errors are kept; errors fail the test."""
    page = context.new_page()
    studio = Studio(page, live)
    page.on("request", lambda request: studio.requests.append(request.url))
    page.on("pageerror", lambda error: studio.problems.append(str(error)))
    page.on(
        "console",
        lambda message: (
            studio.problems.append(message.text) if "Content Security" in message.text else None
        ),
    )
    yield studio
    assert studio.problems == []


def signed_in(context: BrowserContext, token: str) -> None:
    """Let every page of a context begin with a token, as after a sign-in."""
    context.add_init_script(f"sessionStorage.setItem('omnigraph.token', '{token}')")


@pytest.fixture
def studio(browser: Browser, live: Live, token: str) -> Iterator[Studio]:
    """The page of somebody who is signed in."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    signed_in(context, token)
    with watching(context, live) as studio:
        yield studio
    context.close()

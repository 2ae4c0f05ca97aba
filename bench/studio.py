"""Studio in a real browser: how soon a page is there, and how a crowded canvas moves.

`omnigraph studio` is started as users start it, and a browser without a window looks at it: the one
that the tests use, in `tests/support/browser.py`. It draws without a graphics card, so a number of
frames says little by itself; beside it stands that of an empty canvas in the same browser.
"""

from __future__ import annotations

import gzip
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from playwright.sync_api import BrowserContext, Page

import omnigraph as og
from bench.figure import Figure, Target, Versus
from bench.scale import Scale
from omnigraph.server.studio import FILES
from studio.build import build
from tests.support.browser import browsing, wait_until

SEED = None
NODES, EDGES = 2_000, 5_000
PAINT_MS = Target(1_500, "at most")
DRAW_MS = Target(2_000, "at most")
FRAMES = Target(30, "at least")
SIZE_KB = Target(1_500, "at most")
ROUNDS = {Scale.SMALL: 3, Scale.FULL: 5, Scale.LARGE: 5}

# When the page has its heading, and when all nodes and edges were drawn, since the navigation.
WATCH = f"""
window.seen = {{}};
(function look() {{
    const now = performance.now();
    if (document.querySelector('#main h1')) window.seen.paint ??= now;
    const drawn = window.studioCanvas;
    if (drawn && drawn.nodes().length === {NODES} && drawn.edges().length === {EDGES}) {{
        // The canvas is drawn in the frame after its elements came, and seen in the next one.
        requestAnimationFrame(() => requestAnimationFrame(() => {{
            window.seen.draw ??= performance.now();
        }}));
    }}
    requestAnimationFrame(look);
}})();
"""
# A drag of the empty ground by a mouse, one move a frame; gives the frames of a second.
PAN = """async (frames) => {
    const host = document.querySelector('.canvas');
    const { left, top } = host.getBoundingClientRect();
    const send = (target, kind, x, y) => target.dispatchEvent(new MouseEvent(kind, {
        clientX: left + x, clientY: top + y, bubbles: true, buttons: 1, button: 0, view: window,
    }));
    send(host.querySelector('canvas') ?? host, 'mousedown', 6, 6);
    const began = performance.now();
    for (let at = 1; at <= frames; at++) {
        send(window, 'mousemove', 6 + at * 2, 6 + at);
        await new Promise(requestAnimationFrame);
    }
    const seconds = (performance.now() - began) / 1000;
    send(window, 'mouseup', 6 + frames * 2, 6 + frames);
    return frames / seconds;
}"""
PAN_FRAMES = 90


def run(scale: Scale) -> Iterator[Figure]:
    """Serve a graph, and look at it."""
    build()
    with TemporaryDirectory() as folder:
        root = new_graph(Path(folder) / "crowd.omni")
        with served(root) as address, browsing() as browser:
            context = browser.new_context(viewport={"width": 1280, "height": 800})
            sign_in(context, address)
            yield from measure(context, address, ROUNDS[scale])
    size = sum(len(gzip.compress(path.read_bytes())) for path in FILES.iterdir())
    yield Figure("size of the page, compressed", size / 1000, "kB", SIZE_KB)


def measure(context: BrowserContext, address: str, rounds: int) -> Iterator[Figure]:
    """The figures of one browser, as medians of some rounds."""
    place = address.partition("#")[0]
    everybody = ",".join(f"Person:p{number}" for number in range(NODES))
    paints, draws, crowded, empty = [], [], [], []
    for _ in range(rounds):
        page = opened(context, f"{place}#/default/explore")
        paints.append(seen(page, "paint"))
        page.close()
        page = opened(context, f"{place}#/default/explore?show={everybody}")
        draws.append(seen(page, "draw"))
        wait_until(page, "studioCanvas.scratch('layout').isSettled")
        crowded.append(page.evaluate(PAN, PAN_FRAMES))
        page.evaluate("void studioCanvas.elements().remove()")
        empty.append(page.evaluate(PAN, PAN_FRAMES))
        page.close()
    what = f"{NODES:,} nodes and {EDGES:,} edges"
    yield Figure("first useful paint", statistics.median(paints), "ms", PAINT_MS)
    yield Figure(f"first draw of {what}", statistics.median(draws), "ms", DRAW_MS)
    frames = statistics.median(crowded)
    yield Figure(f"frames, moving {what}", frames, "per second", FRAMES)
    beside = Versus("an empty canvas", statistics.median(empty))
    yield Figure(f"the same, to an empty canvas of {what}", frames, "per second", versus=beside)


def new_graph(root: Path) -> Path:
    """People of whom each knows two or three others."""
    schema = "node Person { handle: String @key } edge Knows: Person -> Person"
    sources = [f"p{number % NODES}" for number in range(EDGES)]
    targets = [f"p{(number * 7 + number // NODES * 31 + 1) % NODES}" for number in range(EDGES)]
    people = pa.table({"handle": [f"p{number}" for number in range(NODES)]})
    frames = {"Person": people, "Knows": pa.table({"src": sources, "dst": targets})}
    og.init(root, schema).load(frames=frames, mode="append", engine="local")
    return root


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address that `omnigraph studio` prints, while it runs."""
    command = [sys.executable, "-m", "omnigraph.cli", "studio", str(root), "--no-open", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"`omnigraph studio` ended with {process.wait()}")
            text += line
        try:
            yield str(json.loads(text)["address"])
        finally:
            process.terminate()


def sign_in(context: BrowserContext, address: str) -> None:
    """Exchange the code of the address, once; every page of the context has the token then."""
    page = opened(context, address)
    seen(page, "paint")
    token = page.evaluate("sessionStorage.getItem('omnigraph.token')")
    context.add_init_script(f"sessionStorage.setItem('omnigraph.token', {json.dumps(token)})")
    page.close()


def opened(context: BrowserContext, address: str) -> Page:
    """A new page that watches itself."""
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    return page


def seen(page: Page, what: str) -> float:
    """How many milliseconds after the navigation something was there."""
    wait_until(page, f"window.seen.{what} !== undefined")
    found: float = page.evaluate(f"window.seen.{what}")
    return found

"""How the pages look, and that everybody can use them: axe, the keyboard, pictures."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import expect

from tests.studio.conftest import OWNER, Studio
from tests.studio.test_pages import STATES
from tests.support.browser import axe_source

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("studio")]

PICTURES = Path(__file__).parents[2] / "docs" / "pictures" / "studio"
WRITE_VARIABLE = "OMNIGRAPH_WRITE_PICTURES"
"""With `1`, the pictures of the documentation are written anew: `make pictures`."""
KEPT = {
    *("explore-light", "explore-dark", "query-light", "schema-light", "branches-light"),
    *("compare-dark", "reviews-light", "entity-light-narrow", "health-light"),
}
"""Those that the documentation shows."""
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = {"": 1280, "-narrow": 390}
WAY = "Person:ada,Person:bruno,Person:chiara,Person:dmitri,Group:north-face,Post:first-ascent"
SHOWN = {
    **STATES,
    "explore": {"show": f"{WAY},Post:me-too,Post:rain,Person:elif", "select": "Person:ada"},
    "query": {**STATES["query"], "view": "table"},
    "compare": {"source": "review/june"},
    "branches": {},
    "reviews": {},
}


def serious(studio: Studio) -> list[tuple[str, str, str]]:
    """What axe finds that keeps somebody from using the page: rule, theme, element."""
    run = "axe.run({resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa']})"
    looked: dict[str, list[dict[str, Any]]] = studio.page.evaluate(run)
    assert looked["passes"], "axe has looked at something"
    found = looked["violations"]
    return [
        (each["id"], studio.page.url.partition("#")[2], each["nodes"][0]["html"][:200])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def test_c_stu_009_and_012_axe_finds_nothing_serious_and_every_page_has_its_pictures(
    studio: Studio, tmp_path: Path
):
    page = studio.page
    folder = PICTURES if os.environ.get(WRITE_VARIABLE) == "1" else tmp_path
    folder.mkdir(exist_ok=True)
    source, problems, made = axe_source(), [], set()
    graph = studio.live.graph()
    load = next(each for each in graph.list_commits() if each.message == "First people")
    found = {
        "branches": {"commit": load.graph_commit_id},
        "reviews": {"review": graph.reviews.list()[0].id},
    }
    for name, fields in SHOWN.items():
        studio.go(name, **fields, **found.get(name, {}))
        expect(studio.main()).to_be_visible()
        if name in ("explore", "query"):
            expect(
                page.get_by_role("region", name="Nodes on the canvas").or_(
                    page.get_by_role("region", name="Rows")
                )
            ).to_be_visible()
        page.evaluate(source)  # a script of the test, not of the page: its policy has no say
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            for suffix, width in WIDTHS.items():
                page.set_viewport_size({"width": width, "height": 800})
                picture = f"{name}-{theme}{suffix}"
                if name == "health":  # the command of its findings names a folder of this run
                    page.get_by_text("omnigraph index --store").evaluate_all(
                        "all => all.forEach(e => e.textContent = 'omnigraph index --store g.omni')"
                    )
                if folder is tmp_path or picture in KEPT:
                    page.screenshot(path=folder / f"{picture}.png", animations="disabled")
                made.add(picture)
                overflow = "document.documentElement.scrollWidth - innerWidth"
                assert page.evaluate(overflow) <= 0, f"{picture} is wider than the window"
            page.set_viewport_size({"width": 1280, "height": 800})
            problems += [(theme, *each) for each in serious(studio)]
    assert problems == []
    assert len(made) == len(SHOWN) * len(THEMES) * len(WIDTHS)
    assert made >= KEPT


def test_c_stu_012_the_documentation_shows_the_pictures_that_the_tests_make():
    assert {path.stem for path in PICTURES.glob("*.png")} == KEPT
    for path in PICTURES.glob("*.png"):
        width, height = struct.unpack(">II", path.read_bytes()[16:24])
        assert (width, height) == (390 if "narrow" in path.stem else 1280, 800)
        assert path.stat().st_size < 150_000
    root = PICTURES.parents[2]
    pages = [root / "docs" / "guide" / "studio.md", root / "README.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert {name for name in KEPT if f"studio/{name}.png" in text} == KEPT


def test_c_stu_009_a_branch_is_compared_and_a_node_expanded_by_keyboard_alone(studio: Studio):
    page = studio.page
    studio.go("explore", show="Person:ada")
    expect(page.get_by_role("region", name="Nodes on the canvas")).to_be_visible()
    press_until(studio, "Tab", "Select Ada Moreau")
    page.keyboard.press("Space")
    expect(page.get_by_role("region", name="Selected node")).to_be_visible()
    press_until(studio, "Shift+Tab", "→ MemberOf (1)")
    page.keyboard.press("Enter")
    table = page.get_by_role("region", name="Nodes on the canvas")
    expect(table.get_by_role("row")).to_have_count(1 + 2)
    press_until(studio, "Shift+Tab", "Compare")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Compare")).to_be_visible()
    press_until(studio, "Tab", "Graph")
    page.keyboard.press("Enter")
    expect(page.get_by_role("img", name="Graph of")).to_be_visible()


def test_c_stu_009_a_review_from_its_opening_to_its_merge_by_keyboard_alone(studio: Studio):
    page, graph = studio.page, studio.live.graph()
    move = 'query move($home: String) { update Person set { home: $home } where handle = "elif" }'
    (was,) = graph.query('query q { match { $p: Person { handle: "elif" } } return { $p.home } }')
    graph.create_branch("keys", actor=OWNER)
    graph.mutate(move, {"home": "Riga"}, branch="keys", actor=OWNER)
    graph.mutate(move, {"home": "Brno"}, actor=OWNER)
    studio.go("reviews")
    studio.main()
    press_until(studio, "Tab", "Ask to merge a branch")
    page.keyboard.press("Enter")
    press_until(studio, "Tab", "Branch to merge")
    page.keyboard.type("keys")
    press_until(studio, "Tab", "Title")
    page.keyboard.type("Elif moves")
    press_until(studio, "Tab", "Open")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Elif moves open")
    expect(page.get_by_role("region", name="Conflicts")).to_be_visible()
    press_until(studio, "Tab", "Comment")
    page.keyboard.type("Riga it is")
    press_until(studio, "Tab", "Send comment")
    page.keyboard.press("Space")
    expect(page.get_by_role("region", name="Comments")).to_contain_text("act-ana")
    press_until(studio, "Tab", "By property")
    page.keyboard.press("Enter")
    press_until(studio, "Tab", "take keys for home")
    page.keyboard.press("Space")
    expect(page.get_by_role("region", name="Conflicts")).to_contain_text("Everything is settled")
    press_until(studio, "Tab", "Approve")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Verdicts")).to_contain_text("act-ana approved")
    press_until(studio, "Shift+Tab", "Merge into main")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Elif moves merged")
    (now,) = graph.query('query q { match { $p: Person { handle: "elif" } } return { $p.home } }')
    assert list(now.values()) == ["Riga"]
    graph.mutate(move, {"home": next(iter(was.values()))}, actor=OWNER)
    graph.delete_branch("keys", actor=OWNER)


NAMED = """() => {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    if (!at) return '';
    return at.getAttribute('aria-label') ?? at.labels?.[0]?.innerText ?? at.innerText ?? '';
}"""


def press_until(studio: Studio, key: str, name: str) -> None:
    """Press a key until the focus is on what has this name; everything in between is passed."""
    for _ in range(80):
        studio.page.keyboard.press(key)
        if studio.page.evaluate(NAMED).strip() == name:
            return
    raise AssertionError(f"{key} does not reach {name}")

"""The pages hang together: reachable, linked, titled, and true about the Makefile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.tables import check_all

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP_PAGES = sorted(ROOT.glob("*.md"))
PAGES = [*TOP_PAGES, *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.:/~])/(?:home|mnt|opt|private|root|srv|tmp|Users|var|work)/")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Target and fragment of each link that stays in the repository."""
    for target in LINK.findall(CODE_SPAN.sub("code", prose(page))):
        if not re.match(r"[a-z]+:", target):
            path, _, fragment = target.partition("#")
            yield (page.parent / path).resolve() if path else page, fragment


@cache
def anchors(page: Path) -> set[str]:
    """The fragments a page offers: its headings in lower case, words joined by dashes."""
    titles = (re.sub(r"[^\w\- ]", "", title).strip() for title in HEADING.findall(prose(page)))
    return {title.lower().replace(" ", "-") for title in titles}


def commands(page: Path) -> set[str]:
    """Every make target that a page names in code."""
    text = page.read_text(encoding="utf-8")
    code = "\n".join(FENCE.findall(text) + CODE_SPAN.findall(FENCE.sub("", text)))
    return set(re.findall(r"\bmake ([a-z][a-z-]*)", code))


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def test_every_page_is_reachable_from_the_index():
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += [to for to, _ in links(page) if to.suffix == ".md" and to.is_file()]
    assert [name_of(page) for page in DOCS.rglob("*.md") if page not in seen] == []


def test_every_relative_link_resolves():
    def check(page: Path) -> None:
        for target, fragment in links(page):
            assert target.exists(), f"{name_of(page)} links to {target.name}, which does not exist"
            assert target.is_relative_to(ROOT), f"{name_of(page)} links out of the repository"
            if fragment:
                assert fragment in anchors(target), f"{target.name} has no heading #{fragment}"

    check_all(PAGES, check)


def test_each_page_starts_with_its_only_title():
    def check(page: Path) -> None:
        assert page.read_text(encoding="utf-8").startswith("# ")
        assert len(re.findall(r"^# ", prose(page), re.MULTILINE)) == 1

    check_all(PAGES, check)


def test_pages_name_only_make_targets_that_exist():
    known = targets()

    def check(page: Path) -> None:
        assert commands(page) <= known

    check_all(PAGES, check)


def test_pages_hold_no_path_of_a_machine():
    def check(page: Path) -> None:
        text = page.read_text(encoding="utf-8")
        assert str(ROOT) not in text
        assert MACHINE_PATH.search(text) is None

    check_all(PAGES, check)


def test_contributing_explains_every_make_target():
    assert targets() - {"help"} == commands(ROOT / "CONTRIBUTING.md")


def test_readme_names_the_two_first_commands():
    assert {"demo", "test"} <= commands(ROOT / "README.md")

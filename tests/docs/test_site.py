"""The site: it is built strictly and without the network, and it has every page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from docs.hooks import PAPERS

# One worker builds the site.
pytestmark = pytest.mark.xdist_group("site")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["'](?:https?:)?//"""
    r"""|<link[^>]*\shref=["'](?:https?:)?//|url\(["']?(?:https?:)?//"""
)
BUILD = """
import socket, sys

def refuse(*_):
    raise AssertionError("the site asks for something on the network")

socket.socket.connect = socket.getaddrinfo = refuse
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert built.stderr == ""
    return folder


def in_navigation() -> Iterator[str]:
    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for each in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(each)

    yield from pages(YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"])


def test_every_page_is_in_the_navigation_once():
    written = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(in_navigation()) == sorted([*written, *PAPERS.values()])


def test_every_paper_at_the_root_is_a_page():
    papers = {paper for paper in PAPERS if "/" not in paper}
    assert {page.name for page in ROOT.glob("*.md")} == {*papers, "README.md"}


def test_every_page_is_built(site: Path):
    for page in in_navigation():
        html = (site / page).with_suffix(".html").read_text(encoding="utf-8")
        assert "<h1" in html
    assert (site / "search" / "search_index.json").is_file()


def test_a_reader_fetches_nothing_from_elsewhere(site: Path):
    files = [file for ending in ("html", "css") for file in site.rglob(f"*.{ending}")]
    assert len(files) > 50
    fetching = [file.name for file in files if FETCHED.search(file.read_text(encoding="utf-8"))]
    assert fetching == []


def test_sources_of_generated_pages_are_not_published(site: Path):
    assert [file.name for file in site.rglob("*") if file.suffix in (".py", ".toml")] == []


def test_links_to_papers_lead_to_their_pages_and_links_to_sources_are_texts(site: Path):
    dependencies = (site / "design" / "dependencies.html").read_text(encoding="utf-8")
    assert 'href="../project/contributing.html#changing-dependencies"' in dependencies
    conformance = (site / "conformance" / "branching.html").read_text(encoding="utf-8")
    assert "tests/branching/" in conformance
    assert 'href="../../tests' not in conformance


def test_our_languages_have_colours(site: Path):
    quickstart = (site / "guide" / "quickstart.html").read_text(encoding="utf-8")
    assert '<span class="k">node</span> <span class="nc">Person</span>' in quickstart
    assert '<span class="nv">$me</span>' in quickstart
    assert "-&gt; <span" in quickstart

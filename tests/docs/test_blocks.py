"""What the pages show happens: every block of code is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import ROOT, RUN, blocks_of, run_page

GUIDE = ROOT / "docs" / "guide"
ELSEWHERE = {
    GUIDE / "client.md": "tests/client/test_guide.py",
    GUIDE / "loading.md": "tests/pipeline/test_guide.py",
    GUIDE / "mcp.md": "tests/client/test_guide.py",
    GUIDE / "pipelines.md": "tests/pipeline/test_guide.py",
    GUIDE / "server.md": "tests/server/test_guide.py",
    GUIDE / "spark-queries.md": "tests/engines/spark/test_engine.py",
    GUIDE / "streams.md": "tests/pipeline/test_guide.py",
}
"""Pages that need a server or Spark, and the test that runs them beside one."""

GENERATED = "<!-- Written by `make docs` from "
WRITTEN = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    if GENERATED not in page.read_text(encoding="utf-8")
)
SHOWING = [page for page in WRITTEN if any(block.language in RUN for block in blocks_of(page))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in SHOWING if page not in ELSEWHERE], ids=name_of)
def test_the_page_shows_what_happens(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run_page(page, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items(), ids=map(name_of, ELSEWHERE))
def test_the_other_pages_are_run_by_the_test_that_is_named(page: Path, test: str):
    assert page in SHOWING
    assert page.name in (ROOT / test).read_text(encoding="utf-8")

"""Generated pages are what the code says today."""

from __future__ import annotations

from docs.generate import pages


def test_generated_pages_are_current():
    stale = [path.name for path, text in pages().items() if path.read_text("utf-8") != text]
    assert stale == [], "run `make docs` and commit the result"

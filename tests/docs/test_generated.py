"""Generated pages are what the code says today."""

from __future__ import annotations

from docs.generate import pages


def test_generated_pages_are_current():
    for path, text in pages().items():
        kept = path.read_text("utf-8").splitlines()
        assert kept == text.splitlines(), f"{path.name}: run `make docs` and commit the result"

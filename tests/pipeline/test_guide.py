"""The pages about bulk loading, streams and pipelines show what really happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import ROOT, run_page

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_the_page_about_loading_is_true(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    page = ROOT / "docs" / "guide" / "loading.md"
    script = run_page(page, tmp_path, monkeypatch, capsys)
    assert script.outputs == ["spark 1\n", "2\n", "4\n"]


def test_the_page_about_streams_is_true(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run_page(ROOT / "docs" / "guide" / "streams.md", tmp_path, monkeypatch, capsys)


def test_the_page_about_pipelines_is_true(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    run_page(ROOT / "docs" / "guide" / "pipelines.md", tmp_path, monkeypatch, capsys)

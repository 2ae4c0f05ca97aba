"""The suite of Studio: it measures what its figures are called; never whether it is fast."""

from __future__ import annotations

import pytest

from bench import studio
from bench.scale import Scale

pytestmark = [pytest.mark.long, pytest.mark.slow]


def test_the_suite_of_studio_measures_paint_drawing_frames_and_size(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(studio, "ROUNDS", {Scale.SMALL: 1})
    monkeypatch.setattr(studio, "PAN_FRAMES", 5)
    figures = list(studio.run(Scale.SMALL))
    assert [figure.unit for figure in figures] == ["ms", "ms", "per second", "per second", "kB"]
    assert all(figure.value > 0 for figure in figures)
    assert sum(figure.versus is not None for figure in figures) == 1
    assert sum(figure.target is not None for figure in figures) == 4

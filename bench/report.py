"""Figures as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from bench.record import Figure, SuiteRecord, machine


def report(records: Sequence[SuiteRecord]) -> Iterator[str]:
    """The machine, then the figures of every suite, one line each."""
    yield from machine_lines()
    for record in records:
        yield ""
        yield record.suite
        yield from figure_lines(record.figures)


def machine_lines() -> Iterator[str]:
    """What the figures were measured on, and whether that was at rest."""
    where = machine()
    yield f"{where['processor']}, {where['cores']} cores, Python {sys.version.split()[0]}"
    if where["load"] is not None and where["load"] > 1:
        yield f"the machine is busy (load {where['load']:g}): expect worse figures than it can do"


def figure_lines(figures: Sequence[Figure]) -> Iterator[str]:
    """Names, values and verdicts, in columns."""
    width = max((len(figure.name) for figure in figures), default=0)
    for figure in figures:
        yield f"  {figure.name:<{width}}  {_shown(figure)}".rstrip()


def _shown(figure: Figure) -> str:
    value = f"{figure.value:,.0f}" if figure.value >= 100 else f"{figure.value:.3g}"
    text = f"{value:>10} {figure.unit:<10}"
    if figure.target is not None:
        verdict = "pass" if figure.is_met else "MISS"
        text += f"  {verdict}: {figure.target.direction} {figure.target.bound:g}"
    return text + (f"  ({figure.note})" if figure.note else "")

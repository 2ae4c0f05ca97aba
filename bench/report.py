"""Figures as tables for people: aligned text for a terminal, Markdown for pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.circumstances import Circumstances
from bench.figure import Figure
from bench.record import Record, SuiteRecord

COLUMNS = ("What", "Omnigraph", "Compared with", "Ratio", "Target")
BUSY = "the machine was busy when this began: expect worse figures than it can do"
TIMES = {"ns", "µs", "ms", "s"}
PAGE = """\
# Figures at {scale} scale

<!-- Written by `make bench` from {scale}.json: run it again instead of editing. -->

{table}"""


def text_report(suites: Sequence[SuiteRecord]) -> Iterator[str]:
    """Every suite for a terminal: circumstances, figures, verdict."""
    for suite in suites:
        yield ""
        yield f"{suite.suite}: {suite.verdict}"
        yield f"  {where(suite.circumstances)}"
        if suite.circumstances.was_busy:
            yield f"  {BUSY}"
        yield from _aligned([(*cells(figure), figure.note) for figure in suite.figures])


def markdown_page(record: Record) -> str:
    """A page with every figure of a record."""
    parts: list[str] = []
    for suite in record.suites.values():
        rows = [cells(figure) for figure in suite.figures]
        parts.append(f"## {suite.suite}\n\n{where(suite.circumstances)}. {suite.verdict}.\n")
        parts.append("\n".join(markdown_table(COLUMNS, rows)) + "\n")
    return PAGE.format(scale=record.scale, table="\n".join(parts))


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table, line by line."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """A figure in words: one cell for each of the columns."""
    versus, ratio = figure.versus, figure.ratio
    return (
        figure.name,
        f"{number(figure.value)} {figure.unit}".rstrip(),
        f"{versus.name}: {number(versus.value)} {figure.unit}" if versus else "",
        "" if ratio is None else ratio_text(figure, ratio),
        target_text(figure),
    )


def ratio_text(figure: Figure, ratio: float) -> str:
    """A ratio that says which way it goes."""
    assert figure.versus is not None
    if figure.unit not in TIMES:
        return f"{number(ratio)}× as much"
    is_speed = figure.versus.ratio == "theirs to ours"
    return f"{number(ratio)}× as {'fast' if is_speed else 'long'}"


def target_text(figure: Figure) -> str:
    """What was to be reached, and whether it was."""
    target = figure.target
    if target is None:
        return ""
    unit = figure.unit if figure.versus is None else "×"
    bound = f"{target.direction} {target.bound:g}{'' if unit == '×' else ' '}{unit}".rstrip()
    return f"{bound}: {'met' if figure.is_met else 'MISSED'}"


def where(found: Circumstances) -> str:
    """Circumstances in one line."""
    machine, versions = found.machine, found.versions
    seed = "" if found.seed is None else f", seed {found.seed}"
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return (
        f"{found.date}, commit {found.commit or 'unknown'}{seed}, {found.seconds:.0f} s on"
        f" {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['os']}, load {machine['load_before']} before; {libraries}"
    )


def number(value: float) -> str:
    """Three significant digits, and no fewer before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()

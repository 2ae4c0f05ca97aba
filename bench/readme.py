"""The comparison in the README: made from a record, never typed.

It shows every comparison with an engine of another make that has a target, and beside it the peer
that is hardest to beat, where that is another one. What misses its target stays in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.figure import Figure
from bench.ldbc.reads import MEASURED
from bench.record import Record, SuiteRecord
from bench.report import BUSY, cells, markdown_table

START, END = "<!-- figures:start -->", "<!-- figures:end -->"
COLUMNS = ("What", "Omnigraph", "Peer", "Ratio", "Target")
SIDE_BY_SIDE = "ldbc"
"""A suite of many questions, which are shown in a table of their own with a line for each."""


def updated(text: str, record: Record) -> str:
    """A page with the comparison between its two marks made anew."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the page has no {START} … {END}")
    return f"{before}{START}\n{comparison(record)}\n{END}{after}"


def comparison(record: Record) -> str:
    """The table, where it was measured, and all that missed its target anywhere."""
    suites = list(record.suites.values())
    rows = [(f"{suite.suite}: {first}", *rest) for suite in suites for first, *rest in _rows(suite)]
    lines = [_measured(record), "", *markdown_table(COLUMNS, rows), "", *_outcome(suites)]
    if SIDE_BY_SIDE in record.suites:
        lines += ["", *_side_by_side(record.suites[SIDE_BY_SIDE])]
    return "\n".join(lines)


def _side_by_side(suite: SuiteRecord) -> Iterator[str]:
    """A line for each question, with the time of every engine and how many times ours it is."""
    questions: dict[str, dict[str, Figure]] = {}
    for figure in suite.figures:
        if figure.versus is not None and figure.name in MEASURED:
            questions.setdefault(figure.name, {})[figure.versus.name] = figure
    engines = list(dict.fromkeys(engine for found in questions.values() for engine in found))
    rows = []
    for name, found in questions.items():
        ours = next(iter(found.values()))
        beside = (cells(found[engine]) if engine in found else None for engine in engines)
        times = [f"{each[2].partition(': ')[2]} ({each[3]})" if each else "" for each in beside]
        rows.append((name, MEASURED[name], cells(ours)[1], *times))
    yield (
        "The reads and updates of the LDBC Social Network Benchmark, on data of our own generator;"
        " this is no official result:"
    )
    yield ""
    yield from markdown_table(("Name", "What it does", "Omnigraph", *engines), rows)
    yield ""
    yield from (
        f"{each.value:.0f} {each.unit} reads are {each.note}."
        for each in suite.figures
        if each.name == "reads"
    )


def _rows(suite: SuiteRecord) -> Iterator[tuple[str, ...]]:
    compared = [
        figure
        for figure in suite.figures
        if figure.versus and figure.versus.is_engine and figure.name not in MEASURED
    ]
    for figure in compared:
        rivals = [other for other in compared if other.name == figure.name]
        if figure.target is not None or figure is _hardest(rivals):
            yield cells(figure)


def _hardest(figures: Sequence[Figure]) -> Figure:
    """The comparison in which we look worst."""

    def advantage(figure: Figure) -> float:
        assert figure.versus is not None and figure.ratio is not None
        return figure.ratio if figure.versus.ratio == "theirs to ours" else 1 / figure.ratio

    return min(figures, key=advantage)


def _measured(record: Record) -> str:
    """Machines, versions and dates; more than one where suites ran apart."""
    found = [suite.circumstances for suite in record.suites.values()]
    machines = dict.fromkeys(
        f"{each.machine['processor']}, {each.machine['cores']} cores,"
        f" {each.machine['memory_gib']} GiB, {each.machine['os']}"
        for each in found
    )
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in each.versions.items() if version)
        for each in found
    )
    dates = sorted({each.date for each in found})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"
    return f"Measured {when} on {'; '.join(machines)} ({'; '.join(versions)})."


def _outcome(suites: Sequence[SuiteRecord]) -> Iterator[str]:
    targets = sum(figure.target is not None for suite in suites for figure in suite.figures)
    missed = [(suite, figure) for suite in suites for figure in suite.missed]
    yield f"Of {targets} targets in all suites {targets - len(missed)} are met."
    if missed:
        names = ", ".join(f"{suite.suite}: {figure.name}" for suite, figure in missed)
        yield f"Missed: {names}."
    busy = [suite.suite for suite in suites if suite.circumstances.was_busy]
    if busy:
        yield f"In {', '.join(busy)}, {BUSY}."
    for suite in suites:
        if suite.failure is not None:
            yield f"The suite {suite.suite} failed: {suite.failure}."

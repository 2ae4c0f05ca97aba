"""Queries: the same questions to Omnigraph, Kuzu, DuckDB and bare Lance, on the same graph.

`python -m bench.queries` prints a table of ratios. As the suite `queries` of `python -m bench` it
leaves a record like every other. Answers are compared before anything is measured, and a difference
ends the run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.contest import Effort, Outcome, contests, note
from bench.peer_duckdb import DuckDb, duckdb_database
from bench.peer_kuzu import Kuzu
from bench.peer_lance import BareLance
from bench.peer_omnigraph import Omnigraph
from bench.peers import Peer
from bench.query_processes import measure_processes
from bench.questions import QUESTIONS, Question
from bench.record import Figure, SuiteRecord, Target, document
from bench.report import figure_lines, machine_lines
from bench.social import SIZES, generate
from bench.social_files import CACHE, SocialFiles

FULL = Effort(parameters=24, rounds=7, seconds_max=60)
QUICK = Effort(parameters=20, rounds=3, seconds_max=3)
FULL_SIZE, QUICK_SIZE = "200k", "20k"

OURS, RIVAL = Omnigraph.name, Kuzu.name


def run(*, quick: bool = False) -> list[Figure]:
    """Measure everything about queries."""
    files = SocialFiles(generate(SIZES[QUICK_SIZE if quick else FULL_SIZE]), CACHE)
    outcomes, processes = measure(files, list(QUESTIONS.values()), QUICK if quick else FULL)
    return [*figures(outcomes), *processes]


def measure(
    files: SocialFiles, questions: Sequence[Question], effort: Effort, *, processes: bool = True
) -> tuple[list[Outcome], list[Figure]]:
    """The outcome of every question, and the figures of whole processes."""
    note(f"{files.social.size.persons:,} persons, {files.social.size.knows:,} edges")
    peers = open_peers(files, questions)
    try:
        outcomes = contests(questions, peers, files.social, effort)
    finally:
        for peer in peers:
            peer.close()
    return outcomes, measure_processes(files) if processes else []


def open_peers(files: SocialFiles, questions: Sequence[Question]) -> list[Peer]:
    """All engines, on the same rows. What is missing on disk is made first."""
    note("opening the databases, which the first time takes long: Kuzu's vector index above all")
    return [
        Kuzu(files, questions),
        DuckDb(duckdb_database(files)),
        BareLance(files.graph),
        Omnigraph(files.graph),
    ]


def figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Times, and ratios of peers to us, the one against Kuzu with its target."""
    for outcome in outcomes:
        question = outcome.question
        for name, seconds in outcome.seconds.items():
            yield Figure(f"{question.name}, {name}", seconds * 1e3, "ms")
        for name in outcome.seconds:
            ratio = outcome.times(OURS, name)
            if name != OURS and ratio is not None:
                target = Target(question.times, "at least") if name == RIVAL else None
                yield Figure(f"{question.name}, times {name}", ratio, "×", target)


# --- the command ----------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what was asked for and print a table; returns the exit code."""
    options = _parser().parse_args(argv)
    effort = QUICK if options.quick else FULL
    size = SIZES[options.scale or (QUICK_SIZE if options.quick else FULL_SIZE)]
    questions = [QUESTIONS[name] for name in options.classes or QUESTIONS]
    files = SocialFiles(generate(size), options.cache)
    outcomes, processes = measure(files, questions, effort, processes=not options.no_processes)
    found = [*figures(outcomes), *processes]
    if options.json:
        record = document([SuiteRecord("queries", found)])
        print(json.dumps(record, indent=2, ensure_ascii=False))
    else:
        title = f"{size.persons:,} persons and {size.knows:,} edges, milliseconds:"
        print("\n".join([*machine_lines(), "", title, *table(outcomes)]))
        print("\n".join(["", *figure_lines(processes)]))
    missed = any(figure.is_met is False for figure in found)
    return 1 if options.check and missed else 0


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """One line per question: our time, each peer's time and how many times ours it is."""
    peers = list(dict.fromkeys(name for outcome in outcomes for name in outcome.seconds))
    peers = [name for name in peers if name != OURS]
    yield f"  {'':<16}{OURS:>10}" + "".join(f"{name:>20}" for name in peers) + "  target"
    for outcome in outcomes:
        cells = [f"  {outcome.question.name:<16}{_ms(outcome.seconds.get(OURS)):>10}"]
        for name in peers:
            ratio = outcome.times(OURS, name)
            cells.append(f"{_ms(outcome.seconds.get(name)):>11}{_ratio(ratio):>9}")
        yield "".join(cells) + _verdict(outcome)


def _verdict(outcome: Outcome) -> str:
    ratio, wanted = outcome.times(OURS, RIVAL), outcome.question.times
    if ratio is None:
        return ""
    return f"  {'pass' if ratio >= wanted else 'MISS'}: {RIVAL} {wanted:g}×"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g}×"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.queries", description="Measure queries against other engines."
    )
    names = ", ".join(QUESTIONS)
    parser.add_argument(
        "--classes", nargs="+", choices=QUESTIONS, metavar="CLASS", help=f"some of {names}"
    )
    parser.add_argument("--scale", choices=SIZES, help=f"size of the graph; {FULL_SIZE}")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SIZE}, and fewer rounds")
    parser.add_argument(
        "--no-processes", action="store_true", help="leave out what needs processes of its own"
    )
    parser.add_argument("--json", action="store_true", help="print records as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where databases are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Queries: the same questions to Omnigraph, Kuzu, DuckDB and bare Lance, on the same graph.

Answers are compared before anything is measured, and a difference ends the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench import social
from bench.contest import Effort, Outcome, contests
from bench.figure import Figure, Target, Versus
from bench.peer_duckdb import DuckDb, duckdb_database
from bench.peer_kuzu import Kuzu
from bench.peer_lance import BareLance
from bench.peer_omnigraph import Omnigraph
from bench.peers import Peer
from bench.progress import note
from bench.query_processes import measure_processes
from bench.questions import QUESTIONS, Chooser, Question
from bench.scale import Scale
from bench.social import SIZES, SocialGraph, generate
from bench.social_files import CACHE, SocialFiles
from omnigraph.graph import Graph
from omnigraph.model.governor import Governor

SEED = social.SEED
EFFORT = {
    Scale.SMALL: Effort(parameters=24, rounds=5, seconds_max=8),
    Scale.FULL: Effort(parameters=24, rounds=7, seconds_max=60),
    Scale.LARGE: Effort(parameters=24, rounds=7, seconds_max=60),
}
GOVERNOR_COST = Target(1.05, "at most")
GOVERNED_QUERIES = 24
GOVERNED_TURNS = 300
SIZE = {Scale.SMALL: "100k", Scale.FULL: "200k", Scale.LARGE: "1m"}


def run(scale: Scale, only: Sequence[str] = ()) -> Iterator[Figure]:
    """Measure everything about queries, or some questions alone."""
    unknown = [name for name in only if name not in QUESTIONS]
    if unknown:
        raise ValueError(f"there is no question '{unknown[0]}'; there is {', '.join(QUESTIONS)}")
    files = SocialFiles(generate(SIZES[SIZE[scale]]), CACHE)
    note(f"{files.social.size.persons:,} persons, {files.social.size.knows:,} edges")
    yield from figures(
        measure(files, [QUESTIONS[name] for name in only or QUESTIONS], EFFORT[scale])
    )
    if not only:
        yield governor_figure(Omnigraph(files.graph).graph, QUESTIONS["point"], files.social)
        yield from measure_processes(files)


def measure(files: SocialFiles, questions: Sequence[Question], effort: Effort) -> list[Outcome]:
    """The outcome of every question."""
    peers = open_peers(files, questions)
    try:
        return contests(questions, peers, files.social, effort)
    finally:
        for peer in peers:
            peer.close()


def open_peers(files: SocialFiles, questions: Sequence[Question]) -> list[Peer]:
    """All engines, on the same rows. What is missing on disk is made first."""
    note("opening the databases, which the first time takes long: Kuzu's vector index above all")
    return [
        Kuzu(files, questions),
        DuckDb(duckdb_database(files)),
        BareLance(files.graph),
        Omnigraph(files.graph),
    ]


class _NoGovernor(Governor):
    """Limits that are never looked at: the query runs as work that belongs to no query."""

    def __enter__(self) -> Governor:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def governor_figure(graph: Graph, question: Question, known: SocialGraph) -> Figure:
    """What limits cost a point query: with and without them in turns, and the best of each."""
    parameters = question.ask(Chooser(known, GOVERNED_QUERIES))
    none = _NoGovernor()

    def seconds(governor: Governor | None) -> float:
        began = time.thread_time()
        for each in parameters:
            graph.query(question.gq, each, governor=governor)
        return (time.thread_time() - began) / len(parameters)

    seconds(None)
    turns = [(seconds(None), seconds(none)) for _ in range(GOVERNED_TURNS)]
    limited, free = (min(times) * 1e6 for times in zip(*turns, strict=True))
    return Figure(
        "governor on a point query",
        limited,
        "µs",
        GOVERNOR_COST,
        versus=Versus("without limits", free),
    )


def figures(outcomes: Sequence[Outcome]) -> Iterator[Figure]:
    """Our time beside that of every peer, the one of Kuzu with its target."""
    for outcome in outcomes:
        question = outcome.question
        ours = outcome.seconds[Omnigraph.name] * 1e3
        for name, seconds in outcome.seconds.items():
            if name != Omnigraph.name:
                target = Target(question.times, "at least") if name == Kuzu.name else None
                peer = Versus(name, seconds * 1e3, "theirs to ours")
                yield Figure(question.name, ours, "ms", target, question.says, peer)

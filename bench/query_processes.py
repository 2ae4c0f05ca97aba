"""Figures of whole processes: the first query, many threads, memory, upkeep, a small cache."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench import child
from bench.contest import Mismatch
from bench.figure import Figure, Target, Versus
from bench.peer_kuzu import Kuzu, kuzu_database
from bench.peer_lance import BareLance
from bench.peer_omnigraph import Omnigraph
from bench.progress import note
from bench.questions import ONE_HOP, Chooser, Question
from bench.social import Integers, SocialGraph
from bench.social_files import SocialFiles

FIRST_RATIO = Target(1, "at least")
OVERHEAD_MS = Target(0.3, "at most")
THREADS = 16
THREADS_PER_SECOND = Target(6_000, "at least")
FIRST_ROUNDS = 5
"""How many processes of each engine are asked for their first answer."""
ADJACENCY_EDGES = 10_000_000
ADJACENCY_SECONDS = Target(5, "at most")
ADJACENCY_MB = Target(700, "at most")
UPKEEP_SHARE = 0.01
UPKEEP_RATIO = Target(0.2, "at most")
BUDGET_BYTES = 1_000_000
BUDGET_RATIO = Target(3, "at most")


def measure_processes(files: SocialFiles) -> Iterator[Figure]:
    """Every figure that needs processes of its own."""
    for measure in (_first_hop, _overhead, _threads, _adjacency, _upkeep, _budget):
        note((measure.__doc__ or "").rstrip("."))
        yield from measure(files)


def _first_hop(files: SocialFiles) -> Iterator[Figure]:
    """The first hop of a fresh process, imports aside."""
    key = files.social.keys[int(files.social.knows[0][0])].as_py()
    paths = {Omnigraph.name: files.graph, Kuzu.name: kuzu_database(files)}
    yield first_of_process(ONE_HOP, paths, {"key": key})


def first_of_process(
    question: Question, paths: Mapping[str, Path], parameters: Mapping[str, Any]
) -> Figure:
    """The first answer of fresh processes here and in Kuzu, imports aside."""
    texts = {Omnigraph.name: question.gq, Kuzu.name: question.cypher[0]}
    asked: dict[str, dict[str, Any]] = {
        engine: {
            "engine": engine,
            "path": str(path),
            "text": texts[engine],
            "parameters": dict(parameters),
        }
        for engine, path in paths.items()
    }
    # A first process tells what it had to import; the others import it before the clock starts.
    firsts = {engine: _ask("first_answer", modules=[], **asked[engine]) for engine in asked}
    if len({first["rows"] for first in firsts.values()}) > 1:
        raise Mismatch(f"the first answer to '{question.name}' differs between engines")
    taken: dict[str, list[float]] = {engine: [] for engine in asked}
    for _ in range(FIRST_ROUNDS):
        for engine, arguments in asked.items():
            answer = _ask("first_answer", modules=firsts[engine]["modules"], **arguments)
            taken[engine].append(answer["seconds"])
    ours, theirs = (statistics.median(taken[name]) for name in (Omnigraph.name, Kuzu.name))
    kuzu = Versus(Kuzu.name, theirs * 1e3, "theirs to ours")
    name = f"first {question.name} of a process"
    return Figure(name, ours * 1e3, "ms", FIRST_RATIO, "imports aside", kuzu)


def _overhead(files: SocialFiles) -> Iterator[Figure]:
    """A point query without its data access."""
    answer = _ask(
        "overhead", path=str(files.graph), persons=str(files.persons), keys=_keys(files.social, 400)
    )
    yield Figure(
        "overhead of a point query",
        (answer["whole"] - answer["data"]) * 1e3,
        "ms",
        OVERHEAD_MS,
        "over a dictionary and three columns",
    )


def _threads(files: SocialFiles) -> Iterator[Figure]:
    """Point queries of many threads."""
    paths = {Omnigraph.name: files.graph, Kuzu.name: kuzu_database(files)}
    rates = {
        engine: _ask(
            "threads",
            engine=engine,
            path=str(path),
            keys=_keys(files.social, 1_000),
            count=THREADS,
            seconds=2,
        )["per_second"]
        for engine, path in paths.items()
    }
    name, ours = f"point queries of {THREADS} threads", rates[Omnigraph.name]
    yield Figure(name, ours, "per second", THREADS_PER_SECOND)
    yield Figure(name, ours, "per second", versus=Versus(Kuzu.name, rates[Kuzu.name]))


def _adjacency(files: SocialFiles) -> Iterator[Figure]:
    """Adjacency, built in a fresh process."""
    answer = _built_adjacency(files.graph, files.social)
    edges = files.social.size.knows
    whole = edges >= ADJACENCY_EDGES  # the targets are for so many
    yield Figure(
        f"adjacency of {edges:,} edges",
        answer["opened"] + answer["built"],
        "s",
        ADJACENCY_SECONDS if whole else None,
        "from opening the graph",
    )
    yield Figure(
        f"adjacency of {edges:,} edges, peak",
        answer["peak_mb"],
        "MB",
        ADJACENCY_MB if whole else None,
        "the whole process",
    )


def _upkeep(files: SocialFiles) -> Iterator[Figure]:
    """Adjacency, kept up after edges came and went."""
    social = files.social
    count = max(int(social.size.knows * UPKEEP_SHARE), 1)
    random = np.random.default_rng(13)
    with TemporaryDirectory(dir=files.directory) as place:
        graph, more = Path(place) / "graph.omni", Path(place) / "more.parquet"
        shutil.copytree(files.graph, graph)
        appended = _new_edges(social, random, count)
        pq.write_table(social.edges(appended), more)
        gone = np.sort(random.choice(social.size.knows, count, replace=False))
        # A person who loses an acquaintance shows that the change is in the answer.
        person = int(social.knows[0][gone[0]])
        kept_up = _ask(
            "upkeep",
            {"OMNIGRAPH_TRAVERSAL_MODE": "csr"},
            path=str(graph),
            key=social.keys[person].as_py(),
            more=str(more),
            deleted=gone.tolist(),
        )
        rebuilt = _built_adjacency(graph, social)["built"]
    degrees = np.cumsum(
        [
            int((social.knows[0] == person).sum()),
            int((appended[0] == person).sum()),
            -int((social.knows[0][gone] == person).sum()),
        ]
    ).tolist()
    if kept_up["degrees"] != degrees:
        raise Mismatch(f"a changed graph gives degrees {kept_up['degrees']}, not {degrees}")
    for change in ("append", "delete"):
        name = f"adjacency, {change} of {UPKEEP_SHARE:.0%}"
        yield Figure(name, kept_up[change], "s", UPKEEP_RATIO, versus=Versus("a rebuild", rebuilt))


def _budget(files: SocialFiles) -> Iterator[Figure]:
    """A cache far smaller than the data."""
    social = files.social
    answer = _ask(
        "budget",
        {"OMNIGRAPH_CACHE_BYTES": str(BUDGET_BYTES)},
        size=[social.size.name, social.size.persons, social.size.knows],
        seed=social.seed,
        cache=str(files.directory.parent),
    )
    for question, seconds in answer.items():
        yield Figure(
            f"{question}, cache of {BUDGET_BYTES / 1e6:g} MB",
            seconds[Omnigraph.name] * 1e3,
            "ms",
            BUDGET_RATIO,
            versus=Versus(BareLance.name, seconds[BareLance.name] * 1e3),
        )


def _ask(verb: str, environment: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    return child.ask("bench.query_child", verb, environment, **arguments)


def _built_adjacency(graph: Path, social: SocialGraph) -> dict[str, float]:
    """The best of several processes in each respect."""
    runs = [
        _ask(
            "adjacency",
            {"OMNIGRAPH_TRAVERSAL_MODE": "csr"},
            path=str(graph),
            key=_keys(social, 1)[0],
        )
        for _ in range(3)
    ]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def _keys(social: SocialGraph, count: int) -> list[str]:
    return [str(parameters["key"]) for parameters in Chooser(social, count).people("key")]


def _new_edges(
    social: SocialGraph, random: np.random.Generator, count: int
) -> tuple[Integers, Integers]:
    """Edges that the graph does not have."""
    persons = social.size.persons
    known = social.knows[0].astype(np.int64) * persons + social.knows[1]
    fresh = np.setdiff1d(random.integers(0, persons * persons, 2 * count), known)
    fresh = fresh[fresh // persons != fresh % persons]
    fresh = random.permutation(fresh)[:count]
    return (fresh // persons).astype(np.int32), (fresh % persons).astype(np.int32)

"""The LDBC Social Network Benchmark: its reads beside DuckDB and Kuzu, and its updates.

The answers of all engines are compared before anything is measured, and a difference ends the run.
Of the interactive reads none may be slower than a peer; how much faster they are all in all is a
geometric mean over the complex ones. The reads that our language cannot express are named. Updates
are made after the reads, on copies of the databases.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.contest import Effort, agreeing, timed
from bench.figure import Figure, Target, Versus
from bench.judges import SameRows
from bench.ldbc import generator, updates
from bench.ldbc.files import LdbcFiles
from bench.ldbc.generator import Size, generate
from bench.ldbc.parameters import parameters
from bench.ldbc.reads import (
    BUSINESS,
    COMPLEX,
    MEASURED,
    READS,
    SHORT,
    UPDATES,
    not_yet,
    wordings,
)
from bench.ldbc.reads import updates as updates_by_name
from bench.peer_duckdb import DuckDb
from bench.peer_kuzu import KuzuConnection
from bench.peer_omnigraph import Omnigraph
from bench.peers import Peer
from bench.progress import note
from bench.questions import Wording
from bench.scale import Scale
from bench.social_files import CACHE

SEED = generator.SEED
SIZES = {
    Scale.SMALL: Size("1k", 1_000, 100_000),
    Scale.FULL: Size("10k", 10_000, 1_000_000),
    Scale.LARGE: Size("30k", 30_000, 3_000_000),
}
ROUNDS = {Scale.SMALL: 5, Scale.FULL: 10, Scale.LARGE: 10}
"""How often each update is made."""
EFFORT = {
    Scale.SMALL: Effort(parameters=10, rounds=5, seconds_max=3),
    Scale.FULL: Effort(parameters=10, rounds=7, seconds_max=10),
    Scale.LARGE: Effort(parameters=10, rounds=7, seconds_max=10),
}
UNASKED = {"bi14"}
"""Beyond small scale Kuzu is not asked these: one answer takes more than 40 s there."""
PEERS = (KuzuConnection.name, DuckDb.name)
NOT_SLOWER = Target(1, "at least")
MEAN = {KuzuConnection.name: Target(5, "at least"), DuckDb.name: Target(3, "at least")}
"""How many times as fast the complex reads are to be, by their geometric mean."""
GROUPS = {
    "complex reads": COMPLEX,
    "short reads": SHORT,
    "BI reads": BUSINESS,
    "updates": UPDATES,
}


@dataclass(frozen=True, slots=True)
class Timed:
    """The seconds of every engine that answers a read or makes an update."""

    read: Wording
    seconds: Mapping[str, float]


def run(scale: Scale, only: Sequence[str] = ()) -> Iterator[Figure]:
    """Measure every read and all updates, or some reads or the updates alone."""
    unknown = [name for name in only if name not in MEASURED]
    if unknown:
        raise ValueError(f"there is no read '{unknown[0]}'; there is {', '.join(MEASURED)}")
    network = generate(SIZES[scale])
    note(f"{network.size.persons:,} persons, {network.messages:,} messages")
    if not_yet():
        note(f"not yet expressible: {', '.join(not_yet())}")
    files = LdbcFiles(network, CACHE)
    reads = [
        replace(read, cypher=[]) if name in UNASKED and scale != Scale.SMALL else read
        for name, read in wordings().items()
        if not only or name in only
    ]
    found = measure(files, reads, EFFORT[scale])
    if not only or not UPDATES.keys().isdisjoint(only):
        found += measure_updates(files, ROUNDS[scale])
    yield from figures(found)
    if not only:
        yield from means(found)
        yield expressed()


def measure(files: LdbcFiles, reads: Sequence[Wording], effort: Effort) -> list[Timed]:
    """Compare the answers of all engines with those of DuckDB, then take the time."""
    peers: list[Peer] = [DuckDb(files.duckdb), KuzuConnection(files.kuzu), Omnigraph(files.graph)]
    verdict = partial(SameRows(in_order=True).fault, files.network)
    asked = {read.name: parameters(files.network, read.name, effort.parameters) for read in reads}
    entrants = {}
    try:
        for read in reads:
            note(f"{read.name}: {read.says}")
            entrants[read.name] = agreeing(read, peers, verdict, asked[read.name])
        note("all agree; now the time is taken")
        return [Timed(read, timed(entrants[read.name], asked[read.name], effort)) for read in reads]
    finally:
        for peer in peers:
            peer.close()


def measure_updates(files: LdbcFiles, rounds: int) -> list[Timed]:
    """Make all updates, which build on each other, and compare what every engine then has."""
    note("updates")
    taken = updates.measure(files, rounds)
    return [Timed(update, taken[name]) for name, update in updates_by_name().items()]


def figures(found: Sequence[Timed]) -> Iterator[Figure]:
    """Our time beside that of each peer; only the interactive reads have a target."""
    for each in found:
        read = each.read
        target = NOT_SLOWER if read.name in {**COMPLEX, **SHORT} else None
        for name in PEERS:
            if name in each.seconds:
                versus = Versus(name, each.seconds[name] * 1e3, "theirs to ours")
                ours = each.seconds[Omnigraph.name] * 1e3
                yield Figure(read.name, ours, "ms", target, read.says, versus)


def means(found: Sequence[Timed]) -> Iterator[Figure]:
    """Geometric means over what both sides can do of each kind."""
    for group, names in GROUPS.items():
        for peer in PEERS:
            both = [each for each in found if each.read.name in names and peer in each.seconds]
            if not both:
                continue
            ours, theirs = (
                statistics.geometric_mean(each.seconds[name] * 1e3 for each in both)
                for name in (Omnigraph.name, peer)
            )
            target = MEAN[peer] if names is COMPLEX else None
            versus = Versus(peer, theirs, "theirs to ours")
            says = f"geometric mean of {len(both)} of {len(names)}"
            yield Figure(group, ours, "ms", target, says, versus)


def expressed() -> Figure:
    """How many reads are one query each, and the names of the others."""
    missing = not_yet()
    says = f"each one query; not yet expressible: {', '.join(missing) or 'none'}"
    return Figure("reads", len(READS) - len(missing), f"of {len(READS)}", None, says)

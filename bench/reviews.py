"""Reviews: the first page of a diff and of a plan over HTTP, and lists beside many events.

The server is a process of its own; embedded figures come from this process, on the same graph.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pyarrow as pa

import omnigraph as og
from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale
from bench.server import new_graph, served
from omnigraph.effects.clock import MINT
from omnigraph.graph import Graph
from omnigraph.model.reviews import ReviewEvent
from omnigraph.review.events import _encoded
from omnigraph.storage.layout import REVIEWS
from omnigraph.storage.transactions import DatasetRef

SEED = None
PAGE_RATIO = Target(2, "at most")
FLAT_RATIO = Target(1.3, "at most")
PAGE = 100
"""Entities of a page."""
SHOWN = 50
"""Requests of a list."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    changed: int
    requests: int
    comments: int
    """Of each request, in the graph with many events."""
    repetitions: int


FULL = Sizes(10_000, 1_000, 9, 15)
SMALL = Sizes(10_000, 1_000, 9, 9)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure everything about reviews."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory() as directory, durability("process"):
        place = Path(directory)
        note(f"{sizes.changed:,} changed entities")
        yield from pages(place, sizes)
        note(f"{sizes.requests:,} requests")
        yield from lists(place, sizes)


def pages(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """First pages of a branch that changed every entity of its target."""
    graph = new_graph(place / "people.omni", sizes.changed)
    graph.create_branch("review")
    rows = (
        {"handle": f"p{n}", "name": f"Person {n}", "age": n % 90 + 1, "score": n / 7}
        for n in range(sizes.changed)
    )
    lines = b"\n".join(orjson.dumps({"type": "Person", "data": row}) for row in rows)
    graph.load(data=lines, mode="merge", branch="review", engine="local")
    with served(graph.uri) as url, og.connect(url) as remote:
        taken = medians(
            sizes.repetitions,
            {
                "embedded plan": lambda: graph.plan_merge("review", limit=PAGE),
                "plan": lambda: remote.plan_merge("review", limit=PAGE),
                "diff": lambda: remote.diff_page("main", "review", limit=PAGE),
                "embedded diff": lambda: graph.diff_page("main", "review", limit=PAGE),
            },
        )
    told = f"{PAGE} of {sizes.changed:,} changed entities"
    embedded = Versus("embedded plan of the same page", taken["embedded plan"], "ours to theirs")
    yield Figure("first page of a plan, served", taken["plan"], "ms", PAGE_RATIO, told, embedded)
    yield Figure("first page of a diff, served", taken["diff"], "ms", PAGE_RATIO, told, embedded)
    yield Figure("first page of a diff, embedded", taken["embedded diff"], "ms", note=told)


def lists(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """The newest open requests, of graphs with the same requests and few or many other events."""
    quiet, crowded = (new_graph(place / f"{name}.omni", 10) for name in ("quiet", "crowded"))
    discussed(quiet, sizes.requests, 0)
    events = discussed(crowded, sizes.requests, sizes.comments)
    for graph in (quiet, crowded):
        graph.optimize()
    taken = medians(
        sizes.repetitions,
        {
            "quiet": lambda: quiet.reviews.list(limit=SHOWN),
            "crowded": lambda: crowded.reviews.list(limit=SHOWN),
        },
    )
    few = Versus(f"the same with {sizes.requests:,} events", taken["quiet"], "ours to theirs")
    told = f"{SHOWN} of {sizes.requests:,} requests, {events:,} events"
    yield Figure("list of open requests", taken["crowded"], "ms", FLAT_RATIO, told, few)


def discussed(graph: Graph, requests: int, comments: int) -> int:
    """Open requests, some comments on all but the newest; returns how many events that makes.

    All but the first are one append: each verb would plan a merge.
    """
    graph.create_branch("review")
    graph.mutate('query q { delete Person where handle = "p1" }', branch="review")
    graph.reviews.open("review")
    (first,) = graph.reviews.export()
    events: list[ReviewEvent] = []
    for number in range(1, requests):
        id = f"cr-{MINT.ulid()}"
        events.append(replace(first, event_id=MINT.ulid(), request_id=id))
        for each in range(comments if number < requests - SHOWN else 0):
            body = {"text": f"Comment {each}: {'words ' * 50}"}
            events.append(ReviewEvent(MINT.ulid(), id, "commented", None, first.created_at, body))
    rows = pa.concat_tables([_encoded(event) for event in events]).combine_chunks()
    where = DatasetRef(f"{graph.uri}/{REVIEWS}")
    graph._kernel.lance.append(where, rows, f"bench-{MINT.ulid()}")
    return len(events) + 1


def medians(repetitions: int, ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The median time of each way in milliseconds, asked in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repetitions + 1):
        for name, ask in ways.items():
            began = time.perf_counter()
            ask()
            if number:  # the first warms up
                times[name].append((time.perf_counter() - began) * 1_000)
    return {name: statistics.median(taken) for name, taken in times.items()}

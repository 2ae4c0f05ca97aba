"""What listing change requests asks of storage: as much as it shows, however much was said."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.effects.clock import MINT
from omnigraph.graph import Graph, init
from omnigraph.model.reviews import ReviewEvent, ReviewEventKind
from omnigraph.review.events import SCHEMA as EVENTS
from omnigraph.review.events import Events, _encoded
from omnigraph.storage.layout import REVIEWS
from omnigraph.storage.transactions import DatasetRef
from tests.cost.costs import SCHEMA, Cost, cost_of, insert

SHOWN = 5


def said(graph: Graph, requests: int, comments: int) -> None:
    """Closed requests with many comments, in one append; then some open ones."""
    graph.create_branch("feature")
    insert(graph, "new", "feature")
    first = graph.reviews.open("feature")
    outline = next(iter(graph.reviews.export())).body
    events: list[ReviewEvent] = []
    noise = random.Random(7)
    for _ in range(requests):
        id = f"cr-{MINT.ulid()}"
        bodies: list[tuple[ReviewEventKind, dict[str, object]]] = [("opened", dict(outline))]
        bodies += [("commented", {"text": noise.randbytes(500).hex()}) for _ in range(comments - 2)]
        bodies += [("closed", {})]
        events += [ReviewEvent(MINT.ulid(), id, kind, "act-ana", 1, body) for kind, body in bodies]
    rows = pa.concat_tables([_encoded(event) for event in events]).combine_chunks()
    assert rows.schema.equals(EVENTS)
    where = DatasetRef(f"{graph.uri}/{REVIEWS}")
    graph._kernel.lance.append(where, rows, f"test-{MINT.ulid()}")
    graph.reviews.close(first.id)
    for _ in range(SHOWN):
        graph.reviews.open("feature")


def listing(graph: Graph) -> Cost:
    assert len(graph.reviews.list(limit=SHOWN)) == SHOWN
    return cost_of(graph, lambda: graph.reviews.list(limit=SHOWN))


@pytest.fixture
def crowded(tmp_path: Path) -> Graph:
    graph = init(tmp_path / "crowded.omni", SCHEMA)
    said(graph, requests=100, comments=100)
    return graph


def bytes_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


def test_c_rev_017_listing_open_requests_is_flat_in_events(tmp_path: Path, crowded: Graph) -> None:
    quiet = init(tmp_path / "quiet.omni", SCHEMA)
    said(quiet, requests=1, comments=3)
    for graph in (quiet, crowded):
        graph.optimize()
    few, many = listing(quiet), listing(crowded)
    assert many.shape == few.shape, many.table()
    assert many.shape["scan __reviews"] == 2, many.table()


def test_c_rev_012_looking_for_moved_heads_again_reads_one_listing_and_each_branch_once(
    tmp_path: Path, crowded: Graph
) -> None:
    quiet = init(tmp_path / "quiet.omni", SCHEMA)
    said(quiet, requests=1, comments=3)
    shapes = []
    for graph in (quiet, crowded):
        graph.optimize()
        known = graph.reviews.follow({}, 100)
        assert len(known) == SHOWN
        again = cost_of(graph, partial(graph.reviews.follow, known, 100))
        assert graph.reviews.follow(known, 100) == known
        shapes.append(again.shape)
    assert shapes[0] == shapes[1]
    assert shapes[0]["scan __reviews"] == 1


def test_c_rev_017_listing_reads_the_pages_it_shows_and_no_other_event(crowded: Graph) -> None:
    where = DatasetRef(f"{crowded.uri}/{REVIEWS}")
    (receipt,) = [row for row in crowded.optimize().tables if row.type_key == REVIEWS]
    assert receipt.committed and receipt.fragments_added == 1 < receipt.fragments_removed
    handle = crowded._kernel.lance.open(where)
    assert handle.count_rows() > 10_000
    indexed = {name for each in handle.describe_indices() for name in each.field_names}
    assert {"request_id", "kind"} <= indexed
    stored = sum(path.stat().st_size for path in Path(where.uri).glob("data/*"))
    listing(crowded)
    before = bytes_read()
    page = crowded.reviews.list(limit=SHOWN)
    read = bytes_read() - before
    assert [each.comment_count for each in page] == [0] * SHOWN
    assert read < stored / 20, f"{read} of {stored} bytes"


def test_c_rev_017_writers_keep_the_fragments_few(crowded: Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("omnigraph.review.events.COMPACT_EVERY", 8)
    (open_, *_) = crowded.reviews.list()
    for n in range(10):
        crowded.reviews.comment(open_.id, f"{n}")
    events = Events(crowded._kernel)._open()
    assert events is not None and len(events.get_fragments()) < 10
    assert len(crowded.reviews.get(open_.id).comments) == 10

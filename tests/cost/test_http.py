"""What a write really sends: our verbs are Lance calls, and one of those may be several requests.

The count below is the S3 server's own. It is a guard, not a promise: it may change with Lance.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from omnigraph.graph import Graph
from tests.cost.costs import insert

WARM_INSERT_MAX = 28


def sent(graph: Graph, log: Path, work: Callable[[], object]) -> list[str]:
    """The HTTP requests of some work, as method and key below the graph's root."""
    before = len(log.read_text(encoding="utf-8").splitlines())
    work()
    lines = log.read_text(encoding="utf-8").splitlines()[before:]
    bucket, _, prefix = graph.uri.removeprefix("s3://").partition("/")
    return [line.replace(f"/{bucket}/{prefix}/", "").replace(f"/{bucket}", "") for line in lines]


def test_a_warm_insert_sends_few_requests(s3_graph: Graph, request_log: Path):
    requests = sent(s3_graph, request_log, lambda: insert(s3_graph, "new"))
    shown = "\n".join(["", *requests, f"{len(requests)} requests"])
    assert len(requests) <= WARM_INSERT_MAX, shown


def test_a_publish_reads_no_data_of_the_manifest(s3_graph: Graph, request_log: Path):
    requests = sent(s3_graph, request_log, lambda: insert(s3_graph, "new"))
    read = [line for line in requests if line.startswith("GET __manifest/data/")]
    assert read == [], "\n".join(requests)


def test_a_warm_snapshot_sends_one_request(s3_graph: Graph, request_log: Path):
    s3_graph.snapshot()
    requests = sent(s3_graph, request_log, s3_graph.snapshot)
    assert len(requests) == 1, "\n".join(requests)

"""What the commands of a cluster ask of storage: a plan as much for many graphs as for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cluster import Cluster
from omnigraph.cluster.serving import read_applied
from omnigraph.effects.requests import IoReport, measure

PLAN_REQUESTS_PER_GRAPH_MAX = 20
PREVIEW_REQUESTS_PER_GRAPH_MAX = 25
"""Of a graph whose migration is previewed: it is opened."""
SCHEMA = "node Person { name: String @key  age: I32? }\n"
QUERIES = "query everybody() { match { $p: Person } return { $p.name } }\n"


def new_cluster(directory: Path, graphs: int, storage: str | None = None) -> Cluster:
    """A cluster of so many graphs, everything applied."""
    directory.mkdir()
    (directory / "schema.pg").write_text(SCHEMA, encoding="utf-8")
    (directory / "people.gq").write_text(QUERIES, encoding="utf-8")
    declared = "".join(
        f"  g{n}: {{ schema: schema.pg, queries: people.gq }}\n" for n in range(graphs)
    )
    place = "" if storage is None else f"storage: {storage}\n"
    text = f"version: 1\n{place}graphs:\n{declared}"
    (directory / "cluster.yaml").write_text(text, encoding="utf-8")
    cluster = Cluster(directory)
    assert cluster.import_().ok
    assert cluster.apply(actor="act-ana").converged
    return cluster


def planned(cluster: Cluster) -> IoReport:
    """The requests of a plan that finds nothing to do."""
    with measure() as io:
        found = cluster.plan()
    assert found.ok
    assert found.changes == ()
    return io.report()


def test_a_plan_without_changes_asks_no_more_of_many_graphs_than_of_one(tmp_path: Path):
    one = planned(new_cluster(tmp_path / "one", 1))
    many = planned(new_cluster(tmp_path / "many", 5))
    assert many.counts == one.counts
    assert one.requests <= PLAN_REQUESTS_PER_GRAPH_MAX


def test_a_plan_that_previews_a_migration_is_cheap_for_each_graph(tmp_path: Path):
    cluster = new_cluster(tmp_path / "many", 3)
    (tmp_path / "many" / "schema.pg").write_text(SCHEMA.replace("age", "years"), encoding="utf-8")
    with measure() as io:
        found = cluster.plan()
    assert sum(each.migration is not None for each in found.changes) == 3
    assert io.report().requests <= 3 * PREVIEW_REQUESTS_PER_GRAPH_MAX


def test_a_status_reads_the_ledger_the_lock_and_each_content_once(tmp_path: Path):
    cluster = new_cluster(tmp_path / "many", 3)
    with measure() as io:
        assert cluster.status().ok
    assert io.report().requests <= 2 + 3


@pytest.mark.slow
def test_c_clu_046_a_cluster_in_a_bucket_is_applied_planned_and_served_at_the_same_cost(
    s3_root: str, tmp_path: Path
):
    cluster = new_cluster(tmp_path / "far", 2, s3_root)
    assert planned(cluster).requests <= PLAN_REQUESTS_PER_GRAPH_MAX
    assert not cluster.apply(actor="act-ana").state_written
    (tmp_path / "far" / "people.gq").write_text(QUERIES + "\n", encoding="utf-8")
    assert cluster.apply(actor="act-ana").converged
    assert cluster.refresh().ok
    assert cluster.status().state_observations.state_path.startswith(s3_root)
    served = read_applied(s3_root)
    assert [graph.graph_id for graph in served.graphs] == ["g0", "g1"]
    assert all(graph.uri.startswith(s3_root) for graph in served.graphs)
    assert not list((tmp_path / "far").glob("__cluster"))

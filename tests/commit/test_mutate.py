"""A mutation from text to receipt: what the caller brings besides its parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.mutate import mutate
from omnigraph.commit.plan import WriteLimits
from omnigraph.commit.write_path import WritePath
from omnigraph.errors import ValueConversionError
from omnigraph.graph import open_graph
from omnigraph.query.compile import QueryCompiler
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from tests.support.graphs import TestGraph, new_graph

ADD = 'query add { insert Person { name: "ana", photo: "s3://pics/a" } }'


@pytest.fixture
def graph(tmp_path: Path) -> TestGraph:
    return new_graph(tmp_path, "node Person { name: String @key  photo: Blob? }")


def add(graph: TestGraph, external: ExternalBlobs | None) -> None:
    def compiled(catalog: Catalog) -> MutationPlan:
        plan = QueryCompiler(catalog).compile(ADD)
        assert isinstance(plan, MutationPlan)
        return plan

    mutate(
        graph.kernel,
        WritePath(graph.kernel),
        compiled,
        None,
        accepted=graph.kernel.accepted_schema(),
        branch="main",
        limits=WriteLimits(),
        external=external,
    )


def test_c_sch_047_a_blob_given_by_uri_is_refused_unless_its_base_is_allowed(
    graph: TestGraph,
) -> None:
    elsewhere = ExternalBlobs(allow=lambda uri: uri.startswith("s3://other/"))
    for external in (None, elsewhere):
        with pytest.raises(ValueConversionError, match="'s3://pics/a' is not allowed"):
            add(graph, external)
    assert graph.names() == []


def test_an_allowed_one_is_copied(graph: TestGraph) -> None:
    add(graph, ExternalBlobs(lambda uri: uri.startswith("s3://pics/"), lambda uri: b"\x00\x01"))
    exported = b"".join(open_graph(graph.kernel.root.uri).export())
    assert b"base64:AAE=" in exported
    assert b"s3://" not in exported

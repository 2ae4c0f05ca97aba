"""Cypher of the benchmark: the translation answers what Kuzu answers to the text itself."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kuzu
import pyarrow as pa
import pytest

from bench.judges import SameRows
from bench.ldbc.files import LdbcFiles
from bench.ldbc.generator import Network, Size, generate
from bench.ldbc.parameters import parameters
from bench.ldbc.reads import READS
from bench.peer_kuzu import kuzu_rows
from bench.peers import used_in
from omnigraph.graph import Graph, init
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.translate.queries import Translation, translate_cypher
from tests.support.tables import check_all

SCHEMA = Path(__file__).parent / "network.pg"
LDBC = Path(__file__).parents[2] / "bench" / "ldbc"
ASKED = 3
NOT_TRANSLATED = {
    # its second stage hands on relationships, and the lists it collects are of maps
    "ic1": "a relationship in `WITH` has no counterpart",
    # milliseconds since 1970 are no value here; two dates are subtracted as they are
    "ic7": "the function `to_epoch_ms` has no counterpart",
    # it packs a score and two numbers into one integer and divides it apart again
    "bi14": "a division of integers has no counterpart",
    # it looks places in one list up in another
    "bi16": "the function `list_extract` has no counterpart",
}
"""What is said of each read that cannot be translated."""


@pytest.fixture(scope="module")
def network() -> Network:
    return generate(Size("tiny", 60, 600))


@pytest.fixture(scope="module")
def peer(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kuzu.Connection]:
    files = LdbcFiles(network, tmp_path_factory.mktemp("ldbc"))
    with (
        kuzu.Database(str(files.kuzu), read_only=True) as database,
        kuzu.Connection(database, num_threads=1) as connection,
    ):
        yield connection


@pytest.fixture(scope="module")
def graph(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The rows of the network in the layout of Kuzu."""
    nodes = {
        name: table for name, table in network.nodes.items() if name not in ("Post", "Comment")
    }
    posts, comments = (network.nodes[kind] for kind in ("Post", "Comment"))
    messages = [
        posts.append_column("isPost", pa.array([True] * len(posts))),
        comments.append_column("isPost", pa.array([False] * len(comments))),
    ]
    nodes["Message"] = pa.concat_tables(messages, promote_options="default")
    edges: dict[str, pa.Table] = {}
    for name, table in network.edges.items():
        if name in ("IsPartOf", "OrganisationIsLocatedIn"):
            for kind in set(table["from_type"].to_pylist()):
                edges[f"{name}_{kind}"] = table.filter(pa.compute.equal(table["from_type"], kind))
        else:
            edges[name] = table
    plain = {
        name: table.drop_columns([c for c in table.column_names if c.endswith("_type")])
        for name, table in edges.items()
    }
    made = init(tmp_path_factory.mktemp("network") / "network.omni", SCHEMA)
    made.load(mode="append", frames={**nodes, **plain}, engine="local")
    return made


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return compile_schema(SCHEMA).catalog


def translated(name: str, catalog: Catalog) -> Translation:
    return translate_cypher(LDBC / name, catalog, "kuzu")


def asked_of_kuzu(connection: kuzu.Connection, text: str, given: Mapping[str, Any]) -> list[Any]:
    plain = {
        name: value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value
        for name, value in used_in(text, given).items()
    }
    rows: list[Any] = [tuple(row) for row in kuzu_rows(connection, text, plain)]
    return rows


def test_reads_of_the_benchmark_are_translated_and_the_others_say_why(catalog: Catalog) -> None:
    names: set[str] = set()
    for file in ("interactive.cypher", "business.cypher"):
        found = translated(file, catalog)
        names |= {query.name.partition("_")[0] for query in found.queries}
        lines = (LDBC / file).read_text("utf-8").splitlines()
        for error in found.errors:
            assert error.position is not None
            above = [line for line in lines[: error.position.line] if line[3:] in READS]
            read = above[-1][3:]
            assert error.reason.startswith(NOT_TRANSLATED[read]), (read, error.reason)
            assert error.position.line_text == lines[error.position.line - 1]
    texts = [(LDBC / f"{file}.cypher").read_text("utf-8") for file in ("interactive", "business")]
    written = {line[3:] for text in texts for line in text.splitlines() if line[3:] in READS}
    assert names == written - NOT_TRANSLATED.keys()
    assert len(names) == 30


def test_translated_reads_answer_what_kuzu_answers(
    network: Network, peer: kuzu.Connection, graph: Graph, catalog: Catalog
) -> None:
    queries = [
        (query, text)
        for file in ("interactive.cypher", "business.cypher")
        for query, text in zip(
            translated(file, catalog).queries, _statements(file, catalog), strict=True
        )
    ]
    empty: list[str] = []

    def check(case: tuple[Any, str]) -> None:
        query, text = case
        name = query.name.partition("_")[0]
        found = False
        for given in parameters(network, name, ASKED):
            theirs = asked_of_kuzu(peer, text, given)
            answer = graph.query(query.text, given)
            ours = [tuple(row.values()) for row in answer.to_pylist()]
            judge = SameRows(in_order="ORDER BY" in text)
            fault = judge.fault(None, [given], [ours], [theirs])
            assert fault is None, fault
            found = found or bool(theirs)
        if not found:
            empty.append(query.name)

    check_all({query.name: (query, text) for query, text in queries}, check)
    assert len(empty) <= 6, empty


def _statements(file: str, catalog: Catalog) -> list[str]:
    """The Cypher text of each query that was translated."""
    text = (LDBC / file).read_text("utf-8")
    lines = text.splitlines()
    starts = [query.line for query in translated(file, catalog).queries]
    found = []
    for start in starts:
        rest = "\n".join(lines[start - 1 :])
        found.append(rest[: rest.index(";")])
    return found

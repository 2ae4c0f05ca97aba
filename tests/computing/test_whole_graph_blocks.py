"""Algorithms in rounds over blocks, without Spark, give what they give over the whole graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.computing import whole_graph_blocks
from omnigraph.computing.algorithms import ROW_PLACES, Algorithm
from omnigraph.computing.selection import ComputeDirection, Selection, node_keys
from omnigraph.computing.whole_graph import _shares
from omnigraph.computing.whole_graph_blocks import (
    BetweennessRounds,
    ClosenessRounds,
    Measure,
    SimilarityRounds,
    StrongComponentRounds,
    sampled,
)
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.pipeline.computing import partitions, rounds
from tests.computing.graphs import linked
from tests.support.budgets import FEW

PEOPLE = 12
IDS = [f"p{n}" for n in range(PEOPLE)]
KEYS = node_keys("Person", pa.array(IDS), 0)
BLOCKS = 3
Pairs = list[tuple[int, int]]

random_graphs = given(
    st.lists(
        st.tuples(st.integers(0, PEOPLE - 1), st.integers(0, PEOPLE - 1)), max_size=40, unique=True
    ),
    st.sampled_from(["out", "in", "both"]),
)


def delivered(messages: Iterable[tuple[int, Any]]) -> list[list[Any]]:
    inbox: dict[int, list[Any]] = defaultdict(list)
    for number, message in messages:
        inbox[number].append(message)
    return [inbox[number] for number in range(BLOCKS + 1)]


def in_blocks(algorithm: Algorithm, pairs: Pairs, direction: ComputeDirection) -> dict[str, Any]:
    """Run the rounds as Spark does: the values of the nodes, or a list of rows for each."""
    use = algorithm.edge_use
    selection = Selection(("Person",), (), direction, None, use)
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    edges = partitions.Edges(KEYS[ends[:, 0]], KEYS[ends[:, 1]], None)
    owners = (KEYS % np.uint64(BLOCKS)).astype(int)
    ids = np.array(IDS)
    inbox = delivered(
        [
            *(
                (block, partitions._Nodes("Person", KEYS[mine], pa.array(ids[mine])))
                for block in range(BLOCKS)
                for mine in [owners == block]
            ),
            *(
                message
                for turned in partitions._turned(edges, selection)
                for message in partitions.routed(turned, BLOCKS)
            ),
        ]
    )
    protos = [
        partitions._proto(n, BLOCKS, inbox[n], use in {"pairs", "simple"}) for n in range(BLOCKS)
    ]
    asked = delivered(message for proto in protos for message in partitions._requests(proto))
    blocks = list(map(partitions._answered, zip(protos, asked[:BLOCKS], strict=True)))
    sent: list[partitions.Message] = []
    for block in blocks:
        assert block is not None
        state, report = algorithm.first(block, PEOPLE)
        sent += rounds._sent(algorithm, block, state, report, {})
    inbox, taken = delivered(sent), 0
    while not algorithm.is_done(total := total_of(inbox), taken):
        step = rounds._step(algorithm, total, PEOPLE)
        inbox = delivered(m for pair in zip(blocks, inbox, strict=False) for m in step(pair))
        taken += 1
        assert taken < 500
    found: dict[str, Any] = {}
    names = dict(zip(KEYS.tolist(), IDS, strict=True))
    for block, proto, received in zip(blocks, protos, inbox, strict=False):
        assert block is not None
        own = proto.names.rows["id"].to_pylist()
        columns = dict(algorithm.columns(block, rounds._state(received)))
        places = columns.pop(ROW_PLACES, None)
        for label in {"component", "other"} & set(columns):
            columns[label] = np.array([names[key] for key in columns[label].tolist()])
        if places is None:
            (values,) = columns.values()
            found |= dict(zip(own, values.tolist(), strict=True))
        else:
            for place, *row in zip(
                places, columns["other"].tolist(), columns["similarity"].tolist(), strict=True
            ):
                found.setdefault(own[place], []).append(tuple(row))
    return found


def total_of(inbox: list[list[Any]]) -> Any:
    return np.sum([report for _, report in sorted(inbox[BLOCKS], key=lambda each: each[0])], axis=0)


def in_process(
    directory: Path, name: str, pairs: Pairs, column: str, **options: Any
) -> dict[str, Any]:
    graph = linked(directory, PEOPLE, pairs)
    rows = getattr(graph.compute, name)(nodes="Person", edges="Knows", **options).to_pylist()
    return {row["id"]: row[column] for row in rows}


@FEW
@random_graphs
def test_c_pip_025_strong_components_are_the_same_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, direction: ComputeDirection
) -> None:
    del direction
    directory = tmp_path_factory.mktemp("strong")
    assert in_blocks(StrongComponentRounds(), pairs, "out") == in_process(
        directory, "strongly_connected", pairs, "component"
    )


@FEW
@random_graphs
def test_c_pip_025_sampled_values_are_the_same_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, direction: ComputeDirection
) -> None:
    for samples in (5, PEOPLE):
        starts = KEYS[sampled(KEYS, samples, 3)]
        assert len(starts) == samples
        for name, algorithm in (
            ("closeness", ClosenessRounds(starts)),
            ("betweenness", BetweennessRounds(starts)),
        ):
            expected = in_process(
                tmp_path_factory.mktemp(name), name, pairs, name, direction=direction,
                samples=samples, seed=3,
            )  # fmt: skip
            found = in_blocks(algorithm, pairs, direction)
            assert found == pytest.approx(expected, abs=1e-12)


@FEW
@random_graphs
def test_c_pip_025_similar_nodes_are_the_same_in_blocks(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, direction: ComputeDirection
) -> None:
    graph = linked(tmp_path_factory.mktemp("similar"), PEOPLE, pairs)
    measures: list[Measure] = ["jaccard", "cosine", "overlap"]
    for measure in measures:
        rows = graph.compute.similarity(
            nodes="Person", edges="Knows", direction=direction, measure=measure, per_node=2,
            at_least=0.3,
        ).to_pylist()  # fmt: skip
        expected: dict[str, Any] = {}
        for row in rows:
            expected.setdefault(row["id"], []).append((row["other"], row["similarity"]))
        assert in_blocks(SimilarityRounds(2, 0.3, measure), pairs, direction) == expected


def test_what_does_not_fit_at_once_is_computed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(n, (n * step + 1) % PEOPLE) for n in range(PEOPLE) for step in (1, 3, 5)]
    run = partial(in_blocks, pairs=pairs, direction="both")
    shares: list[Algorithm] = [ClosenessRounds(KEYS), BetweennessRounds(KEYS)]
    similar = SimilarityRounds(3, 0.0, "jaccard")
    at_once, similar_at_once = [run(each) for each in shares], run(similar)
    monkeypatch.setattr(whole_graph_blocks, "BITS", 2)
    monkeypatch.setattr(whole_graph_blocks, "SEARCH_WORDS", 2)
    monkeypatch.setattr(whole_graph_blocks, "PATH_CELLS", 20)
    monkeypatch.setattr(whole_graph_blocks, "WEDGES_AT_ONCE", 7)
    for before, algorithm in zip(at_once, shares, strict=True):
        assert run(algorithm) == pytest.approx(before, abs=1e-12)
    assert run(similar) == similar_at_once


def test_a_graph_with_more_paths_than_a_float_counts_has_an_answer() -> None:
    """Diamonds in a row: each doubles the paths, and both of its middles share them."""
    diamonds = 1_100
    edges = [
        (3 * n + begin, 3 * n + end)
        for n in range(diamonds)
        for begin, end in ((0, 1), (0, 2), (1, 3), (2, 3))
    ]
    nodes = 3 * diamonds + 1
    begin, end = np.array(edges, np.int32).T
    shares = _shares(Adjacency.build(begin, end, nodes), np.array([0]), nodes)
    # Through a middle lead half of the paths to each node behind it.
    assert shares[1] == pytest.approx((nodes - 4 + 1) / 2)
    assert shares[3 * (diamonds - 1) + 1] == pytest.approx(0.5)


def test_samples_do_not_depend_on_the_order_of_nodes() -> None:
    keys = node_keys("Person", pa.array([f"p{n}" for n in range(1_000)]), 0)
    chosen = keys[sampled(keys, 50, 7)]
    assert len(np.unique(chosen)) == 50
    assert set(chosen) == set(keys[::-1][sampled(keys[::-1], 50, 7)])
    assert set(chosen) != set(keys[sampled(keys, 50, 8)])
    halves = np.concatenate([half[sampled(half, 50, 7)] for half in (keys[:300], keys[300:])])
    assert set(halves[sampled(halves, 50, 7)]) == set(chosen)

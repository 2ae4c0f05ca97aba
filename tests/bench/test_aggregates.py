"""The suite of aggregates: its graph is what it says, and all engines agree on every question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import aggregates, query_child, query_processes
from bench.aggregates import QUESTIONS, Followers, WeightedEdges
from bench.contest import Effort, Mismatch
from bench.scale import Scale
from bench.social import Size, generate
from bench.social_files import SocialFiles

TINY = Size("tiny-followers", 200, 3_000)


@pytest.fixture(scope="module")
def followers(tmp_path_factory: pytest.TempPathFactory) -> Followers:
    return Followers(SocialFiles(generate(TINY), tmp_path_factory.mktemp("aggregates")))


def test_edges_have_the_same_properties_every_time(followers: Followers):
    assert followers.follows.equals(Followers(followers.files).follows)
    assert followers.follows.num_rows == TINY.knows
    years = followers.follows["since"].to_numpy()
    assert years.min() == 2000
    assert len(np.unique(followers.follows["weight"].to_numpy())) > 100


def test_all_engines_agree_on_every_question(followers: Followers):
    once = Effort(parameters=1, rounds=1, seconds_max=0)
    outcomes = aggregates.measure(followers, list(QUESTIONS.values()), once)
    assert [outcome.question.name for outcome in outcomes] == list(QUESTIONS)
    assert all(outcome.seconds.keys() == {"Kuzu", "DuckDB", "Omnigraph"} for outcome in outcomes)
    found = list(aggregates.figures(outcomes))
    assert [figure.target is not None for figure in found] == [True, False] * len(QUESTIONS)


def test_the_first_read_after_a_write_is_compared_with_a_warm_one(
    followers: Followers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(aggregates, "COMMITS", 2)
    figure = aggregates.first_read(followers)
    assert figure.versus is not None and figure.versus.name == "a warm one"
    assert figure.target == aggregates.FIRST_READ
    assert not list(followers.files.directory.glob("followers-written*"))


def test_every_first_question_of_a_process_is_compared_with_that_of_kuzu(
    followers: Followers, monkeypatch: pytest.MonkeyPatch
):
    def ask(verb: str, **arguments: Any) -> Any:
        """What a process of its own answers; the test of all suites starts some."""
        return getattr(query_child, verb)(**arguments)

    monkeypatch.setattr(query_processes, "_ask", ask)
    monkeypatch.setattr(query_processes, "FIRST_ROUNDS", 1)
    paths = {"Omnigraph": followers.graph, "Kuzu": followers.kuzu}
    assert len(aggregates.EDGE_QUESTIONS) == 3
    for name in aggregates.EDGE_QUESTIONS:
        figure = query_processes.first_of_process(QUESTIONS[name], paths, {})
        assert figure.name == f"first {name} of a process"
        assert figure.target == query_processes.FIRST_RATIO
        assert figure.versus is not None and figure.versus.name == "Kuzu"
        wrong = replace(QUESTIONS[name], cypher=["UNWIND range(1, 9999) AS n RETURN n"])
        with pytest.raises(Mismatch, match=name):
            query_processes.first_of_process(wrong, paths, {})


def test_memory_is_measured_with_edges_as_loaded_and_optimized(followers: Followers):
    found = list(aggregates.memory(WeightedEdges(followers.files)))
    assert [figure.name.split(", ")[1] for figure in found] == ["as loaded", "optimized"]
    assert all(figure.value > 20 and figure.unit == "MB" for figure in found)
    assert not any(figure.target for figure in found)  # that is for ten million edges


def test_scales_differ():
    persons = [aggregates.SIZES[scale].persons for scale in Scale]
    assert persons == sorted(set(persons))

"""The query benchmark: its graph is what it says, all engines agree on it, and a lie is noticed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench import queries, query_child
from bench.contest import Effort, Mismatch, Outcome, agreeing
from bench.judges import Recall, SameRows, TopScores
from bench.peer_omnigraph import Omnigraph
from bench.questions import (
    MANY_STARTS,
    POINT,
    QUESTIONS,
    TEXT,
    VECTOR,
    Chooser,
    Question,
    Wording,
)
from bench.scale import Scale
from bench.social import SIZES, Size, SocialGraph, edge_ids, generate
from bench.social_files import SocialFiles
from omnigraph.graph import open_graph

TINY = Size("tiny", 300, 2_000)
ONCE = Effort(parameters=3, rounds=1, seconds_max=0)


@pytest.fixture(scope="module")
def social() -> SocialGraph:
    return generate(TINY)


@pytest.fixture(scope="module")
def files(social: SocialGraph, tmp_path_factory: pytest.TempPathFactory) -> SocialFiles:
    return SocialFiles(social, tmp_path_factory.mktemp("bench"))


# --- the graph ------------------------------------------------------------------------------------


def test_same_size_and_seed_give_the_same_graph(social: SocialGraph):
    again, other = generate(TINY), generate(TINY, seed=8)
    assert again.persons.equals(social.persons)
    assert all(map(np.array_equal, again.knows, social.knows))
    assert all(map(np.array_equal, again.blocks, social.blocks))
    assert not other.persons.equals(social.persons)


def test_edges_are_as_many_as_asked_for_distinct_and_without_loops(social: SocialGraph):
    source, target = social.knows
    assert len(source) == len(target) == TINY.knows
    assert len(set(zip(source.tolist(), target.tolist(), strict=True))) == TINY.knows
    assert (source != target).all()
    assert set(zip(*map(np.ndarray.tolist, social.blocks), strict=True)) & set(
        zip(*map(np.ndarray.tolist, social.knows), strict=True)
    ), "an anti-join has something to remove"


def test_degrees_follow_a_power_law():
    size = Size("small", 5_000, 50_000)
    degrees = np.bincount(generate(size).knows[0], minlength=size.persons)
    assert degrees.mean() == 10
    assert np.median(degrees) < 8
    assert degrees.max() > 80


def test_persons_have_distinct_keys_and_plain_words(social: SocialGraph):
    persons = social.persons
    assert pc.count_distinct(persons["key"]).as_py() == TINY.persons
    assert pc.all(pc.match_substring_regex(persons["key"], "^[a-z0-9]{14}$")).as_py()
    assert pc.all(pc.match_substring_regex(persons["bio"], "^([a-z]{7} ){9}[a-z]{7}$")).as_py()
    assert persons["vec"].type.list_size == 64
    assert pc.count_distinct(edge_ids(1_000)).as_py() == 1_000


def test_graph_holds_the_rows_of_the_generator(files: SocialFiles, social: SocialGraph):
    graph = open_graph(files.graph, "read_only")
    counts = {table.type_name: table.entity_count for table in graph.snapshot().datasets}
    assert counts == {"Person": TINY.persons, "Knows": TINY.knows, "Blocks": len(social.blocks[0])}
    key = social.keys[7].as_py()
    person = graph.entity_at("node:Person", key)
    assert person is not None
    assert person["name"] == social.persons["name"][7].as_py()


def test_files_are_made_once_and_never_half(files: SocialFiles):
    before = files.persons.stat().st_mtime_ns
    assert files.persons.stat().st_mtime_ns == before

    def fails(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        files.made("broken", fails)
    assert not (files.directory / "broken").exists()


# --- engines --------------------------------------------------------------------------------------


def test_all_engines_agree_on_every_question(files: SocialFiles):
    outcomes = queries.measure(files, list(QUESTIONS.values()), ONCE)
    assert [outcome.question.name for outcome in outcomes] == list(QUESTIONS)
    for outcome in outcomes:
        assert {"Omnigraph", "Kuzu"} <= outcome.seconds.keys()
        assert ("DuckDB" in outcome.seconds) == (outcome.question is not TEXT)


def test_questions_are_not_answered_by_nothing(files: SocialFiles, social: SocialGraph):
    ours = Omnigraph(files.graph)
    for question in QUESTIONS.values():
        (ask,) = ours.forms(question)
        assert any(ask(parameters) for parameters in question.ask(Chooser(social, 6)))


class Liar:
    """An engine that changes the rows of another one."""

    name = "liar"

    def __init__(self, honest: Omnigraph) -> None:
        self._honest = honest

    def forms(self, question: Wording):
        (ask,) = self._honest.forms(question)
        return [lambda parameters: ask(parameters)[:-1]]

    def close(self) -> None: ...


@pytest.mark.parametrize("question", [POINT, MANY_STARTS, VECTOR, TEXT], ids=lambda q: q.name)
def test_a_missing_row_ends_the_run(question: Question, files: SocialFiles, social: SocialGraph):
    ours = Omnigraph(files.graph)
    asked = question.ask(Chooser(social, 6))
    with pytest.raises(Mismatch, match=f"{question.name}: liar gives"):
        agreeing(question, [ours, Liar(ours)], partial(question.judge.fault, social), asked)


def test_rows_are_compared_in_order_only_where_there_is_one(social: SocialGraph):
    asked, rows, turned = [{"n": 1}], [[(1, "a"), (2, "b")]], [[(2, "b"), (1, "a")]]
    assert SameRows().fault(social, asked, turned, rows) is None
    assert SameRows(in_order=True).fault(social, asked, turned, rows) is not None
    assert SameRows().fault(social, asked, [[(1.0 + 1e-12,)]], [[(1.0,)]]) is None
    assert SameRows().fault(social, asked, [[(1.0 + 1e-3,)]], [[(1.0,)]]) is not None


def test_rankings_are_judged_by_what_is_in_the_graph(social: SocialGraph):
    ages = social.persons["age"].to_numpy()
    # Anybody but the nearest, and people the filter excludes.
    young = [(social.keys[int(row)].as_py(),) for row in np.flatnonzero(ages < 30)[:10]]
    vectors, words = VECTOR.ask(Chooser(social, 1)), TEXT.ask(Chooser(social, 1))
    assert Recall(0.95).measured(social, vectors, [young]) == 0
    assert "recall" in (Recall(0.95).fault(social, vectors, [young], []) or "")
    assert "scores" in (TopScores().fault(social, words, [young], []) or "")


# --- processes ------------------------------------------------------------------------------------


def test_changed_edges_are_in_the_answers_of_the_upkeep_measurement(
    social: SocialGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", "csr")
    private = SocialFiles(social, tmp_path)
    source, target = social.knows
    person = int(source[0])
    more = tmp_path / "more.parquet"
    stranger = next(row for row in range(TINY.persons) if row not in target[source == person])
    pair = (np.array([person], np.int32), np.array([stranger], np.int32))
    pq.write_table(social.edges(pair), more)
    answer = query_child.upkeep(
        str(private.graph), social.keys[person].as_py(), str(more), deleted=[0]
    )
    degree = int((source == person).sum())
    assert answer["degrees"] == [degree, degree + 1, degree]


def test_point_queries_of_threads_and_the_overhead_are_measured_on_right_answers(
    files: SocialFiles, social: SocialGraph
):
    keys = social.keys.to_pylist()[:20]
    graph = str(files.graph)
    assert query_child.threads("Omnigraph", graph, keys, 4, 0.05)["per_second"] > 0
    answer = query_child.overhead(graph, str(files.persons), keys)
    assert answer["whole"] > 0 and answer["data"] > 0
    assert query_child.adjacency(graph, keys[0])["peak_mb"] > 0


# --- the figures ----------------------------------------------------------------------------------


def test_figures_compare_with_every_peer_and_target_kuzu():
    fast = Outcome(POINT, {"Kuzu": 0.004, "DuckDB": 0.006, "Omnigraph": 0.001})
    slow = Outcome(TEXT, {"Kuzu": 0.002, "Omnigraph": 0.001})
    found = list(queries.figures([fast, slow]))
    assert [(each.name, each.versus.name, each.ratio) for each in found if each.versus] == [
        ("point", "Kuzu", 4),
        ("point", "DuckDB", 6),
        ("text", "Kuzu", 2),
    ]
    assert [each.is_met for each in found] == [True, None, False]


def test_some_questions_can_be_asked_alone(files: SocialFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SIZES, queries.SIZE[Scale.SMALL], TINY)
    monkeypatch.setitem(queries.EFFORT, Scale.SMALL, ONCE)
    monkeypatch.setattr(queries, "CACHE", files.directory.parent)
    found = list(queries.run(Scale.SMALL, ["point"]))
    assert [each.versus.name for each in found if each.versus] == ["Kuzu", "DuckDB", "bare Lance"]
    assert {each.name for each in found} == {"point"}
    with pytest.raises(ValueError, match="no question 'pint'; there is point, 1-hop"):
        next(queries.run(Scale.SMALL, ["pint"]))

"""The LDBC suite: its network keeps the rules of the benchmark, and all engines answer alike."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from bench.contest import Effort
from bench.ldbc import suite, updates
from bench.ldbc.files import LdbcFiles
from bench.ldbc.generator import Network, Size, generate
from bench.ldbc.parameters import parameters
from bench.ldbc.reads import (
    BUSINESS,
    COMPLEX,
    READS,
    SHORT,
    UPDATES,
    added,
    not_yet,
    wordings,
)
from bench.peer_omnigraph import Omnigraph
from bench.peers import rows_of
from bench.questions import Wording
from bench.scale import Scale
from tests.support.tables import check_all

TINY = Size("tiny", 150, 3_000)
ASKED = 4
ONCE = Effort(parameters=ASKED, rounds=1, seconds_max=0)


@pytest.fixture(scope="module")
def network() -> Network:
    return generate(TINY)


@pytest.fixture(scope="module")
def files(network: Network, tmp_path_factory: pytest.TempPathFactory) -> LdbcFiles:
    return LdbcFiles(network, tmp_path_factory.mktemp("ldbc"))


def test_the_same_size_and_seed_give_the_same_network(network: Network):
    again, other = generate(TINY), generate(TINY, seed=12)
    for name, table in {**network.nodes, **network.edges}.items():
        assert table.equals({**again.nodes, **again.edges}[name]), name
    assert not network.edges["Knows"].equals(other.edges["Knows"])


def test_nothing_happens_before_its_parts_exist(network: Network):
    def dates(kind: str) -> dict[int, dt.datetime]:
        table = network.nodes[kind]
        return dict(zip(*table.select(["no", "creationDate"]).to_pydict().values(), strict=True))

    people, forums = dates("Person"), dates("Forum")
    messages = {**dates("Post"), **dates("Comment")}
    for edge, column, source, target in (
        ("Knows", "creationDate", people, people),
        ("HasMember", "joinDate", forums, people),
        ("Likes", "creationDate", people, messages),
    ):
        for row in network.edges[edge].to_pylist():
            assert row[column] >= max(source[row["from"]], target[row["to"]]), (edge, row)
    for row in network.edges["ReplyOf"].to_pylist():
        assert messages[row["from"]] > messages[row["to"]], row
    for row in network.edges["HasCreator"].to_pylist():
        assert messages[row["from"]] >= people[row["to"]], row


def test_degrees_are_skewed_and_every_message_has_an_author_and_a_place(network: Network):
    knows = network.edges["Knows"]
    degrees = np.bincount(np.concatenate((knows["from"].to_numpy(), knows["to"].to_numpy())))
    assert degrees.max() > 2 * np.median(degrees)
    assert pc.all(pc.less(knows["from"], knows["to"])).as_py()
    for edge in ("HasCreator", "MessageIsLocatedIn"):
        assert len(set(network.edges[edge]["from"].to_pylist())) == network.messages


def test_c_qry_092_a_read_is_one_query_whose_answers_equal_those_of_duckdb(files: LdbcFiles):
    reads = wordings()
    assert [name for name, read in reads.items() if not read.sql] == [], "nothing to compare with"
    # Ends with the first read whose answers differ, and names it.
    found = suite.measure(files, list(reads.values()), ONCE)
    assert [each.read.name for each in found] == list(reads)
    omnigraph = Omnigraph(files.graph)

    def check(each: suite.Timed) -> None:
        assert each.seconds.keys() >= {"DuckDB", "Omnigraph"}
        (ask,) = omnigraph.forms(each.read)
        asked = parameters(files.network, each.read.name, ASKED)
        assert any(rows_of(ask(one)) for one in asked), "every answer is empty"

    check_all({each.read.name: each for each in found}, check)


def test_c_qry_090_an_update_is_one_mutation_and_leaves_the_rows_of_duckdb(
    files: LdbcFiles, monkeypatch: pytest.MonkeyPatch
):
    found = updates.measure(files, 1)
    assert list(found) == list(UPDATES) and len(UPDATES) == 8
    assert all(set(each) == {"DuckDB", "Kuzu", "Omnigraph"} for each in found.values())
    likes = added()["added_likes"]
    wrong = Wording(likes.name, "", likes.gq.replace("$p.no as person", "$m.no as person"), [], [])
    compared = updates.OmnigraphWriter.ask
    monkeypatch.setattr(
        updates.OmnigraphWriter,
        "ask",
        lambda self, read: compared(self, wrong if read is likes else read),
    )
    with pytest.raises(Exception, match="added_likes: Omnigraph has"):
        updates.measure(files, 1)


def test_a_wrong_answer_ends_the_run(files: LdbcFiles):
    read = wordings()["is5"]
    wrong = Wording(read.name, read.says, read.gq.replace("lastName", "gender"), [], read.sql)
    with pytest.raises(Exception, match="is5: Omnigraph gives"):
        suite.measure(files, [wrong], ONCE)


def test_c_qry_092_every_read_is_one_query():
    assert len(COMPLEX) == 14 and len(SHORT) == 7 and len(BUSINESS) == 20
    assert not_yet() == [], "these reads cannot be said"
    assert set(wordings()) == set(READS)
    assert suite.expressed().value == len(wordings()) == 41


def test_a_read_without_a_text_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bench.ldbc.reads.READS", {**READS, "bi21": "a read that nobody wrote"})
    assert not_yet() == ["bi21"]


def test_figures_name_both_peers_and_means_are_geometric():
    reads = wordings()
    found = [
        suite.Timed(reads["ic2"], {"Omnigraph": 0.001, "Kuzu": 0.004, "DuckDB": 0.002}),
        suite.Timed(reads["ic8"], {"Omnigraph": 0.001, "Kuzu": 0.016, "DuckDB": 0.0005}),
    ]
    figures = list(suite.figures(found))
    assert [(each.name, each.versus.name) for each in figures if each.versus] == [
        ("ic2", "Kuzu"),
        ("ic2", "DuckDB"),
        ("ic8", "Kuzu"),
        ("ic8", "DuckDB"),
    ]
    assert [each.is_met for each in figures] == [True, True, True, False]
    kuzu, duckdb = suite.means(found)
    assert kuzu.ratio == pytest.approx(8) and kuzu.is_met
    assert duckdb.ratio == pytest.approx(1) and not duckdb.is_met


def test_some_reads_can_be_asked_alone(files: LdbcFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(suite.SIZES, Scale.SMALL, TINY)
    monkeypatch.setitem(suite.EFFORT, Scale.SMALL, ONCE)
    monkeypatch.setattr(suite, "CACHE", Path(files.directory.parent))
    assert {each.name for each in suite.run(Scale.SMALL, ["is5"])} == {"is5"}
    with pytest.raises(ValueError, match="no read 'ic0'; there is ic1"):
        next(suite.run(Scale.SMALL, ["ic0"]))


def test_scales_differ():
    persons = [suite.SIZES[scale].persons for scale in Scale]
    assert persons == sorted(set(persons))

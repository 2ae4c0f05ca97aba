"""`graph.embed`: vectors of stored texts, by threads of this process. Spark: `tests/pipeline`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.effects.clock import MINT
from omnigraph.embedding.client import mock_vector
from omnigraph.embedding.config import BulkLimits, EmbeddingConfig
from omnigraph.errors import EmbeddingError, InputError, NotFound
from omnigraph.graph import Graph
from tests.embedding.provider_server import (
    Model,
    hang_up,
    moments,
    require_rate,
    running_provider,
    send,
)
from tests.support.templates import copy_of

SCHEMA = """
node Doc { slug: String @key  text: String?  meaning: Vector(4)? @embed(text)  stars: I32? }
node Note { text: String  sense: Vector(2)? @embed(text) }
node Word { text: String  sense: Vector(2) @embed(text) }
"""
DOCS = 10
KEY = "sk-secret"
SMALL = BulkLimits(batch_texts=2, concurrency=1)


def _make(root: Path) -> None:
    rows = [{"slug": f"d{at}", "text": f"text {at}", "stars": at} for at in range(DOCS)]
    og.init(root, SCHEMA).load(frames={"Doc": _table(rows)}, mode="append", engine="local")


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    copy_of(_make, tmp_path / "docs.omni")
    return og.open(tmp_path / "docs.omni")


def _table(rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.Table.from_pylist(rows)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """A provider that gives mock vectors, named by the environment."""
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "1")
    with running_provider() as running:
        running.model = Model()
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield running.model


def vectors(graph: Graph, type: str = "Doc") -> dict[str, Any]:
    rows = graph.table(type).to_arrow().to_pylist()
    return {row.get("slug") or row["text"]: row.get("meaning") or row.get("sense") for row in rows}


def expected(texts: dict[str, str]) -> dict[str, Any]:
    return {slug: pytest.approx(mock_vector(text, 4)) for slug, text in texts.items()}


TEXTS = {f"d{at}": f"text {at}" for at in range(DOCS)}


def test_vectors_are_one_commit_that_changes_nothing_else_and_its_cost_is_told(
    graph: Graph, model: Model
):
    before = graph.table("Doc", columns=["slug", "text", "stars"]).to_arrow().sort_by("slug")
    receipt = graph.embed("Doc", limits=BulkLimits(batch_texts=4), actor="act-ana")
    assert vectors(graph) == expected(TEXTS)
    after = graph.table("Doc", columns=["slug", "text", "stars"]).to_arrow().sort_by("slug")
    assert after == before
    assert [commit.kind for commit in graph.list_commits()] == ["load", "load", "genesis"]
    assert receipt.commit == graph.list_commits()[0]
    assert (receipt.commit.actor_id, receipt.commit.message) == ("act-ana", "embed Doc.meaning")
    assert sorted(map(len, model.batches)) == [2, 4, 4]
    (done,) = receipt.properties
    assert (done.texts, done.characters, done.tokens) == (DOCS, 6 * DOCS, 2 * DOCS)
    assert (receipt.requests, receipt.retries, receipt.tokens) == (3, 0, 2 * DOCS)
    assert receipt.to_dict()["requests"] == 3
    assert not [*Path(graph.uri).glob("__load/*")]
    again = graph.embed("Doc")
    assert (again.texts, again.commit, len(model.batches)) == (0, None, 3)


def test_all_vectors_of_the_schema_are_computed_and_blank_texts_are_not(graph: Graph, model: Model):
    without = "\n".join(line for line in SCHEMA.splitlines() if "Word" not in line)
    graph.apply_schema(without, allow_data_loss=True)
    graph.load(data=b'{"type": "Note", "data": {"text": "hm"}}', mode="append")
    graph.load(data=b'{"type": "Doc", "data": {"slug": "e", "text": " \\n"}}', mode="append")
    receipt = graph.embed()
    assert [(each.type, each.texts) for each in receipt.properties] == [("Doc", 10), ("Note", 1)]
    assert vectors(graph, "Note") == {"hm": pytest.approx(mock_vector("hm", 2))}
    assert vectors(graph)["e"] is None


def test_nodes_made_while_the_clock_lags_behind_earlier_ids_get_vectors(
    graph: Graph, model: Model, monkeypatch: pytest.MonkeyPatch
):
    """As after the clock was set back: the ids of a load must differ from those before it."""
    monkeypatch.setattr(MINT, "_last", 2_000_000_000_000 << 80)
    graph.load(data=b'{"type": "Note", "data": {"text": "hm"}}', mode="append")
    graph.embed("Note")
    assert vectors(graph, "Note") == {"hm": pytest.approx(mock_vector("hm", 2))}


def test_only_texts_that_changed_get_new_vectors_unless_the_vector_changed_too(
    graph: Graph, model: Model
):
    graph.embed("Doc")
    graph.mutate('query q { update Doc set { text: "new" } where slug = "d1" }')
    graph.mutate('query q { update Doc set { stars: 9 } where slug = "d2" }')
    own = '{"type": "Doc", "data": {"slug": "d3", "text": "mine", "meaning": [1, 0, 0, 0]}}'
    graph.load(data=own, mode="merge")
    model.answered.clear()
    (done,) = graph.embed("Doc").properties
    assert model.answered == ["new"]
    assert (done.texts, done.stale) == (1, 1)
    assert vectors(graph)["d1"] == pytest.approx(mock_vector("new", 4))
    assert vectors(graph)["d3"] == [1, 0, 0, 0]
    # Since another commit, when somebody merged vectors that this history does not tell of.
    first = graph.list_commits()[-2].graph_commit_id
    model.answered.clear()
    graph.embed("Doc", since=first)
    assert model.answered == []


def test_c_pip_029_a_provider_that_fails_now_and_then_is_asked_again(graph: Graph, model: Model):
    model.faults = {
        1: send(429, {"error": "slow down"}, Retry_After="0"),
        3: send(500, b"oops"),
        5: hang_up,
    }
    receipt = graph.embed("Doc", limits=SMALL)
    assert vectors(graph) == expected(TEXTS)
    assert (receipt.requests, receipt.retries) == (len(model.batches), 3) == (8, 3)
    assert Counter(model.answered) == Counter(TEXTS.values())


def test_c_pip_029_what_was_answered_before_a_failure_is_committed_and_not_asked_again(
    graph: Graph, model: Model
):
    model.faults = {number: send(401, {"error": "no such key"}) for number in range(3, 100)}
    with pytest.raises(EmbeddingError, match="no such key; 4 vectors of Doc") as caught:
        graph.embed("Doc", limits=SMALL)
    assert KEY not in str(caught.value)
    assert caught.value.details["texts"] == 4
    assert len(model.batches) == 3
    assert sum(vector is not None for vector in vectors(graph).values()) == 4
    model.faults.clear()
    receipt = graph.embed("Doc", limits=SMALL)
    assert (receipt.texts, receipt.requests) == (6, 3)
    assert Counter(model.answered) == Counter(TEXTS.values())
    assert vectors(graph) == expected(TEXTS)


def test_a_text_that_a_provider_refuses_is_named_and_the_others_are_kept(
    graph: Graph, model: Model
):
    model.refuses = lambda text: text == "text 6"
    with pytest.raises(EmbeddingError, match=r"the text of node 'd6': .* answered 400"):
        graph.embed("Doc", limits=BulkLimits(batch_texts=8))
    found = vectors(graph)
    assert found.pop("d6") is None
    assert all(found.values())
    assert Counter(model.answered) == Counter(set(TEXTS.values()) - {"text 6"})


DRIVER = """
import sys
import omnigraph as og
from omnigraph.embedding.config import BulkLimits
og.open(sys.argv[1]).embed("Doc", limits=BulkLimits(batch_texts=2, concurrency=1))
"""


def test_c_pip_029_a_killed_process_leaves_answered_batches_for_the_next_one(
    graph: Graph, model: Model
):
    child = subprocess.Popen([sys.executable, "-c", DRIVER, graph.uri])

    def kill(number: int, by: BaseHTTPRequestHandler) -> None:
        if number == 4:
            child.kill()
            child.wait()

    model.on_request = kill
    assert child.wait(120) == -signal.SIGKILL
    assert not any(vectors(graph).values())
    asked = Counter(text for batch in model.batches[:3] for text in batch)
    model.on_request = lambda number, by: None
    # A node whose text changed since is asked for, and not given the vector of its old text.
    changed = model.batches[0][0].replace("text ", "d")
    graph.mutate(f'query q {{ update Doc set {{ text: "other" }} where slug = "{changed}" }}')
    model.batches.clear()
    (done,) = graph.embed("Doc", limits=SMALL).properties
    assert (done.resumed, done.texts) == (5, 5)
    again = Counter(text for batch in model.batches for text in batch)
    assert again == Counter({**TEXTS, changed: "other"}.values()) - (
        asked - Counter([TEXTS[changed]])
    )
    assert vectors(graph) == expected({**TEXTS, changed: "other"})
    assert not [*Path(graph.uri).glob("__load/*")]


def test_nodes_that_change_or_go_meanwhile_are_left_to_the_next_run(graph: Graph, model: Model):
    graph.embed("Doc")
    graph.load(frames={"Doc": _table([{"slug": s, "text": s} for s in "abc"])}, mode="append")

    def others(number: int, by: BaseHTTPRequestHandler) -> None:
        if number == 2:
            other = og.open(graph.uri)
            other.mutate('query q { update Doc set { text: "A" } where slug = "a" }')
            other.mutate('query q { delete Doc where slug = "b" }')
            # Its vector is old already, and would never be noticed after this run's commit.
            other.mutate('query q { update Doc set { text: "D1" } where slug = "d1" }')

    model.batches.clear()
    model.on_request = others
    (done,) = graph.embed("Doc", limits=BulkLimits(batch_texts=1, concurrency=1)).properties
    assert (done.texts, done.left, done.stale) == (3, 2, 1)
    found = vectors(graph)
    assert "b" not in found
    assert (found["a"], found["d1"]) == (None, None)
    assert found["c"] == pytest.approx(mock_vector("c", 4))
    assert graph.embed("Doc").texts == 2
    after = {**TEXTS, "d1": "D1", "a": "A", "c": "c"}
    assert vectors(graph) == expected(after)


def test_no_more_requests_at_a_time_than_allowed_and_a_rate_that_holds(
    graph: Graph, model: Model, monkeypatch: pytest.MonkeyPatch
):
    said = moments(monkeypatch)
    limits = BulkLimits(batch_texts=1, concurrency=3, requests_per_second=40)
    graph.embed("Doc", limits=limits)
    assert len(model.arrived) == DOCS
    assert model.at_once_max <= 3
    require_rate(model, said, 40)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("Dog",), NotFound, "no node type `Dog`"),
        (("Doc", "stars"), InputError, "Doc has no vector `stars` with `@embed`"),
        (("Word",), InputError, "Word.sense is required"),
        ((None, "meaning"), InputError, "needs its `type`"),
    ],
)
def test_what_cannot_be_embedded_is_refused_before_anything_is_sent(
    graph: Graph, model: Model, arguments: Any, error: type[Exception], message: str
):
    with pytest.raises(error, match=message):
        graph.embed(*arguments)
    assert model.batches == []


def test_a_recorded_model_has_to_be_the_one_that_is_asked(tmp_path: Path):
    schema = 'node Doc { text: String  v: Vector(2)? @embed(text, model="m1") }'
    graph = og.init(tmp_path / "g.omni", schema)
    with pytest.raises(InputError, match="made with the model `m1`"):
        graph.embed(embedding=EmbeddingConfig.of("mock", model="m2"))
    assert graph.embed(embedding=EmbeddingConfig.of("mock", model="m1")).texts == 0

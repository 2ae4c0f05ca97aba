"""Idempotency keys: what they stand for, and what is left behind when a load is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import Conflict, InputError, KeyConflict
from omnigraph.graph import ErrorOptions, Graph, writing
from tests.commit.loading import lines, node

RECORDS, TABLE = "records", "table"


@pytest.fixture(params=[RECORDS, TABLE])
def load(request: pytest.FixtureRequest, graph: Graph, tmp_path: Path) -> Any:
    """Loads people in this process: as records, and as a table in a bulk job."""

    def run(*slugs: str, **options: Any) -> Any:
        given: dict[str, Any] = {"mode": "append", "engine": "local", **options}
        if request.param == RECORDS:
            path = tmp_path / "people.jsonl"
            path.write_bytes(lines(*(node("Person", slug=slug) for slug in slugs)))
            return graph.load(path, **given)
        table = tmp_path / "people.csv"
        table.write_text("\n".join(["slug", *slugs, ""]))
        return graph.load(nodes={"Person": table}, **given)

    return run


@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"mode": "merge"}, "with mode append, not merge"),
        ({"mode": "overwrite", "replace_types": ["Note"]}, "with mode append, not overwrite and"),
        ({"errors": ErrorOptions(ignore_unknown=True)}, "that refused unknown columns"),
        ({"branch": "review", "from_": "main"}, "into branch main, not review"),
    ],
)
def test_c_pip_015_a_key_that_was_used_for_another_load_is_refused(
    graph: Graph, load, options, difference
):
    first = load("ada", operation_id="k1")
    with pytest.raises(Conflict, match="the idempotency key 'k1' was already used") as caught:
        load("ada", operation_id="k1", **options)
    assert difference in caught.value.message
    assert first.commit.graph_commit_id in str(caught.value.hint)
    assert graph.list_branches() == ["main"]
    assert len(graph.list_commits()) == 2


def test_a_branch_that_was_made_for_a_load_goes_with_it(graph: Graph, load):
    load("ada", operation_id="k1")
    with pytest.raises(Conflict, match="of another input"):
        load("bob", operation_id="k1", branch="review", from_="main")
    with pytest.raises(KeyConflict):
        load("ada", branch="review", from_="main")
    assert graph.list_branches() == ["main"]


def test_a_branch_that_was_made_for_a_load_stays_if_another_writer_used_it(
    graph: Graph, load, monkeypatch
):
    made = writing.ensure_branch

    def and_written_to(*given: Any) -> Any:
        monkeypatch.setattr(writing, "ensure_branch", made)
        start = made(*given)
        other = omnigraph.open(graph.uri)
        other.load(data=lines(node("Person", slug="eve")), mode="append", branch="review")
        return start

    monkeypatch.setattr(writing, "ensure_branch", and_written_to)
    with pytest.raises(KeyConflict):
        load("eve", branch="review", from_="main")
    assert graph.list_branches() == ["main", "review"]


def test_repeating_the_load_that_made_a_branch_returns_its_receipt(graph: Graph, load):
    options = {"operation_id": "k1", "branch": "review", "from_": "main"}
    first = load("ada", **options)
    again = load("ada", **options)
    assert (first.branch_created, again.branch_created) == (True, False)
    assert again.commit == first.commit


def test_a_dry_run_names_the_branch_that_was_asked_for(graph: Graph, load):
    receipt = load("ada", branch="review", from_="main", dry_run=True)
    assert (receipt.branch, receipt.base_branch) == ("review", "main")
    assert receipt.nodes[0].inserted == 1
    assert graph.list_branches() == ["main"]


def test_a_dry_run_with_a_key_that_was_used_says_so(load):
    first = load("ada", operation_id="k1")
    receipt = load("ada", operation_id="k1", dry_run=True)
    assert (receipt.commit, receipt.dry_run) == (first.commit, True)
    assert receipt.to_dict()["total_entities"] == 0
    with pytest.raises(Conflict, match="of another input"):
        load("bob", operation_id="k1", dry_run=True)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "`operation_id` is empty"),
        (" \t", "`operation_id` is empty"),
        ("k" * 201, "`operation_id` has 201 characters, at most 200"),
        (5, "`operation_id` is a text, not int"),
    ],
)
def test_what_is_no_key_is_refused(graph: Graph, key, message):
    with pytest.raises(InputError, match=message):
        graph.load(data="", mode="append", operation_id=key)
    with pytest.raises(InputError, match=message):
        graph.mutate('query q { insert Note { text: "x" } }', operation_id=key)

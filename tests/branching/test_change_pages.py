"""The changes of one commit in pages."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import ChangeCursorRejected, InputError, LimitExceeded
from omnigraph.model.changes import BYTES_DEFAULT, CHANGES_MAX, CommitPage, PageLimits
from tests.branching.feeds import head
from tests.branching.histories import city, delete, edge, load, person, seeded


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def pages(graph: og.Graph, commit_id: str, **request: Any) -> list[CommitPage]:
    found = [graph.commit_changes_page(commit_id, **request)]
    while (token := found[-1].next_page_token) is not None:
        assert len(token) <= 4_096
        found.append(graph.commit_changes_page(commit_id, page_token=token, **request))
    return found


def mixed(graph: og.Graph) -> str:
    """A commit with every operation, on every type."""
    load(graph, *(person(f"new{n:02}") for n in range(7)), city("oslo", size=5), mode="merge")
    graph.load(
        data=b"\n".join(
            orjson.dumps(record)
            for record in (
                person("p1", age=99),
                person("p2", age=2, tags=["a"]),
                person("new00"),
                person("zoe"),
                city("bern", size=1),
                city("rome"),
                edge("Knows", "k7", "p1", "zoe"),
                edge("LivesIn", "l0", "p1", "bern"),
            )
        ),
        mode="overwrite",
    )
    return head(graph)


def test_c_bra_036_pages_of_any_size_hold_every_change_once_and_in_order(graph: og.Graph) -> None:
    commit = mixed(graph)
    whole = graph.commit_changes(commit).to_dict()
    assert {change["op"] for change in whole["changes"]} == {"insert", "update", "delete"}
    assert len({change["type"]["id"] for change in whole["changes"]}) == 4
    for limit in range(1, len(whole["changes"]) + 2):
        found = pages(graph, commit, limit=limit)
        joined = [change.to_dict() for page in found for change in page.changes]
        assert joined == whole["changes"]
        assert {len(page.changes) for page in found[:-1]} <= {limit}
        assert len(found) == -(-len(whole["changes"]) // limit)
        assert all(page.cause.to_dict() == whole["cause"] for page in found)


def test_c_bra_036_a_page_says_itself_in_json(graph: og.Graph) -> None:
    commit = mixed(graph)
    first, *_, last = pages(graph, commit, limit=3)
    document = first.to_dict()
    assert set(document) == {"cause", "changes", "next_page_token"}
    assert set(document["changes"][0]) <= {"kind", "type", "id", "op", "before", "after"}
    assert set(last.to_dict()) == {"cause", "changes"}
    text = orjson.dumps(document).decode()
    assert "graph.omni" not in text and "fragment" not in text and "version" not in text


def test_c_bra_036_pages_of_another_handle_go_on_where_this_one_stopped(graph: og.Graph) -> None:
    commit = mixed(graph)
    first = graph.commit_changes_page(commit, limit=4)
    other = og.open(graph.uri)
    rest = other.commit_changes_page(commit, page_token=first.next_page_token)
    joined = [change.to_dict() for change in (*first.changes, *rest.changes)]
    assert joined == graph.commit_changes(commit).to_dict()["changes"]


def test_c_bra_036_filters_are_kept_from_page_to_page(graph: og.Graph) -> None:
    commit = mixed(graph)
    for wanted in ({"ops": ["delete"]}, {"kinds": ["edge"]}, {"types": ["Person", "City"]}):
        found = pages(graph, commit, limit=1, **wanted)
        joined = [change.to_dict() for page in found for change in page.changes]
        assert joined == graph.commit_changes(commit, **wanted).to_dict()["changes"]
    token = graph.commit_changes_page(commit, limit=1).next_page_token
    with pytest.raises(ChangeCursorRejected, match=r"^change cursor rejected: .*another filter"):
        graph.commit_changes_page(commit, page_token=token, ops=["delete"])


def test_c_bra_036_a_token_continues_its_own_commit_only(graph: og.Graph) -> None:
    commit = mixed(graph)
    token = graph.commit_changes_page(commit, limit=1).next_page_token
    other = graph.list_commits()[1].graph_commit_id
    with pytest.raises(ChangeCursorRejected, match="another commit"):
        graph.commit_changes_page(other, page_token=token)


def test_c_bra_039_long_ids_resume_exactly(graph: og.Graph) -> None:
    names = [
        *("é" * 200 + f"{n:03}" for n in range(9)),
        *("x" * 256 + f"{n:03}" for n in range(9)),
        *("x" * n for n in range(253, 259)),
        "x" * 300,
        "é" * 127 + "aé",
        "y",
    ]
    load(graph, *(person(name) for name in names))
    expected = sorted(names, key=str.encode)
    for limit in (1, 2, 5):
        found = pages(graph, head(graph), limit=limit)
        assert [change.id for page in found for change in page.changes] == expected
        cold = [graph.commit_changes_page(head(graph), limit=limit)]
        while (token := cold[-1].next_page_token) is not None:
            again = og.open(graph.uri)  # without what another page may have left behind
            cold.append(again.commit_changes_page(head(graph), limit=limit, page_token=token))
            if len(cold) > 4:
                break
        seen = [change.id for page in cold for change in page.changes]
        assert seen == expected[: len(seen)]


def test_c_bra_042_a_change_larger_than_a_page_travels_alone(graph: og.Graph) -> None:
    big = "base64:" + "QUJD" * 2_000
    load(
        graph,
        person("a"),
        person("b", photo=big),
        person("c", photo=big),
        person("d"),
        person("e"),
        person("f", photo=big),
    )
    found = pages(graph, head(graph), limit_bytes=5_000)
    assert [[change.id for change in page.changes] for page in found] == [
        ["a"],
        ["b"],
        ["c"],
        ["d", "e"],
        ["f"],
    ]


def test_bytes_are_a_target_that_other_pages_stay_below(graph: og.Graph) -> None:
    load(graph, *(person(f"n{n:03}", tags=["tag"] * (n % 17)) for n in range(200)))
    found = pages(graph, head(graph), limit_bytes=3_000)
    sizes = [[len(orjson.dumps(change.to_dict())) for change in page.changes] for page in found]
    assert sum(map(len, sizes)) == 200
    assert all(sum(page) <= 3_000 for page in sizes)
    # The first change of the next page would have been one too many.
    assert all(sum(page) + following[0] > 3_000 for page, following in pairwise(sizes))


def test_limits_have_defaults_and_bounds(graph: og.Graph) -> None:
    assert PageLimits.of() == PageLimits(1_000, BYTES_DEFAULT, 128)
    with pytest.raises(InputError, match="cannot be 0"):
        graph.commit_changes_page(head(graph), limit=0)
    with pytest.raises(LimitExceeded) as refused:
        graph.commit_changes_page(head(graph), limit=CHANGES_MAX + 1)
    assert refused.value.details == {
        "resource": "changes per page",
        "limit": 8_192,
        "actual": 8_193,
    }
    assert len(graph.commit_changes_page(head(graph), limit=CHANGES_MAX).changes) == 9


def test_pages_of_a_commit_do_not_see_what_came_later(graph: og.Graph) -> None:
    load(graph, *(person(f"n{n:04}") for n in range(300)))
    commit = head(graph)
    first = graph.commit_changes_page(commit, limit=2)
    delete(graph, "Person", "n0002")
    second = graph.commit_changes_page(commit, limit=2, page_token=first.next_page_token)
    assert [c.id for c in (*first.changes, *second.changes)] == ["n0000", "n0001", "n0002", "n0003"]

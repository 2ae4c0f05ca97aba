"""A request that its caller names is carried out once, whoever asks again and whenever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import AlreadyExists, Conflict, InputError, NotFound, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.storage import publisher
from omnigraph.storage.manifest_rows import BranchOperationRow
from tests.support.templates import copy_of

SCHEMA = "node Person { name: String @key  age: I32? }\n"
WIDER = SCHEMA + "node City { name: String @key }\n"
WIDEST = WIDER + "node Planet { name: String @key }\n"
ADD = "query add($n: String) { insert Person { name: $n } }"


def _with_one_person(root: Path) -> None:
    og.init(root, schema=SCHEMA).mutate(ADD, {"n": "base"})


def with_branches(root: Path) -> Graph:
    """Main, a branch `side` that is one commit ahead of it, and `same`, which is not."""
    copy_of(_with_one_person, root)
    graph = og.open(root)
    for name in ("side", "same"):
        graph.create_branch(name)
    graph.mutate(ADD, {"n": "on-side"}, branch="side")
    return graph


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with_branches(tmp_path / "graph.omni")
    return tmp_path / "graph.omni"


@pytest.fixture
def only_main(tmp_path: Path) -> Graph:
    copy_of(_with_one_person, tmp_path / "only-main.omni")
    return og.open(tmp_path / "only-main.omni")


def commit_of(graph: Graph, branch: str) -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def create(graph: Graph, **key: Any) -> Any:
    return graph.create_branch("new", "side", **key)


def delete(graph: Graph, **key: Any) -> Any:
    return graph.delete_branch("side", **key)


def merge(graph: Graph, **key: Any) -> Any:
    return graph.merge_branch("side", **key)


def merge_and_delete(graph: Graph, **key: Any) -> Any:
    return graph.merge_branch("side", delete_branch=True, **key)


def merge_nothing_and_delete(graph: Graph, **key: Any) -> Any:
    return graph.merge_branch("same", delete_branch=True, **key)


def revert(graph: Graph, **key: Any) -> Any:
    # The first commit after the genesis, however many follow.
    return graph.revert(graph.list_commits()[-2].graph_commit_id, **key)


def cherry_pick(graph: Graph, **key: Any) -> Any:
    return graph.cherry_pick(commit_of(graph, "side"), **key)


def apply_schema(graph: Graph, **key: Any) -> Any:
    return graph.apply_schema(WIDER, **key)


def rebase_schema(graph: Graph, **key: Any) -> Any:
    return graph.rebase_schema("side", **key)


REQUESTS = (
    create,
    delete,
    merge,
    merge_and_delete,
    merge_nothing_and_delete,
    revert,
    cherry_pick,
    apply_schema,
    rebase_schema,
)


def prepared(request: Callable[..., Any], folder: Path) -> Graph:
    """A graph on which the request can be carried out."""
    graph = with_branches(folder / "graph.omni")
    if request is rebase_schema:
        graph.apply_schema(WIDER)
    return graph


def state(graph: Graph) -> dict[str, str]:
    """The branches and their heads."""
    return {name: commit_of(graph, name) for name in graph.list_branches()}


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_named_request_is_answered_again_by_another_process_and_does_nothing(
    tmp_path: Path, request_: Callable[..., Any]
) -> None:
    graph = prepared(request_, tmp_path)
    before = state(graph)
    first = request_(graph, actor="act-ana", operation_id="k")
    after = state(graph)
    assert after != before
    # A handle of its own shares no memory with the first, as after a restart.
    for again in (og.open(graph.uri), graph):
        assert request_(again, actor="act-ana", operation_id="k").to_dict() == first.to_dict()
        assert state(again) == after
    findings = og.open(graph.uri).examine().findings
    assert {each.severity for each in findings} <= {"advice"}


@pytest.mark.parametrize(
    "request_", [create, merge, revert, cherry_pick, apply_schema, rebase_schema]
)
def test_a_key_belongs_to_the_actor_who_used_it(
    tmp_path: Path, request_: Callable[..., Any]
) -> None:
    graph = prepared(request_, tmp_path)
    first = request_(graph, actor="act-ana", operation_id="k")
    try:
        other = request_(graph, actor="act-bo", operation_id="k")
    except AlreadyExists:
        assert request_ is create
        return
    # What was there to be done is done: the other actor's request finds nothing left, and gets no
    # receipt of the first.
    assert other != first
    assert "on-side" not in repr(getattr(other, "commit", None))
    assert getattr(other, "applied", False) is False


def test_a_branch_that_was_deleted_is_not_created_by_a_late_repetition(root: Path) -> None:
    graph = og.open(root)
    first = graph.create_branch("new", operation_id="k")
    graph.delete_branch("new")
    assert og.open(root).create_branch("new", operation_id="k") == first
    assert "new" not in graph.list_branches()


def test_a_branch_of_the_same_name_is_not_deleted_by_a_late_repetition(root: Path) -> None:
    graph = og.open(root)
    first = graph.delete_branch("side", operation_id="k")
    graph.create_branch("side")
    assert og.open(root).delete_branch("side", operation_id="k") == first
    assert "side" in graph.list_branches()


def test_what_a_branch_was_created_from_may_be_gone(root: Path) -> None:
    graph = og.open(root)
    first = graph.create_branch("new", "same", operation_id="k")
    graph.delete_branch("new")
    graph.delete_branch("same")
    assert graph.create_branch("new", "same", operation_id="k") == first


def test_a_schema_that_was_changed_again_stays(only_main: Graph) -> None:
    graph = only_main
    first = graph.apply_schema(WIDER, operation_id="k")
    graph.apply_schema(WIDEST)
    graph.create_branch("in-the-way")
    assert og.open(graph.uri).apply_schema(WIDER, operation_id="k") == first
    assert "Planet" in og.open(graph.uri).schema_source


def test_a_merge_that_did_not_get_to_the_deletion_is_completed(root: Path) -> None:
    graph = og.open(root)
    merged = graph.merge_branch("side", operation_id="k")
    again = graph.merge_branch("side", delete_branch=True, operation_id="k")
    assert again.commit == merged.commit
    assert again.branch_deleted is True
    assert "side" not in graph.list_branches()
    graph.create_branch("side")
    third = graph.merge_branch("side", delete_branch=True, operation_id="k")
    assert third == again
    assert "side" in graph.list_branches()


def require_taken(graph: Graph, others: Iterable[Callable[[], object]]) -> None:
    """None of ``others`` is carried out, or answered with the receipt that the key `k` has."""
    before = state(graph)
    for other in others:
        with pytest.raises(Conflict, match="the idempotency key 'k' was already used for"):
            other()
    assert state(graph) == before


def test_a_key_of_a_branch_stands_for_one_request(root: Path) -> None:
    graph = og.open(root)
    graph.create_branch("new", operation_id="k")
    require_taken(
        graph,
        [
            lambda: graph.create_branch("other", operation_id="k"),
            lambda: graph.create_branch("new", "same", operation_id="k"),
            lambda: graph.delete_branch("new", operation_id="k"),
        ],
    )


def test_a_key_of_a_merge_stands_for_one_request(root: Path) -> None:
    graph = og.open(root)
    graph.merge_branch("side", operation_id="k")
    require_taken(
        graph,
        [
            lambda: graph.merge_branch("same", operation_id="k"),
            lambda: graph.merge_branch("side", on_conflict="source", operation_id="k"),
            lambda: graph.mutate(ADD, {"n": "more"}, operation_id="k"),
            lambda: graph.revert(commit_of(graph, "main"), operation_id="k"),
            lambda: graph.apply_schema(WIDER, operation_id="k"),
        ],
    )


def test_a_key_of_a_revert_stands_for_one_request(root: Path) -> None:
    graph = og.open(root)
    graph.revert(commit_of(graph, "main"), operation_id="k")
    require_taken(
        graph,
        [
            lambda: graph.mutate(ADD, {"n": "more"}, operation_id="k"),
            lambda: graph.cherry_pick(commit_of(graph, "side"), operation_id="k"),
            lambda: graph.merge_branch("side", operation_id="k"),
        ],
    )


def test_a_key_of_a_schema_stands_for_one_text_and_its_options(only_main: Graph) -> None:
    graph = only_main
    graph.apply_schema(WIDER, operation_id="k")
    for text, loses in ((WIDEST, False), (WIDER, True)):
        with pytest.raises(Conflict, match="already used for another schema"):
            graph.apply_schema(text, allow_data_loss=loses, operation_id="k")
    assert "Planet" not in graph.schema_source


def test_a_key_that_is_none_is_refused(root: Path) -> None:
    graph = og.open(root)
    before = state(graph)
    for request, key in product(REQUESTS, ("", " ", "x" * 201)):
        with pytest.raises(InputError, match="operation_id"):
            request(graph, operation_id=key)
    assert state(graph) == before


@pytest.mark.parametrize("request_", [create, delete])
def test_a_request_that_failed_before_it_was_recorded_is_carried_out(
    root: Path, request_: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = og.open(root)
    before = state(graph)
    with monkeypatch.context() as patched:

        def fails(*_args: Any, **_options: Any) -> None:
            raise OSError("the disk is gone")

        patched.setattr(publisher, "stage_merge", fails)
        with pytest.raises((OSError, OmnigraphError)):
            request_(graph, operation_id="k")
    assert state(graph) == before
    request_(graph, operation_id="k")
    assert state(graph) != before


@pytest.mark.parametrize(
    ("request_", "point"),
    [
        (create, Failpoint.BRANCH_CREATE_POST_REGISTER),
        (delete, Failpoint.BRANCH_DELETE_POST_NATIVE),
    ],
)
def test_a_request_whose_answer_is_lost_was_recorded_with_its_effect(
    root: Path, request_: Callable[..., Any], point: Failpoint
) -> None:
    graph = og.open(root)

    def lose(_point: Failpoint) -> None:
        raise OSError("the answer is lost")

    with armed({point: lose}), pytest.raises((OSError, OmnigraphError)):
        request_(graph, operation_id="k")
    after = state(graph)
    assert request_(og.open(root), operation_id="k").actor_id is None
    assert state(graph) == after
    with pytest.raises((AlreadyExists, NotFound)):
        request_(og.open(root))


def test_only_so_many_changes_of_branches_are_remembered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "OPERATIONS_KEPT_MAX", 3)
    graph = og.open(root)
    for at in range(3):
        graph.create_branch(f"b-{at}", operation_id=f"create-{at}")
        graph.delete_branch(f"b-{at}", operation_id=f"delete-{at}")

    def remembered(graph: Graph) -> list[str]:
        found = graph._kernel.manifest.main.refresh().branch_operations.values()
        rows: list[BranchOperationRow] = sorted(found, key=lambda row: row.created_at)
        return [row.operation_id for row in rows]

    newest = ["delete-1", "create-2", "delete-2"]
    assert remembered(graph) == newest
    assert remembered(og.open(root)) == newest
    # What is forgotten is a new request.
    graph.create_branch("b-0", operation_id="create-0")
    assert "b-0" in graph.list_branches()

"""Requests are read strictly, and built by the same table that serves them."""

from __future__ import annotations

import re

import pytest

from omnigraph.errors import InputError
from omnigraph.wire import operations
from omnigraph.wire.operations import OPERATIONS
from omnigraph.wire.requests import (
    ChangeRequest,
    CreateBranchRequest,
    LoadRequest,
    QueryRequest,
    branch_name,
    expected_commit,
    is_request_id,
    read_document,
    refuse_condition,
)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "`query` is missing"),
        ({"query": "q", "brnch": "x"}, "unknown field `brnch`"),
        ({"query": 7}, "`query`"),
        ({"query": "q", "params": [1]}, "`params`"),
        ({"query": "q", "branch": " "}, "`branch`: is empty"),
        ({"query": "q", "branch": "a", "snapshot": "b"}, "exclude each other"),
    ],
)
def test_the_first_bad_field_is_named(document: dict[str, object], told: str):
    with pytest.raises(InputError, match=re.escape(told)):
        read_document(QueryRequest, document)


def test_branches_are_trimmed():
    asked = read_document(CreateBranchRequest, {"name": " side ", "from": "\tmain"})
    assert (asked.name, asked.from_) == ("side", "main")
    assert branch_name(" a/b ") == "a/b"
    with pytest.raises(InputError):
        branch_name("  ")


def test_older_names_mean_the_same_and_not_both():
    assert read_document(ChangeRequest, {"query_source": "q", "query_name": "n"}) == ChangeRequest(
        query="q", name="n"
    )
    with pytest.raises(InputError, match="older name"):
        read_document(ChangeRequest, {"query_source": "q", "query": "q"})


def test_a_load_has_a_mode():
    assert read_document(LoadRequest, {"data": ""}).mode == "merge"
    with pytest.raises(InputError, match="`mode`"):
        read_document(LoadRequest, {"data": "", "mode": "replace"})


def test_operations_have_distinct_ids_and_places():
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(each.method, each.path) for each in OPERATIONS}) == len(OPERATIONS)


def test_a_successor_is_an_operation():
    paths = {operation.path for operation in OPERATIONS}
    for operation in OPERATIONS:
        if operation.successor is not None:
            assert f"{operations.GRAPH}/{operation.successor}" in paths


def test_conditions_and_request_ids():
    assert expected_commit([" 01K9WR3C5T8M2B7XQ4ZJ6V0NHD "]) == "01K9WR3C5T8M2B7XQ4ZJ6V0NHD"
    refuse_condition([])
    with pytest.raises(InputError):
        refuse_condition(["x"])
    assert is_request_id("a.B_c-1") and not is_request_id("a b") and not is_request_id("")

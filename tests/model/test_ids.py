"""Identifiers: what is one, what is not, and what the caller is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import AlreadyExists, InputError
from omnigraph.model.ids import (
    BRANCH_NAME_CHARACTERS_MAX,
    SCHEMA_APPLY_LOCK,
    TableKey,
    check_branch_name,
    check_new_branch_name,
    is_ulid,
    normalize_commit_id,
    normalize_ulid,
)

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_ulids_normalise_to_upper_case() -> None:
    assert is_ulid(ULID)
    assert not is_ulid(ULID.lower())
    assert normalize_ulid(ULID.lower()) == ULID
    assert normalize_commit_id(ULID) == ULID


@pytest.mark.parametrize(
    "text",
    ["", ULID[:-1], ULID + "0", "8" + ULID[1:], ULID[:-1] + "U", ULID[:-1] + "ı", ULID + "\n"],
)
def test_other_texts_are_no_ulids(text: str) -> None:
    assert not is_ulid(text)
    with pytest.raises(InputError, match="is not a commit id") as caught:
        normalize_commit_id(text)
    assert caught.value.hint


def test_table_keys_parse_print_and_order_like_their_texts() -> None:
    keys = [TableKey.parse(text) for text in ("node:Person", "edge:Knows", "node:City")]
    assert [str(key) for key in sorted(keys)] == ["edge:Knows", "node:City", "node:Person"]
    for text in ("Person", "node:", "interface:Named", ":Person", "Node:Person"):
        with pytest.raises(InputError, match="is not a table key"):
            TableKey.parse(text)


@pytest.mark.parametrize(
    "name", ["main", "review", "review/1", "__run__x", "a.b", "-", "...", "A/b_C/0.1", "x" * 200]
)
def test_c_bra_002_wellformed_branch_names_pass(name: str) -> None:
    check_branch_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "/", "a/", "/a", "a//b", "a b", "é", "a:b", "a\n", ".", "..", "a/../b", "a/.", "x" * 201],
)
def test_c_bra_002_malformed_branch_names_are_refused_with_a_hint(name: str) -> None:
    with pytest.raises(InputError, match="branch name") as caught:
        check_branch_name(name)
    assert caught.value.hint
    assert caught.value.details == {"branch": name[:BRANCH_NAME_CHARACTERS_MAX]}
    with pytest.raises(InputError):
        check_new_branch_name(name)


def test_c_bra_002_main_and_reserved_names_cannot_be_created() -> None:
    with pytest.raises(AlreadyExists):
        check_new_branch_name("main")
    with pytest.raises(InputError, match="reserved"):
        check_new_branch_name(SCHEMA_APPLY_LOCK)
    check_new_branch_name("__run__1")


@given(st.lists(st.text("abzAZ09_-", min_size=1, max_size=8), min_size=1, max_size=5))
def test_names_of_wellformed_segments_pass(segments: list[str]) -> None:
    check_branch_name("/".join(segments))

"""Cursors and page tokens as texts."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.branching.change_pages import (
    TOKEN_BYTES_MAX,
    ChangeKey,
    CommitToken,
    Cursor,
    FeedScope,
    FeedToken,
)
from omnigraph.errors import ChangeCursorRejected, InputError
from omnigraph.model.changes import ChangeFilter

COMMIT = "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"
OTHER = "01K3Z7M0Q8W4R6T2Y5V9B1N3XD"
SCOPE = FeedScope(COMMIT, "review/1", "gb-01k3", ChangeFilter.of(["node"], ["Person"], ["insert"]))
KEY = ChangeKey.of("node", "2.1", "ada")


def test_a_text_comes_back_as_what_it_was() -> None:
    assert Cursor.read(Cursor(COMMIT).to_text(SCOPE), SCOPE) == Cursor(COMMIT)
    inside = FeedToken(COMMIT, 7, OTHER, KEY)
    assert FeedToken.read(inside.to_text(SCOPE), SCOPE) == inside
    of_commit = CommitToken(COMMIT, KEY)
    assert CommitToken.read(of_commit.to_text(SCOPE), SCOPE, COMMIT) == of_commit


@given(id=st.text(min_size=1, max_size=2_000))
def test_texts_are_short_whatever_the_id(id: str) -> None:
    token = FeedToken(COMMIT, 512, OTHER, ChangeKey.of("edge", f"{2**63}.{2**63}", id))
    scope = FeedScope(COMMIT, "b" * 200, "gb-" + COMMIT, ChangeFilter.of(types=["T" * 500] * 9))
    text = token.to_text(scope)
    assert len(text) <= TOKEN_BYTES_MAX
    assert FeedToken.read(text, scope) == token
    assert text.isascii() and set(text) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )


def test_long_ids_with_the_same_beginning_are_told_apart() -> None:
    keys = {ChangeKey.of("node", "2.1", "é" * 200 + tail) for tail in ("", "a", "b")}
    assert len(keys) == 3
    assert len({key.id for key in keys}) == 1


def test_c_bra_044_every_changed_character_is_noticed() -> None:
    text = Cursor(COMMIT).to_text(SCOPE)
    for at, letter in enumerate(text):
        changed = text[:at] + ("A" if letter != "A" else "B") + text[at + 1 :]
        with pytest.raises(ChangeCursorRejected, match=r"^change cursor rejected: it is damaged"):
            Cursor.read(changed, SCOPE)


@pytest.mark.parametrize(
    "text", ["", "x", "naïve", "=" * 8, "a" * 5_000, COMMIT, "AA==", "A\n", " ", "\x00"]
)
def test_c_bra_044_what_was_never_given_out_is_refused(text: str) -> None:
    with pytest.raises(ChangeCursorRejected, match=r"^change cursor rejected: ") as refused:
        Cursor.read(text, SCOPE)
    assert isinstance(refused.value, InputError)
    assert refused.value.envelope()["code"] == "bad_request"


def test_c_bra_044_cut_texts_and_texts_with_more_are_refused() -> None:
    text = Cursor(COMMIT).to_text(SCOPE)
    for changed in (text[:-1], text[1:], text + "A", text + "=", text * 2):
        with pytest.raises(ChangeCursorRejected):
            Cursor.read(changed, SCOPE)


def test_a_text_of_a_later_format_is_refused() -> None:
    from omnigraph.branching import change_pages

    text = Cursor(COMMIT).to_text(SCOPE)
    body = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[:-12]
    later = bytes([2]) + body[1:]
    forged = base64.urlsafe_b64encode(later + change_pages._checksum(later)).rstrip(b"=").decode()
    with pytest.raises(ChangeCursorRejected, match="format 2, and this product reads 1"):
        Cursor.read(forged, SCOPE)


@pytest.mark.parametrize(
    ("scope", "what"),
    [
        (FeedScope(OTHER, SCOPE.branch, SCOPE.ref, SCOPE.wanted), "graph"),
        (FeedScope(COMMIT, "review", SCOPE.ref, SCOPE.wanted), "branch"),
        (FeedScope(COMMIT, SCOPE.branch, None, SCOPE.wanted), "history of the branch"),
        (FeedScope(COMMIT, SCOPE.branch, SCOPE.ref, ChangeFilter()), "filter"),
    ],
)
def test_c_bra_044_what_does_not_belong_is_named(scope: FeedScope, what: str) -> None:
    with pytest.raises(ChangeCursorRejected, match=f"(?m)it belongs to another {what}$"):
        Cursor.read(Cursor(COMMIT).to_text(SCOPE), scope)


def test_the_order_of_words_in_a_filter_is_no_matter() -> None:
    one = FeedScope(COMMIT, "main", None, ChangeFilter.of(["node", "edge"], ["A", "B"], []))
    two = FeedScope(COMMIT, "main", None, ChangeFilter.of(["edge", "node"], ["B", "A", "A"], []))
    assert Cursor.read(Cursor(OTHER).to_text(one), two) == Cursor(OTHER)

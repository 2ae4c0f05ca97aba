"""The checker of histories accepts what could have happened, and nothing else."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.checker import NEVER, Operation, linearizable, step, violations


def op(kind: str, value: object, began: float, ended: float = NEVER) -> Operation:
    return Operation(kind, "k", value, began, ended)  # type: ignore[arg-type]


GOOD = {
    "nothing": [],
    "one after the other": [op("write", 1, 0, 1), op("read", 1, 2, 3), op("write", 2, 4, 5)],
    "a read beside a write sees either": [op("write", 1, 0, 9), op("read", None, 1, 2)],
    "a write without an answer may have landed": [op("write", 1, 0), op("read", 1, 1, 2)],
    "or not": [op("write", 1, 0), op("read", None, 1, 2)],
    "or later": [op("write", 1, 0), op("read", None, 1, 2), op("read", 1, 3, 4)],
    "appends beside each other": [
        *(op("append", "a", 0, 5), op("append", "b", 0, 5)),
        op("read", ("b", "a"), 6, 7),
    ],
}
BAD = {
    "a lost write": [op("write", 1, 0, 1), op("read", None, 2, 3)],
    "a stale read": [op("write", 1, 0, 1), op("write", 2, 2, 3), op("read", 1, 4, 5)],
    "a write that comes and goes": [
        *(op("write", 1, 0), op("read", 1, 1, 2), op("read", None, 3, 4)),
    ],
    "a value of nowhere": [op("write", 1, 0, 1), op("read", 7, 2, 3)],
    "two reads that disagree about the order": [
        *(op("write", 1, 0, 9), op("write", 2, 0, 9)),
        *(op("read", 1, 1, 2), op("read", 2, 3, 4), op("read", 1, 5, 6)),
    ],
    "an append that landed twice": [op("append", "a", 0, 1), op("read", ("a", "a"), 2, 3)],
    "an append that is lost": [
        *(op("append", "a", 0, 1), op("append", "b", 2, 3), op("read", ("b",), 4, 5)),
    ],
    "appends in the wrong order": [
        *(op("append", "a", 0, 1), op("append", "b", 2, 3), op("read", ("b", "a"), 4, 5)),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_could_have_happened_is_accepted(name: str) -> None:
    assert linearizable(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_c_ver_005_a_planted_bad_history_is_rejected(name: str) -> None:
    assert list(violations(BAD[name])) == ["k"]


operations = st.lists(
    st.tuples(st.sampled_from(["write", "read"]), st.integers(1, 2), st.integers(0, 6)),
    max_size=5,
)


@given(operations, st.data())
def test_it_says_the_same_as_trying_all_orders(
    drawn: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    history = []
    for kind, value, began in drawn:
        lasts = data.draw(st.integers(1, 4) | st.just(NEVER))
        history.append(op(kind, value, began, began + lasts))
    answered = [each for each in history if each.is_answered]
    open_writes = [each for each in history if not each.is_answered and each.kind == "write"]
    assert linearizable(history) == any(
        fits(order)
        for count in range(len(open_writes) + 1)
        for some in permutations(open_writes, count)
        for order in permutations([*answered, *some])
    )


def fits(order: tuple[Operation, ...]) -> bool:
    state: object = None
    for at, each in enumerate(order):
        if any(later.ended < each.began for later in order[at + 1 :]):
            return False
        ok, state = step(state, each)
        if not ok:
            return False
    return True

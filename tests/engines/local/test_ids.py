"""Slots of ids: each id gets one, keeps it, and can be had back by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import ids
from omnigraph.engines.local.ids import ABSENT, IdSpace
from omnigraph.model.hashing import Hashes, StringHash
from tests.engines.local.examples import EXAMPLES, FEW

names = st.text(alphabet="ab€𝄞", max_size=4)
batches = st.lists(st.lists(names, max_size=12), max_size=8)


@pytest.fixture(scope="module", autouse=True)
def a_tail_that_fills_quickly() -> Iterator[None]:
    """Otherwise no small space would ever fold its tail in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_TAIL_MIN", 5)
        patch.setattr(ids, "_TAIL_SHARE", 2)
        yield


def strings(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.string())


def assert_is_model(space: IdSpace, model: dict[str, int]) -> None:
    """Every way to ask gives what the model says."""
    known = list(model)
    assert len(space) == len(model)
    assert sorted(model.values()) == list(range(len(model)))
    assert space.find(strings(known)).tolist() == list(model.values())
    assert [space.find_one(text) for text in known] == list(model.values())
    slots = np.array(list(model.values()), np.int32)
    assert space.strings(slots).to_pylist() == known
    assert [space.string(slot) for slot in slots.tolist()] == known


@EXAMPLES
@given(batches)
def test_ids_keep_the_slot_they_got_first(found: list[list[str]]):
    space, model = IdSpace(), dict[str, int]()
    for batch in found:
        slots = space.intern(strings(batch)).tolist()
        for text, slot in zip(batch, slots, strict=True):
            assert model.setdefault(text, slot) == slot
        assert_is_model(space, model)


@EXAMPLES
@given(st.lists(st.lists(names, max_size=12, unique=True), max_size=8))
def test_distinct_batches_give_the_same_slots_as_any_others(found: list[list[str]]):
    space, told = IdSpace(), IdSpace()
    for batch in found:
        slots = told.intern(strings(batch), distinct=True)
        assert slots.tolist() == space.intern(strings(batch)).tolist()
    assert told.strings(np.arange(len(told), dtype=np.int32)) == space.strings(
        np.arange(len(space), dtype=np.int32)
    )


@EXAMPLES
@given(batches, st.lists(names))
def test_ids_never_met_are_absent(found: list[list[str]], asked: list[str]):
    space = IdSpace()
    met: set[str] = set()
    for batch in found:
        space.intern(strings(batch))
        met.update(batch)
    slots = space.find(strings(asked)).tolist()
    assert [slot == ABSENT for slot in slots] == [text not in met for text in asked]
    assert [space.find_one(text) for text in asked] == slots


@pytest.mark.parametrize("count", [1, 20])
def test_absent_slots_have_no_string(count: int):
    space = IdSpace()
    space.intern(strings([f"id{at}" for at in range(count)]))
    slots = np.array([ABSENT, count - 1, ABSENT, 0], np.int32)
    assert space.strings(slots).to_pylist() == [None, f"id{count - 1}", None, "id0"]
    assert space.strings(np.zeros(0, np.int32)).to_pylist() == []


def test_slices_of_a_batch_are_interned_as_they_read():
    space = IdSpace()
    column = strings(["skipped", "a", "b", "a"]).slice(1)
    assert space.intern(column).tolist() == [0, 1, 0]
    assert space.find_one("skipped") == ABSENT


def test_ids_before_and_after_folding_have_one_order_of_slots():
    space = IdSpace()
    everything = [f"n{at}" for at in range(40)]
    for at in range(0, 40, 3):  # the tail is folded in several times, at different fillings
        space.intern(strings(everything[at : at + 3]))
    assert space.strings(np.arange(40, dtype=np.int32)).to_pylist() == everything


def test_equal_hashes_of_different_ids_are_noticed_when_a_base_is_built(
    monkeypatch: pytest.MonkeyPatch,
):
    real = StringHash.many
    first_key: list[int] = []

    def many(self: StringHash, texts: pa.Array) -> Hashes:
        found = real(self, texts)
        if len(found) > 1 and (not first_key or self.key in first_key):
            first_key.append(self.key)
            found[1] = found[0]
        return found

    monkeypatch.setattr(StringHash, "many", many)
    space = IdSpace()
    everything = [f"n{at}" for at in range(10)]
    space.intern(strings(everything))
    assert first_key, "the collision never happened"
    assert space.find(strings(everything)).tolist() == list(range(10))


def test_spaces_can_be_told_apart():
    assert IdSpace().serial != IdSpace().serial


def test_a_space_says_how_large_it_is():
    space = IdSpace()
    empty = space.nbytes
    space.intern(strings([f"n{at}" for at in range(1000)]))
    assert space.nbytes > empty + 4 * 1000


@FEW
@given(st.randoms(use_true_random=False))
def test_threads_that_intern_the_same_ids_agree(choices):
    space = IdSpace()
    everything = [f"id{at}" for at in range(300)]
    orders = [choices.sample(everything, 200) for _ in range(6)]
    seen: list[dict[str, int]] = [{} for _ in orders]
    wrong: list[str] = []
    start = threading.Barrier(len(orders))

    def work(number: int) -> None:
        start.wait()
        order = orders[number]
        for at in range(0, len(order), 7):
            batch = order[at : at + 7]
            slots = space.intern(strings(batch), distinct=number % 2 == 0)
            # Whatever others are adding meanwhile, a slot means its id from the first moment on.
            if space.strings(slots).to_pylist() != batch:
                wrong.append(f"{batch} came back differently")
            if space.find(strings(batch)).tolist() != slots.tolist():
                wrong.append(f"{batch} was not found again")
            seen[number].update(zip(batch, slots.tolist(), strict=True))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(orders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    model: dict[str, int] = {}
    for part in seen:
        for text, slot in part.items():
            assert model.setdefault(text, slot) == slot
    assert_is_model(space, dict(sorted(model.items(), key=lambda item: item[1])))

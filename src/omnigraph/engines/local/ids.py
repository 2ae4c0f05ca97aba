"""Node ids as small integers: every id that a query reads gets a *slot* and keeps it.

Slots belong to a node type, not to a version of its table: adjacency, bindings and joins are arrays
of slots, and stay valid when a row is updated or a table compacted. Slots are assigned in the order
ids are read and never reused.

A space has two parts. The base is an immutable open-addressing hash table over 64-bit hashes, built
with numpy, which many threads may search at once. The tail is a dictionary of the ids added since;
it is merged into a new base when it has grown. The hashes of a base are checked to be distinct, and
computed with another key if they are not. Looking up an id that is not stored returns a wrong one
by hash collision with a probability of about 1 in 10^13 per million stored ids.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.rows import taken
from omnigraph.engines.local.sorting import sorted_numbers
from omnigraph.model.governor import current
from omnigraph.model.hashing import Hashes, StringHash
from omnigraph.model.records import dataclass
from omnigraph.model.references import qualified, with_prefix

Slots = npt.NDArray[np.int32]

ABSENT = -1
"""The slot of an id that is not stored, or of an optional match that found nothing."""

_TAIL_MIN = 4_096
_TAIL_SHARE = 8
"""The tail is merged when its size exceeds the base's divided by this."""

_SERIALS = itertools.count()

NO_STRINGS = pa.nulls(0, pa.string())


class _Base:
    """An immutable set of distinct ids; an id's slot is its index."""

    def __init__(self, strings: pa.Array, hash_: StringHash | None = None) -> None:
        hash_ = hash_ or StringHash()
        hashes = hash_.many(strings)
        while _has_repeats(hashes):
            hash_ = StringHash()
            hashes = hash_.many(strings)
        self.strings = strings
        self.hash = hash_
        self._hashes = hashes
        bits = int(np.ceil(np.log2(max(len(strings), 4)))) + 1
        self._shift = np.uint64(64 - bits)
        self._mask = (1 << bits) - 1
        self._table = np.full(1 << bits, ABSENT, np.int32)
        waiting = np.arange(len(strings), dtype=np.int32)
        place = (hashes >> self._shift).astype(np.int64)
        governor = current()
        while len(waiting):
            governor.check()
            free = self._table[place] < 0
            self._table[place[free]] = waiting[free]
            lost = self._table[place] != waiting
            waiting = waiting[lost]
            place = (place[lost] + 1) & self._mask

    @property
    def nbytes(self) -> int:
        return int(self.strings.nbytes + self._hashes.nbytes + self._table.nbytes)

    def find(self, texts: pa.Array) -> Slots:
        if not len(self.strings):
            return np.full(len(texts), ABSENT, np.int32)
        hashes = self.hash.many(texts)
        place = (hashes >> self._shift).astype(np.int64)
        found = self._table[place]
        wrong = np.flatnonzero((found >= 0) & (self._hashes[found] != hashes))
        while len(wrong):
            place[wrong] = (place[wrong] + 1) & self._mask
            found[wrong] = self._table[place[wrong]]
            again = found[wrong]
            wrong = wrong[(again >= 0) & (self._hashes[again] != hashes[wrong])]
        return found

    def find_one(self, text: str) -> int:
        if not len(self.strings):
            return ABSENT
        hash_ = self.hash.one(text)
        place = hash_ >> int(self._shift)
        while (found := int(self._table[place])) >= 0:
            if int(self._hashes[found]) == hash_ and self.strings[found].as_py() == text:
                return found
            place = (place + 1) & self._mask
        return ABSENT


def _has_repeats(hashes: Hashes) -> bool:
    ordered = sorted_numbers(hashes.copy())
    return bool((ordered[1:] == ordered[:-1]).any())


@dataclass(frozen=True, slots=True)
class _State:
    """The state readers use; replaced as a whole when the tail is merged."""

    base: _Base
    tail: dict[str, int] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)


class IdSpace:
    """The slots of one node type. Many threads may search it while one adds to it."""

    def __init__(self) -> None:
        self.serial = next(_SERIALS)
        """Unique among all spaces of the process, dropped ones included."""
        self._lock = threading.Lock()
        self._state = _State(_Base(NO_STRINGS))

    def __len__(self) -> int:
        state = self._state
        return len(state.base.strings) + len(state.added)

    @property
    def nbytes(self) -> int:
        """Approximate memory in bytes."""
        state = self._state
        return state.base.nbytes + 120 * len(state.added)

    def find_one(self, text: str) -> int:
        """The slot of one id, or `ABSENT`."""
        state = self._state
        found = state.base.find_one(text)
        return state.tail.get(text, ABSENT) if found < 0 else found

    def find(self, texts: pa.Array) -> Slots:
        """The slots of some ids, `ABSENT` for unknown ones."""
        return _find(self._state, texts)

    def intern(self, texts: pa.Array, *, distinct: bool = False) -> Slots:
        """The slots of some ids; unknown ids get new slots.

        ``distinct`` promises that no id is repeated, which saves a pass over a whole table.
        """
        slots = _find(self._state, texts)
        if not (slots < 0).any():
            return slots
        with current().locked(self._lock):
            # Another thread may have added some of them since.
            slots = _find(self._state, texts)
            missing = slots < 0
            new = texts if missing.all() else texts.filter(pa.array(missing))
            if distinct:
                slots[missing] = np.arange(len(self), len(self) + len(new), dtype=np.int32)
                self._add(new)
                return slots
            self._add(pc.unique(new))
            slots[missing] = _find(self._state, new)
            return slots

    def strings(self, slots: Slots) -> pa.Array:
        """The ids of some slots; null for `ABSENT`."""
        state = self._state
        base = state.base.strings
        if not len(slots):
            return NO_STRINGS
        if int(slots.max()) < len(base):
            return taken(base, slots)
        places = pa.array(slots, mask=slots < 0) if int(slots.min()) < 0 else pa.array(slots)
        added = pa.array(state.added, pa.string())
        return pa.chunked_array([base, added]).take(places).combine_chunks()

    def string(self, slot: int) -> str:
        """The id of one slot."""
        state = self._state
        place = slot - len(state.base.strings)
        text: str = state.base.strings[slot].as_py() if place < 0 else state.added[place]
        return text

    def _add(self, new: pa.Array) -> None:
        """Assign slots to new ids; the caller holds the lock."""
        state = self._state
        base = state.base.strings
        if len(state.added) + len(new) < max(_TAIL_MIN, len(base) // _TAIL_SHARE):
            for text in new.to_pylist():
                state.added.append(text)
                state.tail[text] = len(base) + len(state.added) - 1
            return
        parts = [base, pa.array(state.added, pa.string()), new]
        # Casting copies: slices would keep the whole batches of a scan in memory.
        self._state = _State(_Base(pa.concat_arrays([p.cast(pa.string()) for p in parts])))


class TypeIds:
    """The ids of one node type in a space of references that several types share.

    Has the interface of `IdSpace`; the slots are those of the shared space.
    """

    def __init__(self, shared: IdSpace, prefix: str) -> None:
        self._shared = shared
        self._prefix = prefix
        self.serial = shared.serial

    def __len__(self) -> int:
        return len(self._shared)

    @property
    def nbytes(self) -> int:
        """Approximate memory of the shared space in bytes."""
        return self._shared.nbytes

    def find_one(self, text: str) -> int:
        """The slot of one id, or `ABSENT`."""
        return self._shared.find_one(self._prefix + text)

    def find(self, texts: pa.Array) -> Slots:
        """The slots of some ids, `ABSENT` for unknown ones."""
        return self._shared.find(qualified(texts, self._prefix))

    def intern(self, texts: pa.Array, *, distinct: bool = False) -> Slots:
        """The slots of some ids; unknown ids get new slots."""
        return self._shared.intern(qualified(texts, self._prefix), distinct=distinct)

    def strings(self, slots: Slots) -> pa.Array:
        """The ids of some slots; null for `ABSENT`, and for nodes of other types."""
        texts = self._shared.strings(slots)
        ids = pc.utf8_slice_codeunits(texts, len(self._prefix))
        is_own = with_prefix(texts, self._prefix)
        return pc.if_else(is_own, ids, pa.scalar(None, pa.string()))

    def string(self, slot: int) -> str:
        """The id of one slot."""
        return self._shared.string(slot).removeprefix(self._prefix)


AnySpace = IdSpace | TypeIds


def _find(state: _State, texts: pa.Array) -> Slots:
    slots = state.base.find(texts)
    if state.tail:
        missed = np.flatnonzero(slots < 0)
        if len(missed):
            get = state.tail.get
            known = [get(text, ABSENT) for text in texts.take(pa.array(missed)).to_pylist()]
            slots[missed] = known
    return slots

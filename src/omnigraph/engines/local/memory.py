"""What the engine keeps in memory: one budget for all of it, and columns that grow in place.

A commit appends rows to a table; the values of earlier rows never change. So the column of a new
version is the same memory with a greater length, and arrays handed out before keep their length.
Only one version can follow in place: another that follows the same rows, such as one of another
branch, gets a copy. Reserved room takes no memory of the system until it is written.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.records import dataclass

# --- memory budget --------------------------------------------------------------------------------


class Sized(Protocol):
    """Anything that can be cached."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        ...


@dataclass(slots=True)
class _Kept:
    nbytes: int
    forget: Callable[[], object]
    shared: tuple[Sized, ...] = ()


@dataclass(slots=True)
class _SharedMemory:
    owner: Sized
    nbytes: int
    entries: int


class MemoryBudget:
    """An LRU cache of everything the engine keeps. Safe to use from many threads.

    Entries register with their size; beyond the limit the least recently used are dropped. Running
    queries hold references of their own, so dropping never affects them.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.queries = 0
        """Queries started so far."""
        self._lock = threading.RLock()
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._shared: dict[int, _SharedMemory] = {}

    def keep(
        self,
        key: Hashable,
        nbytes: int,
        forget: Callable[[], object],
        shared: Sequence[Sized] = (),
    ) -> None:
        """Register a new entry; older ones may be dropped to make room for it.

        ``shared`` is memory that other entries may use too; it counts once, until the last of them
        is dropped.
        """
        with self._lock:
            # Two threads may register the same entry.
            known = self._kept.pop(key, None)
            self._kept[key] = _Kept(nbytes, forget, tuple(shared))
            self.used += nbytes
            for owner in shared:
                self._share(owner)
            if known is not None:
                self._uncount(known)
            self._make_room(key)

    def _share(self, owner: Sized) -> None:
        known = self._shared.get(id(owner))
        if known is None:
            # The entry refers to the owner, so that the owner's `id` is not reused.
            known = self._shared[id(owner)] = _SharedMemory(owner, 0, 0)
        size = owner.nbytes
        self.used += size - known.nbytes
        known.nbytes = size
        known.entries += 1

    def _uncount(self, entry: _Kept) -> None:
        self.used -= entry.nbytes
        for owner in entry.shared:
            known = self._shared[id(owner)]
            known.entries -= 1
            if not known.entries:
                self.used -= known.nbytes
                del self._shared[id(owner)]

    def resize(self, key: Hashable, nbytes: int) -> bool:
        """Record the new size of an entry, and that it was used; False if it is not kept."""
        with self._lock:
            known = self._kept.get(key)
            if known is None:
                return False
            self.used += nbytes - known.nbytes
            known.nbytes = nbytes
            self._kept.move_to_end(key)
            self._make_room(key)
            return True

    def touch(self, keys: Iterable[Hashable]) -> None:
        """Record the use of some entries."""
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)

    def forget(self, place: Mapping[Hashable, object]) -> None:
        """Drop the entries in ``place``, which belongs to a version that is no longer cached."""
        with self._lock:
            for name in tuple(place):
                self._release((id(place), name))

    def _make_room(self, newest: Hashable) -> None:
        """Drop the least recently used entries until the rest fits; ``newest`` always stays."""
        while self.used > self.limit and (oldest := next(iter(self._kept))) != newest:
            self._release(oldest)

    def _release(self, key: Hashable) -> None:
        known = self._kept.pop(key, None)
        if known is not None:
            self._uncount(known)
            known.forget()


# --- columns that grow ----------------------------------------------------------------------------

Column: TypeAlias = pa.Array | npt.NDArray[np.int32]
"""Stored values are Arrow arrays; derived ones are numpy arrays."""

_Bytes: TypeAlias = npt.NDArray[np.uint8]

_ROOM_SHARE = 8
_ROOM_MIN = 1_024
"""Minimum number of rows reserved beyond the present ones."""

_TEXT_BYTES_MAX = 2**31 - 1


class GrowingColumn:
    """The memory of one column. Its owner calls `append` under a lock; reading needs none."""

    def __init__(self, parts: Sequence[Column]) -> None:
        """From the first values, in parts of one type; `can_grow` says which types."""
        self.length = 0
        self._type = None if isinstance(parts[0], np.ndarray) else parts[0].type
        rows = sum(map(len, parts))
        self._capacity = rows + max(rows // _ROOM_SHARE, _ROOM_MIN)
        self._nulls = 0
        self._valid: _Bytes | None = None
        self._texts: _Bytes | None = None
        self._text_bytes = 0
        if self._type is None:
            self._values: npt.NDArray[Any] = np.empty(self._capacity, np.int32)
        elif pa.types.is_string(self._type):
            self._values = np.empty(self._capacity + 1, np.int32)
            self._values[0] = 0
            size = sum(_text_bytes(part) for part in parts)
            room = size + max(size // _ROOM_SHARE, 16 * _ROOM_MIN)
            self._texts = np.empty(min(room, _TEXT_BYTES_MAX), np.uint8)
        elif pa.types.is_boolean(self._type):
            self._values = np.zeros(self._capacity // 8 + 1, np.uint8)
        else:
            self._values = np.empty(self._capacity * _row_bytes(self._type), np.uint8)
        for part in parts:
            if not self.append(part):
                raise ValueError("a column of texts can have 2 GiB")

    @property
    def nbytes(self) -> int:
        """Memory of the stored values."""
        valid = 0 if self._valid is None else self.length // 8
        if self._type is None:
            return 4 * self.length
        if self._texts is not None:
            return 4 * self.length + self._text_bytes + valid
        if pa.types.is_boolean(self._type):
            return self.length // 8 + valid
        return self.length * _row_bytes(self._type) + valid

    def append(self, more: Column) -> bool:
        """Append values; False, with nothing changed, if there is no room for them."""
        start, stop = self.length, self.length + len(more)
        if stop > self._capacity:
            return False
        if self._type is None:
            self._values[start:stop] = more
        elif self._texts is not None:
            if not self._append_texts(more, start, stop):
                return False
        elif pa.types.is_boolean(self._type):
            _write_bits(self._values, start, _mask(pc.fill_null(more, False)))
        else:
            width = _row_bytes(self._type)
            self._values[start * width : stop * width] = _fixed_bytes(more, width)
        if self._type is not None:
            self._append_validity(more, start)
        self.length = stop
        return True

    def column(self) -> Column:
        """All values so far; values appended later are not part of it."""
        if self._type is None:
            found: npt.NDArray[np.int32] = self._values[: self.length]
            return found
        valid = None if self._valid is None else pa.py_buffer(self._valid)
        values = pa.py_buffer(self._values)
        if pa.types.is_fixed_size_list(self._type):
            items = self.length * self._type.list_size
            child = pa.Array.from_buffers(self._type.value_type, items, [None, values], 0)
            return pa.Array.from_buffers(
                self._type, self.length, [valid], self._nulls, children=[child]
            )
        buffers = [valid, values]
        if self._texts is not None:
            buffers.append(pa.py_buffer(self._texts))
        return pa.Array.from_buffers(self._type, self.length, buffers, self._nulls)

    def _append_texts(self, more: pa.Array, start: int, stop: int) -> bool:
        assert self._texts is not None
        offsets, texts = _text_buffers(more)
        begin, end = self._text_bytes, self._text_bytes + int(offsets[-1] - offsets[0])
        if end > len(self._texts):
            return False
        self._texts[begin:end] = texts[int(offsets[0]) : int(offsets[-1])]
        self._values[start + 1 : stop + 1] = offsets[1:] - offsets[0] + begin
        self._text_bytes = end
        return True

    def _append_validity(self, more: pa.Array, start: int) -> None:
        nulls = more.null_count
        if self._valid is None:
            if not nulls:
                return
            valid = np.full(self._capacity // 8 + 1, 255, np.uint8)
            _write_bits(valid, start, _mask(more.is_valid()))
            self._valid = valid
        else:
            _write_bits(self._valid, start, _mask(more.is_valid()))
        self._nulls += nulls


def can_grow(part: Column) -> bool:
    """Whether columns of this type get reserved room: all but lists and rare types."""
    if isinstance(part, np.ndarray):
        return True
    type = part.type
    if pa.types.is_fixed_size_list(type):
        inner = type.value_type
        return bool(pa.types.is_floating(inner)) and not part.flatten().null_count
    tests = (
        pa.types.is_string,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_date32,
        pa.types.is_timestamp,
    )
    return any(test(type) for test in tests)


def _row_bytes(type: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(type):
        return int(type.list_size) * int(type.value_type.bit_width) // 8
    return int(type.bit_width) // 8


def _fixed_bytes(array: pa.Array, width: int) -> _Bytes:
    """The bytes of values of a fixed width; those of nulls are arbitrary."""
    if pa.types.is_fixed_size_list(array.type):
        first = array.offset * array.type.list_size
        values = array.values.slice(first, len(array) * array.type.list_size)
        width //= int(array.type.list_size)
        array = values
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array) * width, np.uint8)
    start = array.offset * width
    return np.frombuffer(buffer, np.uint8)[start : start + len(array) * width]


def _text_buffers(array: pa.Array) -> tuple[npt.NDArray[np.int32], _Bytes]:
    """The offsets and the bytes of texts; a null keeps the length of its buffer entry."""
    _, offsets, texts = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    found = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return found, np.zeros(0, np.uint8) if texts is None else np.frombuffer(texts, np.uint8)


def _text_bytes(array: pa.Array) -> int:
    offsets, _ = _text_buffers(array)
    return int(offsets[-1]) - int(offsets[0])


def _mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not len(array):
        return np.zeros(0, np.bool_)
    packed = np.frombuffer(array.buffers()[1], np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(packed, count=end, bitorder="little")[array.offset :].view(np.bool_)


def _write_bits(bits: _Bytes, start: int, values: npt.NDArray[np.bool_]) -> None:
    """Write bits from ``start`` on; earlier bits stay, also those in the same byte."""
    place, used = divmod(start, 8)
    if used:
        head = values[: 8 - used]
        kept = int(bits[place]) & ((1 << used) - 1)
        bits[place] = kept | (
            int(np.packbits(head, bitorder="little")[0]) << used if len(head) else 0
        )
        values, place = values[8 - used :], place + 1
    if len(values):
        packed = np.packbits(values, bitorder="little")
        bits[place : place + len(packed)] = packed

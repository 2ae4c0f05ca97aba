"""Sorted edges that `optimize` saves, to speed up the first queries of a process.

Reading and sorting the ends of all edges is most of the cost of the first query over them. Below
`__adjacency/<table>`, `state.json` lists the files that were sorted, and the arrays by their
digests. In arrays, a node is a number: the index of the first row with its id in the tables of
nodes.

Saved files are a verified cache. The state lists the files of edges and nodes that were read, and
the number of their deleted rows. A reader uses it if its own versions begin with these files, and
compares every array with its digest. Otherwise it reads the tables.

The state is written last, by an atomic replacement: until then the arrays of the previous state are
complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from omnigraph.effects.failures import StorageFailure
from omnigraph.effects.objects import ObjectStore
from omnigraph.model.records import dataclass
from omnigraph.storage.digests import digest_of
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.layout import ADJACENCY

FORMAT = 1
EDGES_MIN = 50_000
"""Sorting fewer edges takes about as long as opening a graph."""
_STATE = "state.json"
_DIGEST = re.compile("[0-9a-f]{32}")


class UnusableAdjacency(Exception):
    """A saved file is damaged: its content does not match its name or format."""


@dataclass(frozen=True, slots=True)
class SavedRows:
    """The first fragments of a version of a table."""

    location: str
    files: tuple[tuple[str, ...], ...]
    """By fragment: its data files."""
    rows: tuple[int, ...]
    """By fragment: the number of rows in its files, deleted ones included."""
    ids: int = 0
    """For nodes: the number of ids in these rows."""

    @classmethod
    def of(
        cls, location: str, fragments: Sequence[FragmentState], columns: int = 0, ids: int = 0
    ) -> SavedRows:
        """All fragments of a version; ``columns`` as for `begin`."""
        return cls(
            location,
            tuple(fragment.files[: len(fragment.files) - columns] for fragment in fragments),
            tuple(fragment.rows for fragment in fragments),
            ids,
        )

    @property
    def size(self) -> int:
        """The number of rows, deleted ones included."""
        return sum(self.rows)

    def begin(self, fragments: Sequence[FragmentState], columns: int = 0) -> bool:
        """Whether a version begins with these files.

        ``columns`` is the number of names after those of the files in each fragment.
        """
        own = fragments[: len(self.files)]
        return len(own) == len(self.files) and all(
            each.files[: len(each.files) - columns] == files and each.rows == rows
            for each, files, rows in zip(own, self.files, self.rows, strict=True)
        )


@dataclass(frozen=True, slots=True)
class SavedSide:
    """The edges sorted by one end."""

    has_parallels: bool
    has_loops: bool
    pointers: str
    neighbours: str
    positions: str
    """The name of the array of positions."""
    values: Mapping[str, str]
    """By stored column: the name of the array with its values, in this order."""

    @property
    def names(self) -> list[str]:
        """The names of all arrays of this side."""
        return [self.pointers, self.neighbours, self.positions, *self.values.values()]


@dataclass(frozen=True, slots=True)
class SavedState:
    """The files that were sorted, and the names of the arrays."""

    edges: SavedRows
    columns: str
    """The stored columns of the edges with their field ids."""
    deleted: tuple[int, ...]
    """By fragment: the number of deleted rows."""
    offsets: str
    """The name of the array with the offsets of deleted rows."""
    sources: tuple[SavedRows, ...]
    targets: tuple[SavedRows, ...]
    """The tables of nodes at the ends, in the order of numbering."""
    sides: Mapping[str, SavedSide]
    """By direction: `out` and `in`."""

    @property
    def live(self) -> int:
        """The number of edges."""
        return self.edges.size - sum(self.deleted)

    @property
    def names(self) -> set[str]:
        """All arrays."""
        return {self.offsets, *(name for side in self.sides.values() for name in side.names)}


def encode_state(state: SavedState) -> bytes:
    """The content of `state.json`."""
    content = asdict(state)
    text = orjson.dumps(content).decode()
    return orjson.dumps({"format": FORMAT, "digest": digest_of(text.encode()).digest, "of": text})


def decode_state(content: bytes) -> SavedState:
    """The state in `state.json`; raises `UnusableAdjacency`."""
    try:
        document = orjson.loads(content)
        text = document["of"]
        if document["format"] != FORMAT or digest_of(text.encode()).digest != document["digest"]:
            raise UnusableAdjacency("its digest is another")
        found = orjson.loads(text)
        return SavedState(
            _rows(found["edges"]),
            found["columns"],
            tuple(found["deleted"]),
            found["offsets"],
            tuple(map(_rows, found["sources"])),
            tuple(map(_rows, found["targets"])),
            {direction: SavedSide(**side) for direction, side in found["sides"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnusableAdjacency(f"its state cannot be read: {error}") from error


def _rows(found: Mapping[str, Any]) -> SavedRows:
    files = tuple(map(tuple, found["files"]))
    return SavedRows(found["location"], files, tuple(found["rows"]), found["ids"])


@contextmanager
def _unusable() -> Iterator[None]:
    """Raise `UnusableAdjacency` for errors of storage, since saved files are optional."""
    try:
        yield
    except StorageFailure as failure:
        raise UnusableAdjacency(failure.message) from failure


class AdjacencyFiles:
    """The saved files of one table of edges."""

    def __init__(self, store: ObjectStore, location: str) -> None:
        self._store = store
        self.folder = f"{ADJACENCY}/{location}"
        self.state_name = self._key(_STATE)

    def state(self) -> SavedState | None:
        """The last saved state; None if there is none. Raises `UnusableAdjacency`."""
        with _unusable():
            content = self._store.read_if_exists(self._key(_STATE))
        return None if content is None else decode_state(content)

    def arrays(self, names: Sequence[str]) -> list[bytes]:
        """The verified contents of some arrays; raises `UnusableAdjacency`."""
        with _unusable():
            contents = self._store.read_each([self._key(name) for name in names])
        found = []
        for name, content in zip(names, contents, strict=True):
            if content is None:
                raise UnusableAdjacency(f"{self._key(name)} is missing")
            if not is_whole(name, content):
                raise UnusableAdjacency(f"{self._key(name)} is not what was written")
            found.append(content)
        return found

    def problem(self) -> str | None:
        """The problem of the saved files, found by reading every array; None without one."""
        try:
            state = self.state()
            if state is not None:
                for name in sorted(state.names):
                    self.arrays([name])
        except UnusableAdjacency as error:
            return str(error)
        return None

    def write(self, content: bytes) -> str:
        """Write an array, and return its name."""
        name = digest_of(content).digest
        self._store.write_chunks(self._key(name), [content])
        return name

    def publish(self, state: SavedState) -> None:
        """Replace the state, whose arrays are written, and remove all other objects."""
        self._store.write(self._key(_STATE), encode_state(state))
        for name in self.left_over(state):
            self._store.delete(name)

    def left_over(self, state: SavedState | None) -> list[str]:
        """The objects that a state does not name, of interrupted runs or previous states."""
        known = set() if state is None else {_STATE, *state.names}
        keys = {self._key(name) for name in known}
        return [name for name in self._store.list(self.folder) if name not in keys]

    def unneeded(self, fragments: Sequence[FragmentState]) -> list[str]:
        """The objects that readers of a version cannot use: all, if it has other files."""
        try:
            state = self.state()
        except UnusableAdjacency:
            state = None
        fits = state is not None and state.edges.begin(fragments)
        return self.left_over(state if fits else None)

    def _key(self, name: str) -> str:
        return f"{self.folder}/{name}"


def is_worth_saving(edges: int) -> bool:
    """Whether sorting so many edges takes longer than reading sorted ones."""
    return edges >= EDGES_MIN


def is_whole(name: str, content: bytes) -> bool:
    """Whether the content of an array has the digest in its name."""
    return digest_of(content).digest == name


def saved_locations(names: Iterable[str]) -> list[str]:
    """The tables for which there are saved objects; these tables need not exist."""
    lead = f"{ADJACENCY}/"
    inside = (name.removeprefix(lead) for name in names if name.startswith(lead))
    return sorted({name.rpartition("/")[0] for name in inside if "/" in name})


def digest_in(name: str) -> str | None:
    """The digest in the name of an array; None for other objects."""
    folder, _, last = name.rpartition("/")
    is_array = folder.startswith(f"{ADJACENCY}/") and _DIGEST.fullmatch(last)
    return last if is_array else None


def is_state(name: str) -> bool:
    """Whether an object is a `state.json`."""
    return name.startswith(f"{ADJACENCY}/") and name.endswith(f"/{_STATE}")


# --- arrays ---------------------------------------------------------------------------------------


def encode_numbers(values: npt.NDArray[Any]) -> bytes:
    """An array of 32-bit or 64-bit numbers as bytes."""
    return values.astype(f"<i{values.itemsize}", copy=False).tobytes()


def decode_numbers(content: bytes, itemsize: int, count: int, below: int) -> npt.NDArray[Any]:
    """The decoded array; checks that it has ``count`` numbers from 0 and ``below`` a bound."""
    if len(content) != count * itemsize:
        raise UnusableAdjacency("an array has another length")
    # As unsigned numbers, negative ones are large.
    unsigned = np.frombuffer(content, f"<u{itemsize}")
    if count and int(unsigned.max()) >= max(below, 0):
        raise UnusableAdjacency("an array has a number that is too large")
    return unsigned.view(f"<i{itemsize}").astype(f"=i{itemsize}", copy=False)


def encode_column(values: pa.Array) -> bytes:
    """A column as bytes."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([values], names=["values"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_column(content: bytes, type: pa.DataType, count: int) -> pa.Array:
    """The decoded column, without a copy; checks that it has this type and so many values."""
    try:
        (batch,) = pa.ipc.open_stream(pa.py_buffer(content))
        (values,) = batch.columns
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        raise UnusableAdjacency(f"a column cannot be read: {error}") from error
    if values.type != type or len(values) != count:
        raise UnusableAdjacency("a column has another type or length")
    return values

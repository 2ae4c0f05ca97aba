"""A social graph of any size: the same rows for the same size and seed, made column by column.

Degrees follow a power law, in and out independently; no edge repeats another or leads back to where
it starts, so that engines which count walks and engines which count neighbours agree. The words of
the texts have no digits and no ending that a stemmer would cut off, so that all tokenizers agree.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]

SEED = 7
DIMENSIONS = 64
CLUSTERS = 200
SPREAD = 0.7
"""Noise around the centre of a cluster: neighbours are mostly, not only, of the same cluster."""
CITIES = 300
WORDS = 2_000
WORDS_PER_BIO = 10
KEY_LENGTH = 14
AGE_MIN, AGE_MAX = 18, 90
JOINED_FIRST = dt.date(2010, 1, 1)
JOINED_DAYS = 5_800
DEGREE_TAIL = 1.6
"""The exponent of the degree distribution: smaller means larger hubs."""

SCHEMA = f"""
node Person {{
    key: String @key
    name: String @index
    age: I32 @index
    city: String
    joined: Date
    bio: String @index
    vec: Vector({DIMENSIONS}) @index
}}
edge Knows: Person -> Person
edge Blocks: Person -> Person
"""

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)
_CONSONANTS = np.frombuffer(b"bdfgklmnprtvz", np.uint8)
_VOWELS = np.frombuffer(b"aou", np.uint8)
_LAST = np.frombuffer(b"bkp", np.uint8)
_CROCKFORD = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a graph is; its name is part of the names of files made from it."""

    name: str
    persons: int
    knows: int

    @property
    def blocks(self) -> int:
        """One block for every ten persons."""
        return max(self.persons // 10, 4)


SIZES = {
    size.name: size
    for size in (
        Size("100k", 100_000, 1_000_000),
        Size("200k", 200_000, 2_000_000),
        Size("1m", 1_000_000, 10_000_000),
    )
}


@dataclass(frozen=True, eq=False)
class SocialGraph:
    """The rows of one graph; edges are pairs of row numbers in ``persons``."""

    size: Size
    seed: int
    persons: pa.Table
    knows: tuple[Integers, Integers]
    blocks: tuple[Integers, Integers]
    centres: Floats

    @cached_property
    def keys(self) -> pa.StringArray:
        """The keys of all persons, by row number."""
        return self.persons["key"].combine_chunks()

    def vectors(self) -> Floats:
        """The vectors of all persons, one row each."""
        flat = self.persons["vec"].combine_chunks().flatten()
        return np.asarray(flat.to_numpy(zero_copy_only=True)).reshape(-1, DIMENSIONS)

    def edges(self, pairs: tuple[Integers, Integers]) -> pa.Table:
        """Edges with the keys of their ends, in the columns `src` and `dst`."""
        rows = _key_bytes(self.keys)
        source, target = pairs
        return pa.table({"src": _strings(rows[source]), "dst": _strings(rows[target])})


def generate(size: Size, seed: int = SEED) -> SocialGraph:
    """The graph of a size and a seed."""
    random = np.random.default_rng([seed, size.persons, size.knows])
    centres = random.standard_normal((CLUSTERS, DIMENSIONS), dtype=np.float32)
    persons = _persons(random, size.persons, centres)
    knows = _pairs(random, size.persons, size.knows)
    # Half of the blocks meet an acquaintance: an anti-join has something to remove.
    known = random.choice(size.knows, size.blocks // 2, replace=False)
    others = _pairs(random, size.persons, size.blocks - len(known))
    blocks = _distinct(
        np.concatenate([knows[0][known], others[0]]),
        np.concatenate([knows[1][known], others[1]]),
        size.persons,
    )
    return SocialGraph(size, seed, persons, knows, blocks, centres)


def edge_ids(count: int, first: int = 0) -> pa.StringArray:
    """ULIDs as one process mints them in one millisecond: a common beginning, then ascending."""
    digits = np.full((count, 26), ord("0"), np.uint8)
    digits[:, :10] = np.frombuffer(b"01J8ZQ4M2R", np.uint8)
    digits[:, 10:18] = np.frombuffer(b"7H3VTXKD", np.uint8)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    for place in range(8):
        digits[:, 25 - place] = _CROCKFORD[(numbers >> np.uint64(5 * place)) & np.uint64(31)]
    return _strings(digits)


# --- persons --------------------------------------------------------------------------------------


def _persons(random: np.random.Generator, count: int, centres: Floats) -> pa.Table:
    first, last = _words(random, 1_000, 2), _words(random, 1_000, 2)
    cities, words = _words(random, CITIES, 3), _words(random, WORDS, 3)
    cluster = random.integers(0, CLUSTERS, count)
    noise = random.standard_normal((count, DIMENSIONS), dtype=np.float32)
    vectors = centres[cluster] + np.float32(SPREAD) * noise
    joined = (JOINED_FIRST - dt.date(1970, 1, 1)).days + random.integers(0, JOINED_DAYS, count)
    name = [random.integers(0, 1_000, count) for _ in range(2)]
    bio = [_power_law(random, WORDS, count) for _ in range(WORDS_PER_BIO)]
    return pa.table(
        {
            "key": _strings(_keys(random, count)),
            "name": _sentences([first[name[0]], last[name[1]]]),
            "age": pa.array(random.integers(AGE_MIN, AGE_MAX + 1, count), pa.int32()),
            "city": _strings(cities[_power_law(random, CITIES, count)]),
            "joined": pa.array(joined.astype(np.int32), pa.int32()).cast(pa.date32()),
            "bio": _sentences([words[word] for word in bio]),
            "vec": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.reshape(-1)), type=pa.list_(pa.float32(), DIMENSIONS)
            ),
        }
    )


def _keys(random: np.random.Generator, count: int) -> Bytes:
    """Random keys, made distinct by their first letters: 36 to the fifth is 60 million."""
    keys = _LETTERS[random.integers(0, len(_LETTERS), (count, KEY_LENGTH))]
    numbers = random.permutation(count)
    for place in range(5):
        keys[:, place] = _LETTERS[numbers // len(_LETTERS) ** place % len(_LETTERS)]
    return keys


def _words(random: np.random.Generator, count: int, syllables: int) -> Bytes:
    """Distinct words of consonant and vowel in turn, ended by a letter that no suffix ends with."""
    kinds = len(_CONSONANTS) * len(_VOWELS)
    numbers = random.choice(kinds**syllables, count, replace=False)
    out = np.empty((count, 2 * syllables + 1), np.uint8)
    for place in range(syllables):
        syllable = numbers // kinds**place % kinds
        out[:, 2 * place] = _CONSONANTS[syllable // len(_VOWELS)]
        out[:, 2 * place + 1] = _VOWELS[syllable % len(_VOWELS)]
    out[:, -1] = _LAST[random.integers(0, len(_LAST), count)]
    return out


def _power_law(random: np.random.Generator, kinds: int, count: int) -> npt.NDArray[np.int64]:
    """Choices among kinds of which the first are far more frequent than the last."""
    weights = np.cumsum(1 / np.arange(3, kinds + 3))
    return np.asarray(np.searchsorted(weights, random.random(count) * weights[-1]))


# --- edges ----------------------------------------------------------------------------------------


def _pairs(random: np.random.Generator, persons: int, count: int) -> tuple[Integers, Integers]:
    """Distinct edges in no order, between persons whose degrees follow a power law."""
    sources, targets = _stubs(random, persons, count), _stubs(random, persons, count)
    drawn = int(count * 1.02) + 100
    while True:
        source = sources[random.integers(0, len(sources), drawn)]
        target = targets[random.integers(0, len(targets), drawn)]
        apart = source != target
        source, target = _distinct(source[apart], target[apart], persons)
        if len(source) >= count:
            kept = random.permutation(len(source))[:count]
            return source[kept], target[kept]
        # Hubs meet each other again and again: the smaller the graph, the more pairs repeat.
        drawn = int(drawn * 1.3)


def _stubs(random: np.random.Generator, persons: int, count: int) -> Integers:
    """Every person as often as its share of the edges."""
    wish = random.pareto(DEGREE_TAIL, persons) + 0.3
    degree = np.ceil(wish * (count / wish.sum()) * 4).astype(np.int64)
    limit = max(persons // 50, 2)
    return np.repeat(np.arange(persons, dtype=np.int32), np.minimum(degree, 4 * limit))


def _distinct(source: Integers, target: Integers, persons: int) -> tuple[Integers, Integers]:
    packed = source.astype(np.int64) * persons + target
    packed.sort()
    packed = packed[np.concatenate([[True], packed[1:] != packed[:-1]])]
    return (packed // persons).astype(np.int32), (packed % persons).astype(np.int32)


# --- text without Python strings ------------------------------------------------------------------


def _strings(rows: Bytes) -> pa.StringArray:
    """Rows of equally many bytes as strings."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes()))


def _sentences(words: list[Bytes]) -> pa.StringArray:
    """Columns of words, joined by spaces."""
    parts: list[Any] = [words[0]]
    space = np.full((len(words[0]), 1), ord(" "), np.uint8)
    for word in words[1:]:
        parts += [space, word]
    return _strings(np.hstack(parts))


def _key_bytes(keys: pa.StringArray) -> Bytes:
    return np.frombuffer(keys.buffers()[2], np.uint8).reshape(-1, KEY_LENGTH)

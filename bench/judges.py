"""Whether an answer is right.

Most questions have one answer, and engines have to agree on it. The ten best of a ranking may be
chosen differently where scores are equal, and approximate indexes may miss some: these are judged
by what numpy finds in the whole graph.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bench.social import SocialGraph

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = Sequence[Row]
Parameters: TypeAlias = Mapping[str, Any]
Places: TypeAlias = npt.NDArray[np.int64]
Values: TypeAlias = npt.NDArray[np.floating[Any]]

TOP = 10
BM25_K = 1.2
REMEMBERED = 64


class Judge(Protocol):
    """Decides about the answers to one question."""

    def fault(
        self,
        social: SocialGraph,
        asked: Sequence[Parameters],
        answers: Sequence[Rows],
        expected: Sequence[Rows],
    ) -> str | None:
        """What is wrong with answers to the same question with several parameters, if anything.

        ``expected`` are those of the engine that was asked first.
        """
        ...


@dataclass(frozen=True)
class SameRows:
    """The rows are those of the first engine, in the same order where the question asks for one."""

    in_order: bool = False

    def fault(
        self,
        social: object,
        asked: Sequence[Parameters],
        answers: Sequence[Rows],
        expected: Sequence[Rows],
    ) -> str | None:
        """The first difference."""
        for parameters, answer, wanted in zip(asked, answers, expected, strict=True):
            ours, theirs = self._plain(answer), self._plain(wanted)
            if ours != theirs:
                found = next(
                    (pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), ""
                )
                shown = {name: _shortened(value) for name, value in parameters.items()}
                return f"{len(ours)} rows, not {len(theirs)}, for {shown} {found}"
        return None

    def _plain(self, rows: Rows) -> list[Row]:
        plain = [tuple(_plain_value(value) for value in row) for row in rows]
        return plain if self.in_order else sorted(plain)


@dataclass(frozen=True)
class Recall:
    """Enough of the truly nearest are found, on average; none that the filter excludes is."""

    least: float

    def fault(
        self,
        social: SocialGraph,
        asked: Sequence[Parameters],
        answers: Sequence[Rows],
        expected: Sequence[Rows],
    ) -> str | None:
        """A recall that is too low."""
        recall = self.measured(social, asked, answers)
        return None if recall >= self.least else f"a recall of {recall:.3f}"

    def measured(
        self, social: SocialGraph, asked: Sequence[Parameters], answers: Sequence[Rows]
    ) -> float:
        """The share of the nearest that was found."""
        found = 0
        for parameters, answer in zip(asked, answers, strict=True):
            point, age = tuple(parameters["q"]), parameters["age"]
            rows = np.unique(_positions(social, answer))
            near = _distances(social, point, rows) <= _tenth_distance(social, point, age)
            found += int((near & _is_older(social, age, rows)).sum())
        return found / (TOP * len(asked))


class TopScores:
    """The texts found are as good as the best ones there are, by BM25."""

    def fault(
        self,
        social: SocialGraph,
        asked: Sequence[Parameters],
        answers: Sequence[Rows],
        expected: Sequence[Rows],
    ) -> str | None:
        """An answer that leaves out a better text."""
        for parameters, answer in zip(asked, answers, strict=True):
            text, age = parameters["q"], parameters["age"]
            rows = _positions(social, answer)
            scores = np.where(_is_older(social, age, rows), _bm25(social, text, rows), 0)
            found, best = np.sort(scores)[::-1], _best_scores(social, text, age)
            if len(found) != len(best) or not np.allclose(found, best, rtol=1e-4):
                return f"scores {found.round(3)} instead of {best.round(3)} for {text!r}"
        return None


# What is best in a whole graph is the same for all engines, so it is looked for once.


@lru_cache(REMEMBERED)
def _tenth_distance(social: SocialGraph, point: tuple[float, ...], age: int) -> float:
    """How far the last of the nearest is; a little more, since engines round differently."""
    older = np.flatnonzero(_is_older(social, age, slice(None)))
    distances = _distances(social, point, older)
    return float(np.partition(distances, TOP - 1)[TOP - 1]) * (1 + 1e-5)


@lru_cache(REMEMBERED)
def _best_scores(social: SocialGraph, text: str, age: int) -> npt.NDArray[np.float64]:
    older = np.flatnonzero(_is_older(social, age, slice(None)))
    best = np.sort(_bm25(social, text, older))[::-1][:TOP]
    return np.asarray(best[best > 0])


@lru_cache(2 * REMEMBERED)
def _rarity(social: SocialGraph, word: str) -> float:
    bios = social.persons["bio"]
    having = pc.sum(pc.match_substring(bios, word)).as_py()
    return float(np.log(1 + (len(bios) - having + 0.5) / (having + 0.5)))


def _distances(social: SocialGraph, point: Sequence[float], rows: Places) -> Values:
    difference = social.vectors()[rows] - np.array(point, np.float32)
    return np.asarray((difference**2).sum(axis=1))


def _bm25(social: SocialGraph, text: str, rows: Places) -> Values:
    """The scores of some persons; all bios are equally long, so length does not enter."""
    bios = social.persons["bio"].take(pa.array(rows))
    scores = np.zeros(len(rows))
    for word in text.split():
        often = pc.count_substring(bios, word).to_numpy().astype(np.float64)
        scores += _rarity(social, word) * often * (BM25_K + 1) / (often + BM25_K)
    return scores


def _is_older(social: SocialGraph, age: int, rows: Places | slice) -> npt.NDArray[np.bool_]:
    return np.asarray(social.persons["age"].to_numpy()[rows] > age)


def _positions(social: SocialGraph, rows: Rows) -> Places:
    keys = pa.array([row[0] for row in rows], pa.string())
    found = pc.index_in(keys, value_set=social.keys)
    if found.null_count:
        raise ValueError(f"no entity has one of the keys {keys.to_pylist()}")
    return np.asarray(found.to_numpy()).astype(np.int64)


def _plain_value(value: Any) -> Any:
    """A value that is equal for equal answers: engines differ in rounding, zones and objects."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, Mapping):
        value = list(value.values())
    return tuple(map(_plain_value, value)) if isinstance(value, list | tuple) else value


def _shortened(value: Any) -> Any:
    return f"{len(value)} values" if isinstance(value, list) else value

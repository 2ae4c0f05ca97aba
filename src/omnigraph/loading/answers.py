"""What tasks say: few words about many rows.

From a task that was given a number, an answer comes as it is. From one that was given rows of a
frame it comes as rows itself, of a kind and a JSON text, in which a record is the list of its
fields. Within one process an answer may also hold what does not travel at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import pyarrow as pa

ANSWERS = "task int, kind string, payload string"
"""The Spark schema of what a task says."""

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a worker of Spark does: numbers of tasks in, rows out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One thing that a task says."""

    kind: str
    payload: dict[str, Any]
    task: int = -1
    """Who says it; -1 where nobody asks."""


Ask = Callable[[int], Sequence[Answer]]
"""What one task does, by its number."""


def numbers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers that Spark gives a worker."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def one_number(number: int) -> Iterator[pa.RecordBatch]:
    """A number as Spark would give it."""
    return iter([pa.record_batch([pa.array([number], pa.int64())], names=["id"])])


def encoded_answers(task: int, answers: Sequence[Answer]) -> pa.RecordBatch:
    """What a task says, as rows of `ANSWERS`."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([task] * len(answers), pa.int32()),
            pa.array([each.kind for each in answers], pa.string()),
            pa.array([json.dumps(each.payload, default=astuple) for each in answers], pa.string()),
        ],
        names=["task", "kind", "payload"],
    )


def decoded_answer(row: Any) -> Answer:
    """The opposite, from a row as Spark collects it."""
    return Answer(row["kind"], json.loads(row["payload"]), row["task"])


def decoded_answers(rows: Iterable[Any]) -> list[Answer]:
    """The same for several rows."""
    return list(map(decoded_answer, rows))

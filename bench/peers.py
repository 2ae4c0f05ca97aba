"""What is compared: engines that answer a question with rows of Python values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from bench.judges import Parameters, Rows
from bench.questions import Wording

Answer: TypeAlias = list[Any]
"""Rows as an engine hands them out: tuples, lists, or objects by column."""
Form: TypeAlias = Callable[[Parameters], Answer]
"""One way to put a question: text and parameters in, rows out."""

_PARAMETER = re.compile(r"\$(\w+)")


class Peer(Protocol):
    """An open database of one engine."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def forms(self, question: Wording) -> Sequence[Form]:
        """The ways it can be asked; none if it has no answer."""
        ...

    def close(self) -> None:
        """Give up the database."""
        ...


def rows_of(answer: Answer) -> Rows:
    """The values of an answer, whatever form it came in."""
    return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in answer]


def used_in(text: str, parameters: Parameters) -> dict[str, Any]:
    """The parameters that a text names: some engines refuse others."""
    return {name: parameters[name] for name in _PARAMETER.findall(text)}

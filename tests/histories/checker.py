"""Whether a history of invocations and answers could have happened one after the other.

A history is linearizable if its operations can be put in an order in which each takes effect at one
moment between its invocation and its answer, and every answer fits. Objects are independent of each
other, so each key is checked by itself. An operation without an answer may have taken effect at any
moment after its invocation, or never; one that was refused never did, and is left out.

The search is that of Wing and Gong: take any operation that no other one has ended before, apply it
to the model, go on; a state that was reached with the same operations before is not tried again. It
knows nothing of Omnigraph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["write", "append", "read"]
NEVER = float("inf")


@dataclass(frozen=True)
class Operation:
    """One operation on one key."""

    kind: Kind
    key: str
    value: Any
    """What is written or appended; of a read what was answered."""
    began: float
    ended: float = NEVER
    """`NEVER` if it was not answered."""

    @property
    def is_answered(self) -> bool:
        return self.ended != NEVER


def step(state: Any, operation: Operation) -> tuple[bool, Any]:
    """Whether an operation can happen in a state, and the next state.

    A state is the value of a register, or the list of what was appended; None at first.
    """
    match operation.kind:
        case "write":
            return True, operation.value
        case "append":
            return True, (*(state or ()), operation.value)
        case "read":
            return operation.value == state, state


def linearizable(operations: Sequence[Operation]) -> bool:
    """Whether the operations on one key could have happened one after the other."""
    # A read without an answer says nothing.
    asked = [each for each in operations if each.is_answered or each.kind != "read"]
    asked.sort(key=lambda each: each.began)
    required = sum(1 << at for at, each in enumerate(asked) if each.is_answered)
    tried: set[tuple[int, Any]] = set()
    ahead: list[tuple[int, Any]] = [(0, None)]
    while ahead:
        done, state = ahead.pop()
        if done & required == required:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        left = [(at, each) for at, each in enumerate(asked) if not done >> at & 1]
        first_end = min(each.ended for _, each in left)
        for at, each in reversed(left):
            if each.began <= first_end:
                fits, after = step(state, each)
                if fits:
                    ahead.append((done | 1 << at, after))
    return not required


def violations(history: Iterable[Operation]) -> dict[str, list[Operation]]:
    """The keys whose operations fit no order, each with its operations."""
    by_key: dict[str, list[Operation]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    return {key: each for key, each in by_key.items() if not linearizable(each)}

"""A process that performs one operation on a graph, and may die on the way.

    OMNIGRAPH_FAILPOINTS='mutation.post_table_commit=kill@2' \\
        python -m tests.crash.child insert path/to/graph.omni answer.json

The answer is written when the operation has returned or raised: a process that was killed before
has acknowledged nothing. Tests start it through `tests.crash.processes`, which forks it from a
server that has the imports behind it; the process is as real, and as dead, as a fresh one.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from omnigraph.effects import failpoints
from omnigraph.errors import OmnigraphError
from omnigraph.storage import transactions
from omnigraph.storage.datasets import LanceStore
from tests.crash.operations import operation
from tests.support.forked import enter

BEFORE_VARIABLE = "CRASH_BEFORE"
"""`commit=kill@2`: what to do right before the second commit of a Lance dataset, in the notation of
the failpoints. There is none there: the owner has just looked at its lease, and nothing may come
between that look and the commit except what cannot be helped."""

# The server that forks these processes imports Lance and never uses it, which is safe.
warnings.filterwarnings("ignore", message="lance is not fork-safe")


def main(name: str, root: str, answer: str) -> None:
    """Perform the operation and write what became of it."""
    for entry in filter(None, os.environ.get(BEFORE_VARIABLE, "").split(";")):
        interpose(*entry.split("=", 1))
    try:
        said = {"value": operation(name).run(root)}
    except OmnigraphError as error:
        said = {
            "error": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "details": dict(error.details),
        }
    staged = Path(f"{answer}.part")
    staged.write_text(json.dumps(said, default=str), encoding="utf-8")
    staged.rename(answer)


def interpose(name: str, action: str) -> None:
    """Do something before a call to storage goes through."""
    place: Any = LanceStore if hasattr(LanceStore, name) else transactions
    plan = failpoints.parse_action(failpoints.Failpoint.RECOVERY_SIDECAR_LIST, action)
    original = getattr(place, name)

    def delayed(*arguments: object, **named: object) -> object:
        plan.hit()
        return original(*arguments, **named)

    setattr(place, name, delayed)


def forked(name: str, root: str, answer: str, environment: dict[str, str]) -> None:
    """The same in a process forked from the server: the environment arrives as an argument."""
    enter(environment)
    main(name, root, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])

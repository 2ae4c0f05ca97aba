"""Writers that are known to wait for a branch together, in a known order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from omnigraph.graph import Graph

STEPS = ("_lead", "_as_owner")
"""What a writer does once it has waited."""


def in_group(graph: Graph, writes: Sequence[Callable[[], Any]], branch: str = "main") -> list[Any]:
    """What each write returns or raises, once all of them have waited for one branch.

    One after the other gets to where it waits, and afterwards one after the other goes on: only one
    of them is ever at work. A write that cannot share is done before the next one begins.
    """
    graph._kernel.manifest.branch(branch).refresh()
    path: Any = graph._opened.path
    group = path.group(branch)
    answers: list[Any] = [None] * len(writes)

    def perform(at: int) -> None:
        try:
            answers[at] = writes[at]()
        except Exception as error:
            answers[at] = error

    threads = [threading.Thread(target=perform, args=(at,)) for at in range(len(writes))]
    is_released = threading.Event()

    def in_turn(name: str) -> Callable[..., Any]:
        """A step of the path, for one thread after the other."""
        step = getattr(path, name)

        def taken(*arguments: Any) -> Any:
            if is_released.is_set() and threading.current_thread() in threads:
                for earlier in threads[: threads.index(threading.current_thread())]:
                    earlier.join()
            return step(*arguments)

        return taken

    for name in STEPS:
        setattr(path, name, in_turn(name))
    assert group.try_lead()
    try:
        for thread in threads:
            before = len(group._waiting)
            thread.start()
            while thread.is_alive() and len(group._waiting) == before:
                time.sleep(0.001)
    finally:
        is_released.set()
        group.end_lead()
    for thread in threads:
        thread.join()
    for name in STEPS:
        delattr(path, name)
    return answers

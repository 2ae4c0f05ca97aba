"""Writers that are known to wait for a branch together, in a known order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from omnigraph.graph import Graph


def in_group(graph: Graph, writes: Sequence[Callable[[], Any]], branch: str = "main") -> list[Any]:
    """What each write returns or raises, once all of them have waited for one branch.

    One after the other gets to where it waits, so only one of them is ever at work. A write that
    cannot share is done before the next one begins.
    """
    graph._kernel.manifest.branch(branch).refresh()
    group = graph._opened.path.group(branch)
    answers: list[Any] = [None] * len(writes)

    def perform(at: int) -> None:
        try:
            answers[at] = writes[at]()
        except Exception as error:
            answers[at] = error

    threads = [threading.Thread(target=perform, args=(at,)) for at in range(len(writes))]
    assert group.try_lead()
    try:
        for thread in threads:
            before = group.waiting
            thread.start()
            while thread.is_alive() and group.waiting == before:
                time.sleep(0.001)
    finally:
        group.end_lead()
    for thread in threads:
        thread.join()
    return answers

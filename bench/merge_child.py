"""One merge in a process of its own, and the memory it takes beyond what it started with."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from bench.child import Verbs, answer
from omnigraph.graph import open_graph

STATUS = Path("/proc/self/status")


def merge(uri: str, branch: str) -> dict[str, float]:
    """Merge a branch into main; seconds, and megabytes at their peak."""
    graph = open_graph(uri)
    graph.diff("main", "main")  # loads libraries, which is not what this is about
    before = _anonymous_mb()
    peak, done = [before], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], _anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    graph.merge_branch(branch)
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    return {"seconds": seconds, "peak_mb": peak[0] - before}


def _anonymous_mb() -> float:
    """Memory that only this process has; pages of files do not count, the system drops them."""
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


VERBS: Verbs = {"merge": merge}

if __name__ == "__main__":
    answer(VERBS)

"""What contending processes do, and a way to run them: real processes, or threads for memory."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from omnigraph.effects.local_disk import Durability
from omnigraph.effects.objects import ObjectStore, Token, open_store
from omnigraph.effects.uri import Root


class Gate(Protocol):
    """Lets everybody go at once."""

    def wait(self) -> Any: ...


Contender = Callable[[str, int, Gate], Any]
"""A function of the root's URI, the contender's number and a gate."""


def contend(contender: Contender, uri: str, n: int) -> list[Any]:
    """Run ``n`` contenders against one root and return their results in order."""
    if uri.startswith("memory:"):
        gate = threading.Barrier(n)
        with ThreadPoolExecutor(n) as pool:
            return list(pool.map(lambda i: contender(uri, i, gate), range(n)))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(n)
    results: Any = context.Queue()
    processes = [
        context.Process(target=_run, args=(contender, uri, i, barrier, results)) for i in range(n)
    ]
    for process in processes:
        process.start()
    found = {}
    for _ in processes:
        number, result, error = results.get(timeout=60)
        if error:
            for process in processes:
                process.kill()
            raise AssertionError(f"contender {number}: {error}")
        found[number] = result
    for process in processes:
        process.join(timeout=60)
    results.close()
    results.join_thread()
    return [found[i] for i in range(n)]


def _run(contender: Contender, uri: str, number: int, gate: Gate, results: Any) -> None:
    try:
        results.put((number, contender(uri, number, gate), ""))
    except BaseException:
        results.put((number, None, traceback.format_exc()))


def opened(uri: str) -> ObjectStore:
    return open_store(Root.parse(uri), Durability.PROCESS)


# --- contenders -----------------------------------------------------------------------------------

ROUNDS = 5


def claim(uri: str, number: int, gate: Gate) -> list[bool]:
    """Try to create each object; a winner's content must be there for everybody when it is told."""
    store = opened(uri)
    won = []
    for turn in range(ROUNDS):
        gate.wait()
        won.append(store.write_if_absent(f"claims/{turn}", content(number)))
        # Won or lost, the object is complete from here on.
        assert store.read(f"claims/{turn}") in {content(i) for i in range(16)}
    return won


def content(number: int) -> bytes:
    return b"%d " % number * 5_000


def swap_once(uri: str, number: int, gate: Gate) -> list[bool]:
    """Read the same token as everybody else, then try to swap."""
    store = opened(uri)
    won = []
    for _ in range(ROUNDS):
        gate.wait()
        found = store.read_versioned("record")
        assert found is not None
        gate.wait()
        won.append(store.write_if_match("record", found[0] + b"%d," % number, found[1]) is not None)
    return won


def count_up_25(uri: str, number: int, gate: Gate) -> int:
    return _count_up(uri, gate, 25)


def count_up_5(uri: str, number: int, gate: Gate) -> int:
    return _count_up(uri, gate, 5)


def _count_up(uri: str, gate: Gate, n: int) -> int:
    """Add one, ``n`` times, by compare-and-swap; returns the lost races."""
    store = opened(uri)
    lost = 0
    gate.wait()
    for _ in range(n):
        token: Token | None = None
        while token is None:
            found = store.read_versioned("counter")
            assert found is not None
            token = store.write_if_match("counter", b"%d" % (int(found[0]) + 1), found[1])
            lost += token is None
    return lost


READERS = 2


def replace_or_read(uri: str, number: int, gate: Gate) -> int:
    """Contender 0 replaces an object until each reader has seen twelve versions, all whole."""
    store = opened(uri)
    gate.wait()
    if number == 0:
        turn = 0
        while len(store.list("satisfied")) < READERS:
            store.write("object", whole(turn))
            turn += 1
        return turn
    seen: set[bytes] = set()
    while len(seen) < 12:
        data = store.read("object")
        assert data == whole(data[0]), "a reader saw a partial object"
        seen.add(data)
    store.write(f"satisfied/{number}", b"")
    return len(seen)


def whole(turn: int) -> bytes:
    """Content that shows whether all of it is there: length and bytes follow from the first."""
    letter = turn % 256
    return bytes([letter]) * (1 + letter * 257)


def churn(uri: str, number: int, gate: Gate) -> int:
    """Make, write and remove one directory against each other."""
    store = opened(uri)
    gate.wait()
    for turn in range(60):
        if number == 0:
            store.delete_prefix("work")
        else:
            store.write(f"work/{number}/object", b"%d" % turn)
    return number

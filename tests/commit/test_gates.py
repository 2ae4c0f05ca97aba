"""In-process gates: who may run beside whom."""

from __future__ import annotations

import threading
import time

from omnigraph.commit.kernel import Gates, gates_of


def overlap(first: object, second: object) -> bool:
    """Whether ``second`` can be entered while ``first`` is held."""
    return _entered_within(60, first, second)


def exclude(first: object, second: object) -> bool:
    """Whether ``second`` is not entered while ``first`` is held, for as long as this looks."""
    return not _entered_within(0.2, first, second)


def _entered_within(seconds: float, first: object, second: object) -> bool:
    entered = threading.Event()

    def enter() -> None:
        with second:  # type: ignore[attr-defined]
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    with first:  # type: ignore[attr-defined]
        thread.start()
        together = entered.wait(seconds)
    thread.join(60)
    assert entered.is_set()
    return together


def test_writes_to_different_branches_run_side_by_side() -> None:
    gates = Gates()
    assert overlap(gates.write(["a"]), gates.write(["b"]))


def test_writes_to_one_branch_queue() -> None:
    gates = Gates()
    assert exclude(gates.write(["a", "b"]), gates.write(["b", "c"]))


def test_an_operation_on_the_whole_graph_runs_alone() -> None:
    gates = Gates()
    assert exclude(gates.whole_graph(), gates.write(["a"]))
    assert exclude(gates.write(["a"]), gates.whole_graph())
    assert exclude(gates.whole_graph(), gates.whole_graph())


def test_a_stream_of_writes_does_not_starve_a_graph_operation() -> None:
    gates = Gates()
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            with gates.write(["a"]):
                time.sleep(0.001)

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    with gates.whole_graph():
        done.set()
    for writer in writers:
        writer.join()


def test_handles_of_one_root_share_their_gates() -> None:
    assert gates_of("/some/root") is gates_of("/some/root")
    assert gates_of("/some/root") is not gates_of("/another/root")


def test_c_wrt_048_random_writers_of_branches_and_the_graph_never_deadlock() -> None:
    gates = Gates()
    names = ["a", "b", "c"]
    finished = []

    def run(seed: int) -> None:
        for step in range(60):
            pick = (seed * 7 + step * 3) % 5
            if pick == 4:
                with gates.whole_graph():
                    pass
            else:
                with gates.write([names[pick % 3], names[(pick + seed) % 3]]):
                    pass
        finished.append(seed)

    threads = [threading.Thread(target=run, args=(seed,), daemon=True) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(finished) == list(range(8))

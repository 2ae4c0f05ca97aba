"""What is measured in a process of its own: `python -m bench.query_child VERB`, JSON in and out.

A first query can be the first only once per process, peak memory belongs to a whole process, and
the settings of the engine are read when it starts.
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.child import Verbs, answer

FIRST_HOP = (
    "query q($key: String) {"
    " match { $p: Person { key: $key }  $p knows $f } return { count($f) as n } }"
)


def first_answer(
    engine: str, path: str, text: str, parameters: dict[str, Any], modules: list[str]
) -> dict[str, Any]:
    """Open a database and ask one question, everything that it imports being loaded already."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:  # parts of packages that only work from inside
            continue
    began = time.perf_counter()
    rows = _ANSWERS[engine](path, text, parameters)
    seconds = time.perf_counter() - began
    found = {"rows": rows, "modules": sorted(sys.modules), "peak_mb": _peak_mb()}
    return {"seconds": seconds, **found}


def _answer_of_omnigraph(path: str, text: str, parameters: dict[str, Any]) -> int:
    from omnigraph.graph import open_graph

    return len(open_graph(path, "read_only").query(text, parameters).to_pylist())


def _answer_of_kuzu(path: str, text: str, parameters: dict[str, Any]) -> int:
    import kuzu

    # Reserving less memory than by default, which is most of the machine's, opens it sooner.
    database = kuzu.Database(path, read_only=True, buffer_pool_size=2**30)
    result = kuzu.Connection(database).execute(text, parameters)
    assert isinstance(result, kuzu.QueryResult)
    return len(result.get_all())


_ANSWERS: dict[str, Callable[[str, str, dict[str, Any]], int]] = {
    "Omnigraph": _answer_of_omnigraph,
    "Kuzu": _answer_of_kuzu,
}


def peak(path: str, texts: list[str]) -> dict[str, Any]:
    """The peak of memory of a process that answers some queries of a graph."""
    from omnigraph.graph import open_graph

    graph = open_graph(path, "read_only")
    rows = [len(graph.query(text).to_pylist()) for text in texts]
    return {"rows": rows, "peak_mb": _peak_mb()}


def threads(engine: str, path: str, keys: list[str], count: int, seconds: float) -> dict[str, Any]:
    """How many point queries threads answer in some seconds."""
    from bench.measure import calls_per_second
    from bench.peer_kuzu import kuzu_forms_of_threads
    from bench.peer_omnigraph import Omnigraph
    from bench.questions import POINT

    if engine == Omnigraph.name:
        shared = Omnigraph(Path(path)).forms(POINT)[0]
        forms = [shared] * count
    else:
        forms = kuzu_forms_of_threads(Path(path), POINT, count)
    for key in keys:
        forms[0]({"key": key})

    def client(number: int) -> Callable[[int], None]:
        form = forms[number]

        def ask(call: int) -> None:
            assert len(form({"key": keys[(number * 37 + call) % len(keys)]})) == 1

        return ask

    return {"per_second": calls_per_second([client(number) for number in range(count)], seconds)}


def overhead(path: str, persons: str, keys: list[str]) -> dict[str, Any]:
    """The time of a point query, and of the same lookup in a dictionary and three columns."""
    import pyarrow.parquet as pq

    from bench.peer_omnigraph import Omnigraph
    from bench.questions import POINT

    columns = pq.read_table(persons, columns=["key", "name", "age", "city"]).combine_chunks()
    rows = {key: row for row, key in enumerate(columns["key"].to_pylist())}
    name, age, city = (columns[column].chunk(0) for column in ("name", "age", "city"))

    def direct(key: str) -> list[dict[str, Any]]:
        row = rows[key]
        return [{"name": name[row].as_py(), "age": age[row].as_py(), "city": city[row].as_py()}]

    ask = Omnigraph(Path(path)).forms(POINT)[0]
    taken: tuple[list[float], list[float]] = ([], [])
    for attempt in range(2):
        for key in keys:
            began = time.perf_counter()
            answer = ask({"key": key})
            between = time.perf_counter()
            wanted = direct(key)
            ended = time.perf_counter()
            assert answer == wanted, f"{answer} instead of {wanted}"
            if attempt:  # the first one warms up
                taken[0].append(between - began)
                taken[1].append(ended - between)
    whole, data = map(statistics.median, taken)
    return {"whole": whole, "data": data}


def adjacency(path: str, key: str) -> dict[str, Any]:
    """The seconds until a first hop along `Blocks`, then along `Knows`, and the peak of memory.

    The first one opens the graph and reads the ids of persons, so that the second one is mostly the
    adjacency of `Knows`.
    """
    from omnigraph.graph import open_graph

    began = time.perf_counter()
    graph = open_graph(path, "read_only")
    graph.query(FIRST_HOP.replace("knows", "blocks"), {"key": key}).to_pylist()
    opened = time.perf_counter()
    graph.query(FIRST_HOP, {"key": key}).to_pylist()
    built = time.perf_counter()
    return {"opened": opened - began, "built": built - opened, "peak_mb": _peak_mb()}


def upkeep(path: str, key: str, more: str, deleted: list[int]) -> dict[str, Any]:
    """The seconds a hop takes over a warm one after edges were appended, and after some left."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bench.bulk_write import write
    from bench.social import edge_ids
    from bench.social_graph import KNOWS, with_ids
    from omnigraph.commit.plan import TableChange
    from omnigraph.graph import open_graph

    graph = open_graph(path, "read_only")

    def hop() -> tuple[float, int]:
        began = time.perf_counter()
        (row,) = graph.query(FIRST_HOP, {"key": key}).to_pylist()
        return time.perf_counter() - began, row["n"]

    def warm() -> tuple[float, int]:
        return statistics.median(hop()[0] for _ in range(20)), hop()[1]

    hop()
    before, degree = warm()
    # Ids that no edge has: those of the graph were counted from zero.
    appended = with_ids(pq.read_table(more), first=1 << 34)
    write(Path(path), [TableChange(KNOWS, "append", appended)])
    append, more_of_them = hop()
    append -= before
    before, _ = warm()
    ids = edge_ids(max(deleted) + 1).take(pa.array(deleted))
    write(Path(path), [TableChange(KNOWS, "delete", pa.table({"id": ids}))])
    delete, fewer = hop()
    degrees = [degree, more_of_them, fewer]
    return {"append": append, "delete": delete - before, "degrees": degrees}


def budget(size: list[Any], seed: int, cache: str) -> dict[str, Any]:
    """The seconds of some questions here and by bare Lance, under the budget of the environment."""
    from bench.contest import Effort, contests
    from bench.peer_lance import BareLance
    from bench.peer_omnigraph import Omnigraph
    from bench.peers import Peer
    from bench.questions import ONE_HOP, POINT, TWO_HOPS
    from bench.social import Size, generate
    from bench.social_files import SocialFiles

    files = SocialFiles(generate(Size(*size), seed), Path(cache))
    peers: list[Peer] = [BareLance(files.graph), Omnigraph(files.graph)]
    effort = Effort(parameters=20, rounds=2, seconds_max=20)
    outcomes = contests([POINT, ONE_HOP, TWO_HOPS], peers, files.social, effort)
    return {outcome.question.name: outcome.seconds for outcome in outcomes}


def _peak_mb() -> float:
    """The most memory this process has held; Linux alone knows it apart from its parent's."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


VERBS: Verbs = {
    "first_answer": first_answer,
    "peak": peak,
    "threads": threads,
    "overhead": overhead,
    "adjacency": adjacency,
    "upkeep": upkeep,
    "budget": budget,
}

if __name__ == "__main__":
    answer(VERBS)

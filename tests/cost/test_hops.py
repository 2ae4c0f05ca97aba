"""Serial hops of every write verb on an object store: requests that wait for each other.

The chain is what latency multiplies: at 20 ms for a request, ten hops are a fifth of a second,
however many requests are sent beside each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import init
from tests.cost.costs import cost_of, many_types
from tests.s3.hostile import SCHEMA, verbs

HOPS_MAX = {
    "insert": 6,
    "update": 7,
    "delete": 7,
    "append": 9,
    "merge load": 9,
    "overwrite": 8,
    "branch create": 21,
    "branch delete": 26,
    "branch merge": 16,
    "revert": 10,
    "cherry-pick": 17,
    "tag create": 12,
    "tag delete": 12,
    "schema apply": 43,
    "index": 17,
    "optimize": 36,
    "cleanup": 48,
    "push": 68,
}
"""What was reached; `cleanup` and `push` have some room, since threads decide what is known."""

TABLES = 8
MERGE_OF_TABLES_HOPS_MAX = 12


@pytest.mark.parametrize("name", list(verbs(Path())))
def test_c_ver_007_each_write_has_a_limit_of_serial_hops(
    s3_root: str, tmp_path: Path, name: str
) -> None:
    graph = init(s3_root, SCHEMA)
    verb = verbs(tmp_path)[name]
    for warm in ("w0", "w1"):
        verb.prepare(graph, warm)
        verb.run(graph, warm)
    verb.prepare(graph, "x")
    cost = cost_of(graph, lambda: verb.run(graph, "x"))
    assert 0 < cost.round_trips <= HOPS_MAX[name], cost.table()
    assert cost.round_trips <= cost.requests, cost.table()


def test_c_ver_007_a_merge_of_eight_tables_waits_for_none_of_them_alone(s3_root: str) -> None:
    graph = init(s3_root, many_types(TABLES))

    def insert(code: str, branch: str = "main") -> None:
        every = (f'insert Kind{n} {{ code: "{code}" }}' for n in range(TABLES))
        graph.mutate(f"query q {{ {' '.join(every)} }}", branch=branch)

    insert("base")
    graph.create_branch("review")
    insert("theirs", "review")
    insert("ours")
    cost = cost_of(graph, lambda: graph.merge_branch("review"))
    assert cost.round_trips <= MERGE_OF_TABLES_HOPS_MAX, cost.table()

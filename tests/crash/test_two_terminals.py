"""Two people at two terminals: one loads a large file, the other makes one change after another."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from omnigraph.graph import open_graph
from tests.support.budgets import budget
from tests.support.forked import Command

pytestmark = pytest.mark.slow

ROWS = budget(5_000, 50_000)
ENOUGH = 3
"""Changes that are made even if the load should be done before."""
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
ADD = "query add($n: String) { insert Person { name: $n } insert Knows { from: $n, to: $n } }"


def finished(command: Command) -> dict[str, object]:
    out, err = command.communicate(timeout=300)
    assert command.returncode == 0, err
    answer: dict[str, object] = json.loads(out)
    return answer


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_large_load_and_a_loop_of_mutations_both_finish_and_nothing_is_lost(
    tmp_path: Path, mode: str
) -> None:
    root, schema, data = (str(tmp_path / name) for name in ("graph.omni", "s.pg", "data.jsonl"))
    Path(schema).write_text(SCHEMA)
    with Path(data).open("w") as lines:
        lines.writelines(
            f'{{"type":"Person","data":{{"name":"loaded {n}","age":{n % 100}}}}}\n'
            for n in range(ROWS)
        )
    finished(Command("init", "--schema", schema, root, "--json"))

    load = Command("load", root, "--data", data, "--mode", mode, "--json")
    made = 0
    while load.poll() is None or made < ENOUGH:
        params = json.dumps({"n": f"made {made}"})
        finished(Command("mutate", "--store", root, "-e", ADD, "--params", params, "--json"))
        made += 1
    finished(load)

    graph = open_graph(root)
    people = [
        orjson.loads(line)["data"]["name"]
        for line in b"".join(graph.export(types=["Person"])).splitlines()
    ]
    assert len(people) == len(set(people)) == ROWS + made
    assert sum(name.startswith("made") for name in people) == made
    assert len(b"".join(graph.export(types=["Knows"])).splitlines()) == made
    kinds = [str(commit.kind) for commit in graph.list_commits() if commit.kind != "maintenance"]
    assert sorted(kinds) == ["genesis", "load", *["mutation"] * made]
    assert graph.list_recoveries() == []

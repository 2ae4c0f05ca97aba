"""Random histories of a small graph, and its content as plain dictionaries to judge by."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

import omnigraph as og
from omnigraph.errors import Conflict
from tests.support.templates import copy_of

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64?  tags: [String]?  photo: Blob? }
node City { name: String @key  size: I32? }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
"""
NAMES = [f"p{n}" for n in range(8)]
CITIES = ["bern", "oslo", "rome"]

Entity = tuple[str, str]
"""Type key and id."""
Content = dict[Entity, dict[str, Any]]
"""Every entity of a snapshot: its properties, and the ends of an edge under `from` and `to`."""


def person(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **properties}}


def city(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "City", "data": {"name": name, **properties}}


def edge(type: str, id: str, source: str, target: str, **properties: Any) -> dict[str, Any]:
    return {"edge": type, "from": source, "to": target, "data": {"id": id, **properties}}


def lines(records: Iterable[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(record) for record in records)


def load(
    graph: og.Graph, *records: dict[str, Any], branch: str = "main", mode: Any = "merge"
) -> None:
    """Load whole entities: what a merged record lacks is null."""
    absent: Any = "null" if mode == "merge" else "keep"
    graph.load(data=lines(records), mode=mode, absent=absent, branch=branch)


def delete(graph: og.Graph, type: str, name: str, branch: str = "main") -> None:
    graph.mutate(
        f"query gone($n: String) {{ delete {type} where name = $n }}", {"n": name}, branch=branch
    )


def content(graph: og.Graph, name: str) -> Content:
    """A branch, or a commit, as it is exported."""
    if name in (branches := graph.list_branches()):
        blocks = graph.export(branch=name)
    else:
        knows = (b for b in branches if name in {c.graph_commit_id for c in graph.list_commits(b)})
        blocks = graph.export(branch=next(knows), snapshot=name)
    found: Content = {}
    for line in b"".join(blocks).splitlines():
        record = orjson.loads(line)
        data = record["data"]
        id = data.pop("id")
        if "edge" in record:
            found[f"edge:{record['edge']}", id] = data | {
                "from": record["from"],
                "to": record["to"],
            }
        else:
            found[f"node:{record['type']}", id] = data
    return found


def seeded(path: Path) -> og.Graph:
    """A graph of some people and cities, and two edges. In one process, all have one identity."""
    copy_of(_seed, path)
    return og.open(path)


def _seed(root: Path) -> None:
    graph = og.init(root, schema=SCHEMA)
    load(
        graph,
        *(person(name, age=n, tags=["a"]) for n, name in enumerate(NAMES[:5])),
        *(city(name, size=1) for name in CITIES[:2]),
        edge("Knows", "k0", "p0", "p1"),
        edge("LivesIn", "l0", "p0", "bern"),
        mode="append",
    )


def step(graph: og.Graph, dice: random.Random, branch: str) -> None:
    """One random write to a branch; what it would break stays as it is."""
    try:
        match dice.randrange(7):
            case 0 | 1 | 2:
                load(
                    graph, *(_random_person(dice) for _ in range(dice.randint(1, 3))), branch=branch
                )
            case 3:
                delete(graph, "Person", dice.choice(NAMES), branch)
            case 4:
                ends = dice.choice(NAMES), dice.choice(NAMES)
                since = dice.choice([None, "2024-05-01"])
                load(
                    graph, edge("Knows", f"k{dice.randrange(4)}", *ends, since=since), branch=branch
                )
            case 5:
                load(graph, city(dice.choice(CITIES), size=dice.randrange(3)), branch=branch)
            case 6:
                gone = "query gone($n: String) { delete Knows where from = $n }"
                graph.mutate(gone, {"n": dice.choice(NAMES)}, branch=branch)
    except og.errors.OmnigraphError as refused:
        assert refused.code in ("constraint_violation", "bad_request"), refused


def _random_person(dice: random.Random) -> dict[str, Any]:
    return person(
        dice.choice(NAMES),
        age=dice.choice([None, 0, 1, 2]),
        score=dice.choice([None, 0.0, -0.0, 0.5]),
        tags=dice.choice([None, [], ["a"], ["a", "b"], ["a, b"]]),
        photo=dice.choice([None, "base64:", "base64:QUE=", "base64:QkI="]),
    )


def write_at_random(uri: str, seed: int, count: int) -> None:
    """Write persons into a graph that others write to: one process of several."""
    graph, dice = og.open(uri), random.Random(seed)
    for _ in range(count):
        name = dice.choice(NAMES)
        with suppress(Conflict):  # the other was first
            if dice.random() < 0.3:
                delete(graph, "Person", name)
            else:
                rows = person(name, age=dice.randrange(9)), city("bern", size=dice.randrange(9))
                load(graph, *rows)

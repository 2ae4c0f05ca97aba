"""The reference model: what a graph holds after each operation, in a few lines of plain Python.

It knows nothing of tables, versions or commits. A graph is right if it shows exactly what the model
shows, on every branch.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import dataclass, field

from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key  size: I32? }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""

Pair = tuple[str, str]


@dataclass
class Contents:
    """What one branch holds."""

    persons: dict[str, int | None] = field(default_factory=dict)
    cities: dict[str, int | None] = field(default_factory=dict)
    knows: Counter[Pair] = field(default_factory=Counter)
    """Edges have no key: two equal ones are two edges."""
    lives_in: Counter[Pair] = field(default_factory=Counter)

    def delete_person(self, name: str) -> None:
        """Remove a person and every edge that touches it."""
        del self.persons[name]
        self.knows = Counter(pair for pair in self.knows.elements() if name not in pair)
        self.lives_in = Counter(pair for pair in self.lives_in.elements() if name != pair[0])


@dataclass
class Model:
    """All branches of a graph; no branch at all means there is no graph."""

    branches: dict[str, Contents] = field(default_factory=dict)
    tags: set[str] = field(default_factory=set)

    @property
    def main(self) -> Contents:
        return self.branches["main"]

    def copy(self) -> Model:
        return copy.deepcopy(self)


def seed() -> Model:
    """What every graph of this suite starts with."""
    contents = Contents(
        persons={"ana": 30, "ben": 40},
        cities={"rome": 3, "oslo": 1},
        knows=Counter([("ana", "ben")]),
        lives_in=Counter([("ana", "rome")]),
    )
    return Model({"main": contents})


def seed_records() -> str:
    """The seed as input of a load."""
    start = seed().main
    records: list[dict[str, object]] = [
        {"type": "Person", "data": {"name": name, "age": age}}
        for name, age in start.persons.items()
    ]
    records += [
        {"type": "City", "data": {"name": name, "size": size}}
        for name, size in start.cities.items()
    ]
    records += [{"edge": "Knows", "from": a, "to": b, "data": {}} for a, b in start.knows]
    records += [{"edge": "LivesIn", "from": a, "to": b, "data": {}} for a, b in start.lives_in]
    return "\n".join(json.dumps(record) for record in records)


def shown(graph: Graph) -> Model:
    """What a graph really shows, on every branch."""
    contents = {branch: _contents(graph, branch) for branch in graph.list_branches()}
    return Model(contents, {tag.name for tag in graph.list_tags()})


def _contents(graph: Graph, branch: str) -> Contents:
    contents = Contents()
    for line in b"".join(graph.export(branch=branch)).splitlines():
        record = json.loads(line)
        data = record["data"]
        match record:
            case {"type": "Person"}:
                assert data["name"] not in contents.persons, f"{data['name']} twice on {branch}"
                contents.persons[data["name"]] = data["age"]
            case {"type": "City"}:
                assert data["name"] not in contents.cities, f"{data['name']} twice on {branch}"
                contents.cities[data["name"]] = data["size"]
            case {"edge": "Knows"}:
                contents.knows[record["from"], record["to"]] += 1
            case {"edge": "LivesIn"}:
                contents.lives_in[record["from"], record["to"]] += 1
            case _:
                raise AssertionError(f"an unknown record on {branch}: {record}")
    return contents

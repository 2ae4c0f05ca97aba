"""What the operations of the soak mean: the choice of each, its execution, its effect on a model.

The judge knows the order in which operations took effect: it is the lineage of each branch. Played
back in that order on plain dictionaries they must give exactly what the graph shows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from omnigraph.graph import Graph
from tests.crash.operations import DELETE, UPDATE

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key  size: I32? }
node Note { name: String @key  value: I32 }
edge LivesIn: Person -> City
"""
INSERT = """
query insert($name: String, $value: I32) {
    insert Person { name: $name, age: $value }
    insert City { name: $name, size: $value }
    insert LivesIn { from: $name, to: $name }
}
"""

SHARED = "shared"
"""A branch that every worker writes to and nobody deletes."""
COMMON = "common"
"""A branch that every worker creates, writes to and deletes."""
HOT = 6
"""How many entities all workers fight for."""
OWN_BRANCHES_MAX = 2

Operation = dict[str, Any]


@dataclass
class Contents:
    """What one branch of the soak's graph holds."""

    persons: dict[str, int] = field(default_factory=dict)
    cities: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    lives_in: Counter[tuple[str, str]] = field(default_factory=Counter)

    def apply(self, operation: Operation) -> None:
        """Play one operation back."""
        value: int = operation["value"]
        match operation["kind"]:
            case "insert" | "append":
                for name in operation["names"]:
                    self.persons[name] = self.cities[name] = value
                    self.lives_in[name, name] += 1
            case "merge":
                for name in operation["names"]:
                    self.persons[name] = self.cities[name] = value
            case "update":
                for name in operation["names"]:
                    if name in self.persons:
                        self.persons[name] = value
                    if name in self.cities:
                        self.cities[name] = value
            case "delete":
                for name in operation["names"]:
                    self.persons.pop(name, None)
                    left = {edge: n for edge, n in self.lives_in.items() if edge[0] != name}
                    self.lives_in = Counter(left)
            case "overwrite":
                self.notes = dict.fromkeys(operation["names"], value)
            case kind:
                raise AssertionError(f"{kind} makes no commit")

    def differences(self, other: Contents) -> list[str]:
        """Every entity in which two contents differ."""
        found = []
        for what in ("persons", "cities", "notes", "lives_in"):
            mine, theirs = getattr(self, what), getattr(other, what)
            found += [
                f"{what} {key}: expected {mine.get(key)}, found {theirs.get(key)}"
                for key in sorted({*mine, *theirs}, key=str)
                if mine.get(key) != theirs.get(key)
            ]
        return found


def shown(graph: Graph, branch: str) -> Contents:
    """What a branch really shows."""
    contents = Contents()
    for line in b"".join(graph.export(branch=branch)).splitlines():
        record = json.loads(line)
        data = record["data"]
        match record:
            case {"type": "Person"}:
                contents.persons[data["name"]] = data["age"]
            case {"type": "City"}:
                contents.cities[data["name"]] = data["size"]
            case {"type": "Note"}:
                contents.notes[data["name"]] = data["value"]
            case {"edge": "LivesIn"}:
                contents.lives_in[record["from"], record["to"]] += 1
    return contents


# --- choosing -------------------------------------------------------------------------------------

KINDS = {
    "insert": 8,
    "append": 4,
    "merge": 4,
    "update": 5,
    "delete": 3,
    "overwrite": 2,
    "branch_create": 2,
    "branch_delete": 2,
}
"""How often each kind is chosen."""


def choose(seed: str, worker: int, at: int, own_branches: list[str]) -> Operation:
    """The operation number ``at`` of a worker: always the same for the same branches of its own."""
    dice = Random(f"{seed}/{worker}/{at}")  # not for secrets
    (kind,) = dice.choices(list(KINDS), list(KINDS.values()))
    name, value = f"w{worker}-{at}", at
    hot = [f"hot-{n}" for n in dice.sample(range(HOT), 2)]
    branch = dice.choices(
        ["main", SHARED, COMMON, *own_branches], [6, 3, 1, *(1 for _ in own_branches)]
    )[0]
    operation = {"kind": kind, "branch": branch, "names": [name], "value": value}
    match kind:
        case "append":
            operation["names"] = [f"{name}-{n}" for n in range(3)]
        case "merge":
            operation["names"] = [*hot, name]
        case "update" | "delete":
            operation["names"] = hot[:1]
        case "overwrite":
            operation["names"] = [f"{name}-{n}" for n in range(dice.randint(0, 3))]
        case "branch_create":
            own = dice.random() < 0.7 and len(own_branches) < OWN_BRANCHES_MAX
            operation["branch"] = f"b{worker}-{at}" if own else COMMON
            operation["source"] = dice.choice(["main", SHARED])
        case "branch_delete":
            own = dice.random() < 0.7 and bool(own_branches)
            operation["branch"] = dice.choice(own_branches) if own else COMMON
    return operation


# --- doing ----------------------------------------------------------------------------------------


def perform(graph: Graph, operation: Operation, operation_id: str) -> str | None:
    """Do it; the commit it made, if any."""
    branch, names, value = operation["branch"], operation["names"], operation["value"]
    match operation["kind"]:
        case "insert":
            given: dict[str, Any] = {"name": names[0], "value": value}
            receipt = graph.mutate(INSERT, given, branch=branch, operation_id=operation_id)
        case "update":
            given = {"person": names[0], "city": names[0], "value": value}
            receipt = graph.mutate(UPDATE, given, branch=branch, operation_id=operation_id)
        case "delete":
            given = {"person": names[0]}
            receipt = graph.mutate(DELETE, given, branch=branch, operation_id=operation_id)
        case "branch_create":
            graph.create_branch(branch, operation["source"])
            return None
        case "branch_delete":
            graph.delete_branch(branch)
            return None
        case _:
            return _load(graph, operation, operation_id)
    return receipt.commit.graph_commit_id if receipt.commit is not None else None


def _load(graph: Graph, operation: Operation, operation_id: str) -> str | None:
    kind = operation["kind"]
    receipt = graph.load(
        data="\n".join(json.dumps(record) for record in _records(operation)),
        mode=kind,
        branch=operation["branch"],
        replace_types=["node:Note"] if kind == "overwrite" else (),
        operation_id=operation_id,
    )
    return receipt.commit.graph_commit_id if receipt.commit is not None else None


def _records(operation: Operation) -> Iterable[dict[str, Any]]:
    value = operation["value"]
    for name in operation["names"]:
        if operation["kind"] == "overwrite":
            yield {"type": "Note", "data": {"name": name, "value": value}}
            continue
        yield {"type": "Person", "data": {"name": name, "age": value}}
        yield {"type": "City", "data": {"name": name, "size": value}}
        if operation["kind"] == "append":
            yield {"edge": "LivesIn", "from": name, "to": name, "data": {}}

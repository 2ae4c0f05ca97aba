"""The operations of a schedule, each beside what it means to a model in plain Python.

Several of them run at once, so an operation meets a graph that another has changed. Its meaning is
therefore a function of any state of the model: what it changes there, what it answers there, or
that it is refused there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from omnigraph.graph import Graph, init, open_graph
from omnigraph.model.receipts import LoadMode
from tests.crash.model import SCHEMA, Contents, Model, seed, seed_records, shown
from tests.crash.operations import DELETE, INSERT, UPDATE
from tests.support.groups import in_group
from tests.support.templates import copy_of

EXTRA = "Extra"
REVERTED = "to be reverted"


class Refused(Exception):
    """The operation has no effect in this state, and must say so."""


@dataclass
class World(Model):
    """All that a graph shows: branches, tags, types beyond the first schema and change requests."""

    types: set[str] = field(default_factory=set)
    reviews: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Operation:
    """One thing to do to a graph. ``number`` tells two of the same kind in one schedule apart."""

    run: Callable[[Graph, int], object]
    """What it returns is compared with what the model returns."""
    apply: Callable[[World, int], object]
    """Change the model and return the answer, or raise `Refused` before anything is changed."""
    members: Callable[[int], tuple[str, ...]] = field(default=lambda number: ())
    """Of a group: the persons that it adds with their cities, each by a commit of its own. What it
    returns is then those that were acknowledged."""


def world_of(graph: Graph, known: Model | None = None) -> World:
    """What a graph really shows; ``known`` is what its branches and tags do, if that was read."""
    model = known or shown(graph)
    types = set(re.findall(rf"node ({EXTRA}\d+)", graph.schema_source))
    reviews = {review.title for review in graph.reviews.list(state=None).reviews}
    return World(model.branches, model.tags, types, reviews)


def seeded(root: Path) -> World:
    """Make the graph that every schedule begins with, and its model.

    Branch `old` has a row that main lacks, `review` has written nothing. The last commit of main is
    the one that `revert` undoes.
    """
    copy_of(_seed, root)
    branches = {name: seed().main for name in ("main", "old", "review")}
    for name, row in (("old", "olga"), ("main", REVERTED)):
        branches[name].persons[row] = 1
        branches[name].cities[row] = 1
    return World(branches)


def _seed(root: Path) -> None:
    graph = init(root, SCHEMA)
    graph.load(data=seed_records(), mode="append")
    for branch in ("old", "review"):
        graph.create_branch(branch)
    graph.mutate(INSERT, {"person": "olga", "city": "olga"}, branch="old")
    graph.mutate(INSERT, {"person": REVERTED, "city": REVERTED}, message=REVERTED)


# --- rows -----------------------------------------------------------------------------------------


def _insert(branch: str) -> Operation:
    def run(graph: Graph, number: int) -> None:
        name = f"cleo{number}"
        graph.mutate(INSERT, {"person": name, "city": name}, branch=branch)

    def apply(world: World, number: int) -> None:
        world.branches[branch].persons[f"cleo{number}"] = 1
        world.branches[branch].cities[f"cleo{number}"] = 1

    return Operation(run, apply)


def _group() -> Operation:
    """Two writers of one process that share a publish, where they can."""

    def members(number: int) -> tuple[str, ...]:
        return f"gail{number}", f"gert{number}"

    def run(graph: Graph, number: int) -> list[str]:
        writes = [
            partial(graph.mutate, INSERT, {"person": name, "city": name})
            for name in members(number)
        ]
        answers = in_group(graph, writes)
        landed = [
            name
            for name, answer in zip(members(number), answers, strict=True)
            if not isinstance(answer, Exception)
        ]
        failed = [answer for answer in answers if isinstance(answer, Exception)]
        if failed and not landed:
            raise failed[0]
        return landed

    def apply(world: World, number: int) -> None:
        for name in members(number):
            world.main.persons[name] = world.main.cities[name] = 1

    return Operation(run, apply, members)


def _update() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.mutate(UPDATE, {"person": "ben", "city": "rome", "value": 100 + number})

    def apply(world: World, number: int) -> None:
        world.main.persons["ben"] = 100 + number
        world.main.cities["rome"] = 100 + number

    return Operation(run, apply)


def _delete() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.mutate(DELETE, {"person": "ana"})

    def apply(world: World, number: int) -> None:
        if "ana" in world.main.persons:
            world.main.delete_person("ana")

    return Operation(run, apply)


def _load(
    mode: LoadMode,
    records: Callable[[int], list[dict[str, object]]],
    change: Callable[[Contents, int], None],
) -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.load(data="\n".join(json.dumps(each) for each in records(number)), mode=mode)

    return Operation(run, lambda world, number: change(world.main, number))


def _person(name: str, age: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def _city(name: str, size: int) -> dict[str, object]:
    return {"type": "City", "data": {"name": name, "size": size}}


def _append() -> Operation:
    def records(number: int) -> list[dict[str, object]]:
        name = f"dora{number}"
        return [_person(name, 5), {"edge": "LivesIn", "from": name, "to": "oslo", "data": {}}]

    def change(main: Contents, number: int) -> None:
        if "oslo" not in main.cities:
            raise Refused
        main.persons[f"dora{number}"] = 5
        main.lives_in[f"dora{number}", "oslo"] += 1

    return _load("append", records, change)


def _merge() -> Operation:
    def records(number: int) -> list[dict[str, object]]:
        return [_person("ana", 31), _person(f"dora{number}", 5), _city("rome", 4)]

    def change(main: Contents, number: int) -> None:
        main.persons |= {"ana": 31, f"dora{number}": 5}
        main.cities |= {"rome": 4}

    return _load("merge", records, change)


def _overwrite() -> Operation:
    persons = {"ana": 50, "ben": 51, "eve": 52}
    cities = {"rome": 9}

    def records(number: int) -> list[dict[str, object]]:
        return [
            *(_person(name, age) for name, age in persons.items()),
            *(_city(name, size) for name, size in cities.items()),
        ]

    def change(main: Contents, number: int) -> None:
        ends = [end for pair in main.knows for end in pair] + [one for one, _ in main.lives_in]
        if {*ends} - persons.keys() or {city for _, city in main.lives_in} - cities.keys():
            raise Refused
        main.persons = dict(persons)
        main.cities = dict(cities)

    return _load("overwrite", records, change)


# --- branches, history and schema -----------------------------------------------------------------


def _branch_create() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.create_branch("draft")

    def apply(world: World, number: int) -> None:
        if "draft" in world.branches:
            raise Refused
        world.branches["draft"] = world.copy().main

    return Operation(run, apply)


def _branch_delete() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.delete_branch("old")

    def apply(world: World, number: int) -> None:
        if "old" not in world.branches:
            raise Refused
        del world.branches["old"]

    return Operation(run, apply)


def _branch_merge() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.merge_branch("old")

    def apply(world: World, number: int) -> None:
        if "old" not in world.branches:
            raise Refused
        world.main.persons["olga"] = 1
        world.main.cities["olga"] = 1

    return Operation(run, apply)


def _revert() -> Operation:
    def run(graph: Graph, number: int) -> None:
        undone = next(each for each in graph.list_commits() if each.message == REVERTED)
        graph.revert(undone.graph_commit_id)

    def apply(world: World, number: int) -> None:
        world.main.persons.pop(REVERTED, None)
        world.main.cities.pop(REVERTED, None)

    return Operation(run, apply)


def _schema_apply() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.apply_schema(f"{SCHEMA}\nnode {EXTRA}{number} {{ name: String @key }}\n")

    def apply(world: World, number: int) -> None:
        # Without data to lose, the type of another apply is dropped.
        world.types = {f"{EXTRA}{number}"}

    return Operation(run, apply)


def _review_open() -> Operation:
    def run(graph: Graph, number: int) -> None:
        graph.reviews.open("old", title=f"request {number}")

    def apply(world: World, number: int) -> None:
        if "old" not in world.branches or "olga" in world.main.persons:
            raise Refused  # there is nothing to merge
        world.reviews.add(f"request {number}")

    return Operation(run, apply)


# --- what changes nothing that is shown -----------------------------------------------------------


def _silent(work: Callable[[Graph], object]) -> Operation:
    def run(graph: Graph, number: int) -> None:
        work(graph)

    return Operation(run, lambda world, number: None)


def _query() -> Operation:
    """Two questions to one snapshot: writes that change both types show in both or in none."""

    def run(graph: Graph, number: int) -> list[list[str]]:
        snapshot = graph.list_commits()[0].graph_commit_id
        answers = []
        for kind in ("Person", "City"):
            source = f"query all {{ match {{ $n: {kind} }} return {{ $n.name as name }} }}"
            rows = graph.query(source, snapshot=snapshot).to_pylist()
            answers.append(sorted(row["name"] for row in rows))
        return answers

    def apply(world: World, number: int) -> list[list[str]]:
        return [sorted(world.main.persons), sorted(world.main.cities)]

    return Operation(run, apply)


OPERATIONS = {
    "insert": _insert("main"),
    "group": _group(),
    "first-touch": _insert("review"),
    "update": _update(),
    "delete": _delete(),
    "append": _append(),
    "merge-load": _merge(),
    "overwrite": _overwrite(),
    "branch-create": _branch_create(),
    "branch-delete": _branch_delete(),
    "branch-merge": _branch_merge(),
    "revert": _revert(),
    "schema-apply": _schema_apply(),
    "review-open": _review_open(),
    "index": _silent(lambda graph: graph.ensure_indices()),
    "optimize": _silent(lambda graph: graph.optimize()),
    "cleanup": _silent(lambda graph: graph.cleanup(keep=1, confirm=True)),
    "repair": _silent(lambda graph: graph.repair(confirm=True)),
    "recover": _silent(lambda graph: graph.recover()),
    "open": _silent(lambda graph: open_graph(graph.uri, "read_only")),
    "query": _query(),
}

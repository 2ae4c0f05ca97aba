"""The operations a child process performs, each beside what it means to the reference model."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Leases, WriteSettings
from omnigraph.effects.clock import MINT
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.uri import Root
from omnigraph.errors import Busy, Conflict, HistoricalVersionReclaimed, RecoveryRequired
from omnigraph.graph import Graph, init, open_graph
from omnigraph.model.json_object import JsonObject
from omnigraph.model.receipts import LoadMode
from omnigraph.model.upkeep import CleanupReceipt
from tests.crash.model import SCHEMA, Contents, Model, seed, seed_records
from tests.support.groups import in_group
from tests.support.templates import copy_of

T = TypeVar("T")

LEASES_VARIABLE = "CRASH_LEASES"
"""`remote`: as on an object store, where no lock of the machine shows whether an owner lives."""

INSERT = """
query insert($person: String, $city: String) {
    insert Person { name: $person, age: 1 }
    insert City { name: $city, size: 1 }
}
"""
UPDATE = """
query update($person: String, $city: String, $value: I32) {
    update Person set { age: $value } where name = $person
    update City set { size: $value } where name = $city
}
"""
DESIRED_SCHEMA = """
node Person { name: String @key  age: I64?  rank: I32 @default(5) }
node City { name: String @key }
node Planet { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
edge Orbits: City -> Planet
"""
DELETE = """
query delete($person: String) { delete Person where name = $person }
"""


@dataclass(frozen=True)
class Operation:
    """One thing to do to a graph."""

    run: Callable[[str], object]
    """On the graph at a root; what it returns is acknowledged to the caller."""
    apply: Callable[[Model], None]
    """On the model."""


def opened(root: str) -> Graph:
    """The graph, opened for writing, with the leases the environment asks for."""
    if os.environ.get(LEASES_VARIABLE) != "remote":
        return open_graph(root)
    graph = remote(root, WriteSettings.from_environment())
    graph.recover()
    return graph


def remote(root: str, settings: WriteSettings) -> Graph:
    """A handle that learns of other owners only by time, as on an object store."""
    kernel = Kernel.of(Root.parse(root))
    leases = Leases(kernel.store, MINT.ulid(), settings, None)
    return Graph(replace(kernel, leases=leases))


def _on_graph(work: Callable[[Graph], object]) -> Callable[[str], object]:
    return lambda root: work(opened(root))


def _insert(branch: str) -> Operation:
    def run(graph: Graph) -> str | None:
        receipt = graph.mutate(INSERT, {"person": "cleo", "city": "bern"}, branch=branch)
        return receipt.commit.graph_commit_id if receipt.commit is not None else None

    def apply(model: Model) -> None:
        model.branches[branch].persons["cleo"] = 1
        model.branches[branch].cities["bern"] = 1

    return Operation(_on_graph(run), apply)


GROUP = ("gail", "gert", "gina")


def _group() -> Operation:
    """One commit for each of several writers, which share a publish."""

    def run(graph: Graph) -> list[str]:
        writes = [partial(graph.mutate, INSERT, {"person": name, "city": name}) for name in GROUP]
        answers = in_group(graph, writes)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [answer.commit.graph_commit_id for answer in answers]

    def apply(model: Model) -> None:
        for name in GROUP:
            model.main.persons[name] = 1
            model.main.cities[name] = 1

    return Operation(_on_graph(run), apply)


def _update() -> Operation:
    def run(graph: Graph) -> object:
        return graph.mutate(UPDATE, {"person": "ben", "city": "rome", "value": 7}).to_dict()

    def apply(model: Model) -> None:
        model.main.persons["ben"] = 7
        model.main.cities["rome"] = 7

    return Operation(_on_graph(run), apply)


def _update_of_nothing() -> Operation:
    def run(graph: Graph) -> object:
        return graph.mutate(UPDATE, {"person": "nobody", "city": "none", "value": 7}).to_dict()

    return Operation(_on_graph(run), lambda model: None)


def _delete() -> Operation:
    def run(graph: Graph) -> object:
        return graph.mutate(DELETE, {"person": "ana"}).to_dict()

    return Operation(_on_graph(run), lambda model: model.main.delete_person("ana"))


def _load(
    mode: LoadMode, records: list[dict[str, object]], change: Callable[[Contents], None]
) -> Operation:
    data = "\n".join(json.dumps(record) for record in records)

    def run(graph: Graph) -> object:
        return graph.load(data=data, mode=mode).to_dict()

    return Operation(_on_graph(run), lambda model: change(model.main))


def _person(name: str, age: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": name, "age": age}}


def _city(name: str, size: int) -> dict[str, object]:
    return {"type": "City", "data": {"name": name, "size": size}}


def _append() -> Operation:
    edge: dict[str, object] = {"edge": "LivesIn", "from": "dora", "to": "oslo", "data": {}}

    def change(main: Contents) -> None:
        main.persons["dora"] = 5
        main.lives_in["dora", "oslo"] += 1

    return _load("append", [_person("dora", 5), edge], change)


def _merge() -> Operation:
    def change(main: Contents) -> None:
        main.persons |= {"ana": 31, "dora": 5}
        main.cities |= {"rome": 4}

    return _load("merge", [_person("ana", 31), _person("dora", 5), _city("rome", 4)], change)


def _overwrite() -> Operation:
    def change(main: Contents) -> None:
        main.persons = {"ana": 50, "ben": 51, "eve": 52}
        main.cities = {"rome": 9}

    persons = [_person("ana", 50), _person("ben", 51), _person("eve", 52)]
    return _load("overwrite", [*persons, _city("rome", 9)], change)


def _branch_create() -> Operation:
    def apply(model: Model) -> None:
        model.branches["draft"] = model.copy().main

    return Operation(_on_graph(lambda graph: graph.create_branch("draft").to_dict()), apply)


def _branch_delete() -> Operation:
    def apply(model: Model) -> None:
        del model.branches["old"]

    return Operation(_on_graph(lambda graph: graph.delete_branch("old").to_dict()), apply)


def _tag_create() -> Operation:
    def apply(model: Model) -> None:
        model.tags.add("v1")

    return Operation(_on_graph(lambda graph: graph.create_tag("v1", "HEAD~1").to_dict()), apply)


def _tag_delete() -> Operation:
    def apply(model: Model) -> None:
        model.tags.remove("v1")

    return Operation(_on_graph(lambda graph: graph.delete_tag("v1").to_dict()), apply)


def _init() -> Operation:
    def apply(model: Model) -> None:
        model.branches["main"] = Contents()

    return Operation(lambda root: init(root, SCHEMA).uri, apply)


def _insert_many(prefix: str, count: str) -> Operation:
    """One commit for each of ``count`` persons; returns the names that were acknowledged."""

    def run(graph: Graph) -> list[str]:
        names = [f"{prefix}{n}" for n in range(int(count))]
        for name in names:
            graph.mutate(INSERT, {"person": name, "city": name})
        return names

    def apply(model: Model) -> None:
        for n in range(int(count)):
            model.main.persons[f"{prefix}{n}"] = 1
            model.main.cities[f"{prefix}{n}"] = 1

    return Operation(_on_graph(run), apply)


def _index(branch: str) -> Operation:
    """Indexes change nothing that the model knows."""

    def run(graph: Graph) -> str | None:
        return graph.ensure_indices(branch).graph_commit_id

    return Operation(_on_graph(run), lambda model: None)


def _optimize() -> Operation:
    """Neither does this."""
    return Operation(_on_graph(lambda graph: graph.optimize().graph_commit_id), lambda model: None)


def _push(root: str) -> object:
    """Bring the commits of a clone that lies beside a graph to it."""
    return open_graph(Path(root).with_name("clone.omni")).push(root).to_dict()


def _branch_merge() -> Operation:
    """Branch `old` into main. Both have moved, and the branch deletes, updates and inserts."""

    def apply(model: Model) -> None:
        main = model.main
        main.persons |= {"olga": 1, "ben": 7}
        main.cities |= {"olga": 1, "rome": 7}
        main.delete_person("ana")

    return Operation(_on_graph(lambda graph: graph.merge_branch("old").to_dict()), apply)


def _branch_merge_into() -> Operation:
    """Main into branch `review`, which has written no table yet."""

    def apply(model: Model) -> None:
        model.branches["review"] = model.copy().main

    return Operation(_on_graph(lambda graph: graph.merge_branch("main", "review").to_dict()), apply)


def _cleanup() -> Operation:
    """Nor this: what any branch shows stays. Returns the rows in which something failed."""

    def run(graph: Graph) -> list[str]:
        receipt = graph.cleanup(keep=1, confirm=True)
        return [str(table.error) for table in receipt.tables if table.error is not None]

    return Operation(_on_graph(run), lambda model: None)


def _clean_up_often(keep: str, times: str) -> Operation:
    """Clean up again and again, whenever no write is under way; returns what failed."""

    def run(graph: Graph) -> list[str]:
        receipts: list[CleanupReceipt] = []
        while len(receipts) < int(times):
            with suppress(RecoveryRequired):
                receipts.append(graph.cleanup(keep=int(keep), confirm=True))
        tables = [table for receipt in receipts for table in receipt.tables]
        return [table.error for table in tables if table.error is not None]

    return Operation(_on_graph(run), lambda model: None)


def _upkeep_often(keep: str, times: str) -> Operation:
    """Optimize and clean up in turn, whenever nobody is at it; returns what failed."""

    def run(graph: Graph) -> list[str]:
        failed: list[str] = []
        for _ in range(int(times)):
            _until_done(graph.optimize)
            receipt = _until_done(partial(graph.cleanup, keep=int(keep), confirm=True))
            failed += [table.error for table in receipt.tables if table.error is not None]
        return failed

    return Operation(_on_graph(run), lambda model: None)


def _until_done(work: Callable[[], T]) -> T:
    """Do what is refused while others write, again and again."""
    while True:
        with suppress(RecoveryRequired, Conflict, Busy):
            return work()
        time.sleep(0.01)


def _lease_and_die() -> Operation:
    """Own main, and end without giving it back and without having done anything."""

    def run(root: str) -> object:
        kernel = open_graph(root)._kernel
        with kernel.own_branch(kernel.manifest.refreshed("main"), kernel.ids.ulid()):
            os.kill(os.getpid(), signal.SIGKILL)
        return None

    return Operation(run, lambda model: None)


def _read_often(times: str) -> Operation:
    """Read main again and again; returns how many persons each reading showed.

    Now and then it looks into the past, which may be gone.
    """

    def run(graph: Graph) -> list[int]:
        seen = []
        for at in range(int(times)):
            shown = graph.query("query all { match { $p: Person } return { $p.name } }")
            seen.append(len(shown.to_pylist()))
            if at % 5 == 0:
                commits = graph.list_commits()
                with suppress(HistoricalVersionReclaimed):
                    b"".join(graph.export(snapshot=commits[len(commits) // 2].graph_commit_id))
            b"".join(open_graph(graph.uri, "read_only").export())
        return seen

    return Operation(_on_graph(run), lambda model: None)


def _recover() -> Operation:
    """Opening already recovers; what that means to the model depends on what was interrupted."""
    return Operation(
        _on_graph(lambda graph: [settled.outcome for settled in graph.recover()]),
        lambda model: None,
    )


def _recover_patiently() -> Operation:
    """Recover again and again, until the leases of dead owners have run out."""

    def run(graph: Graph) -> object:
        while not all(settled.is_settled for settled in graph.recover()):
            time.sleep(0.05)
        return True

    return Operation(_on_graph(run), lambda model: None)


def _schema_apply() -> Operation:
    """To a schema the model does not know: its tests look at the graph themselves."""
    return Operation(
        _on_graph(lambda graph: graph.apply_schema(DESIRED_SCHEMA).to_dict()), lambda model: None
    )


def _schema_rebase() -> Operation:
    return Operation(
        _on_graph(lambda graph: graph.rebase_schema("review").to_dict()), lambda model: None
    )


def _schema_applies(count: str) -> Operation:
    """One apply after the other, each with another type beside those of the model."""

    def run(graph: Graph) -> int:
        for at in range(int(count)):
            graph.apply_schema(f"{SCHEMA}\nnode Type{at} {{ name: String @key }}\n")
        return int(count)

    return Operation(_on_graph(run), lambda model: None)


KEY = "key-of-the-request"

KEYED: dict[str, Callable[[Graph], JsonObject]] = {
    "create": lambda graph: graph.create_branch("draft", operation_id=KEY),
    "delete": lambda graph: graph.delete_branch("old", operation_id=KEY),
    "merge": lambda graph: graph.merge_branch("old", delete_branch=True, operation_id=KEY),
    "revert": lambda graph: graph.revert(
        graph.list_commits()[-2].graph_commit_id, operation_id=KEY
    ),
    "cherry-pick": lambda graph: graph.cherry_pick(
        graph.list_commits("old")[0].graph_commit_id, operation_id=KEY
    ),
    "schema": lambda graph: graph.apply_schema(DESIRED_SCHEMA, operation_id=KEY),
}
"""Requests that their caller has named, as it would repeat them."""


def _keyed(verb: str) -> Operation:
    """The model knows nothing of keys: its tests look at the graph themselves."""
    return Operation(_on_graph(lambda graph: KEYED[verb](graph).to_dict()), lambda model: None)


OPERATIONS = {
    "insert": _insert("main"),
    "first-touch": _insert("review"),
    "group": _group(),
    "update": _update(),
    "update-nothing": _update_of_nothing(),
    "delete": _delete(),
    "append": _append(),
    "merge": _merge(),
    "overwrite": _overwrite(),
    "branch-create": _branch_create(),
    "tag-create": _tag_create(),
    "tag-delete": _tag_delete(),
    "branch-delete": _branch_delete(),
    "init": _init(),
    "index": _index("main"),
    "index-branch": _index("review"),
    "optimize": _optimize(),
    "schema-apply": _schema_apply(),
    "schema-rebase": _schema_rebase(),
    "cleanup": _cleanup(),
    "lease-and-die": _lease_and_die(),
    "branch-merge": _branch_merge(),
    "push": Operation(_push, lambda model: None),
    "branch-merge-into": _branch_merge_into(),
    "recover": _recover(),
    "recover-patiently": _recover_patiently(),
}


def operation(words: str) -> Operation:
    """An operation by its name, or by name and arguments."""
    name, *arguments = words.split()
    with_arguments: dict[str, Callable[..., Operation]] = {
        "insert-many": _insert_many,
        "keyed": _keyed,
        "cleanup-often": _clean_up_often,
        "upkeep-often": _upkeep_often,
        "read-often": _read_often,
        "schema-applies": _schema_applies,
    }
    return with_arguments[name](*arguments) if name in with_arguments else OPERATIONS[name]


def passed_by(work: Callable[[], object]) -> list[str]:
    """The failpoints that ``work`` passes in this process, each with a running number.

    Leases are renewed by the clock, also those of others in this process: that is no step of it.
    """
    passed: list[Failpoint] = []

    def note(point: Failpoint) -> None:
        if point is not Failpoint.LEASE_BEFORE_RENEW:
            passed.append(point)

    with armed(dict.fromkeys(Failpoint, note)):
        work()
    return [f"{point}@{passed[: at + 1].count(point)}" for at, point in enumerate(passed)]


def _seed_graph(root: Path) -> None:
    init(root, SCHEMA).load(data=seed_records(), mode="append")


def _seed_review(root: Path) -> None:
    _seed_graph(root)
    open_graph(root).create_branch("review")


def _seed_branches(root: Path) -> None:
    _seed_graph(root)
    graph = open_graph(root)
    for branch in ("old", "review"):
        graph.create_branch(branch)
    graph.mutate(INSERT, {"person": "olga", "city": "olga"}, branch="old")


def with_review(root: Path, change: str, params: Mapping[str, str] | None = None) -> Graph:
    """Make the seeded graph with a branch `review` that a mutation has changed."""
    copy_of(_seed_review, root)
    graph = open_graph(root)
    graph.mutate(change, params, branch="review")
    return graph


def seeded(root: str) -> Model:
    """Make the graph every operation but `init` starts from, and its model.

    Branch `review` shares every table with main; branch `old` has tables of its own.
    """
    copy_of(_seed_branches, Path(root))
    return seed_of_branches()


def seed_of_branches() -> Model:
    """The model of what `seeded` makes."""
    model = seed()
    model.branches |= {"old": seed().main, "review": seed().main}
    model.branches["old"].persons["olga"] = 1
    model.branches["old"].cities["olga"] = 1
    return model

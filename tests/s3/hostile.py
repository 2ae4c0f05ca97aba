"""Every write verb on a store that fails: what it does, and what has to be true afterwards.

A case is a verb, a fault and the number of the request that meets it. The judge knows what the
verb makes of a state, and accepts three endings: acknowledged and done once; refused and nothing
done; unknown, which the error has to say, and done once or not at all. Then the advice is followed:
the verb is repeated, under the same key if it takes one, and has to end done once.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    LeaseLost,
    NotFound,
    OmnigraphError,
    RecoveryRequired,
)
from omnigraph.graph import Graph, init, open_graph
from tests.support.hostile_store import Fault, HostileStore, Seen

LEASE_TTL_MS = 10_000
"""After how long a lease that could not be given back is taken over. A writer of this process that
gets no processor for a third of it loses its lease, and has to say so."""
LEASES_LOST_MAX = 5
"""So often a write is repeated whose lease has run out on a busy machine."""

SCHEMA = "node Person { name: String @key  age: I64? @index }  node City { name: String @key }"


@dataclass(frozen=True)
class State:
    """What a graph shows."""

    people: Mapping[str, int | None]
    """Their ages."""
    cities: frozenset[str]
    branches: frozenset[str]
    tags: frozenset[str]
    schema: str
    writes: int = field(compare=False)
    """Commits of main that change content: a write that landed twice has two."""

    @classmethod
    def of(cls, graph: Graph) -> State:
        records = [orjson.loads(line) for line in b"".join(graph.export()).splitlines()]
        by_type: dict[str, list[dict[str, Any]]] = {"Person": [], "City": []}
        for record in records:
            by_type[record["type"]].append(record["data"])
        written = [each for each in graph.list_commits() if each.kind not in QUIET]
        return cls(
            {each["name"]: each.get("age") for each in by_type["Person"]},
            frozenset(each["name"] for each in by_type["City"]),
            frozenset(graph.list_branches()),
            frozenset(tag.name for tag in graph.list_tags()),
            graph.schema_source,
            len(written),
        )

    def with_people(self, **people: int | None) -> State:
        return replace(self, people={**self.people, **people})

    def without(self, name: str) -> State:
        return replace(self, people={k: v for k, v in self.people.items() if k != name})


QUIET = ("maintenance", "recovery", "repair")


@dataclass(frozen=True)
class Verb:
    """A write verb: what it needs, what it does, and to which state that leads."""

    run: Callable[[Graph, str], object]
    """With the name of this case, which is new in each."""
    after: Callable[[State, str], State]
    prepare: Callable[[Graph, str], object] = lambda graph, name: None
    commits: int = 1
    """How many commits with content it makes on main."""
    may_be_missing: bool = False
    """Repeated, it finds what it was to remove gone."""


def mutation(text: str) -> Callable[[Graph, str], object]:
    def run(graph: Graph, name: str) -> object:
        return graph.mutate(text.replace("NAME", name), operation_id=f"key-{name}")

    return run


INSERT = mutation('query q { insert Person { name: "NAME", age: 1 } insert City { name: "NAME" } }')


def _insert_quietly(graph: Graph, name: str, branch: str | None = None) -> str:
    text = f'query q {{ insert Person {{ name: "{name}", age: 1 }} }}'
    commit = graph.mutate(text, branch=branch).commit
    assert commit is not None
    return commit.graph_commit_id


def _load(mode: Any) -> Callable[[Graph, str], object]:
    def run(graph: Graph, name: str) -> object:
        line = orjson.dumps({"type": "Person", "data": {"name": name, "age": 2}}).decode()
        return graph.load(data=line, mode=mode, operation_id=f"key-{name}", engine="local")

    return run


def _replaced(graph: Graph, name: str) -> None:
    """Write all people anew, which leaves them without an index."""
    line = orjson.dumps({"type": "Person", "data": {"name": name, "age": 2}}).decode()
    graph.load(data=line, mode="overwrite", engine="local")


def _merged(graph: Graph, name: str) -> object:
    return graph.merge_branch(name, operation_id=f"key-{name}")


def _with_branch(graph: Graph, name: str) -> None:
    graph.create_branch(name)
    _insert_quietly(graph, f"p{name}", name)


class Reverting:
    """Reverts the commit that was made for it."""

    def __init__(self) -> None:
        self.commit_id = ""

    def prepare(self, graph: Graph, name: str) -> None:
        self.commit_id = _insert_quietly(graph, name)

    def run(self, graph: Graph, name: str) -> object:
        return graph.revert(self.commit_id, operation_id=f"key-{name}")


class Picking:
    """Applies a commit of another branch."""

    def __init__(self) -> None:
        self.commit_id = ""

    def prepare(self, graph: Graph, name: str) -> None:
        graph.create_branch(name)
        self.commit_id = _insert_quietly(graph, f"p{name}", name)

    def run(self, graph: Graph, name: str) -> object:
        return graph.cherry_pick(self.commit_id, operation_id=f"key-{name}")


class Pushing:
    """Pushes the commit of a clone on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _clone(self, graph: Graph) -> Graph:
        place = self._folder / "clone.omni"
        if not place.exists():
            graph.clone(place)
        return open_graph(place)

    def prepare(self, graph: Graph, name: str) -> None:
        clone = self._clone(graph)
        clone.pull(graph.uri)
        _insert_quietly(clone, name)

    def run(self, graph: Graph, name: str) -> object:
        return self._clone(graph).push(graph.uri)


def _schema_with(name: str) -> str:
    return SCHEMA.replace("City { ", f"City {{ {name}: String?  ")


def verbs(folder: Path) -> dict[str, Verb]:
    """All of them; ``folder`` is for what lies on disk."""
    revert, pick, push = Reverting(), Picking(), Pushing(folder)
    same = Verb(lambda graph, name: None, lambda state, name: state)
    return {
        "insert": Verb(
            INSERT, lambda s, n: replace(s.with_people(**{n: 1}), cities=s.cities | {n})
        ),
        "update": Verb(
            mutation('query q { update Person set { age: 7 } where name = "NAME" }'),
            lambda s, n: s.with_people(**{n: 7}),
            _insert_quietly,
        ),
        "delete": Verb(
            mutation('query q { delete Person where name = "NAME" }'),
            lambda s, n: s.without(n),
            _insert_quietly,
        ),
        "append": Verb(_load("append"), lambda s, n: s.with_people(**{n: 2})),
        "merge load": Verb(_load("merge"), lambda s, n: s.with_people(**{n: 2}), _insert_quietly),
        "overwrite": Verb(
            _load("overwrite"),
            lambda s, n: replace(s, people={n: 2}),
        ),
        "branch create": Verb(
            lambda g, n: g.create_branch(n, operation_id=f"key-{n}"),
            lambda s, n: replace(s, branches=s.branches | {n}),
            commits=0,
        ),
        "branch delete": Verb(
            lambda g, n: g.delete_branch(n, operation_id=f"key-{n}"),
            lambda s, n: replace(s, branches=s.branches - {n}),
            lambda g, n: g.create_branch(n),
            commits=0,
            may_be_missing=True,
        ),
        "branch merge": Verb(_merged, lambda s, n: s.with_people(**{f"p{n}": 1}), _with_branch),
        "revert": Verb(revert.run, lambda s, n: s.without(n), revert.prepare),
        "cherry-pick": Verb(pick.run, lambda s, n: s.with_people(**{f"p{n}": 1}), pick.prepare),
        "tag create": Verb(
            lambda g, n: g.create_tag(n),
            lambda s, n: replace(s, tags=s.tags | {n}),
            commits=0,
        ),
        "tag delete": Verb(
            lambda g, n: g.delete_tag(n),
            lambda s, n: replace(s, tags=s.tags - {n}),
            lambda g, n: g.create_tag(n),
            commits=0,
            may_be_missing=True,
        ),
        "schema apply": Verb(
            lambda g, n: g.apply_schema(_schema_with(n)),
            lambda s, n: replace(s, schema=_schema_with(n)),
        ),
        "index": replace(same, run=lambda g, n: g.ensure_indices(), prepare=_replaced, commits=0),
        "optimize": replace(
            same, run=lambda g, n: g.optimize(), prepare=_insert_quietly, commits=0
        ),
        "cleanup": replace(
            same,
            run=lambda g, n: g.cleanup(keep=5, confirm=True),
            prepare=_insert_quietly,
            commits=0,
        ),
        "push": Verb(push.run, lambda s, n: s.with_people(**{n: 1}), push.prepare),
    }


@dataclass
class Case:
    """A fault at one request of a verb."""

    verb: str
    fault: Fault
    nth: int
    times: int = 1

    def __str__(self) -> str:
        more = f" and {self.times - 1} more" if self.times > 1 else ""
        return f"{self.verb}: {self.fault} at request {self.nth}{more}"


@dataclass
class Trial:
    """Cases on one graph."""

    store: HostileStore
    uri: str
    verbs: dict[str, Verb]
    graph: Graph
    numbers: Iterator[int] = field(default_factory=itertools.count)
    endings: dict[str, int] = field(default_factory=dict)
    """How often a case ended `done`, `refused` or `unknown`, and how often no request met it."""
    last_error: OmnigraphError | None = None
    """What the verb of the last case raised."""

    @classmethod
    def begin(cls, store: HostileStore, uri: str, folder: Path) -> Trial:
        graph = init(uri, SCHEMA)
        _insert_quietly(graph, "ada")
        return cls(store, uri, verbs(folder), graph)

    def requests_of(self, verb: str) -> list[Seen]:
        """What a verb asks of a store that answers."""
        self.run(Case(verb, Fault.SLOW, 10_000))
        return self.last_requests

    def run(self, case: Case) -> None:
        """Run a case and judge it; raises `AssertionError`."""
        verb, name = self.verbs[case.verb], f"n{next(self.numbers)}"
        graph = self.graph
        verb.prepare(graph, name)
        before = State.of(graph)
        after = verb.after(before, name)
        self.store.arm(case.fault, case.nth, case.times)
        ending, error = "done", None
        try:
            verb.run(graph, name)
        except OmnigraphError as raised:
            error = raised
            is_unknown = isinstance(raised, RecoveryRequired) and raised.outcome == "unknown"
            ending = "unknown" if is_unknown else "refused"
            assert raised.message, case
            assert raised.hint, f"{case}: {raised!r} gives no advice"
        finally:
            self.last_error = error
            self.last_requests = list(self.store.requests)
            met = [str(seen) for seen in self.store.hit]
            self.store.arm()
        told = f"{case} ({', '.join(met)}): {ending}, {error!r}"
        now, landed = self._settled(error is not None)
        if ending == "done":
            assert now == after, f"{told}\n{now}\n{after}"
        elif ending == "refused":
            assert now == before, told
        else:
            assert now in (before, after), told
        # Branches and tags are no commits; upkeep changes no content.
        made = landed - before.writes
        assert made == (verb.commits if now == after and now != before else 0), f"{told}: {made}"
        if error is not None:
            self._repeat(verb, name, told)
            again, landed = self._settled(True)
            assert again == after, told
            assert landed - before.writes == verb.commits, told
        self.endings[ending if met else "not met"] = (
            self.endings.get(ending if met else "not met", 0) + 1
        )

    def _repeat(self, verb: Verb, name: str, told: str) -> None:
        """Do what errors advise: once the store is well, the same again."""
        for _ in range(LEASES_LOST_MAX):
            with suppress(LeaseLost):
                return self._repeat_once(verb, name, told)
        raise AssertionError(f"{told}: repeated, the lease runs out each time")

    def _repeat_once(self, verb: Verb, name: str, told: str) -> None:
        try:
            verb.run(self.graph, name)
        except AlreadyExists:
            pass
        except NotFound:
            assert verb.may_be_missing, told
        except Conflict as error:
            raise AssertionError(f"{told}: repeated: {error!r}") from error

    def _settled(self, was_refused: bool) -> tuple[State, int]:
        """What another process sees; it settles what a refused verb left."""
        graph = open_graph(self.uri, "read_write" if was_refused else "read_only")
        try:
            state = State.of(graph)
            return state, state.writes
        finally:
            graph.close()

    def require_healthy(self) -> None:
        """Nothing is damaged, pending or left in the way."""
        scrubbed, found = self.graph.scrub(), self.graph.examine()
        assert scrubbed.is_clean, scrubbed.findings
        assert found.is_healthy, found.findings


def cases_of(verb: str, requests: list[Seen]) -> list[Case]:
    """Each fault at each request that it makes a difference for; these come from a calm run."""
    return [
        Case(verb, fault, nth)
        for fault in Fault
        for nth in range(1, 1 + sum(seen.fits(fault) for seen in requests))
    ]


def sampled(cases: list[Case], count: int, seed: int) -> list[Case]:
    """Some cases, the same for the same seed."""
    return random.Random(seed).sample(cases, min(count, len(cases)))

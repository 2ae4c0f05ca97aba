"""Every write verb on an object store that fails, answers late, or answers what is not so.

`make test` tries faults of each verb until it is done in spite of one, the long profile every fault
at every request, and whole outages.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.commit import leases
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import LeaseLost, RecoveryRequired
from omnigraph.graph import Graph
from tests.effects import s3_server
from tests.s3.__main__ import TABLE, Table, is_filled
from tests.s3.hostile import LEASE_TTL_MS, Case, Trial, cases_of, sampled, verbs
from tests.support.budgets import IS_LONG, budget
from tests.support.hostile_store import Fault, HostileStore, Seen, hostile_store

SEED = 22
VERBS = list(verbs(Path()))
ON_ONE_GRAPH = budget(6, 1)
"""Verbs that share a graph: making one and reading all of it at the end is most of a short run."""


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[HostileStore]:
    with hostile_store(s3_endpoint) as store:
        yield store


@pytest.fixture
def store(proxy: HostileStore, uri: str, monkeypatch: pytest.MonkeyPatch) -> HostileStore:
    """The proxy, in the environment instead of the store behind it."""
    proxy.arm()
    s3_server.use(proxy.endpoint, monkeypatch)
    monkeypatch.setenv("OMNIGRAPH_LEASE_TTL_MS", str(LEASE_TTL_MS))
    return proxy


@pytest.mark.parametrize(
    "some",
    [VERBS[at : at + ON_ONE_GRAPH] for at in range(0, len(VERBS), ON_ONE_GRAPH)],
    ids=", ".join,
)
def test_c_ver_006_each_write_is_done_once_or_refused_with_advice(
    store: HostileStore, uri: str, tmp_path: Path, some: list[str]
) -> None:
    trial = Trial.begin(store, uri, tmp_path)
    for verb in some:
        trial.endings.clear()
        every = cases_of(verb, trial.requests_of(verb))
        assert {case.fault for case in every} == set(Fault)
        for case in sampled(every, len(every), SEED + VERBS.index(verb)):
            trial.run(case)
            if trial.endings.get("done", 0) > 0 and not IS_LONG:
                break
        assert trial.endings.get("done", 0) > 0
    trial.require_healthy()


def test_c_ver_006_the_kept_table_has_every_write_with_every_fault_and_no_failure() -> None:
    """`make hostile` filled it, which takes too long for `make test`."""
    table: Table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert {*table} == {*VERBS}
    for verb, cells in table.items():
        assert {*cells} == set(Fault), verb
        assert all(map(is_filled, cells.values())), verb


@pytest.mark.parametrize("verb", VERBS if IS_LONG else ["insert"])
def test_c_ver_006_an_outage_in_the_middle_of_a_write_is_typed_and_settled(
    store: HostileStore, uri: str, tmp_path: Path, verb: str
) -> None:
    trial = Trial.begin(store, uri, tmp_path)
    requests = trial.requests_of(verb)
    # From the sidecar of an insert on: what it committed has to be finished or undone.
    begins = range(1, len(requests), 5) if IS_LONG else [14]
    for nth in begins:
        trial.run(Case(verb, Fault.RESET_BEFORE, nth, times=10_000))
    assert trial.endings.get("refused", 0) + trial.endings.get("unknown", 0) > 0
    trial.require_healthy()


@pytest.mark.parametrize("verb", VERBS if IS_LONG else ["insert"])
def test_c_ver_006_a_lease_that_runs_out_during_a_write_is_typed_and_settled(
    store: HostileStore, uri: str, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that is too busy to renew it; nothing is wrong with the store."""
    trial = Trial.begin(store, uri, tmp_path)
    requests = trial.requests_of(verb)
    late = [0.0]
    monkeypatch.setattr(leases, "monotonic_seconds", lambda: monotonic_seconds() + late[0])
    # Before anything is owned, before the first effect, and once a version of a table is there.
    moments: list[Callable[[Seen], bool]] = [
        lambda seen: "/_schema.pg" in seen.path,
        lambda seen: "/data/" in seen.path and seen.method == "PUT",
        lambda seen: "/nodes/" in seen.path and "/_versions/" in seen.path and seen.method == "PUT",
    ]
    if IS_LONG:
        moments = [
            lambda seen, nth=nth: seen.number == nth  # type: ignore[misc]
            for nth in range(1, len(requests), 2)
        ]
    errors = set()
    for is_due in moments:
        passed = itertools.count()

        def pass_time(
            seen: Seen, is_due: Callable[[Seen], bool] = is_due, passed: Iterator[int] = passed
        ) -> None:
            # Longer than the lease is valid, and not so long that another writer takes it over.
            if is_due(seen) and next(passed) == 0:
                late[0] += LEASE_TTL_MS * 0.7 / 1000

        monkeypatch.setattr(store, "watch", pass_time)
        trial.run(Case(verb, Fault.SLOW, 10_000))
        errors.add(type(trial.last_error))
    assert errors <= {type(None), LeaseLost, RecoveryRequired}
    assert verb != "insert" or len(errors) == 3
    trial.require_healthy()


def test_the_judge_finds_a_write_that_lands_twice_or_in_part(
    store: HostileStore, uri: str, tmp_path: Path
) -> None:
    trial = Trial.begin(store, uri, tmp_path)
    insert = trial.verbs["insert"]

    def twice(graph: Graph, name: str) -> None:
        insert.run(graph, name)
        insert.run(graph, f"{name}x")

    for run in (twice, trial.verbs["append"].run, lambda graph, name: None):
        trial.verbs["broken"] = replace(insert, run=run)
        with pytest.raises(AssertionError):
            trial.run(Case("broken", Fault.SLOW, 1))


def test_a_commit_that_never_reached_the_store_is_sent_again(
    store: HostileStore, uri: str, tmp_path: Path
) -> None:
    trial = Trial.begin(store, uri, tmp_path)
    for seen in trial.requests_of("insert"):
        if seen.method == "PUT" and "/_versions/" in seen.path:
            trial.run(Case("insert", Fault.RESET_BEFORE, seen.number))
    assert set(trial.endings) == {"done", "not met"}
    assert trial.endings["done"] == 3

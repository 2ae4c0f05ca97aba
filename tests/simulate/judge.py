"""Whether what a schedule left behind is the work of some order of its operations, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, permutations, product
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import xxhash

from omnigraph.graph import Graph, open_graph
from omnigraph.storage import damage
from tests.crash.judge import require_settled
from tests.simulate.operations import OPERATIONS, Refused, World, world_of

PASSING = {
    "ExpectedVersionMismatch",
    "ReadSetChanged",
    "RowLevelCasContention",
    "EffectFreeConflict",
    "FencedOut",
    "PreconditionFailed",
    "Busy",
    "RecoveryRequired",
    "LeaseLost",
    "HistoricalVersionReclaimed",  # what a reader of the past gets beside `cleanup`
}
"""Errors of an operation that met another one: nothing of it landed, and it may be repeated."""
REFUSALS = {"NotFound", "Conflict", "InputError"}
"""Errors that say why the state of the graph does not allow the operation."""
FILES_KNOWN = 2_000
"""Checks of single files that are remembered: those of the graph that every schedule begins with,
and of some that schedules have added."""
T = TypeVar("T")


@dataclass
class Performed:
    """One operation of a schedule and what became of it."""

    name: str
    number: int
    answer: dict[str, Any] | None = None
    """What it returned or raised; None if it was killed before it answered."""
    after: set[int] = field(default_factory=set)
    """The numbers of those that had answered before it began."""

    @property
    def errors(self) -> list[str]:
        """The class of the error and its bases; empty for a success or a death."""
        return [] if self.answer is None else list(self.answer.get("error", ()))

    @property
    def met_another(self) -> bool:
        """Whether it was refused because of another operation, and may be repeated."""
        # A plain conflict is what a change of schema, while it lasts, means to the others.
        return self.errors[:1] == ["Conflict"] or bool({*self.errors} & PASSING)

    @property
    def is_acknowledged(self) -> bool:
        return self.answer is not None and "value" in self.answer

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have landed without having been acknowledged."""
        if self.answer is None or "OutcomeUnknown" in self.errors:
            return True
        return bool(self.answer.get("details", {}).get("outcome") == "unknown")

    def __str__(self) -> str:
        if self.answer is None:
            return f"{self.name}#{self.number} killed"
        what = self.answer.get("message", self.answer.get("value"))
        return f"{self.name}#{self.number} {(self.errors or ['acknowledged'])[0]}: {what}"


def faults(root: Path, before: World, performed: Sequence[Performed]) -> list[str]:
    """What is wrong with the graph that a schedule left; empty if nothing is."""
    found = [f"an error that tells nobody what to do: {each}" for each in performed if _odd(each)]
    try:
        graph = open_graph(root)
        require_settled(graph)
        shown = world_of(graph)
        left = [item for item in graph.recover() if item.outcome != "live"]
        if left:
            found.append(f"a second recovery found {left}")
        with _files_remembered():
            diagnosis = open_graph(root, "read_only").examine()
        if not diagnosis.is_healthy:
            found.append(f"doctor found {diagnosis.findings}")
        again = open_graph(root)
        # A version is never changed: only what has a new one has to be read once more.
        is_known = _versions(again) == _versions(graph)
        if world_of(again, shown if is_known else None) != shown:
            found.append("a reopen changed what is shown")
    except Exception as error:
        return [*found, f"it cannot be opened and settled: {error!r}"]
    if not any(_explains(order, before, shown) for order in orders(performed)):
        said = "; ".join(map(str, performed))
        found.append(f"no order of the operations explains it\n  {said}\n  shown {shown}")
    return found


def _versions(graph: Graph) -> dict[str, tuple[str | None, int]]:
    """The version of the manifest by branch: all that a branch shows follows from it."""
    manifest = graph._kernel.manifest
    states = {name: manifest.branch(name).refresh() for name in graph.list_branches()}
    return {name: (state.ref, state.version) for name, state in states.items()}


@contextmanager
def _files_remembered() -> Iterator[None]:
    """While the doctor looks at single files, what is known of a path and a content is not asked
    of Lance again: most files are those of the graph that every schedule begins with."""
    with patch.multiple(
        damage,
        problem_of=_remembering(_PROBLEM_OF),
        _version_at=_remembering(_VERSION_AT),
    ):
        yield


def _remembering(check: Callable[[Path, str], T]) -> Callable[[Path], T]:
    def remembered(file: Path) -> T:
        content = file.read_bytes() if file.exists() else b"it is missing"
        return check(file, xxhash.xxh3_128_hexdigest(content))

    return remembered


def _known(check: Callable[[Path], T]) -> Callable[[Path, str], T]:
    return lru_cache(FILES_KNOWN)(lambda file, digest: check(file))


_PROBLEM_OF, _VERSION_AT = _known(damage.problem_of), _known(damage._version_at)


def orders(performed: Sequence[Performed]) -> Iterator[tuple[Performed, ...]]:
    """Every order in which an operation that began after another's answer comes after it."""
    for order in permutations(performed):
        seen: list[int] = []
        for each in order:
            if each.after & {other.number for other in order} - {*seen}:
                break
            seen.append(each.number)
        else:
            yield order


def _explains(order: Sequence[Performed], before: World, shown: World) -> bool:
    """Whether the operations in this order, one by one, lead to what is shown."""
    worlds = [before]
    for each in order:
        # An operation in doubt has landed or not; an error in doubt may also be a refusal.
        worlds = [after for world in worlds for after in _after(each, world)]
    return shown in worlds


def _after_group(each: Performed, world: World, members: Sequence[str]) -> Iterator[World]:
    """Each member has landed or not; those that were acknowledged have."""
    landed = each.answer["value"] if each.answer is not None and each.is_acknowledged else ()
    rest = [name for name in members if name not in landed]
    for choice in product((False, True), repeat=len(rest)):
        changed: World = world.copy()  # type: ignore[assignment]
        for name in (*landed, *compress(rest, choice)):
            changed.main.persons[name] = changed.main.cities[name] = 1
        yield changed


def _after(each: Performed, world: World) -> Iterator[World]:
    members = OPERATIONS[each.name].members(each.number)
    if members:
        yield from _after_group(each, world, members)
        return
    changed: World = world.copy()  # type: ignore[assignment]
    try:
        answer = OPERATIONS[each.name].apply(changed, each.number)
    except Refused:
        if not each.is_acknowledged:
            yield world
        return
    if each.is_acknowledged:
        assert each.answer is not None
        if each.answer["value"] == answer:
            yield changed
        return
    if each.is_in_doubt:
        yield changed
        yield world
    elif each.met_another:
        yield world


def _odd(each: Performed) -> bool:
    if not each.errors:
        return False
    known = {*each.errors} & {*PASSING, *REFUSALS, "OutcomeUnknown"}
    return not known or "UncoveredDrift" in each.errors

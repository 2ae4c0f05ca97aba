"""One schedule: several processes at once, and a seed that decides who goes on, pauses or dies.

Only one process runs at a time. Each stops at every failpoint, and whenever it waits for a lease,
and tells where it is. The scheduler then lets one go on, kills it, or leaves it where it is until
its lease has run out. Time passes only when the scheduler says so, so nothing is ever waited for.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tests.simulate import worker
from tests.simulate.judge import Performed, faults
from tests.simulate.operations import OPERATIONS, seeded
from tests.simulate.worker import TTL_SECONDS, WAITING
from tests.support.forked import FORK_SERVER
from tests.support.templates import place_in

Act = Literal["pause", "stall", "kill"]
ACTS: tuple[Act, ...] = get_args(Act)
CELL_ACTS: tuple[Act, ...] = ("pause", "kill")
"""Those that coverage counts."""
PATIENCE_SECONDS = 120
STEPS_MAX = 600
AT_ONCE = 3
"""How many operations meet the victim of a schedule that is about cells."""
THIRDS = 0.25
"""How often a third operation takes part in the others."""
MISHAPS = 0.04
"""How often a process is interrupted at a stop that the setting says nothing about."""
OPERATIONS_PER_PROCESS = 40
"""After so many a process is replaced, so that its caches stay small."""
MISSING_TOLD = 60
"""If so few cells were not reached, they are listed."""
Cell = tuple[str, str, str]
"""An operation, the failpoint it stopped at, and another operation that ran meanwhile."""


@dataclass(frozen=True)
class Setting:
    """What is decided before a schedule begins."""

    seed: int
    operations: tuple[str, ...]
    """The first one is the victim."""
    stop: int
    """At which of its stops the victim is interrupted; 0 never interrupts it."""
    act: Act


class Deck:
    """The settings of all seeds.

    The first seeds go through the cells: each operation is interrupted at each failpoint, once by a
    pause and once by a kill, beside each other operation, `AT_ONCE` of them in one schedule. The
    seeds after them have what is left of all combinations: every passing of a failpoint, and
    stalls. ``places`` are the failpoints that each operation passes if it is alone.
    """

    def __init__(self, places: Mapping[str, Sequence[str]]) -> None:
        self._places = places
        self._names = [*places]
        stops: dict[tuple[str, str], list[int]] = {}
        for name, passed in places.items():
            for stop, place in enumerate(passed, start=1):
                stops.setdefault((name, place), []).append(stop)
        # Of several passings of one failpoint each has its turn beside some operations.
        chosen = [
            (victim, at[number % len(at)], act, others)
            for (victim, place), at in stops.items()
            for act in CELL_ACTS
            for number, others in enumerate(self._groups(f"{victim} {place} {act}"))
        ]
        known = {(*about, other) for *about, others in chosen for other in others}
        rest = [
            (victim, stop, act, (other,))
            for victim, passed in places.items()
            for stop in range(1, len(passed) + 1)
            for act in ACTS
            for other in places
            if (victim, stop, act, other) not in known
        ]
        self.directed = len(chosen)
        """So many seeds are about cells, and reach every one that can be reached."""
        self._combinations = (chosen, rest)
        told = repr((AT_ONCE, THIRDS, MISHAPS, sorted(places.items())))
        self.digest = hashlib.sha256(told.encode()).hexdigest()[:12]
        """What the meaning of a seed depends on."""

    def _groups(self, about: str) -> list[tuple[str, ...]]:
        """All operations in groups of those that take part in one schedule."""
        mixed = random.Random(about).sample(self._names, len(self._names))
        return [tuple(mixed[at : at + AT_ONCE]) for at in range(0, len(mixed), AT_ONCE)]

    def __len__(self) -> int:
        return sum(len(part) for part in self._combinations)

    def setting(self, seed: int) -> Setting:
        """Neighbours are far apart in the list, so that some seeds show some of everything."""
        chosen, rest = self._combinations
        at = seed % len(self)
        part, at = (chosen, at) if at < len(chosen) else (rest, at - len(chosen))
        size = len(part)
        stride = next(n for n in range(int(size * 0.618), size + 2) if math.gcd(n, size) == 1)
        victim, stop, act, others = part[at * stride % size]
        dice = random.Random(f"third {seed}")
        thirds: tuple[str, ...] = ()
        if part is rest and dice.random() < THIRDS:
            thirds = (dice.choice(self._names),)
        return Setting(seed, (victim, *others, *thirds), stop, act)

    def seeds(self) -> dict[tuple[Act, Cell], int]:
        """The seed that is about each cell."""
        return {
            (setting.act, cell): seed
            for seed in range(len(self), len(self) + self.directed)
            for setting in [self.setting(seed)]
            for cell in self.cells(setting)
        }

    def cells(self, setting: Setting) -> set[Cell]:
        """Those that a schedule of the first seeds is about; none for the others."""
        if setting.seed % len(self) >= self.directed:
            return set()
        victim, *others = setting.operations
        place = self._places[victim][setting.stop - 1]
        return {(victim, place, other) for other in others}


@dataclass
class Outcome:
    """What a schedule did and what is wrong with it."""

    setting: Setting
    performed: list[Performed]
    trace: list[str] = field(default_factory=list)
    paused: set[Cell] = field(default_factory=set)
    killed: set[Cell] = field(default_factory=set)
    places: list[str] = field(default_factory=list)
    """The failpoints at which the first operation stopped, in order."""
    faults: list[str] = field(default_factory=list)

    @property
    def answers(self) -> list[str]:
        """By operation: the error, `acknowledged` or `killed`."""
        silent = ("killed" if each.answer is None else "acknowledged" for each in self.performed)
        return [
            (each.errors or [other])[0] for each, other in zip(self.performed, silent, strict=True)
        ]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.setting.seed}: {self.setting}", *self.faults, *self.trace])


class Actor:
    """A process, at rest or on its way through an operation."""

    def __init__(self, plant: str | None = None) -> None:
        ours, theirs = FORK_SERVER.Pipe()
        self._connection = ours
        self._process: Any = FORK_SERVER.Process(
            target=worker.serve, args=(theirs, dict(os.environ), plant), daemon=True
        )
        self._process.start()
        theirs.close()
        self.uses = 0

    def begin(self, performed: Performed, root: Path, now: float) -> tuple[str, Any]:
        """Give it an operation; where it stops first."""
        self.uses += 1
        self._connection.send((performed.name, performed.number, str(root), now))
        return self._heard()

    def go_on(self, now: float) -> tuple[str, Any]:
        self._connection.send(("go", now))
        return self._heard()

    def renew(self, now: float) -> None:
        """Let it renew its leases, as its timer would."""
        self._connection.send(("renew", now))
        word, _ = self._heard()
        assert word == "renewed"

    def end(self) -> None:
        """Kill it, wherever it is."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(PATIENCE_SECONDS)
        self._connection.close()

    def _heard(self) -> tuple[str, Any]:
        assert self._connection.poll(PATIENCE_SECONDS), "a process says nothing"
        word, what = self._connection.recv()
        return word, what


class Company:
    """The processes that schedules share: those that survived one perform in the next."""

    def __init__(self, plant: str | None = None) -> None:
        self._plant = plant
        self._resting: list[Actor] = []

    def __enter__(self) -> Company:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._resting:
            actor.end()

    def hire(self) -> Actor:
        return self._resting.pop() if self._resting else Actor(self._plant)

    def release(self, actor: Actor) -> None:
        """Take back a process that has nothing to do."""
        if actor.uses < OPERATIONS_PER_PROCESS:
            self._resting.append(actor)
        else:
            actor.end()


@dataclass
class Role:
    """An operation on its way through a schedule."""

    performed: Performed
    actor: Actor | None = None
    place: str | None = None
    """Where it has stopped; None before it begins and after it has ended."""
    stops: int = 0
    is_stalled: bool = False
    is_over: bool = False

    @property
    def can_go(self) -> bool:
        return not self.is_over and not self.is_stalled


class Schedule:
    """Runs one setting on a graph of its own."""

    def __init__(self, setting: Setting, company: Company, folder: Path) -> None:
        self._company = company
        self._dice = random.Random(f"walk {setting.seed}")
        self._setting = setting
        self._root = place_in(folder)
        self._now = 1000.0
        self._roles = [Role(Performed(name, n)) for n, name in enumerate(setting.operations)]
        self._paused: Role | None = None
        self.outcome = Outcome(setting, [role.performed for role in self._roles])

    def run(self) -> Outcome:
        """Perform it and judge what it left."""
        before = seeded(self._root)
        try:
            for _ in range(STEPS_MAX):
                if all(role.is_over for role in self._roles):
                    break
                self._step()
            else:
                self.outcome.faults.append(f"it does not end within {STEPS_MAX} steps")
                for role in self._roles:
                    self._kill(role)
            self.outcome.faults += faults(self._root, before, self.outcome.performed)
        finally:
            for role in self._roles:
                if role.actor is not None:
                    role.actor.end()
            shutil.rmtree(self._root, ignore_errors=True)
        return self.outcome

    def _step(self) -> None:
        role = self._next()
        if role.place is None:
            self._begin(role)
        else:
            self._meet(role)
            if role.place == WAITING:
                self._advance(0.4 * TTL_SECONDS)
            assert role.actor is not None
            self._arrive(role, *role.actor.go_on(self._now))
        if role.place not in (None, WAITING):
            self._interrupt(role)

    def _next(self) -> Role:
        """Who goes on: mostly the one that went last, never the paused one while others can."""
        able = [role for role in self._roles if role.can_go]
        others = [role for role in able if role is not self._paused]
        if not able:
            # Everybody else is done: those whose lease has run out wake up.
            sleeper = next(role for role in self._roles if role.is_stalled)
            sleeper.is_stalled = False
            self._note(f"{sleeper.performed.name}#{sleeper.performed.number} wakes up")
            return sleeper
        victim = self._roles[0]
        if victim.can_go and victim.stops < self._setting.stop:
            return victim
        if not others or (
            all(role.place == WAITING for role in others) and self._dice.random() < 0.5
        ):
            self._paused = None
            return self._dice.choice(able)
        return self._dice.choice(others)

    def _begin(self, role: Role) -> None:
        role.actor = self._company.hire()
        role.performed.after = {
            other.performed.number for other in self._roles if other.performed.answer is not None
        }
        self._meet(role)  # it runs up to its first stop, or to its end
        self._arrive(role, *role.actor.begin(role.performed, self._root, self._now))

    def _arrive(self, role: Role, word: str, what: Any) -> None:
        performed = role.performed
        if word == "done":
            role.performed.answer = what
            self._note(str(performed))
            role.place, role.is_over = None, True
            assert role.actor is not None
            self._company.release(role.actor)
            role.actor = None
            if self._paused is role:
                self._paused = None
            return
        role.place = what
        role.stops += 1
        self._note(f"{performed.name}#{performed.number} at {what}")
        if role is self._roles[0]:
            self.outcome.places.append(what)

    def _interrupt(self, role: Role) -> None:
        """Pause, stall or kill the process where it is, if the seed says so."""
        act: Act | None = None
        if role is self._roles[0] and role.stops <= self._setting.stop:
            if role.stops == self._setting.stop:
                act = self._setting.act
        elif len(self._roles) > 1 and self._dice.random() < MISHAPS:
            act = self._dice.choice(ACTS)
        if act == "kill":
            self._kill(role)
        elif act == "stall":
            role.is_stalled = True
            self._note(f"{role.performed.name}#{role.performed.number} stalls")
            self._advance(2 * TTL_SECONDS)
        elif act == "pause":
            self._paused = role

    def _kill(self, role: Role) -> None:
        if role.actor is None:
            return
        self._note(f"{role.performed.name}#{role.performed.number} is killed at {role.place}")
        if role.place not in (None, WAITING):
            for other in self._roles:
                if other is not role:
                    assert role.place is not None
                    cell = (role.performed.name, role.place, other.performed.name)
                    self.outcome.killed.add(cell)
        role.actor.end()
        role.actor, role.place, role.is_over, role.is_stalled = None, None, True, False

    def _meet(self, running: Role) -> None:
        """Everybody who has stopped at a failpoint has met the one that goes on."""
        for other in self._roles:
            if other is not running and other.place not in (None, WAITING):
                assert other.place is not None
                cell = (other.performed.name, other.place, running.performed.name)
                self.outcome.paused.add(cell)

    def _advance(self, seconds: float) -> None:
        """Let time pass; those that are not stalled renew their leases."""
        self._now += seconds
        for role in self._roles:
            if role.actor is not None and role.place is not None and not role.is_stalled:
                role.actor.renew(self._now)

    def _note(self, what: str) -> None:
        self.outcome.trace.append(what)


def cells_of(places: Mapping[str, Iterable[str]]) -> set[Cell]:
    """Every operation at every failpoint of its own beside every other."""
    return {
        (name, place, other)
        for name, passed in places.items()
        for place in passed
        for other in places
    }


@dataclass
class Coverage:
    """Which cells schedules have reached."""

    places: Mapping[str, Sequence[str]]
    """By operation, the failpoints it passes if it is alone."""
    schedules: int = 0
    reached: dict[Act, set[Cell]] = field(default_factory=lambda: {act: set() for act in CELL_ACTS})
    answers: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.reached["pause"] |= outcome.paused
        self.reached["kill"] |= outcome.killed
        self.answers.update(outcome.answers)

    def share(self, act: Act) -> float:
        """The share of the cells that were reached, of those of undisturbed operations."""
        cells = cells_of(self.places)
        return len(self.reached[act] & cells) / len(cells)

    def __str__(self) -> str:
        cells = cells_of(self.places)
        lines = [
            f"{self.schedules:,} schedules of {len(self.places)} operations: "
            + ", ".join(f"{name} {count:,}" for name, count in self.answers.most_common()),
            f"{len(cells):,} cells (operation, failpoint, other operation)",
        ]
        for act, reached in self.reached.items():
            lines.append(
                f"{len(reached & cells):,} reached with a {act} ({self.share(act):.1%}), and "
                f"{len(reached - cells):,} of operations that recovered after another"
            )
            missing = sorted(cells - reached)
            if len(missing) <= MISSING_TOLD:
                lines += [f"  not with a {act}: {' / '.join(cell)}" for cell in missing]
        return "\n".join(lines)


def alone(company: Company, folder: Path) -> dict[str, list[str]]:
    """Where each operation stops if nothing else happens, by trying."""
    found = {}
    for name in OPERATIONS:
        outcome = Schedule(Setting(0, (name,), 0, "pause"), company, folder).run()
        assert not outcome.faults and outcome.performed[0].is_acknowledged, str(outcome)
        found[name] = outcome.places
    return found

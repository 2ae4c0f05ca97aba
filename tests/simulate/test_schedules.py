"""C-VER-001 to 004: schedules of several processes, and kernels that are broken on purpose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.__main__ import left_of
from tests.simulate.judge import Performed, faults
from tests.simulate.operations import OPERATIONS, seeded
from tests.simulate.plants import PLANTS
from tests.simulate.record import RECORD, Record, ranged, unranged
from tests.simulate.schedule import (
    CELL_ACTS,
    Company,
    Coverage,
    Deck,
    Outcome,
    Schedule,
    alone,
    cells_of,
)
from tests.support.budgets import budget
from tests.support.templates import place_in

SHOWN_BY = {
    "effects before the sidecar": ("insert",),
    "lease ignored": ("append", "insert"),
    "validation not repeated": ("append", "overwrite"),
    "sidecar deleted too early": ("insert",),
    "recovery always forward": ("insert",),
    "head not checked": ("append", "update"),
}
"""By broken kernel, operations that show it soon: all of them together do so as well, later."""
ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@pytest.fixture(scope="module")
def company() -> Iterator[Company]:
    with Company() as company:
        yield company


@pytest.fixture(scope="module")
def places(company: Company, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return alone(company, tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def deck(places: dict[str, list[str]]) -> Deck:
    return Deck(places)


@pytest.fixture(scope="module")
def outcomes() -> dict[int, Outcome]:
    """What schedules of the whole deck came to, by their seeds: they are run once for all tests."""
    return {}


def run(deck: Deck, seed: int, company: Company, folder: Path) -> Outcome:
    return Schedule(deck.setting(seed), company, folder).run()


@pytest.mark.slow
def test_c_ver_001_the_same_seed_gives_the_same_schedule_and_outcome_twice(
    company: Company, deck: Deck, outcomes: dict[int, Outcome], tmp_path: Path
) -> None:
    for seed in range(1, 1 + budget(6, 60)):
        first = outcomes[seed] = run(deck, seed, company, tmp_path)
        assert _without_ids(first) == _without_ids(run(deck, seed, company, tmp_path))


def _without_ids(outcome: Outcome) -> str:
    return ULID.sub("id", str(outcome))


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS)
def test_c_ver_002_a_broken_kernel_is_found(
    plant: str, places: dict[str, list[str]], tmp_path: Path
) -> None:
    deck = Deck({name: places[name] for name in SHOWN_BY[plant]})
    with Company(plant) as broken:
        found = next(
            (
                outcome
                for seed in range(1, 1 + len(deck))
                if (outcome := run(deck, seed, broken, tmp_path)).faults
            ),
            None,
        )
    assert found is not None, f"nobody noticed: {plant}"


@pytest.mark.slow
def test_c_ver_003_schedules_find_nothing_and_tell_what_they_reached(
    company: Company,
    deck: Deck,
    places: dict[str, list[str]],
    outcomes: dict[int, Outcome],
    tmp_path: Path,
) -> None:
    coverage = Coverage(places)
    for seed in range(1, 1 + budget(50, 1_000)):
        outcome = outcomes.get(seed) or run(deck, seed, company, tmp_path)
        assert not outcome.faults, str(outcome)
        coverage.add(outcome)
    told = str(coverage)
    assert re.search(r"\d+ reached with a pause \(\d+\.\d%\)", told), told
    assert re.search(r"\d+ reached with a kill \(\d+\.\d%\)", told), told
    assert all(coverage.reached.values())


def test_c_ver_003_as_many_seeds_as_combinations_have_every_cell(
    deck: Deck, places: dict[str, list[str]]
) -> None:
    settings = [deck.setting(seed) for seed in range(len(deck))]
    assert len({(each.operations[:2], each.stop, each.act) for each in settings}) == len(deck)
    assert {each.operations[0] for each in settings} == OPERATIONS.keys() == places.keys()
    for act in CELL_ACTS:
        cells = [cell for each in settings if each.act == act for cell in deck.cells(each)]
        assert len(cells) == len({*cells})
        assert {*cells} == cells_of(places)


def test_c_ver_003_the_kept_record_reaches_nearly_every_cell_and_found_nothing() -> None:
    """`make simulate` made it, in an hour of a processor."""
    record = Record.read(RECORD)
    assert record.places.keys() == OPERATIONS.keys()
    assert record.findings == []
    for act in CELL_ACTS:
        cells = cells_of(record.places)
        assert len(record.reached[act] & cells) >= 0.95 * len(cells), act


def test_c_ver_004_ten_thousand_schedules_have_found_nothing() -> None:
    """`make simulate` continues the record; a finding would be in it, and fail this."""
    record = Record.read(RECORD)
    assert record.findings == []
    assert record.schedules >= 10_000


@given(st.sets(st.integers(1, 40)))
def test_seeds_are_kept_as_ranges(seeds: set[int]) -> None:
    assert unranged(ranged(seeds)) == seeds
    assert ranged({1, 2, 3, 7}) == "1-3, 7"


def test_a_run_goes_on_where_its_record_ends(
    deck: Deck, places: dict[str, list[str]], tmp_path: Path
) -> None:
    path, seeds = tmp_path / "record.json", range(1, 41)
    record = Record.read(path)
    run = record.begin(places, deck.digest)
    for seed in (1, 2, 3, 9):
        run.add(Outcome(deck.setting(seed), [Performed("insert", 0)]))
    run.add(Outcome(deck.setting(8), [], faults=["half of it is there"]))
    known = deck.setting(5)
    record.reached[known.act] |= deck.cells(known)
    record.write(path, deck)

    again = Record.read(path)
    assert again == record
    told = json.loads(path.read_text())["not reached"]
    reasons = [
        why for cells in told.values() for others in cells.values() for why in others.values()
    ]
    assert any("had ended" in why for why in reasons)
    assert any("has not run yet" in why for why in reasons)
    assert again.schedules == 5
    assert again.runs[-1].seeds == "1-3, 8-9"
    assert again.runs[-1].answers == {"killed": 4}
    assert again.findings == [f"seed 8 of {run.commit}: half of it is there"]
    left = [*left_of(deck, seeds, again)]
    assert sorted(left) == [seed for seed in seeds if seed not in (1, 2, 3, 8, 9)]
    assert left[-1] == 5, "what is known already comes last"
    assert again.begin(places, deck.digest) is again.runs[-1]
    assert [*left_of(Deck({"insert": places["insert"]}), range(1, 4), again)] == [1, 2, 3]


def test_the_judge_looks_again_at_a_file_that_has_changed(tmp_path: Path) -> None:
    root = place_in(tmp_path)
    before = seeded(root)
    assert faults(root, before, []) == []
    # The first version of a table, which nothing that is shown is read from: versions count down.
    oldest = max((root / "nodes").glob("*/_versions/*.manifest"), key=lambda file: file.name)
    content = oldest.read_bytes()
    for change in (content[:-8], bytes(len(content))):
        oldest.write_bytes(change)
        (found,) = faults(root, before, [])
        assert found.startswith("doctor found") and oldest.name in found
        oldest.write_bytes(content)
        assert faults(root, before, []) == []

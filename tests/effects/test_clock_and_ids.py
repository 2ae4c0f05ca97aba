"""Clock and ids."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

from ulid import ULID

from omnigraph.effects.clock import (
    APART_CHARACTERS,
    MINT,
    SYSTEM_CLOCK,
    IdMint,
    monotonic_seconds,
)
from omnigraph.model.ids import is_ulid
from tests.effects.fake_clock import FakeClock


def test_the_system_clock_tells_the_time():
    assert abs(SYSTEM_CLOCK.wall_us() - time.time() * 1e6) < 5e6
    before = monotonic_seconds()
    time.sleep(0.002)
    assert monotonic_seconds() - before >= 0.002


def test_a_ulid_carries_its_time_and_its_randomness():
    clock = FakeClock()
    text = IdMint(clock, lambda n: b"\xa5" * n).ulid()
    assert is_ulid(text)
    parsed = ULID.from_str(text)
    assert parsed.milliseconds == clock.wall_us() // 1_000
    assert parsed.bytes[6:] == b"\xa5" * 10


def test_ulids_ascend_within_a_millisecond_and_when_the_clock_is_set_back():
    clock = FakeClock()
    mint = IdMint(clock)
    ids = [mint.ulid() for _ in range(50)]
    clock.set_back(3_600)
    ids += [mint.ulid() for _ in range(50)]
    clock.advance(7_200)
    ids += [mint.ulid() for _ in range(50)]
    assert ids == sorted(set(ids))
    assert len({each[:APART_CHARACTERS] for each in ids}) == len(ids), "ids derived would be equal"
    assert ULID.from_str(ids[-1]).milliseconds == clock.wall_us() // 1_000


def test_ulids_ascend_even_when_the_random_part_overflows():
    mint = IdMint(FakeClock(), lambda n: b"\xff" * n)
    ids = [mint.ulid() for _ in range(3)]
    assert ids == sorted(set(ids))
    assert len({each[:APART_CHARACTERS] for each in ids}) == 3
    assert all(map(is_ulid, ids))


def test_threads_never_get_the_same_id():
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda _: [MINT.ulid() for _ in range(500)], range(4)))
    assert all(batch == sorted(batch) for batch in batches)
    assert len({text for batch in batches for text in batch}) == 2_000


def test_a_forked_child_mints_other_ids_than_its_parent():
    script = """
        import os, time
        time.time_ns = lambda: 1_700_000_000_000_000_000  # all in one millisecond
        from omnigraph.effects.clock import MINT
        MINT.ulid()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        print(MINT.ulid(), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    first, second = run.stdout.split()
    assert first != second


def test_names_made_of_ids():
    ref = MINT.physical_ref()
    assert ref.startswith("gb-")
    assert ref == ref.lower()
    assert is_ulid(ref.removeprefix("gb-").upper())
    first, second = MINT.ulids(2)
    assert is_ulid(first) and is_ulid(second) and first < second

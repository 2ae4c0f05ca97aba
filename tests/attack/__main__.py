"""Attack a real server and the storage below it, and say of each attack whether it was held.

    python -m tests.attack --seconds 120 [--only NAME]

Each attack starts what it needs, in a directory of its own. The exit code is 1 if one was not held.
SECURITY.md states the limits that are tried here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.attack import reading, storage, talking

ATTACKS: dict[str, Callable[[Path, float], str]] = {
    "sidecars that lie": storage.hostile_sidecars,
    "files deleted and cut": storage.damaged_files,
    "neighbour killed between tables": storage.killed_neighbour,
    "server killed while it writes": storage.killed_server,
    "store away for three seconds": storage.lost_store,
    "disk full while it writes": storage.full_disk,
    "reads beside a live cleanup": storage.reads_beside_cleanup,
    "memory of many writes": storage.many_writes,
    "reading a branch by forking it": talking.denied_branch,
    "a web page without a token": talking.foreign_pages,
    "half-open connections": talking.half_open,
    "clients that stop reading": talking.stopped_readers,
    "texts of a megabyte": reading.long_texts,
    "hostile readers": reading.hostile_readers,
}
"""Each gets an empty directory and seconds to spend, says what it saw, and asserts what must be."""


def run(chosen: list[str], seconds: float) -> int:
    """Run attacks and print what became of each; 1 if one of them was not held."""
    broken = 0
    for name in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="omnigraph-attack-") as folder:
            try:
                seen = ATTACKS[name](Path(folder), seconds / len(chosen))
            except Exception:
                broken += 1
                traceback.print_exc()
                outcome, seen = "BROKEN", "see stderr"
            else:
                outcome = "held"
        print(f"{outcome:6} {name:33} {time.monotonic() - began:5.1f} s  {seen}", flush=True)
    print(f"{len(chosen) - broken} of {len(chosen)} attacks held")
    return 1 if broken else 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="how long all of them may load")
    parser.add_argument("--only", choices=ATTACKS, help="run one attack")
    arguments = parser.parse_args()
    return run([arguments.only] if arguments.only else list(ATTACKS), arguments.seconds)


if __name__ == "__main__":
    sys.exit(main())

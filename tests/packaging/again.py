"""Run the tests that failed in the last run once more, alone, if they are few: for `.ci/run`.

A test that fails alone too fails the gate. One that passes now depends on what ran beside it; it is
named in the output, to be mended.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_MAX = 3


def main() -> int:
    """Exit code 0 if there are few failed tests and each of them passes alone."""
    if not FAILED.exists():
        return 1
    # The name of a test in a group ends with the group: test_session.py::test_starts@spark.
    tests = [re.sub(r"@\w+$", "", name) for name in json.loads(FAILED.read_text())]
    if len(tests) > TESTS_MAX:
        print(f"{len(tests)} tests failed: more than {TESTS_MAX} are not run again.")
        return 1
    print("Run again, alone:", *tests, sep="\n  ", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests]
    code = subprocess.run(command, check=False).returncode
    if code == 0:
        print("Failed beside other tests and passed alone, to be mended:", *tests, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main())

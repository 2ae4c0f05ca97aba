"""`python -m omnigraph.cli`, for when the script is not on the path."""

from __future__ import annotations

import sys

from omnigraph.cli.main import main

if __name__ == "__main__":
    code = main()
    # An interrupt inside code that is executed from text, as libraries do while they are imported,
    # makes `python -m` end by SIGINT whatever the exit code is. Executing any text takes that back.
    exec("")  # noqa: S102
    sys.exit(code)
